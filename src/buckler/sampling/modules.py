"""Classifiers from torch modules. Loads torch.

The module runs in eval mode without gradients; its mode is restored at the end. Lower precision is autocast:
weights and noisy inputs stay float32, and matrix products and convolutions run in ``dtype``.
"""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from buckler.errors import InvalidInput, check_choice, show
from buckler.sampling.classifiers import Dtype, one_output
from buckler.sampling.fusion import AVAILABLE, evaluating, fold, fuse
from buckler.types import AnyArray, Label


class NormalizedModule(nn.Module):
    """``x -> model((x - mean) / std)``, the normalisation a part of the model."""

    def __init__(self, model: nn.Module, mean: AnyArray, std: AnyArray) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> Any:
        """Return the model's output for the normalised batch."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return self.model((x - self.mean.view(shape)) / self.std.view(shape))  # type: ignore[operator]


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


class TorchClassifier:
    """A ``torch.nn.Module`` as a classifier; an output with ``.logits`` (transformers) is unwrapped."""

    classes: tuple[Label, ...] | None = None
    backend: Literal["numpy", "torch"] = "torch"

    def __init__(
        self,
        module: nn.Module,
        num_classes: int | None = None,
        *,
        device: str | None = None,
        dtype: Dtype = "float32",
        channels_last: bool = False,
        compile: bool = False,  # noqa: A002
    ) -> None:
        """Wrap the module; a copy is made only where another device or memory format is asked for.

        A ``dtype`` below float32 leaves the weights as they are and lets torch choose which operations run in it
        (autocast). Compiled, weights are constants of the program, and layers of few channels are fused where the
        device is CUDA, in such a ``dtype`` with ``channels_last`` (``fusion``).
        """
        check_choice("dtype", dtype, get_args(Dtype))
        for name, part in module.named_modules():
            if isinstance(part, _BatchNorm) and part.running_mean is None:
                raise InvalidInput(
                    f"model must be a function of one input; its part {name!r} normalises over the rows of a batch, "
                    "having no running statistics"
                )
        self.num_classes = infer_classes(module) if num_classes is None else num_classes
        here = next((p.device for p in (*module.parameters(), *module.buffers())), torch.device("cpu"))
        there = here if device is None else _device(device)
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._autocast = self._dtype is not torch.float32
        if there != here or channels_last:
            module = copy.deepcopy(module).to(there)
            if channels_last:
                module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.module = module
        self.device = str(there)
        self.compiled = compile
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        # Weights of another single type, float64 say, stay as they are, and inputs are cast to that type.
        weights = {p.dtype for p in module.parameters() if p.is_floating_point()}
        self._input = weights.pop() if len(weights) == 1 else torch.float32
        self._call: Any = None if compile else module
        self._history: Any = None
        self.files: Mapping[str, str] = {}
        # Sigma that denoisers inside are told: it must be that of the noise that is drawn.
        self.denoiser_sigmas = {part.denoiser_sigma for part in module.modules() if hasattr(part, "denoiser_sigma")}

    def __call__(self, batch: torch.Tensor, /) -> torch.Tensor:
        """Return float32 logits for a float32 batch on ``device``."""
        if self._call is None:
            self._call = self._compile(self._laid_out(batch))
        # Not inference_mode: folding weights into a compiled program needs ordinary tensors.
        with torch.no_grad():
            return self._logits(self._call, batch)

    def with_gradients(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the logits with the graph for gradients with respect to the batch.

        This runs uncompiled. If the classifier is compiled, normalisations are folded into its weights here too.
        """
        if self._history is None:
            folded = fold(self.module, self._laid_out(batch).to(self._input)) if self.compiled else None
            self._history = folded or self.module
        return self._logits(self._history, batch)

    def _laid_out(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.contiguous(memory_format=self._format) if batch.dim() == 4 else batch

    def _logits(self, call: Any, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(torch.device(self.device).type, self._dtype, enabled=self._autocast):
            out = call(self._laid_out(batch).to(self._input))
        logits = one_output(getattr(out, "logits", out))
        if not isinstance(logits, torch.Tensor):
            raise InvalidInput(f"a module must return a tensor of logits; got {show(out)}")
        return logits.float()

    def _compile(self, batch: torch.Tensor) -> Any:
        fused = None
        if AVAILABLE and batch.is_cuda and self._autocast and self._format is torch.channels_last:
            fused = fuse(self.module, self._dtype, batch)
        # Weights do not change while a classifier is certified, so they may be folded into the program.
        return torch.compile(fused or self.module, dynamic=False, options={"freezing": fused is None})

    def session(self) -> AbstractContextManager[None]:
        """Return a context in which every part of the module is in eval mode; it restores each part's mode."""
        return evaluating(self.module)


def infer_classes(module: nn.Module) -> int | None:
    """Return the number of classes: the configured one (transformers), or the width of the last linear layer.

    A guess: the first batch of logits is compared with it.
    """
    last = None
    for part in module.modules():
        configured = getattr(getattr(part, "config", None), "num_labels", None)
        if isinstance(configured, int) and configured >= 2:
            return configured
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            last = part
    return last.out_features if isinstance(last, nn.Linear) and last.out_features >= 2 else None


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise InvalidInput(f"device must be one that torch can use; got {name!r} ({show(str(problem), 100)})") from None
    return device if device.type != "cuda" or device.index is not None else torch.device("cuda", 0)
