"""Find the model that a ``--model`` argument names (``resolve_model``), and the denoiser that ``--denoiser`` names.

- ``package.module:factory``: a function of the user that returns the model, called without arguments; or the model
  itself, a torch module or a fitted estimator.
- ``file.onnx``: run by onnxruntime.
- ``resnet110:weights.safetensors``: a built-in architecture and its weights.
- ``hf:FOLDER``: a transformers image classifier saved in a local folder; its image processor is put inside.
- ``buckler:NAME``: a bundled network, or ``buckler:FOLDER/NAME`` (``zoo``).

Weights are read from safetensors, or by ``torch.load(weights_only=True)``: neither can run a program.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from buckler.errors import InvalidInput, MissingExtra, show
from buckler.sampling.cards import DenoiserCard
from buckler.sampling.classifiers import Classifier, Dtype, Normalized, as_classifier, is_module
from buckler.sampling.weights import named_architecture, weight_files
from buckler.sampling.zoo import take

ARCHITECTURES = ("resnet110", "resnet50", "resnet20", "resnet20x3", "small_conv")
"""The names in ``sampling.architectures``, which loads torch."""


class Running(TypedDict, total=False):
    """Options of ``as_classifier`` about how a model is run."""

    num_classes: int | None
    device: str | None
    dtype: Dtype
    channels_last: bool
    compile: bool


def resolve_model(
    name: str,
    *,
    denoiser: str | None = None,
    sigma: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **running: Unpack[Running],
) -> Classifier:
    """Return the classifier that a ``--model`` argument names, behind a ``denoiser`` if one is named.

    ``mean`` and ``std`` put a normalisation inside, in place of the one of a transformers folder; ``sigma`` is the
    standard deviation that the denoiser removes. The classifier's ``files`` are those of both.
    """
    if (mean is None) != (std is None):
        raise InvalidInput("mean and std must be given together")
    model, files = load_model(name, running.get("num_classes"), normalise=mean is None)
    if mean is not None and std is not None:
        if isinstance(model, str):
            model = as_classifier(model)
            running = {"num_classes": model.num_classes, **running}
            files = model.files
        model = Normalized(model, mean, std)
    if denoiser is not None:
        if sigma is None:
            raise InvalidInput("sigma must be given with a denoiser, which is told the noise to remove")
        if not is_module(model):
            raise InvalidInput(f"denoiser needs a model that is a torch module; got {show(model)}")
        cleaner, its_files = load_denoiser(denoiser)
        from buckler.sampling.denoised import Denoised

        model = Denoised(cleaner, model, sigma=sigma)
        files = {**files, **{f"denoiser/{file}": content for file, content in its_files.items()}}
    made = as_classifier(model, **running)
    if made.classes is not None:
        raise InvalidInput(
            f"model must have the classes 0 to {len(made.classes) - 1} here; got {show(made.classes)}: refit it with "
            "these, or give the estimator itself to buckler.Smoothed"
        )
    made.files = files or made.files
    return made


def load_model(name: str, num_classes: int | None = None, *, normalise: bool = True) -> tuple[Any, Mapping[str, str]]:
    """Return the model that a name stands for (of an ONNX file its path), and the hashes of its files."""
    head, colon, tail = name.partition(":")
    if name.endswith(".onnx"):
        return name, {}
    if colon and head == "hf":
        _need_torch()
        from buckler.sampling.folders import load_transformers

        return load_transformers(Path(tail), normalise)
    if colon and head == "buckler":
        _, path = take(tail, "classifier")
        _need_torch()
        from buckler.sampling.networks import load_network

        return load_network(path), weight_files(path)
    if colon and head in ARCHITECTURES:
        return load_architecture(head, Path(tail), num_classes), weight_files(Path(tail))
    if _is_factory(name):
        return call_factory(head, tail), {}
    known = ", ".join(f"{architecture}:WEIGHTS" for architecture in ARCHITECTURES)
    raise InvalidInput(
        f"model must be package.module:factory, FILE.onnx, hf:FOLDER, buckler:NAME, {known}; got {name!r}"
    )


def load_denoiser(name: str) -> tuple[Any, Mapping[str, str]]:
    """Return the denoiser that a ``--denoiser`` argument names, and the hashes of its files.

    ``buckler:NAME``, ``unet:WEIGHTS`` as ``buckler train --denoiser`` wrote them, ``diffusers:FOLDER``, or
    ``package.module:factory``.
    """
    head, colon, tail = name.partition(":")
    if colon and head in {"buckler", "unet"}:
        card, path = take(tail, "denoiser") if head == "buckler" else (None, Path(tail))
        _need_torch()
        from buckler.sampling import networks

        network = networks.load_denoiser(path)
        if isinstance(card, DenoiserCard):
            network.sigmas = (card.smallest_sigma, card.sigma)
        return network, weight_files(path)
    if colon and head == "diffusers":
        _need_torch()
        from buckler.sampling.folders import load_diffusers

        return load_diffusers(Path(tail))
    if _is_factory(name):
        return call_factory(head, tail, "denoiser"), {}
    raise InvalidInput(
        f"denoiser must be buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or package.module:factory; got {name!r}"
    )


def _is_factory(name: str) -> bool:
    head, colon, tail = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in head.split(".")) and tail.isidentifier()


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch")


@contextmanager
def modules_here() -> Iterator[None]:
    """Put the working directory on ``sys.path`` within the block."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)


