"""Classifiers, called ``batch -> logits``, made from the models of several libraries by ``as_classifier``.

It takes a ``torch.nn.Module``, a transformers model, a fitted scikit-learn classifier, the path of an ONNX file (run by
onnxruntime on the CPU) or any callable. A classifier is called with float32 inputs to which noise has been added, so
preprocessing belongs inside of it; ``Normalized`` puts it there.

Votes and scores are indexed by the columns of the logits, 0, 1, ... A scikit-learn classifier may have other labels
(1, 2, 3 or "cat", "dog"); then ``classifier.classes`` lists them in the order of the columns, ``to_indices`` turns the
user's labels into columns and ``to_label`` a column into the user's label. Call both only on what a user gives or gets.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from buckler.errors import (
    BucklerWarning,
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
from buckler.types import AnyArray, Float32Array, IntArray, Label

Dtype = Literal["float32", "bfloat16", "float16"]


class Classifier:
    """A deterministic function from a batch of inputs, float32 NumPy arrays here, to one row of logits per input.

    ``modules.TorchClassifier`` takes tensors on a device. ``classes`` are the user's labels in the order of the logits'
    columns, None where they are 0, 1, ... ``files`` are the names and SHA-256 of the files that the model was loaded
    from, or the hash of an estimator's fitted arrays. ``library`` names what computes the logits, None for a callable.
    A classifier can be pickled if its model can; that of an ONNX file cannot.
    """

    backend: Literal["numpy", "torch"] = "numpy"
    device = "cpu"
    compiled = False
    """Whether the model is compiled for batches of one shape."""

    compared = False
    """Whether some rows have been run a second time in another batch (``cpu.RepeatCheck``)."""

    denoiser_sigmas: frozenset[float] = frozenset()
    """Values of sigma that denoisers inside of the model are told: each must be the sigma of the noise drawn."""

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

    def __repr__(self) -> str:
        return f"Classifier({', '.join(self.files) or self.library or show(self._call)})"

    def __call__(self, batch: Any, /) -> Any:
        """Return logits ``[rows, num_classes]`` for ``batch[rows, ...]``."""
        return self._call(batch)

    def session(self) -> AbstractContextManager[None]:
        """Return a context in which to call the classifier; subclasses prepare the model and restore it at the end."""
        return nullcontext()


def one_output(found: Any) -> Any:
    """Return ``found``, a model's output; a tuple or dict of several arrays raises ClassifierError."""
    items: list[tuple[Any, Any]] = []
    if isinstance(found, Mapping):
        items = list(found.items())
    elif isinstance(found, (list, tuple)) and any(getattr(item, "ndim", 0) > 1 for item in found):
        items = list(enumerate(found))
    if not items:
        return found
    shapes = ", ".join(f"[{key!r}] of shape {tuple(getattr(item, 'shape', ()))}" for key, item in items[:MOST_NAMED])
    raise ClassifierError(
        f"must return one array of logits; got a {type(found).__name__} of {len(items)}: {shapes}: give a model that "
        f"returns the one with the logits, lambda batch: model(batch)[{items[0][0]!r}] for the first (of a torch "
        "module, a module whose forward does that)"
    )


MOST_NAMED = 5
"""Items of a tuple or dict that an error lists."""


def _called(model: Callable[[Any], Any], batch: AnyArray) -> Any:
    """Return the logits of a callable; a tensor becomes a NumPy array."""
    return on_host(one_output(model(batch)))


def from_estimator(estimator: Any) -> Classifier:
    """Return a Classifier of a fitted scikit-learn one: logits are ``log predict_proba``, else its decision function.

    Inputs of any shape are flattened to the rows that scikit-learn expects. **Votes are those of ``predict``**: where
    it names another class than the highest score (Platt scaling in ``SVC(probability=True)``, ties in ``SVC``, moved
    thresholds), that class's logit is raised just above the others. This takes one more call for each batch. An
    estimator without a score for each class raises InvalidInput.
    """
    if not hasattr(estimator, "classes_"):
        raise InvalidInput(f"model must be a fitted scikit-learn classifier; got {show(estimator)}, not fitted")
    if len(estimator.classes_) < 2 or any(np.ndim(label) for label in estimator.classes_):  # several: a list of arrays
        raise InvalidInput(
            f"model must have one output of at least two classes; got classes_ = {show(estimator.classes_)}"
        )
    labels = np.asarray(estimator.classes_)
    if len(labels) > 2 and not hasattr(estimator, "predict_proba") and _is_pairwise(estimator):
        raise InvalidInput(
            'model must have a score for each class: set decision_function_shape="ovr"; got "ovo", which gives one '
            "for each pair of classes"
        )
    return Classifier(
        partial(_estimated, estimator, labels),
        len(labels),
        classes=_own_labels(labels.tolist()),
        files={"fitted arrays": fitted_hash(estimator)},
        library="scikit-learn",
    )


