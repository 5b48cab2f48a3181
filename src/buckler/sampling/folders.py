"""Folders of transformers and diffusers -> classifiers and denoisers. Local files alone; weights from safetensors.

What an image processor does (``processors``) becomes part of the classifier, after the noise. Loads torch.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from buckler.errors import BucklerWarning, InvalidInput, MissingExtra, show
from buckler.files import checksum
from buckler.sampling.diffusion import Diffusion, schedule
from buckler.sampling.processors import Processor, read_processor, read_settings
from buckler.sampling.weights import weight_files

SCHEDULE = "scheduler_config.json"


class Prepared(nn.Module):
    """``model`` behind its processor: images in [0, 1] of any size -> what the model says of them."""

    def __init__(self, model: nn.Module, processor: Processor) -> None:
        super().__init__()
        self.model, self.processor = model, processor
        self.register_buffer("mean", torch.tensor(processor.mean or (0.0,), dtype=torch.float32))
        self.register_buffer("std", torch.tensor(processor.std or (1.0,), dtype=torch.float32))
        self.mean: Tensor
        self.std: Tensor

    def forward(self, x: Tensor) -> Any:
        """Return the model's output for the prepared batch."""
        steps, shape = self.processor, (1, -1, 1, 1)
        x = self._sized(steps.scale * x + steps.shift)
        if steps.reverse:
            x = x.flip(1)
        return self.model((x - self.mean.view(shape)) / self.std.view(shape))

    def _sized(self, x: Tensor) -> Tensor:
        size, crop = self.processor.size, self.processor.crop
        sides = (x.shape[2], x.shape[3])
        if sides == (crop or size) or (crop is None and isinstance(size, int) and min(sides) == size):
            return x
        if isinstance(size, int):
            size = tuple(round(side * size / min(sides)) for side in sides)  # type: ignore[assignment]
        if size is not None and size != sides:
            smooth = self.processor.resampling != "nearest"
            x = functional.interpolate(x, size, mode=self.processor.resampling, antialias=smooth)
        if crop is None:
            return x
        top, left = (x.shape[2] - crop[0]) // 2, (x.shape[3] - crop[1]) // 2
        if top < 0 or left < 0:
            raise InvalidInput(f"images must have at least {crop[0]}x{crop[1]} pixels here; got {tuple(x.shape[2:])}")
        return x[:, :, top : top + crop[0], left : left + crop[1]]


def load_transformers(folder: Path, normalise: bool = True) -> tuple[nn.Module, dict[str, str]]:
    """Return an image classifier saved in a folder, its processor inside of it, and the hashes of its files.

    Without ``normalise``, mean and std of the processor are left out: others are put around it.
    """
    model = _loaded("hf", folder, "transformers", "AutoModelForImageClassification", trust_remote_code=False)
    steps = read_processor(folder)
    if not normalise:
        steps = Processor(steps.scale, steps.shift, steps.size, steps.crop, steps.resampling, steps.reverse)
    return (model if steps == Processor() else Prepared(model, steps)), weight_files(folder)


def load_diffusers(folder: Path) -> tuple[Diffusion, dict[str, str]]:
    """Return the denoiser that a ``UNet2DModel`` saved in a folder makes, and the hashes of its files.

    The folder is the model's own or that of a pipeline with ``unet`` in it. The schedule is ``scheduler_config.json``
    in it, or in ``scheduler`` within or beside it; without one it is taken to be that of DDPM, with a warning.
    """
    unet = folder / "unet" if (folder / "unet" / "config.json").is_file() else folder
    places = [unet / SCHEDULE, unet / "scheduler" / SCHEDULE, unet.parent / "scheduler" / SCHEDULE]
    found = next((path for path in places if path.is_file()), None)
    settings = {} if found is None else read_settings(found)
    if found is None:
        text = f"{folder} has no {SCHEDULE}; the schedule is taken to be that of DDPM, linear from 1e-4 to 0.02"
        warnings.warn(text, BucklerWarning, stacklevel=2)
    config = read_settings(unet / "config.json") if (unet / "config.json").is_file() else {}
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


def _loaded(kind: str, folder: Path, package: str, name: str, **options: Any) -> nn.Module:
    if not (folder / "config.json").is_file():
        raise InvalidInput(f"{kind}: must be followed by a folder with config.json; got {str(folder)!r}")
    try:
        found = getattr(import_module(package), name)
    except ImportError:
        raise MissingExtra(package, "hf") from None
    try:
        with _without_bars(package):
            model = found.from_pretrained(str(folder), local_files_only=True, use_safetensors=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        raise InvalidInput(f"{kind}:{folder} cannot be loaded: {show(text, 200)}") from problem
    assert isinstance(model, nn.Module)  # noqa: S101  (what these two return)
    return model


@contextmanager
def _without_bars(package: str) -> Iterator[None]:
    """Let a library load without a bar of its own; commands show one where there is something to wait for."""
    log = import_module(f"{package}.utils.logging")
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()
