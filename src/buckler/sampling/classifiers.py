"""Classifiers, called ``batch -> logits``, made from the models of several libraries by ``as_classifier``.

It takes a ``torch.nn.Module``, a transformers model, a fitted scikit-learn classifier, the path of an ONNX file (run by
onnxruntime on the CPU) or any callable. A classifier is called with float32 inputs to which noise has been added, so
preprocessing belongs inside of it; ``Normalized`` puts it there.

Votes and scores are indexed by the columns of the logits, 0 to m - 1. A scikit-learn classifier may have other labels
(1, 2, 3 or "cat", "dog"); then ``classifier.classes`` lists them in the order of the columns, ``to_indices`` turns the
user's labels into columns and ``to_label`` a column into the user's label. Call both at the doors only.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from buckler.errors import (
    ClassifierError,
    InvalidInput,
    MissingExtra,
    check_choice,
    check_float_array,
    check_label,
    check_whole,
    show,
)
from buckler.sampling.preprocess import on_host
from buckler.sampling.weights import fitted_hash, weight_files
from buckler.types import AnyArray, IntArray, Label

Dtype = Literal["float32", "bfloat16", "float16"]


class Classifier:
    """A deterministic function from a batch of inputs, float32 NumPy arrays here, to one row of logits per input.

    ``modules.TorchClassifier`` takes tensors on a device. ``classes`` are the user's labels in the order of the
    columns, None where they are 0 to m - 1. ``files`` are the names and SHA-256 of the files that it was loaded from,
    or the hash of an estimator's fitted arrays. ``library`` is what computes the logits, None where anything may.
    """

    backend: Literal["numpy", "torch"] = "numpy"
    device = "cpu"
    compiled = False
    """Whether it is compiled for batches of one shape."""

    compared = False
    """Whether some rows have been run a second time in another batch (``cpu.RepeatCheck``)."""

    denoiser_sigmas: frozenset[float] = frozenset()
    """Sigma that denoisers inside are told: it must be that of the noise that is drawn."""

    def __init__(
        self,
        call: Callable[[Any], Any],
        num_classes: int | None = None,
        *,
        classes: tuple[Label, ...] | None = None,
        files: Mapping[str, str] | None = None,
        library: str | None = None,
    ) -> None:
        self._call, self.num_classes, self.classes = call, num_classes, classes
        self.files, self.library = files or {}, library

    def __call__(self, batch: Any, /) -> Any:
        """Return logits ``[rows, num_classes]`` for ``batch[rows, ...]``."""
        return self._call(batch)

    def session(self) -> AbstractContextManager[None]:
        """Return a context in which to call the classifier; it restores the model's mode at the end."""
        return nullcontext()


def one_output(found: Any) -> Any:
    """Return what a model returned, which must be one array of logits; a tuple or dict of several is an error."""
    several = isinstance(found, (list, tuple)) and any(getattr(item, "ndim", 0) > 1 for item in found)
    if several or isinstance(found, Mapping):
        raise ClassifierError(
            f"must return one array of logits; got a {type(found).__name__} of {len(found)}: give a model that returns "
            "the one with the logits (a function that calls it; for a torch module, a module whose forward does)"
        )
    return found


def from_estimator(estimator: Any) -> Classifier:
    """Return a fitted scikit-learn classifier: logits are ``log predict_proba``, or else its decision function.

    Inputs of any shape are flattened to the rows that scikit-learn expects. **Votes are those of ``predict``**: where
    it names another class than the highest score (Platt scaling in ``SVC(probability=True)``, ties in ``SVC``, moved
    thresholds), that class's logit is raised just above the others. This takes one more call for each batch. An
    estimator without a score for each class raises InvalidInput.
    """
    if not hasattr(estimator, "classes_"):
        raise InvalidInput(f"model must be a fitted scikit-learn classifier; got {show(estimator)}, not fitted")
    labels = np.asarray(estimator.classes_)
    if labels.ndim != 1 or len(labels) < 2:
        raise InvalidInput(
            f"model must have one output of at least two classes; got classes_ = {show(estimator.classes_)}"
        )
    if len(labels) > 2 and not hasattr(estimator, "predict_proba") and _is_pairwise(estimator):
        raise InvalidInput(
            'model must have a score for each class: set decision_function_shape="ovr"; got "ovo", which gives one '
            "for each pair of classes"
        )
    order = np.argsort(labels)

    def call(batch: AnyArray) -> AnyArray:
        rows = batch.reshape(len(batch), -1)
        logits = _estimated(estimator, rows)
        if logits.shape != (len(rows), len(labels)):
            raise ClassifierError(f"must return a score for each of {len(labels)} classes; got shape {logits.shape}")
        voted = order[np.searchsorted(labels, estimator.predict(rows), sorter=order)]
        moved = np.flatnonzero(logits.argmax(axis=1) != voted)
        if moved.size:
            logits[moved, voted[moved]] = np.nextafter(logits[moved].max(axis=1), np.inf)
        return logits

    return Classifier(
        call,
        len(labels),
        classes=_own_labels(labels.tolist()),
        files={"fitted arrays": fitted_hash(estimator)},
        library="scikit-learn",
    )


