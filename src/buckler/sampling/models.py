"""What ``--model`` means: a name or path -> a classifier.

- ``package.module:factory``: a function of the user's own that returns the model, called without arguments.
- ``file.onnx``: run by onnxruntime.
- ``resnet110:weights.safetensors``: a built-in architecture and its weights.
- ``hf:FOLDER``: a transformers image classifier saved in a local folder; its normalisation is put inside.

Weights are read from safetensors, or by ``torch.load(weights_only=True)``: neither can run a program.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from buckler.errors import InvalidInput, MissingExtra, show
from buckler.files import parse_json, read_text
from buckler.sampling.classifiers import Classifier, Dtype, Normalized, as_classifier
from buckler.sampling.weights import named_architecture, weight_files

ARCHITECTURES = ("resnet110", "resnet50", "resnet20", "resnet20x3", "small_conv")
"""The names in ``sampling.architectures``, which loads torch."""

LARGEST_PREPROCESSOR = 1 << 20
"""Bytes of a preprocessor's settings, at most."""


def resolve_model(
    name: str,
    *,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: str | None = None,
    dtype: Dtype = "float32",
    channels_last: bool = False,
    compile: bool = False,  # noqa: A002
) -> Classifier:
    """Return the classifier that a ``--model`` argument names; ``mean`` and ``std`` put a normalisation inside."""
    if (mean is None) != (std is None):
        raise InvalidInput("mean and std must be given together")
    head, colon, tail = name.partition(":")
    model: Any
    files: Mapping[str, str] = {}
    if name.endswith(".onnx"):
        model = name
    elif colon and head == "hf":
        model, own = load_transformers(Path(tail))
        files = weight_files(Path(tail))
        if mean is None or std is None:
            mean, std = own or (None, None)
    elif colon and head in ARCHITECTURES:
        model = load_architecture(head, Path(tail), num_classes)
        files = weight_files(Path(tail))
    elif colon and all(part.isidentifier() for part in head.split(".")) and tail.isidentifier():
        model = call_factory(head, tail)
    else:
        known = ", ".join(f"{architecture}:WEIGHTS" for architecture in ARCHITECTURES)
        raise InvalidInput(f"model must be package.module:factory, FILE.onnx, hf:FOLDER, {known}; got {name!r}")
    if mean is not None and std is not None:
        if isinstance(model, str):
            model = as_classifier(model)
            num_classes, files = num_classes or model.num_classes, model.files
        model = Normalized(model, mean, std)
    made = as_classifier(
        model, num_classes=num_classes, device=device, dtype=dtype, channels_last=channels_last, compile=compile
    )
    made.files = files or made.files
    return made


@contextmanager
def modules_here() -> Iterator[None]:
    """Let modules beside the user's terminal be found, and leave the path as it was."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)


def find_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names; modules beside the user's terminal are found too."""
    module, colon, function = name.partition(":")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInput(f"{what} must be package.module:function; got {show(name)}")
    with modules_here():
        try:
            found = getattr(importlib.import_module(module), function, None)
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 200)
            raise InvalidInput(f"{what} {name} cannot be imported: {type(problem).__name__}: {text}") from problem
    if not callable(found):
        raise InvalidInput(f"{what}: module {module!r} has no function {function!r}")
    return cast(Callable[..., Any], found)


def call_factory(module: str, factory: str) -> Any:
    """Return what ``module:factory`` returns."""
    found = find_function(f"{module}:{factory}", "model")
    with modules_here():
        try:
            return found()
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 200)
            raise InvalidInput(
                f"model {module}:{factory} cannot be made: {type(problem).__name__}: {text}"
            ) from problem


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
    """Return a built-in network with its weights; the classes are counted on its last matrix."""
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


def load_transformers(folder: Path) -> tuple[Any, tuple[list[float], list[float]] | None]:
    """Return an image classifier saved in a folder, and the (mean, std) its preprocessor would apply, if any."""
    if not (folder / "config.json").is_file():
        raise InvalidInput(f"hf: must be followed by a folder with config.json; got {str(folder)!r}")
    try:
        from transformers import AutoModelForImageClassification
    except ImportError:
        raise MissingExtra("transformers", "torch") from None
    try:
        model = AutoModelForImageClassification.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
        preprocessor = folder / "preprocessor_config.json"
        settings = parse_json(read_text(preprocessor, LARGEST_PREPROCESSOR)) if preprocessor.exists() else {}
        if not isinstance(settings, dict):
            raise ValueError(f"{preprocessor.name} must hold an object")
    except Exception as problem:
        text = " ".join(str(problem).split())
        raise InvalidInput(f"hf:{folder} cannot be loaded: {show(text, 200)}") from problem
    if settings.get("do_normalize") and "image_mean" in settings and "image_std" in settings:
        return model, (settings["image_mean"], settings["image_std"])
    return model, None
