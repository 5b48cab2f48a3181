"""A classifier behind a denoiser (``Denoised``), and a diffusion model as a denoiser (``Diffusion``). Loads torch.

A classifier that was never trained under noise certifies next to nothing when it is smoothed as it is. With a denoiser
in front, the pair is one function of the noisy input, and smoothing certifies that function like any other (Salman,
Sun, Yang, Kapoor and Kolter, *Denoised smoothing*, NeurIPS 2020). Nothing is assumed of the denoiser: a poor one costs
radius, not the guarantee.

A diffusion model takes one step from a noisy image to an estimate of the clean one (Carlini, Tramer, Dvijotham, Rice,
Sun and Kolter, *(Certified!!) adversarial robustness for free!*, ICLR 2023). At time t it sees
``sqrt(abar_t) z + sqrt(1 - abar_t) noise`` of an image z in [-1, 1]. With ``z = 2 x - 1``, noise of deviation sigma on
x is of deviation ``2 sigma`` on z, so t is the step with ``sqrt((1 - abar_t) / abar_t) = 2 sigma``, and the model is
given the noisy image, as ``2 x - 1``, times ``sqrt(abar_t)``.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from buckler.errors import (
    InvalidInput,
    MissingExtra,
    check_choice,
    check_float_array,
    check_positive,
    check_real,
    check_whole,
    show,
)
from buckler.types import FloatArray

try:
    import torch
except ImportError:
    raise MissingExtra("torch", "torch") from None
from torch import Tensor, nn


class Denoised(nn.Module):
    """A module ``x -> classifier(to_classifier(denoiser(x)))``, for inputs with Gaussian noise of deviation ``sigma``.

    **Guarantee.** None of its own: it is a classifier, and a certificate is about the pair. ``Smoothed`` adds the
    noise, at the resolution of the input, and refuses another ``sigma``.

    ``denoiser`` and ``classifier`` are torch modules. A denoiser with a second argument that has no default, or is
    called sigma, is told the deviation: ``denoiser(x, sigma)``; any other is called with the images alone. Where the
    denoiser works in other units than the input, give ``to_denoiser = (scale, shift)``: it is then called with
    ``scale x + shift`` and ``scale sigma``, and its output is taken back to the units of the input. ``to_classifier``
    is a function applied between the two, a resize for instance; normalisation may be put there too, or into the
    classifier (``Normalized``).
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
        """Join denoiser and classifier; a sigma that the denoiser was not made for raises InvalidInput."""
        super().__init__()
        self.denoiser_sigma = check_positive("sigma", sigma)
        scale, shift = (1.0, 0.0) if to_denoiser is None else to_denoiser
        self._scale = check_positive("the scale of to_denoiser", scale)
        self._shift = check_real("the shift of to_denoiser", shift)
        self._level = self._scale * self.denoiser_sigma
        self._is_told = _is_told(check_module("denoiser", denoiser))
        low, high = getattr(denoiser, "sigmas", (0.0, float("inf")))
        if not low <= self._level <= high:
            low, high = low / scale, high / scale
            raise InvalidInput(f"sigma must be from {low:g} to {high:g} for this denoiser; got {self.denoiser_sigma:g}")
        if to_classifier is not None and not callable(to_classifier):
            raise InvalidInput(f"to_classifier must be a callable; got {show(to_classifier)}")
        # In this order: the number of classes is read off the last layer.
        self.denoiser, self.to_classifier = denoiser, to_classifier
        self.classifier = check_module("classifier", classifier)
        self.buckler_image_shape = getattr(classifier, "buckler_image_shape", ()) if to_classifier is None else ()

    def forward(self, x: Tensor) -> Any:
        """Return the classifier's output for images ``x`` with noise, after the denoiser."""
        seen = x if self._scale == 1.0 and self._shift == 0.0 else self._scale * x + self._shift
        clean = self.denoiser(seen, self._level) if self._is_told else self.denoiser(seen)
        if not isinstance(clean, Tensor) or clean.shape != x.shape:
            raise InvalidInput(f"a denoiser must return images of the shape {tuple(x.shape)}; got {_described(clean)}")
        if seen is not x:
            clean = (clean - self._shift) / self._scale
        return self.classifier(clean if self.to_classifier is None else self.to_classifier(clean))


