"""ONNX files as classifiers, run by onnxruntime on the CPU: networks with logits, and classifiers of scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import ClassifierError, InvalidInput, MissingExtra, show
from buckler.sampling.classifiers import OnHost
from buckler.sampling.weights import weight_files
from buckler.types import AnyArray

FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
LABELS = ("tensor(int64)", "tensor(string)")


class OnnxClassifier(OnHost):
    """An ONNX file with one input of floats.

    Its first output is taken as logits. Where that holds labels, as in files that skl2onnx makes, the second holds
    probabilities, as a table or as a map for each row, and logits are their logarithms. A file that was exported for
    batches of one size is run at that size; a shorter batch is filled up with zeros, whose rows are dropped.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtra("onnxruntime", "onnx") from None
        if not Path(path).is_file():
            raise InvalidInput(f"model must be an existing .onnx file; got {str(path)!r}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as problem:
            raise InvalidInput(f"model {str(path)!r} is not a usable ONNX file: {show(str(problem), 200)}") from None
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or inputs[0].type not in FLOATS:
            raise InvalidInput(f"model {str(path)!r} must have one input of floats; got {[i.type for i in inputs]}")
        self._input, self._type, shape = inputs[0].name, FLOATS[inputs[0].type], inputs[0].shape
        self._rows = shape[0] if shape and isinstance(shape[0], int) else None
        self._probabilities = outputs[0].type in LABELS and len(outputs) > 1
        self._output = outputs[1 if self._probabilities else 0]
        classes = self._output.shape[-1] if self._output.type in FLOATS and self._output.shape else None
        super().__init__(classes if isinstance(classes, int) else None)
        if self.num_classes is None and len(shape) > 1 and all(isinstance(size, int) for size in shape[1:]):
            self.num_classes = self(np.zeros((1, *shape[1:]), dtype=np.float32)).shape[-1]
        self.files = weight_files(Path(path))

    def __call__(self, batch: AnyArray, /) -> AnyArray:
        """Return logits, one row for each row of the batch."""
        batch = batch.astype(self._type, copy=False)
        if self._rows is None:
            return self._run(batch)
        parts = []
        for start in range(0, len(batch), self._rows):
            part = batch[start : start + self._rows]
            missing = self._rows - len(part)
            full = np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
            parts.append(self._run(full)[: len(part)])
        return np.concatenate(parts)

    def _run(self, batch: AnyArray) -> AnyArray:
        found: Any = self._session.run([self._output.name], {self._input: batch})[0]
        if not self._probabilities:
            return np.asarray(found)
        if isinstance(found, list):  # a map from class to probability for each row, in the order of the classes
            found = [list(row.values()) for row in found]
        values = np.asarray(found)
        if (values < 0.0).any():
            raise ClassifierError("an ONNX file with labels must give probabilities; got numbers below 0 (raw scores?)")
        # np.maximum keeps NaN, which the engine reports as an error.
        return np.asarray(np.log(np.maximum(values, np.finfo(np.float32).tiny)))
