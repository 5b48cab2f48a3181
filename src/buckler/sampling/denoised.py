"""A classifier behind a denoiser (``Denoised``), and an ensemble of classifiers (``Averaged``). Loads torch.

A classifier that was never trained under noise certifies next to nothing when it is smoothed as it is. With a denoiser
in front, the pair is one function of the noisy input, and smoothing certifies that function like any other (Salman,
Sun, Yang, Kapoor and Kolter, *Denoised smoothing*, NeurIPS 2020). Nothing is assumed of the denoiser: a poor one costs
radius, not the guarantee.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from buckler.errors import InvalidInput, MissingExtra, check_positive, check_real, show

try:
    import torch
except ImportError:
    raise MissingExtra("torch", "torch") from None
from torch import Tensor, nn


class Denoised(nn.Module):
    """``x -> classifier(to_classifier(denoiser(x)))``, for inputs with Gaussian noise of deviation ``sigma``.

    **Guarantee.** None of its own: it is a classifier, and a certificate is about the pair. ``Smoothed`` adds the
    noise, at the resolution of the input, and refuses another ``sigma``.

    ``denoiser`` and ``classifier`` are torch modules. A denoiser with a second argument that has no default, or is
    called sigma, is told the deviation: ``denoiser(x, sigma)``; any other is called with the images alone. Where it
    works in other units than the input, ``to_denoiser = (scale, shift)``: it sees ``scale x + shift``, is told
    ``scale sigma``, and its answer is taken back to the units of the input. ``to_classifier`` is what lies between the
    two, a resize for instance; normalisation may be put there too, or into the classifier (``Normalized``).
    """

    def __init__(
        self,
        denoiser: nn.Module,
        classifier: nn.Module,
        *,
        sigma: float,
        to_denoiser: tuple[float, float] | None = None,
        to_classifier: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Hold both; a sigma that the denoiser was not made for raises InvalidInput."""
        super().__init__()
        self.told_sigma = check_positive("sigma", sigma)
        scale, shift = (1.0, 0.0) if to_denoiser is None else to_denoiser
        self._scale = check_positive("the scale of to_denoiser", scale)
        self._shift = check_real("the shift of to_denoiser", shift)
        self._level = self._scale * self.told_sigma
        self._is_told = _is_told(check_module("denoiser", denoiser))
        low, high = getattr(denoiser, "sigmas", (0.0, float("inf")))
        if not low <= self._level <= high:
            raise InvalidInput(f"sigma must be from {low:g} to {high:g} for this denoiser; got {self._level:g}")
        if to_classifier is not None and not callable(to_classifier):
            raise InvalidInput(f"to_classifier must be a callable; got {show(to_classifier)}")
        # In this order: the number of classes is read off the last layer.
        self.denoiser, self.to_classifier = denoiser, to_classifier
        self.classifier = check_module("classifier", classifier)

    def forward(self, x: Tensor) -> Any:
        """Return the classifier's output for the denoised images."""
        seen = x if self._scale == 1.0 and self._shift == 0.0 else self._scale * x + self._shift
        clean = self.denoiser(seen, self._level) if self._is_told else self.denoiser(seen)
        if not isinstance(clean, Tensor) or clean.shape != x.shape:
            raise InvalidInput(f"a denoiser must return images of the shape {tuple(x.shape)}; got {_described(clean)}")
        if seen is not x:
            clean = (clean - self._shift) / self._scale
        return self.classifier(clean if self.to_classifier is None else self.to_classifier(clean))


class Averaged(nn.Module):
    """Ensemble: the mean of the logits of several classifiers."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if isinstance(models, nn.Module) or not models:
            raise InvalidInput(f"models must be a list of torch modules; got {show(models)}")
        self.models = nn.ModuleList(check_module("models", model) for model in models)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the logits."""
        answers = [model(x) for model in self.models]
        return torch.stack([getattr(answer, "logits", answer) for answer in answers]).mean(dim=0)


def check_module(name: str, model: Any) -> nn.Module:
    """Return a torch module; anything else raises InvalidInput."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"{name} must be a torch module; got {show(model)}")
    return model


def _is_told(denoiser: nn.Module) -> bool:
    """Return whether a denoiser takes sigma as its second argument."""
    if any(part.__name__ == "UNet2DModel" for part in type(denoiser).__mro__):
        raise InvalidInput("a UNet2DModel must be told its noise: wrap it in buckler.sampling.diffusion.Diffusion")
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in inspect.signature(denoiser.forward).parameters.values() if p.kind in positional]
    return len(taken) > 1 and (taken[1].default is inspect.Parameter.empty or taken[1].name == "sigma")


def _described(answer: Any) -> str:
    return str(tuple(answer.shape)) if isinstance(answer, Tensor) else show(answer)