def _estimated(estimator: Any, rows: AnyArray) -> AnyArray:
    """Return log probabilities or decision values, one column for each class."""
    if hasattr(estimator, "predict_proba"):
        # Zeros are floored; NaN stays, which the engine reports as an error.
        probabilities = np.maximum(estimator.predict_proba(rows), np.finfo(np.float32).tiny)
        return np.asarray(np.log(probabilities), dtype=np.float64)
    values = np.asarray(estimator.decision_function(rows), dtype=np.float64)
    return np.stack([-values, values], axis=1) if values.ndim == 1 else values.copy()


INSIDE = ("_final_estimator", "best_estimator_", "final_estimator_", "estimator_")
"""Where pipelines, searches, stacks and selectors keep the estimator whose decision function is theirs."""


def _is_pairwise(estimator: Any) -> bool:
    """Return whether the decision function of an SVC, or of the one inside of an estimator, is of pairs of classes."""
    inside = [getattr(estimator, name) for name in INSIDE if hasattr(estimator, name)]
    return getattr(estimator, "decision_function_shape", None) == "ovo" or any(map(_is_pairwise, inside))


def _own_labels(labels: list[Any]) -> tuple[Label, ...] | None:
    """Return an estimator's labels as int or str, None for 0, ..., m - 1."""
    if all(isinstance(label, (int, float)) and label >= 0 and label == int(label) for label in labels):
        whole = tuple(int(label) for label in labels)
        return None if whole == tuple(range(len(whole))) else whole
    if all(isinstance(label, str) for label in labels):
        return tuple(labels)
    raise InvalidInput(
        f"model must have classes_ that are whole numbers from 0 or texts (-1 marks an abstention); got {show(labels)}"
    )


def to_indices(classifier: Classifier, labels: Any, inputs: int, name: str) -> IntArray:
    """Return the columns of the user's labels, one for each of ``inputs``.

    A label that is none of the classifier's classes raises InvalidInput.
    """
    if classifier.classes is None:
        if classifier.num_classes is None:
            raise InvalidInput("num_classes must be given: it cannot be inferred from this model")
        return check_label(labels, classifier.num_classes, inputs, name)
    given = np.asarray(labels)
    if given.shape != (inputs,):
        raise InvalidInput(f"{name} must be one class for each of the {inputs} inputs; got shape {given.shape}")
    place = {label: k for k, label in enumerate(classifier.classes)}
    for label in given.tolist():
        if label not in place:
            raise InvalidInput(f"{name} must be among the model's classes {show(classifier.classes)}; got {label!r}")
    return np.array([place[label] for label in given.tolist()], dtype=np.int64)


def to_label(classifier: Classifier, index: int) -> Label:
    """Return the user's label of a column of the logits."""
    return index if classifier.classes is None else classifier.classes[index]


def Normalized(model: Any, mean: npt.ArrayLike, std: npt.ArrayLike) -> Any:  # noqa: N802  (reads as the noun it is)
    """Return ``model`` with its normalisation inside: ``x -> model((x - mean) / std)``, channel by channel.

    sigma is in the units of the input, so noise must be added before this step; a model that expects normalised images
    is smoothed correctly only with the normalisation inside of it. A torch module gives a torch module, with ``mean``
    and ``std`` as buffers; any other callable gives a callable. Channels are the second axis.
    """
    centre, scale = (check_float_array(name, v).astype(np.float32) for name, v in (("mean", mean), ("std", std)))
    if centre.ndim > 1 or scale.ndim > 1 or (scale <= 0).any():
        raise InvalidInput(f"mean and std must be one number a channel, std above 0; got {show(mean)} and {show(std)}")
    if is_module(model):
        from buckler.sampling.modules import NormalizedModule

        return NormalizedModule(model, centre, scale)
    if not callable(model):
        raise InvalidInput(f"model must be a callable batch -> logits; got {show(model)}")

    def inside(batch: AnyArray) -> Any:
        shape = (1, -1) + (1,) * (batch.ndim - 2)
        return model((batch - centre.reshape(shape)) / scale.reshape(shape))

    return inside