def check_module(name: str, model: Any) -> nn.Module:
    """Return ``model`` if it is a torch module; anything else raises InvalidInput, which calls it ``name``."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"{name} must be a torch module; got {show(model)}")
    return model


def _is_told(denoiser: nn.Module) -> bool:
    """Return whether a denoiser takes sigma as its second argument."""
    if any(part.__name__ == "UNet2DModel" for part in type(denoiser).__mro__):
        raise InvalidInput("a UNet2DModel must be told its noise: wrap it in buckler.sampling.denoised.Diffusion")
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in inspect.signature(denoiser.forward).parameters.values() if p.kind in positional]
    return len(taken) > 1 and (taken[1].default is inspect.Parameter.empty or taken[1].name == "sigma")


def _described(answer: Any) -> str:
    return str(tuple(answer.shape)) if isinstance(answer, Tensor) else show(answer)


Predicts = Literal["epsilon", "sample", "v_prediction"]


class Diffusion(nn.Module):
    """A denoiser made of a diffusion model: ``diffusion(x, sigma)`` estimates the clean images in [0, 1], in one step.

    ``x`` are images with Gaussian noise of deviation ``sigma``. ``network(z, t)`` is the diffusion model at time step
    t; ``abar`` are the products ``abar_t`` of its schedule (``schedule``), which fall with t; ``predicts`` says what
    the network returns: the noise (epsilon), the image (sample) or the velocity (v_prediction). ``sigmas`` are the
    smallest and the largest deviation of the schedule; between two steps the nearer one is taken.
    """

    def __init__(self, network: nn.Module, abar: Sequence[float] | FloatArray, predicts: Predicts = "epsilon") -> None:
        super().__init__()
        check_choice("predicts", predicts, ("epsilon", "sample", "v_prediction"))
        kept = check_float_array("abar", abar)
        if kept.ndim != 1 or not len(kept) or not (kept > 0).all() or not (kept < 1).all() or (np.diff(kept) > 0).any():
            raise InvalidInput(f"abar must fall from below 1 to above 0; got {show(abar)}")
        self.network, self._predicts = network, predicts
        self._abar = [float(value) for value in kept]
        self._levels = np.sqrt((1.0 - kept) / kept)
        self.sigmas = (float(self._levels[0]) / 2.0, float(self._levels[-1]) / 2.0)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def step(self, sigma: float) -> int:
        """Return the time step t whose noise is nearest to noise of deviation ``sigma`` on images in [0, 1]."""
        return int(np.abs(self._levels - 2.0 * sigma).argmin())

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        """Return the estimate of the clean images, clipped to [0, 1]."""
        t = self.step(sigma)
        image, noise = math.sqrt(self._abar[t]), math.sqrt(1.0 - self._abar[t])
        z = image * (2.0 * x - 1.0)
        answer = self.network(z, t)
        told: Tensor = getattr(answer, "sample", answer)[:, : x.shape[1]]  # the rest, if any, is a learned variance
        if self._predicts == "epsilon":
            told = (z - noise * told) / image
        elif self._predicts == "v_prediction":
            told = image * z - noise * told
        return ((told.float() + 1.0) / 2.0).clamp(0.0, 1.0)


def schedule(settings: Mapping[str, Any]) -> FloatArray:
    """Return the schedule ``abar_t = (1 - beta_0) ... (1 - beta_t)`` of settings as in ``scheduler_config.json``.

    The file is written by diffusers. At step t the model is given ``sqrt(abar_t)`` times an image, plus noise.

    >>> abar = schedule({"beta_schedule": "linear", "beta_start": 1e-4, "beta_end": 0.02, "num_train_timesteps": 1000})
    >>> len(abar), round(float(abar[0]), 6), f"{abar[-1]:.3g}"
    (1000, 0.9999, '4.04e-05')
    """
    steps = check_whole("num_train_timesteps", settings.get("num_train_timesteps", 1000), 1, 1 << 20)
    kind = check_choice(
        "beta_schedule", settings.get("beta_schedule", "linear"), ("linear", "scaled_linear", "squaredcos_cap_v2")
    )
    start, end = (check_positive(k, settings.get(k, usual)) for k, usual in (("beta_start", 1e-4), ("beta_end", 0.02)))
    if settings.get("rescale_betas_zero_snr"):
        raise InvalidInput("rescale_betas_zero_snr must be off: its last step holds no image")
    if settings.get("trained_betas") is not None:
        betas = check_float_array("trained_betas", settings["trained_betas"])
    elif kind == "squaredcos_cap_v2":
        angles = (np.arange(steps + 1) / steps + 0.008) / 1.008 * (np.pi / 2)
        betas = np.minimum(1.0 - (np.cos(angles[1:]) / np.cos(angles[:-1])) ** 2, 0.999)
    else:
        power = 2.0 if kind == "scaled_linear" else 1.0
        betas = np.linspace(start ** (1 / power), end ** (1 / power), steps) ** power
    if betas.ndim != 1 or not ((betas > 0) & (betas < 1)).all():
        raise InvalidInput(f"the betas of a schedule must lie between 0 and 1; got {show(betas)}")
    return np.asarray(np.cumprod(1.0 - betas), dtype=np.float64)
