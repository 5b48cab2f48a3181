"""Find the model that a ``--model`` argument names (``resolve_model``), and the denoiser that ``--denoiser`` names.

- ``package.module:factory``: a function of the user that returns the model, called without arguments; or the model
  itself, a torch module or a fitted estimator.
- ``file.onnx``: run by onnxruntime.
- ``resnet110:weights.safetensors``: a built-in architecture and its weights.
- ``hf:FOLDER``: a transformers image classifier saved in a local folder; its image processor is put inside.
- ``buckler:NAME``: a bundled network, or ``buckler:FOLDER/NAME`` (``zoo``).

Smoothing adds its noise to the picture, so what the image processor of a transformers classifier does to a picture
becomes a part of the classifier. Transformers reads the processor's settings; two of its steps are done here, on noisy
tensors and with gradients: the change of size and the normalisation. A folder whose processor does more is refused.
Weights are read from safetensors, or by ``torch.load(weights_only=True)``: neither can run a program.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from buckler.errors import BucklerWarning, InvalidInput, MissingExtra, check_whole, show
from buckler.files import checksum, parse_json, read_text
from buckler.sampling.classifiers import Classifier, Normalized, as_classifier, is_module
from buckler.sampling.weights import load_denoiser, load_network, weight_files
from buckler.sampling.zoo import DenoiserCard, bundled

ARCHITECTURE_NAMES = ("resnet110", "resnet50", "resnet20", "resnet20x3", "small_conv")
"""Names of the classifiers in ``sampling.architectures``, which loads torch."""


def resolve_model(
    name: str,
    num_classes: int | None = None,
    *,
    denoiser: str | None = None,
    sigma: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **running: Any,
) -> Classifier:
    """Return the classifier that a ``--model`` argument names, behind a ``denoiser`` if one is named.

    ``mean`` and ``std``, given together, put a normalisation inside, in place of the one of a transformers folder.
    ``sigma``, needed with a denoiser, is the deviation of the noise that it removes. ``running`` are options of
    ``as_classifier``. The classifier's ``files`` are those of model and denoiser.
    """
    if (mean is None) != (std is None):
        raise InvalidInput("mean and std must be given together")
    model, files = load_model(name, num_classes, normalise=mean is None)
    if mean is not None and std is not None:
        if isinstance(model, Classifier) and num_classes is None:
            num_classes = model.num_classes
        model = Normalized(model, mean, std)
    if denoiser is not None:
        if sigma is None:
            raise InvalidInput("sigma must be given with a denoiser, which is told the noise to remove")
        if not is_module(model):
            raise InvalidInput(f"denoiser needs a model that is a torch module; got {show(model)}")
        cleaner, its_files = resolve_denoiser(denoiser)
        judges: frozenset[str] = getattr(cleaner, "classifiers", frozenset())
        if judges and not judges & set(files.values()):
            warnings.warn(
                f"denoiser {denoiser!r} was trained through a classifier of its own, and behind it {name!r} may "
                "certify far less: measure the pair before you rely on it",
                BucklerWarning,
                stacklevel=2,
            )
        from buckler.sampling.denoised import Denoised

        model = Denoised(cleaner, model, sigma=sigma)
        files = {**files, **{f"denoiser/{file}": content for file, content in its_files.items()}}
    made = as_classifier(model, num_classes=num_classes, **running)
    if made.classes is not None:
        raise InvalidInput(
            f"model must have the classes 0 to {len(made.classes) - 1} here; got {show(made.classes)}: refit it with "
            "these, or give the estimator itself to buckler.Smoothed"
        )
    made.files = files or made.files
    return made


def load_model(name: str, num_classes: int | None = None, *, normalise: bool = True) -> tuple[Any, Mapping[str, str]]:
    """Return the model that a ``--model`` argument names, and file name -> SHA-256 of the files it was loaded from.

    Without ``normalise``, the normalisation of a transformers folder is left out.
    """
    head, colon, tail = name.partition(":")
    if name.endswith(".onnx"):
        classifier = as_classifier(name)
        return classifier, classifier.files
    if colon and head == "hf":
        _need_torch()
        return load_transformers(Path(tail), normalise)
    if colon and head == "buckler":
        card, path = bundled(tail, "classifier")
        network = load_network(path)
        network.buckler_image_shape = (3, card.height, card.width)
        return network, weight_files(path)
    if colon and head in ARCHITECTURE_NAMES:
        return load_network(Path(tail), head, num_classes), weight_files(Path(tail))
    if _is_function(name):
        return call_factory(name), {}
    known = ", ".join(f"{architecture}:WEIGHTS" for architecture in ARCHITECTURE_NAMES)
    raise InvalidInput(
        f"model must be package.module:factory, FILE.onnx, hf:FOLDER, buckler:NAME, {known}; got {name!r}"
    )


def resolve_denoiser(name: str) -> tuple[Any, Mapping[str, str]]:
    """Return the denoiser that a ``--denoiser`` argument names, and file name -> SHA-256 of its files.

    The argument is ``buckler:NAME``, ``unet:WEIGHTS`` as ``buckler train --denoiser`` wrote them, ``diffusers:FOLDER``,
    or ``package.module:factory``.
    """
    head, colon, tail = name.partition(":")
    if colon and head in {"buckler", "unet"}:
        card, path = bundled(tail, "denoiser") if head == "buckler" else (None, Path(tail))
        network = load_denoiser(path)
        if isinstance(card, DenoiserCard):
            network.sigmas = (card.smallest_sigma, card.sigma)
            network.classifiers = frozenset(card.classifier_sha256.split(", "))
        return network, weight_files(path)
    if colon and head == "diffusers":
        _need_torch()
        return load_diffusers(Path(tail))
    if _is_function(name):
        return call_factory(name, "denoiser"), {}
    raise InvalidInput(
        f"denoiser must be buckler:NAME, unet:WEIGHTS, diffusers:FOLDER or package.module:factory; got {name!r}"
    )


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
    """Run the block, a user's own code, with the working directory on ``sys.path``.

    What it raises becomes an InvalidInput of one line that begins with ``what``.
    """
    with modules_here():
        try:
            yield
        except Exception as problem:
            text = show(" ".join(str(problem).split()), 200)
            raise InvalidInput(f"{what}: {type(problem).__name__}: {text}") from problem


def _is_function(name: str) -> bool:
    """Return whether a name is of the form ``package.module:function``."""
    module, _, function = name.partition(":")
    return function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _is_model(thing: Any) -> bool:
    estimator = hasattr(thing, "predict_proba") or hasattr(thing, "decision_function")
    return is_module(thing) or (estimator and not isinstance(thing, type))


def find_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function, or the model, that a name ``package.module:function`` stands for.

    Modules in the working directory are found too. Errors call the name's argument ``what``.
    """
    module, _, function = name.partition(":")
    if module.endswith(".py") and Path(module).is_file():
        raise InvalidInput(f"{what} must name a module, {module[:-3]}:{function}, not its file; got {show(name)}")
    if not _is_function(name):
        raise InvalidInput(f"{what} must be package.module:function; got {show(name)}")
    with errors_in_one_line(f"{what} {name} cannot be imported"):
        found: Any = getattr(import_module(module), function, None)
    if not callable(found) and not _is_model(found):
        raise InvalidInput(f"{what}: module {module!r} has no function {function!r}")
    return cast(Callable[..., Any], found)