def _estimated(estimator: Any, labels: AnyArray, batch: AnyArray) -> AnyArray:
    """Return the scores of an estimator, that of the class of ``predict`` the highest."""
    rows, order = batch.reshape(len(batch), -1), np.argsort(labels)
    logits = _scores(estimator, rows)
    if logits.shape != (len(rows), len(labels)):
        raise ClassifierError(f"must return a score for each of {len(labels)} classes; got shape {logits.shape}")
    voted = order[np.searchsorted(labels, estimator.predict(rows), sorter=order)]
    moved = np.flatnonzero(logits.argmax(axis=1) != voted)
    if moved.size:
        logits[moved, voted[moved]] = np.nextafter(logits[moved].max(axis=1), np.inf)
    return logits


def _scores(estimator: Any, rows: AnyArray) -> AnyArray:
    """Return log probabilities or decision values, one column for each class."""
    if hasattr(estimator, "predict_proba"):
        return np.asarray(_logarithms(estimator.predict_proba(rows)), dtype=np.float64)
    values = np.asarray(estimator.decision_function(rows), dtype=np.float64)
    return np.stack([-values, values], axis=1) if values.ndim == 1 else values.copy()


def _logarithms(probabilities: AnyArray) -> AnyArray:
    """Return logarithms, zeros floored; NaN stays, which the engine reports as an error."""
    return np.asarray(np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)))


INSIDE = ("_final_estimator", "best_estimator_", "final_estimator_", "estimator_")
"""Attributes of scikit-learn's pipelines, searches, stacks and selectors: the estimator whose scores they return."""


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
    """Return the column of the logits for each of the user's ``labels``, one label for each of ``inputs`` inputs.

    A label that is none of the classifier's classes raises InvalidInput, which calls the argument ``name``. An
    ``Engine`` of the classifier was made before, so its number of classes is known.
    """
    if classifier.classes is None:
        return check_label(labels, cast(int, classifier.num_classes), inputs, name)
    given = np.asarray(labels)
    if given.shape != (inputs,):
        raise InvalidInput(f"{name} must be one class for each of the {inputs} inputs; got shape {given.shape}")
    place = {label: k for k, label in enumerate(classifier.classes)}
    for label in given.tolist():
        if label not in place:
            raise InvalidInput(f"{name} must be among the model's classes {show(classifier.classes)}; got {label!r}")
    return np.array([place[label] for label in given.tolist()], dtype=np.int64)


def to_label(classifier: Classifier, index: int) -> Label:
    """Return the label that the user has for column ``index`` of the logits."""
    return index if classifier.classes is None else classifier.classes[index]


def Normalized(model: Any, mean: npt.ArrayLike, std: npt.ArrayLike) -> Any:  # noqa: N802  (reads as the noun it is)
    """Return ``model`` with its normalisation inside: ``x -> model((x - mean) / std)``, channel by channel.

    sigma is in the units of the input, so noise must be added before this step; a model that expects normalised images
    is smoothed correctly only with the normalisation inside of it. A torch module gives a torch module, with ``mean``
    and ``std`` as buffers; any other callable gives a callable. ``mean`` and ``std`` are one number, or one for each
    channel; channels are the second axis.
    """
    centre, scale = (check_float_array(name, v).astype(np.float32) for name, v in (("mean", mean), ("std", std)))
    if centre.ndim > 1 or scale.ndim > 1 or (scale <= 0).any():
        raise InvalidInput(f"mean and std must be one number a channel, std above 0; got {show(mean)} and {show(std)}")
    if is_module(model):
        from buckler.sampling.modules import NormalizedModule

        return NormalizedModule(model, centre, scale)
    if not callable(model):
        raise InvalidInput(f"model must be a callable batch -> logits; got {show(model)}")
    return partial(_normalized, model, centre, scale)


def _normalized(model: Callable[[Any], Any], mean: AnyArray, std: AnyArray, batch: AnyArray) -> Any:
    """Return a model's logits for the normalised batch."""
    shape = (1, -1) + (1,) * (batch.ndim - 2)
    return model((batch - mean.reshape(shape)) / std.reshape(shape))


