"""Load classifiers of transformers and denoisers of diffusers from local folders, weights from safetensors.

Smoothing adds its noise to the picture, so what the image processor of a classifier does to a picture becomes a part of
the classifier. Transformers reads the processor's settings; two of its steps are done here, on noisy tensors and with
gradients: the change of size and the normalisation. A folder whose processor does more is refused. Loads torch.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from buckler.errors import BucklerWarning, InvalidInput, MissingExtra, check_whole, show
from buckler.files import checksum, parse_json, read_text
from buckler.sampling.classifiers import Normalized
from buckler.sampling.diffusion import Diffusion, schedule
from buckler.sampling.weights import weight_files

PROCESSOR, SCHEDULE = "preprocessor_config.json", "scheduler_config.json"
LARGEST_SETTINGS = 1 << 20
"""Bytes of a file of settings, at most."""

RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers for the interpolations that torch has too."""

LARGEST_SIDE = 1 << 14

HARMLESS = {"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb"}
"""Steps of a processor that are done here, checked here, or are a matter of the data."""


class Resized(nn.Module):
    """``model`` for images of its own size, and for others where a ``mode`` of interpolation is given.

    With ``square``, only square images are interpolated; all others raise InvalidInput.
    """

    def __init__(self, model: nn.Module, size: tuple[int, int], mode: str | None, square: bool) -> None:
        super().__init__()
        self.model, self.size, self.mode, self.square = model, size, mode, square

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for a batch of images."""
        if tuple(x.shape[2:]) == self.size:
            return self.model(x)
        if self.mode is None or (self.square and x.shape[2] != x.shape[3]):
            high, wide = self.size
            raise InvalidInput(
                f"images must be {high}x{wide}, which the image processor of the model cuts out; got "
                f"{x.shape[2]}x{x.shape[3]}: cut the data before the noise is added, by --resize and --crop {wide}"
            )
        return self.model(functional.interpolate(x, self.size, mode=self.mode, antialias=self.mode != "nearest"))


def load_transformers(folder: Path, normalise: bool = True) -> tuple[nn.Module, dict[str, str]]:
    """Return an image classifier saved in a folder, with its image processor inside, and the hashes of its files.

    Without ``normalise``, mean and std of the processor are left out: the caller puts others around it.
    """
    model = _loaded("hf", folder, "transformers", "AutoModelForImageClassification", trust_remote_code=False)
    if not (folder / PROCESSOR).is_file():
        return model, weight_files(folder)
    _settings(folder / PROCESSOR)  # of bounded size, and JSON
    found = _loaded("hf", folder, "transformers", "AutoImageProcessor", trust_remote_code=False)
    try:
        return _prepared(model, found.to_dict(), normalise), weight_files(folder)
    except (InvalidInput, TypeError, ValueError, AttributeError) as problem:
        raise InvalidInput(f"{folder / PROCESSOR}: {problem}") from None


def _prepared(model: nn.Module, settings: Mapping[str, Any], normalise: bool) -> nn.Module:
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
    cut = settings.get("do_center_crop") or settings.get("crop_pct")
    size = settings["crop_size"] if settings.get("do_center_crop") else settings["size"]
    edge = size.get("shortest_edge")
    sides = (size.get("height"), size.get("width")) if edge is None else (edge, edge)
    high, wide = (check_whole("size", side, 1, LARGEST_SIDE) for side in sides)
    return Resized(model, (high, wide), None if cut else RESAMPLING.get(settings.get("resample", 2)), edge is not None)


def load_diffusers(folder: Path) -> tuple[Diffusion, dict[str, str]]:
    """Return the denoiser that a ``UNet2DModel`` saved in a folder makes, and the hashes of its files.

    The folder is the model's own or that of a pipeline with ``unet`` in it. The schedule is ``scheduler_config.json``
    in it, or in ``scheduler`` within or beside it; without one it is taken to be that of DDPM, with a warning.
    """
    unet = folder / "unet" if (folder / "unet" / "config.json").is_file() else folder
    places = [unet / SCHEDULE, unet / "scheduler" / SCHEDULE, unet.parent / "scheduler" / SCHEDULE]
    found = next((path for path in places if path.is_file()), None)
    settings = {} if found is None else _settings(found)
    if found is None:
        text = f"{folder} has no {SCHEDULE}; the schedule is taken to be that of DDPM, linear from 1e-4 to 0.02"
        warnings.warn(text, BucklerWarning, stacklevel=2)
    config = _settings(unet / "config.json") if (unet / "config.json").is_file() else {}
    if config and config.get("_class_name") != "UNet2DModel":
        raise InvalidInput(f"diffusers:{folder} must hold a UNet2DModel; got {show(config.get('_class_name'))}")
    if config.get("class_embed_type") is not None or config.get("num_class_embeds") is not None:
        raise InvalidInput(f"diffusers:{folder} must not be told the class; this model is")
    channels = config.get("in_channels"), config.get("out_channels")
    if config and (not isinstance(channels[0], int) or channels[1] not in {channels[0], 2 * channels[0]}):
        raise InvalidInput(f"diffusers:{folder} must return as many channels as it takes; got {channels}")
    model = _loaded("diffusers", unet, "diffusers", "UNet2DModel", low_cpu_mem_usage=False)
    files = weight_files(unet) | ({} if found is None else {SCHEDULE: checksum(found)})
    return Diffusion(model, schedule(settings), settings.get("prediction_type", "epsilon")), files


def _settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of settings."""
    try:
        settings = parse_json(read_text(path, LARGEST_SETTINGS))
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{path} cannot be read: {problem}") from None
    if not isinstance(settings, dict):
        raise InvalidInput(f"{path} must hold an object; got {show(settings)}")
    return settings


def _loaded(kind: str, folder: Path, package: str, name: str, **options: Any) -> Any:
    """Return what ``from_pretrained`` of a class of a package loads from a folder."""
    if not (folder / "config.json").is_file():
        raise InvalidInput(f"{kind}: must be followed by a folder with config.json; got {str(folder)!r}")
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
        raise InvalidInput(f"{kind}:{folder} cannot be loaded: {show(text, 200)}") from problem


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
