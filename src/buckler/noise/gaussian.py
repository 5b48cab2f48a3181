"""Gaussian noise of standard deviation sigma, and the conversion of a margin to an l2 radius, rounded down (T1).

Balls are open: at the radius itself two classes may tie.

- ``R2 = (sigma / 2) M2``, for the quantile margin M2 (Cohen, Rosenfeld and Kolter 2019).
- ``R1+ = sigma Phi^-1((1 + M1) / 2)``, for the probability margin M1: R2 of the least M2 that M1 allows.
"""

from dataclasses import dataclass
from math import inf, nextafter, sqrt
from sys import float_info
from typing import Any, ClassVar

import numpy as np
from scipy.special import erf, ndtri

from buckler.errors import InvalidInput, check_choice, check_float_array, check_positive, show
from buckler.noise.base import BaseNoise
from buckler.types import DrawKind, Float32Array, FloatArray, MarginKind

RADIUS_ROUNDING = 1.0 - 4e-15
"""Factor that rounds radii down (F10). ``scipy.special.ndtri`` is within 4e-16 of the quantile and each product within
an ulp, so a tenth of this would do; half of it is left to the last digits of another machine (``RADIUS_TOLERANCE``)."""

MARGIN_ROUNDING = 1.0 + 1e-14
"""Factor that rounds the probability margin of a radius up: ``erf`` and its argument are within 1e-15."""

SMALLEST_RADIUS = float_info.min
"""Smaller radii are set to 0: below the smallest normal number a product has no relative accuracy of 1e-16."""


MOST_NUMBERS = 1024
"""Most numbers of a ``scale``, one for each channel or feature say: every certificate repeats them."""

LEAST_SPACINGS = 2.0**10
"""Least standard deviation of a value's noise, in spacings of float32 at that value: rounding then moves a noisy value
by less than 2^-10 deviations, and so does the conversion of a float64 input."""

SMALLEST_NORMAL, LARGEST_DEVIATION = float(np.finfo(np.float32).tiny), 1e30
"""Bounds of the noise's standard deviation: ``LEAST_SPACINGS * SMALLEST_NORMAL``, since devices may flush numbers below
``SMALLEST_NORMAL`` to 0, and ``LARGEST_DEVIATION``."""