def call_factory(name: str, what: str = "model") -> Any:
    """Call the function ``package.module:function`` and return its result; if it names a model, return that.

    Errors call the name's argument ``what``.
    """
    there = find_function(name, what)
    if _is_model(there):
        return there
    with errors_in_one_line(f"{what} {name} cannot be made"):
        return there()


PROCESSOR, SCHEDULE = "preprocessor_config.json", "scheduler_config.json"
LARGEST_SETTINGS = 1 << 20
"""Largest size of a file of settings, in bytes."""

RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers for the interpolations that torch has too."""

LARGEST_SIDE = 1 << 14

HARMLESS = {"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb"}
"""Settings of an image processor that may be on: the step is done here, checked here, or left to the data."""


def load_transformers(folder: Path, normalise: bool = True) -> tuple[Any, dict[str, str]]:
    """Return an image classifier saved by transformers, with its image processor inside, and its files' SHA-256.

    Without ``normalise``, the processor's normalisation is left out: the caller puts another around the model.
    """
    _settings(folder / "config.json")  # of bounded size, and JSON
    model = _loaded(folder, "transformers", "AutoModelForImageClassification", trust_remote_code=False)
    if not (folder / PROCESSOR).is_file():
        return model, weight_files(folder)
    _settings(folder / PROCESSOR)
    found = _loaded(folder, "transformers", "AutoImageProcessor", trust_remote_code=False)
    try:
        return _prepared(model, found.to_dict(), normalise), weight_files(folder)
    except (InvalidInput, TypeError, ValueError, AttributeError) as problem:
        raise InvalidInput(f"{folder / PROCESSOR}: {problem}") from None


def _prepared(model: Any, settings: Mapping[str, Any], normalise: bool) -> Any:
    """Return a model behind the steps of its processor, for images in [0, 1]."""
    beyond = [name for name, on in settings.items() if name.startswith("do_") and on and name not in HARMLESS]
    if settings.get("do_rescale") is False:
        beyond.append("do_rescale = false")
    if abs(255.0 * settings.get("rescale_factor", 1 / 255) - 1.0) > 1e-4 or settings.get("rescale_offset"):
        beyond.append("rescale_factor")
    if beyond:
        raise InvalidInput(
            f"{', '.join(beyond)} is not supported: load the model in a factory of your own, with what its processor "
            "does inside (docs/sampling.md)"
        )
    if normalise and settings.get("do_normalize"):
        model = Normalized(model, settings["image_mean"], settings["image_std"])
    if not settings.get("do_resize") and not settings.get("do_center_crop"):
        return model
    size = settings["crop_size"] if settings.get("do_center_crop") else settings["size"]
    edge = size.get("shortest_edge")
    sides = (size.get("height"), size.get("width")) if edge is None else (edge, edge)
    from buckler.sampling.modules import Resized

    high, wide = (check_whole("size", side, 1, LARGEST_SIDE) for side in sides)
    cut = settings.get("do_center_crop") or settings.get("crop_pct") or edge is not None
    return Resized(model, (high, wide), None if cut else RESAMPLING.get(settings.get("resample", 2)))


def load_diffusers(folder: Path) -> tuple[Any, dict[str, str]]:
    """Return a denoiser made of a saved ``UNet2DModel`` and its noise schedule, and file name -> SHA-256 of its files.

    ``folder`` is the model's folder, or a pipeline's folder with the model's in it, named ``unet``. The schedule is the
    file ``scheduler_config.json`` in the model's folder, or in a folder ``scheduler`` inside or beside that one.
    """
    from buckler.sampling.denoised import Diffusion, schedule

    unet = folder / "unet" if (folder / "unet").is_dir() else folder
    config = _settings(unet / "config.json")
    if config.get("_class_name") != "UNet2DModel":
        raise InvalidInput(f"diffusers:{folder} must hold a UNet2DModel; got {show(config.get('_class_name'))}")
    channels = config.get("in_channels"), config.get("out_channels")
    if not isinstance(channels[0], int) or channels[1] not in {channels[0], 2 * channels[0]}:
        raise InvalidInput(f"diffusers:{folder} must return as many channels as it takes; got {channels}")
    places = [unet / SCHEDULE, unet / "scheduler" / SCHEDULE, unet.parent / "scheduler" / SCHEDULE]
    found = next((path for path in places if path.is_file()), places[0])
    settings = _settings(found)
    model = _loaded(unet, "diffusers", "UNet2DModel", low_cpu_mem_usage=False)
    files = weight_files(unet) | {SCHEDULE: checksum(found)}
    return Diffusion(model, schedule(settings), settings.get("prediction_type", "epsilon")), files


def _settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of settings."""
    try:
        settings = parse_json(read_text(path, LARGEST_SETTINGS))
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{path} cannot be read: {problem}") from None
    if not isinstance(settings, dict):
        raise InvalidInput(f"{path} must hold a JSON object of settings; got {show(settings)}")
    return settings


def _loaded(folder: Path, package: str, name: str, **options: Any) -> Any:
    """Return what ``from_pretrained`` of a class of a package loads from a folder."""
    try:
        found = getattr(import_module(package), name)
    except ImportError:
        raise MissingExtra(package, "hf") from None
    if name != "AutoImageProcessor":
        options["use_safetensors"] = True
    try:
        with _quiet(package):
            return found.from_pretrained(str(folder), local_files_only=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        raise InvalidInput(f"{folder} cannot be loaded: {show(text, 200)}") from problem


@contextmanager
def _quiet(package: str) -> Iterator[None]:
    """Let a library load without progress bars and advice of its own."""
    log = import_module(f"{package}.utils.logging")
    shown, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shown:
            log.enable_progress_bar()