def as_classifier(
    model: Any,
    *,
    num_classes: int | None = None,
    device: str | None = None,
    dtype: Dtype = "float32",
    channels_last: bool = False,
    compile: bool = False,  # noqa: A002  (the name torch users know)
) -> Classifier:
    """Return a Classifier made from a module, an estimator, an ``.onnx`` path or a callable; a Classifier as it is.

    ``dtype``, ``channels_last`` and ``compile`` are for torch modules; with any other model they
    raise InvalidInput.
    """
    check_choice("dtype", dtype, get_args(Dtype))
    if num_classes is not None:
        num_classes = check_whole("num_classes", num_classes, 2)
    if isinstance(model, type):
        raise InvalidInput(f"model must be an instance, {model.__name__}(...); got the class itself")
    if is_module(model):
        from buckler.sampling.modules import TorchClassifier

        made: Classifier = TorchClassifier(
            model, num_classes, device=device, dtype=dtype, channels_last=channels_last, compile=compile
        )
        return made
    if dtype != "float32" or channels_last or compile or device not in {None, "cpu"}:
        raise InvalidInput(f"device, dtype, channels_last and compile are for torch modules; got {show(model)}")
    if isinstance(model, Classifier):
        made = model
    elif isinstance(model, (str, Path)):
        made = from_onnx(Path(model))
    elif hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        made = from_estimator(model)
    elif callable(model):
        made = Classifier(lambda batch: on_host(one_output(model(batch))))  # a tensor becomes a NumPy array
    else:
        raise InvalidInput(f"model must be a module, an estimator, an .onnx path or a callable; got {show(model)}")
    if num_classes is not None and made.num_classes not in {None, num_classes}:
        raise InvalidInput(f"num_classes must be {made.num_classes}, as the model has; got {num_classes}")
    if made.num_classes is None:
        made.num_classes = num_classes
    return made


def is_module(model: Any) -> bool:
    """Return whether this is a torch module."""
    # By name, without importing torch.
    return any(c.__module__.startswith("torch.nn.modules") and c.__name__ == "Module" for c in type(model).__mro__)


FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def from_onnx(path: Path) -> Classifier:
    """Return an ONNX file with one input of floats as a classifier; its first output must be the logits.

    A file that was exported for batches of one size is run at that size; a shorter batch is filled up with zeros, whose
    rows are dropped.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "onnx") from None
    if not path.is_file():
        raise InvalidInput(f"model must be an existing .onnx file; got {str(path)!r}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        raise InvalidInput(f"model {str(path)!r} is not a usable ONNX file: {show(str(problem), 200)}") from None
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or inputs[0].type not in FLOATS:
        raise InvalidInput(f"model {str(path)!r} must have one input of floats; got {[i.type for i in inputs]}")
    name, kind, shape = inputs[0].name, FLOATS[inputs[0].type], inputs[0].shape
    whole = shape[0] if shape and isinstance(shape[0], int) else None
    if outputs[0].type not in FLOATS:
        raise InvalidInput(f"model {str(path)!r} must have logits as its first output; got {outputs[0].type}")

    def run(batch: AnyArray) -> AnyArray:
        return np.asarray(session.run([outputs[0].name], {name: batch})[0])

    def call(batch: AnyArray) -> AnyArray:
        batch = batch.astype(kind, copy=False)
        if whole is None:
            return run(batch)
        missing = -len(batch) % whole
        full = np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), kind)]) if missing else batch
        parts = [run(full[start : start + whole]) for start in range(0, len(full), whole)]
        return np.concatenate(parts)[: len(batch)]

    classes = outputs[0].shape[-1] if outputs[0].shape else None  # a text where it is open
    known = classes if isinstance(classes, int) else None
    return Classifier(call, known, files=weight_files(path), library="onnxruntime")
