"""A diffusion model as a denoiser: one step from a noisy image to an estimate of the clean one. Loads torch.

Carlini, Tramer, Dvijotham, Rice, Sun and Kolter, *(Certified!!) adversarial robustness for free!* (ICLR 2023). At time
t a diffusion model sees ``sqrt(abar_t) z + sqrt(1 - abar_t) noise`` of an image z in [-1, 1]. With ``z = 2 x - 1``,
noise of deviation sigma on x is of deviation ``2 sigma`` on z, so t is the step with
``sqrt((1 - abar_t) / abar_t) = 2 sigma``, and the noisy image times ``sqrt(abar_t)`` is what the model knows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from buckler.errors import InvalidInput, check_choice, check_float_array, check_positive, check_whole, show
from buckler.types import FloatArray

Predicts = Literal["epsilon", "sample", "v_prediction"]


class Diffusion(nn.Module):
    """``diffusion(x, sigma)``: the clean images in [0, 1], from images with noise of deviation ``sigma``, in one step.

    ``network(z, t)`` is the model, ``abar`` its schedule (``schedule``), ``predicts`` what it returns: the noise, the
    image, or the velocity. ``sigmas`` are the smallest and the largest deviation of the schedule; between two steps
    the nearer one is taken.
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
        """Return the time step whose noise is nearest to that of an image in [0, 1] with this deviation."""
        return int(np.abs(self._levels - 2.0 * sigma).argmin())

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        """Return the estimate, clipped to [0, 1]."""
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
    """Return the products ``abar_t`` of a schedule as diffusers writes it, in ``scheduler_config.json``.

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
