"""What a classifier is, a callable ``batch -> logits``, and the adapters that make one of what people have.

``as_classifier`` takes a ``torch.nn.Module``, a transformers model, a scikit-learn estimator, a path to an ONNX file or
any callable. Inputs are float32 and noise has already been added to them: preprocessing belongs inside the classifier,
and ``Normalized`` puts it there.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from buckler.errors import InvalidInput, check_choice, check_float_array, check_whole, show
from buckler.sampling.preprocess import on_host
from buckler.types import AnyArray

Dtype = Literal["float32", "bfloat16", "float16"]


@runtime_checkable
class Classifier(Protocol):
    """A deterministic map from a batch of inputs to one row of logits each.

    ``backend`` says what a batch is: a float32 NumPy array, or a float32 torch tensor on ``device``. ``files`` are the
    names and SHA-256 of the files that it was loaded from, where there are any.
    """

    num_classes: int | None
    backend: Literal["numpy", "torch"]
    device: str
    files: Mapping[str, str]

    def __call__(self, batch: Any, /) -> Any:
        """Return logits ``[rows, num_classes]`` for ``batch[rows, ...]``."""

    def session(self) -> AbstractContextManager[None]:
        """Return a context in which the classifier is ready to be called, and after which it is as it was."""


class OnHost:
    """What classifiers of NumPy arrays have in common."""

    backend: Literal["numpy", "torch"] = "numpy"
    device = "cpu"

    def __init__(self, num_classes: int | None = None) -> None:
        self.num_classes = num_classes
        self.files: Mapping[str, str] = {}

    def session(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()


class CallableClassifier(OnHost):
    """Any callable from a float32 NumPy batch to logits."""

    def __init__(self, call: Callable[[Any], Any], num_classes: int | None = None) -> None:
        super().__init__(num_classes)
        self._call = call

    def __call__(self, batch: AnyArray, /) -> Any:
        """Return what the callable returns, of a tensor its values."""
        try:
            return on_host(self._call(batch))
        except (AttributeError, TypeError) as problem:
            said = f"{problem} (it is given a NumPy array; a torch module can be given as it is)"
            raise TypeError(said) from problem


class EstimatorClassifier(OnHost):
    """A fitted scikit-learn classifier: logits are ``log predict_proba``, or else its decision function.

    Inputs of any shape are flattened to the rows that scikit-learn expects. Class k is the k-th of ``classes_``.
    """

    def __init__(self, estimator: Any) -> None:
        if not hasattr(estimator, "classes_"):
            raise InvalidInput(f"model must be a fitted scikit-learn classifier; got {show(estimator)}, not fitted")
        if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
            raise InvalidInput(f"model must have predict_proba or decision_function; got {show(estimator)}")
        super().__init__(len(estimator.classes_))
        self._estimator = estimator

    def __call__(self, batch: AnyArray, /) -> AnyArray:
        """Return log probabilities, floored where the estimator says zero, or decision values."""
        rows = batch.reshape(len(batch), -1)
        if hasattr(self._estimator, "predict_proba"):
            # NaN must pass the floor unharmed: it is an error to be named, not a small probability.
            floor = np.finfo(np.float32).tiny
            return np.asarray(np.log(np.maximum(self._estimator.predict_proba(rows), floor)))
        values = np.asarray(self._estimator.decision_function(rows))
        return np.stack([-values, values], axis=1) if values.ndim == 1 else values


class _NormalizedCallable:
    """``model((x - mean) / std)`` for a model that takes NumPy arrays."""

    def __init__(self, model: Callable[[Any], Any], mean: AnyArray, std: AnyArray) -> None:
        self.model, self.mean, self.std = model, mean, std

    def __call__(self, batch: AnyArray) -> Any:
        shape = (1, -1) + (1,) * (batch.ndim - 2)
        return self.model((batch - self.mean.reshape(shape)) / self.std.reshape(shape))


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
    return _NormalizedCallable(model, centre, scale)


def as_classifier(
    model: Any,
    *,
    num_classes: int | None = None,
    device: str | None = None,
    dtype: Dtype = "float32",
    channels_last: bool = False,
    compile: bool = False,  # noqa: A002  (the name torch users know)
    autocast: bool = True,
) -> Classifier:
    """Return the classifier behind ``model``: a module, an estimator, an ``.onnx`` path, a callable, or one already.

    ``dtype``, ``channels_last``, ``compile`` and ``autocast`` are for torch modules; asking them of anything else is an
    error, since the classifier that is certified is the one that is run.
    """
    check_choice("dtype", dtype, get_args(Dtype))
    if num_classes is not None:
        num_classes = check_whole("num_classes", num_classes, 2)
    if isinstance(model, type):
        raise InvalidInput(f"model must be one of its class, as {model.__name__}(...) makes it; got the class itself")
    if is_module(model):
        from buckler.sampling.modules import TorchClassifier

        made: Classifier = TorchClassifier(
            model,
            num_classes,
            device=device,
            dtype=dtype,
            channels_last=channels_last,
            compile=compile,
            autocast=autocast,
        )
        return made
    if dtype != "float32" or channels_last or compile or not autocast or device not in {None, "cpu"}:
        raise InvalidInput(f"device, dtype, channels_last and compile are for torch modules; got {show(model)}")
    if isinstance(model, Classifier):
        made = model
    elif isinstance(model, (str, Path)):
        from buckler.sampling.onnx_files import OnnxClassifier

        made = OnnxClassifier(model)
    elif hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        made = EstimatorClassifier(model)
    elif callable(model):
        made = CallableClassifier(model, num_classes)
    else:
        raise InvalidInput(f"model must be a module, an estimator, an .onnx path or a callable; got {show(model)}")
    if num_classes is not None and made.num_classes not in {None, num_classes}:
        raise InvalidInput(f"num_classes must be {made.num_classes}, what the model has; got {num_classes}")
    if made.num_classes is None:
        made.num_classes = num_classes
    return made


def is_module(model: Any) -> bool:
    """Return whether this is a torch module."""
    # Asked without importing torch: a torch module can only exist where torch has been imported.
    return any(c.__module__.startswith("torch.nn.modules") and c.__name__ == "Module" for c in type(model).__mro__)