@dataclass(frozen=True, slots=True, repr=False)
class Gaussian(BaseNoise):
    """Normal noise of standard deviation ``sigma``, in the units of the input, independent in every coordinate.

    With a ``scale``, positive numbers whose shape broadcasts to that of an input, the deviation is ``sigma * scale``
    (sigma is 1 if None), and a radius limits the l2 norm of ``delta / scale`` for a change delta of the input:
    certified regions are ellipsoids (T31). Fix the scale beforehand, the same for all inputs.

    >>> Gaussian(0.25).describe()
    'Gaussian noise with sigma 0.25'
    >>> Gaussian(scale=[[[0.5]], [[0.25]]]).describe()
    'Gaussian noise with sigma 1 times a scale from 0.25 to 0.5'
    """

    sigma: float = None  # type: ignore[assignment]  # 1 with a scale, checked in __post_init__
    scale: Any = None

    name: ClassVar[str] = "gaussian"
    closed: ClassVar[bool] = False
    margins: ClassVar[tuple[MarginKind, ...]] = ("quantile", "probability")
    draws: ClassVar[DrawKind] = "gaussian"
    idealised: ClassVar[str | None] = "real-valued noise, drawn and added in float32"

    def __post_init__(self) -> None:
        """Check that sigma and scale are positive, and keep the scale as nested tuples."""
        if self.scale is not None:
            scale = check_float_array("scale", self.scale)
            if not 1 <= scale.size <= MOST_NUMBERS or not (scale > 0.0).all():
                raise InvalidInput(f"scale must be 1 to {MOST_NUMBERS} numbers above 0; got {show(self.scale)}")
            object.__setattr__(self, "scale", nested(scale.tolist()))
        sigma = 1.0 if self.sigma is None and self.scale is not None else self.sigma
        object.__setattr__(self, "sigma", check_positive("sigma", sigma))

    def __repr__(self) -> str:
        return f"Gaussian(sigma={self.sigma!r}{'' if self.scale is None else f', scale={self.scale!r}'})"

    @property
    def norm(self) -> str:  # type: ignore[override]  # a class variable of the base
        """``l2``, or with a scale ``scaled l2``: the l2 norm of a change of the input divided by the scale."""
        return "l2" if self.scale is None else "scaled l2"

    @property
    def units(self) -> str:  # type: ignore[override]
        """The units of radii, as text."""
        return "in the units of the input" if self.scale is None else "after division by the scale of the noise"

    @property
    def unit(self) -> float:
        """A length that scales tables of radii: sigma."""
        return self.sigma

    @property
    def _deviation(self) -> FloatArray:
        return self.sigma * np.asarray(1.0 if self.scale is None else self.scale, dtype=np.float64)

    @property
    def spread(self) -> Float32Array:
        """What unit normal numbers are multiplied by to be the noise: sigma times scale in float32, rounded up.

        Radii use sigma itself: noise with a larger deviation has larger radii, so they hold (T1).
        """
        with np.errstate(over="ignore"):  # such a sigma is refused for every input
            near = self._deviation.astype(np.float32)
        return np.where(near < self._deviation, np.nextafter(near, np.float32(inf)), near)

    def check_input(self, x: Float32Array) -> None:
        """Raise InvalidInput if the scale does not broadcast to ``x``, or float32 would round away noise on ``x``."""
        deviation = self._deviation
        shape = deviation.shape
        if len(shape) > x.ndim or any(a not in {1, b} for a, b in zip(shape[::-1], x.shape[::-1], strict=False)):
            raise InvalidInput(f"x must have a shape to which the shape {shape} of scale broadcasts; got {x.shape}")
        largest = np.maximum(x.max(initial=0.0), -x.min(initial=0.0)) if self.scale is None else np.abs(x)
        least = LEAST_SPACINGS * np.maximum(np.spacing(largest), SMALLEST_NORMAL).astype(np.float64)
        fits = (deviation >= least) & (deviation <= LARGEST_DEVIATION)
        if not fits.all():
            found = (np.broadcast_to(each, fits.shape)[~fits][0] for each in (least, largest, deviation))
            low, value, came = map(float, found)
            raise InvalidInput(
                f"sigma{'' if self.scale is None else ' times scale'} must be from {low:.3g} ({LEAST_SPACINGS:g} "
                f"spacings of float32) to {LARGEST_DEVIATION:g} for an input with values up to {value:.9g}; got "
                f"{came:.3g}. Shift or scale the input, and undo it inside of the model"
            )

    def describe(self) -> str:
        """Return a text that describes the noise."""
        if self.scale is None:
            return f"Gaussian noise with sigma {self.sigma:g}"
        low, high = np.min(self.scale), np.max(self.scale)
        scale = f"a scale of {low:g}" if low == high else f"a scale from {low:g} to {high:g}"
        return f"Gaussian noise with sigma {self.sigma:g} times {scale}"

    def radius(self, margin: float, kind: MarginKind = "quantile") -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 if that is not positive.

        **Guarantee.** If the margin of class A at the input is at least ``margin``, the smoothed classifier predicts A
        everywhere in the open l2 ball of the radius: ``sigma margin / 2`` (R2) for the quantile margin, ``sigma
        Phi^-1((1 + margin) / 2)`` (R1+) for the probability margin.

        >>> Gaussian(0.25).radius(3.0, "quantile") <= 0.375
        True
        """
        if not margin > 0.0:
            return 0.0
        if check_choice("kind", kind, self.margins) == "quantile":
            radius = self.sigma * margin / 2.0 * RADIUS_ROUNDING
        else:
            radius = self.sigma * float(ndtri(nextafter((1.0 + margin) / 2.0, 0.0))) * RADIUS_ROUNDING
        return radius if radius >= SMALLEST_RADIUS else 0.0

    def margin(self, radius: float, kind: MarginKind = "quantile") -> float:
        """Return the margin that a radius fixed beforehand needs, rounded up; a probability margin is at most 1.

        **Guarantee.** A margin above this, or of at least this where it is below 1, certifies the radius. The quantile
        margin is ``2 radius / sigma``, the probability margin ``2 Phi(radius / sigma) - 1``.

        >>> Gaussian(0.5).margin(0.5, "quantile") > 2.0
        True
        >>> round(Gaussian(0.5).margin(0.5, "probability"), 6)
        0.682689
        """
        steps = nextafter(radius / self.sigma, inf)
        if check_choice("kind", kind, self.margins) == "quantile":
            return nextafter(2.0 * steps, inf)
        return min(1.0, float(erf(steps / sqrt(2.0))) * MARGIN_ROUNDING)


def nested(values: Any) -> Any:
    """Return nested lists as nested tuples, which can be hashed."""
    return tuple(map(nested, values)) if isinstance(values, list) else values