def failure_hint(classifier: Classifier, num_classes: int, x: Float32Array, problem: Exception) -> str:
    """Return a hint, in parentheses, why the classifier raised ``problem`` on the input ``x``; empty if there is none.

    It tries a callable with a torch tensor, and an image with its channels moved from first to last or back, or its
    first channel alone, where the classifier must return ``num_classes`` logits.
    """
    if classifier.library is None and isinstance(problem, (AttributeError, TypeError)):
        torch: Any = sys.modules.get("torch")
        if torch is not None and columns_of(classifier, torch.from_numpy(x[None])):
            return (
                " (a callable is given a NumPy array, and this one takes torch tensors: give the torch.nn.Module "
                "itself, or lambda batch: model(torch.from_numpy(batch)))"
            )
        return " (a callable is given a NumPy array; a torch.nn.Module can be given as it is)"
    if x.ndim == 3:
        for source, to, takes in ((-1, 1, "first"), (1, -1, "last")):
            turned = np.ascontiguousarray(np.moveaxis(x[None], source, to))
            image = turned.shape != x[None].shape and x[None].shape[source] in IMAGE_CHANNELS
            if image and columns_of(classifier, turned) == num_classes:
                return f" (the model takes images with their channels {takes}: pass np.moveaxis(x, {source}, {to}))"
        if len(x) == 3 and columns_of(classifier, x[None, :1]) == num_classes:
            return (
                " (the model takes images of one channel; these have three, as every image file is read: give grey "
                "images as an array, x in an .npz file)"
            )
    return ""


IMAGE_CHANNELS = (1, 3, 4)
"""Numbers of channels that images have."""


def columns_of(classifier: Classifier, batch: Any) -> int:
    """Return how many logits the classifier returns for each row of the batch, 0 where it fails."""
    try:
        with classifier.session():
            if classifier.backend == "torch":
                import torch

                logits = classifier(torch.from_numpy(batch).to(classifier.device))
            else:
                logits = np.asarray(classifier(batch))
    except Exception:  # whatever the user's code raises
        return 0
    return int(logits.shape[1]) if len(logits.shape) == 2 and logits.shape[0] == len(batch) else 0


def warn_of_bare_transformer(model: Any) -> None:
    """Warn if this is an image classifier of transformers without its image processor."""
    kind = type(model)
    if kind.__module__.startswith("transformers.") and kind.__name__.endswith("ForImageClassification"):
        warnings.warn(
            f"{kind.__name__} is smoothed as it is, without its image processor, which resizes and normalises images: "
            "give 'hf:FOLDER', a folder with both, as the model, or put the normalisation inside, "
            "buckler.Normalized(model, processor.image_mean, processor.image_std)",
            BucklerWarning,
            stacklevel=3,
        )


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

    ``num_classes`` is for models that do not tell it. ``device``, ``dtype``, ``channels_last`` and ``compile`` say how
    a torch module is run; with any other model they raise InvalidInput.
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
        made = Classifier(partial(_called, model))
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
LABELS = ("tensor(int64)", "tensor(string)")


def from_onnx(path: Path) -> Classifier:
    """Return a Classifier that runs an ONNX file, which must have one input of floats, by onnxruntime on the CPU.

    The first output is taken as logits. Where that holds labels, as in files that skl2onnx makes, the second holds
    probabilities, as a table or as a map for each row, and logits are their logarithms. A file that was exported for
    batches of one size is run at that size; a shorter batch is filled up with zeros, whose rows are dropped.
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
    labelled = outputs[0].type in LABELS and len(outputs) > 1
    output = outputs[1 if labelled else 0]

    def run(batch: AnyArray) -> AnyArray:
        found: Any = session.run([output.name], {name: batch})[0]
        if not labelled:
            return np.asarray(found)
        if isinstance(found, list):  # a map from class to probability for each row, in the order of the classes
            found = [list(row.values()) for row in found]
        values = np.asarray(found)
        if (values < 0.0).any():
            raise ClassifierError("an ONNX file with labels must give probabilities; got numbers below 0 (raw scores?)")
        return _logarithms(values)

    def call(batch: AnyArray) -> AnyArray:
        batch = batch.astype(kind, copy=False)
        if whole is None:
            return run(batch)
        missing = -len(batch) % whole
        full = np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), kind)]) if missing else batch
        parts = [run(full[start : start + whole]) for start in range(0, len(full), whole)]
        return np.concatenate(parts)[: len(batch)]

    classes = output.shape[-1] if output.type in FLOATS and output.shape else None
    if labelled and not isinstance(classes, int) and all(isinstance(size, int) for size in shape[1:]):
        classes = call(np.zeros((1, *shape[1:]), dtype=np.float32)).shape[-1]
    known = classes if isinstance(classes, int) else None
    return Classifier(call, known, files=weight_files(path), library="onnxruntime")