@contextmanager
def errors_in_one_line(what: str) -> Iterator[None]:
    """Run a user's own code with the working directory on ``sys.path``; what it raises becomes an InvalidInput."""
    with modules_here():
        try:
            yield
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 200)
            raise InvalidInput(f"{what}: {type(problem).__name__}: {text}") from problem


def find_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names; modules in the working directory are found too."""
    found = _find(name, what)
    if not callable(found):
        module, _, function = name.partition(":")
        raise InvalidInput(f"{what}: module {module!r} has no function {function!r}")
    return cast(Callable[..., Any], found)


def _find(name: str, what: str) -> Any:
    module, colon, thing = name.partition(":")
    if not colon or not thing.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInput(f"{what} must be package.module:function; got {show(name)}")
    if module.endswith(".py") and Path(module).is_file():
        raise InvalidInput(f"{what} must name a module, {module[:-3]}:{thing}, not its file; got {show(name)}")
    with errors_in_one_line(f"{what} {name} cannot be imported"):
        return getattr(importlib.import_module(module), thing, None)


def call_factory(module: str, factory: str, what: str = "model") -> Any:
    """Return what ``module:factory`` returns; a model instead of a factory is returned as it is."""
    there = _find(f"{module}:{factory}", what)
    is_estimator = hasattr(there, "predict_proba") or hasattr(there, "decision_function")
    if is_module(there) or (is_estimator and not isinstance(there, type)):
        return there
    found = find_function(f"{module}:{factory}", what)
    with errors_in_one_line(f"{what} {module}:{factory} cannot be made"):
        return found()


def load_weights(path: Path) -> dict[str, Any]:
    """Return the tensors of a ``.safetensors`` file, or of a torch file that holds nothing but tensors."""
    if not path.is_file():
        raise InvalidInput(f"weights must be an existing file; got {str(path)!r}")
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError as missing:
        raise MissingExtra(missing.name or "torch", "torch") from None
    try:
        loaded: Any
        if path.suffix == ".safetensors":
            loaded = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise InvalidInput(f"weights {str(path)!r} cannot be read: {show(str(problem), 160)}") from None
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        raise InvalidInput(f"weights {str(path)!r} must hold tensors by name; got {show(loaded)}")
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def load_architecture(architecture: str, path: Path, num_classes: int | None = None) -> Any:
    """Return a built-in network with its weights; its last matrix has a row for each class."""
    weights = load_weights(path)
    named = named_architecture(path) if path.suffix == ".safetensors" else None
    if named not in {None, architecture}:
        raise InvalidInput(f"weights {str(path)!r} must be those of {architecture}; the file says {show(named)}")
    matrices = [value for value in weights.values() if value.dim() == 2]
    if not matrices:
        raise InvalidInput(f"weights {str(path)!r} must hold a last linear layer; got none")
    from buckler.sampling.architectures import build

    module = build(architecture, int(matrices[-1].shape[0]) if num_classes is None else num_classes)
    try:
        module.load_state_dict(weights)
    except RuntimeError as problem:
        text = " ".join(str(problem).split())
        raise InvalidInput(f"weights {str(path)!r} do not fit the architecture: {show(text, 200)}") from None
    return module
