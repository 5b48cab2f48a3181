"""What the image processor of a model does before it, read from its settings: to be done after the noise, inside.

A processor (``preprocessor_config.json``, transformers) turns a picture into what the network takes. Smoothing adds its
noise to the picture, so all of that becomes part of the classifier: the values scaled, the size changed, the channels
normalised. What a processor does beyond that is not done, and said in a warning.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckler.errors import BucklerWarning, InvalidInput, check_real, check_whole, show
from buckler.files import parse_json, read_text

SETTINGS = "preprocessor_config.json"
LARGEST_SETTINGS = 1 << 20
"""Bytes of a file of settings, at most."""

RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers for ways to resize that torch has too."""

DONE = {"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_flip_channel_order", "do_convert_rgb"}
"""What is done here, or, the last, is a matter of the data."""

LARGEST_SIDE = 1 << 14


@dataclass(frozen=True, slots=True)
class Processor:
    """Steps in the order they are taken: ``scale x + shift``, size, crop, channels reversed, ``(x - mean) / std``.

    ``size`` is height and width, or one number for the shorter side; an image that has the final size stays as it is.
    """

    scale: float = 1.0
    shift: float = 0.0
    size: tuple[int, int] | int | None = None
    crop: tuple[int, int] | None = None
    resampling: str = "bilinear"
    reverse: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object in a file of settings of transformers or diffusers."""
    try:
        settings = parse_json(read_text(path, LARGEST_SETTINGS))
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{path} cannot be read: {problem}") from None
    if not isinstance(settings, dict):
        raise InvalidInput(f"{path} must hold an object; got {show(settings)}")
    return settings


def read_processor(folder: Path) -> Processor:
    """Return the processor of a model in a folder, or one that does nothing where there are no settings."""
    path = folder / SETTINGS
    if not path.exists():
        return Processor()
    settings = read_settings(path)
    try:
        return processor_from(settings)
    except InvalidInput as problem:
        raise InvalidInput(f"{path}: {problem}") from None


def processor_from(settings: Mapping[str, Any]) -> Processor:
    """Return the processor that settings describe; a warning says what of them is not usual, or not done.

    >>> processor_from({"do_resize": True, "size": {"height": 8, "width": 8}, "do_rescale": True, "resample": 3})
    Processor(scale=1.0, shift=0.0, size=(8, 8), crop=None, resampling='bicubic', reverse=False, mean=None, std=None)
    """
    scale, shift = _rescaling(settings)
    size, crop = _sizes(settings)
    mean, std = _normalisation(settings)
    for name in sorted(
        name for name, value in settings.items() if name.startswith("do_") and value and name not in DONE
    ):
        _warn(f"{name} of the image processor is not done here")
    number = settings.get("resample", 2)
    number = number if isinstance(number, int) else -1
    if size is not None and number not in RESAMPLING:
        asked = show(settings["resample"])
        _warn(f"resample {asked} of the image processor is not done here; sizes change by bicubic interpolation")
    reverse = bool(settings.get("do_flip_channel_order"))
    return Processor(scale, shift, size, crop, RESAMPLING.get(number, "bicubic"), reverse, mean, std)


def _rescaling(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return the factor and the shift of values in [0, 1], of which a processor expects bytes."""
    if not settings.get("do_rescale"):
        if "do_rescale" in settings:
            _warn("the image processor does not rescale; values from 0 to 1 are given to the network as they are")
        return 1.0, 0.0
    factor = check_real("rescale_factor", settings.get("rescale_factor", 1 / 255))
    shift = -1.0 if settings.get("rescale_offset") else 0.0
    if abs(255.0 * factor - 1.0) <= 1e-4:
        return 1.0, shift
    _warn(f"the image processor multiplies bytes by {factor:g}, not by 1/255; values from 0 to 1 are scaled to match")
    return 255.0 * factor, shift


def _sizes(settings: Mapping[str, Any]) -> tuple[tuple[int, int] | int | None, tuple[int, int] | None]:
    size = _size("size", settings.get("size")) if settings.get("do_resize") else None
    if settings.get("do_center_crop"):
        crop = _size("crop_size", settings.get("crop_size"))
        crop = (crop, crop) if isinstance(crop, int) else crop
    elif isinstance(size, int) and settings.get("crop_pct"):  # a network that is shown the middle of a larger picture
        share, crop = check_real("crop_pct", settings["crop_pct"]), (size, size)
        if not 0.0 < share <= 1.0:
            raise InvalidInput(f"crop_pct must be in (0, 1]; got {share:g}")
        size = int(size / share) if size < 384 else crop
    else:
        return size, None
    _warn(
        f"the image processor cuts out the middle, {crop[0]}x{crop[1]}: pixels around it are part of the input, and of "
        "the certified ball, and never seen; better cut the data, before the noise (--resize, --crop)"
    )
    return size, crop


def _size(name: str, value: Any) -> tuple[int, int] | int:
    if isinstance(value, Mapping):
        if value.get("height") is not None and value.get("width") is not None:
            return _side(name, value["height"]), _side(name, value["width"])
        value = value.get("shortest_edge")
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return _side(name, value[0]), _side(name, value[1])
    return _side(name, value)


def _side(name: str, value: Any) -> int:
    return check_whole(name, value, 1, LARGEST_SIDE)


def _normalisation(settings: Mapping[str, Any]) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    if not settings.get("do_normalize"):
        return None, None
    found = []
    for name in ("image_mean", "image_std"):
        value = settings.get(name)
        parts = value if isinstance(value, (list, tuple)) else [value]
        found.append(tuple(check_real(name, part) for part in parts))
    mean, std = found
    if len(mean) != len(std) or min(std, default=0.0) <= 0.0:
        raise InvalidInput(f"image_mean and image_std must be one number a channel, std above 0; got {mean} and {std}")
    return mean, std


def _warn(text: str) -> None:
    warnings.warn(text, BucklerWarning, stacklevel=2)
