"""Independent normal noise of standard deviation sigma: from a margin to an l2 radius, rounded down.

Given the margin, these are deterministic facts about the smoothed classifier (T1); balls are open, since at the radius
itself two classes may tie.

- ``R2 = (sigma / 2) M2`` (Cohen, Rosenfeld and Kolter 2019).
- ``R1+ = sigma Phi^-1((1 + M1) / 2)``: what a first margin alone implies through the quantile radius, never below R1.
- ``R1 = M1 / (sqrt(2) L)`` with L the Lipschitz constant of the smoothed soft classifier; any map into the simplex
  smoothed with sigma has ``L <= 1 / (sigma sqrt(pi))``, so ``R1 = sigma sqrt(pi / 2) M1``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nextafter, pi, sqrt
from sys import float_info
from typing import ClassVar

from scipy.special import erf, ndtri

from buckler.errors import check_choice, check_positive
from buckler.types import Draws, Float32Array, MarginKind, RadiusKind

ROUNDING = 1.0 - 4e-15
"""Radii are multiplied by this (F10). ``scipy.special.ndtri`` is within 4e-16 of the quantile and every product within
an ulp of its own, so a tenth of that would do; the record of a certificate allows half for another machine's last
digits."""

MARGIN_ROUNDING = 1.0 + 1e-14
"""The margin that R1+ needs is multiplied by this: ``erf`` and its argument are within 1e-15 of theirs."""

SMALLEST = float_info.min
"""Radii below the smallest normal number are 0: there, a product is no longer right to a relative 1e-16."""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Normal noise of standard deviation ``sigma``, in the units of the input, independent in every coordinate.

    >>> Gaussian(0.25).describe()
    'Gaussian noise with sigma 0.25'
    """

    sigma: float

    name: ClassVar[str] = "gaussian"
    norm: ClassVar[str] = "l2"
    units: ClassVar[str] = "in the units of the input"
    closed: ClassVar[bool] = False
    kinds: ClassVar[Mapping[RadiusKind, MarginKind]] = {"R2": "quantile", "R1+": "probability", "R1": "probability"}

    draws: ClassVar[Draws] = "gaussian"
    total: ClassVar[int | None] = None
    idealised: ClassVar[str | None] = "real-valued noise, drawn and added in float32"

    def __post_init__(self) -> None:
        """Refuse a sigma that is not above zero."""
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))

    @property
    def parameters(self) -> dict[str, float]:
        """What ``laws.named`` needs beside the name to make this law again."""
        return {"sigma": self.sigma}

    @property
    def unit(self) -> float:
        """Sigma."""
        return self.sigma

    @property
    def spread(self) -> float:
        """What unit normals are multiplied by."""
        return self.sigma

    def price(self, dimension: int, draws: int) -> float:  # noqa: ARG002  (a law with one needs them)
        """Return 0: what the drawing leaves out is idealised, and said."""
        return 0.0

    def check_input(self, x: Float32Array) -> None:
        """Take any input of numbers."""

    def describe(self) -> str:
        """Return the noise in words."""
        return f"Gaussian noise with sigma {self.sigma:g}"

    def radius(self, margin: float, kind: RadiusKind) -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 if that is not positive.

        **Guarantee.** If the margin of class A at the input is at least ``margin``, the smoothed classifier predicts A
        everywhere in the open l2 ball of the radius.

        >>> Gaussian(0.25).radius(3.0, "R2") <= 0.375
        True
        >>> Gaussian(0.25).radius(0.5, "R1") < Gaussian(0.25).radius(0.5, "R1+")
        True
        """
        if not margin > 0.0:
            return 0.0
        if kind == "R2":
            radius = self.sigma * margin / 2.0 * ROUNDING
        elif kind == "R1+":
            radius = self.sigma * float(ndtri(nextafter((1.0 + margin) / 2.0, 0.0))) * ROUNDING
        else:
            return lipschitz_radius(margin, self.sigma)
        return radius if radius >= SMALLEST else 0.0

    def margin(self, radius: float, kind: RadiusKind) -> float:
        """Return the margin that a radius fixed beforehand needs, rounded up: for R2 or R1+; at most 1 for the latter.

        **Guarantee.** A margin above this, or of at least this where it is below 1, certifies the radius: for R1+ it is
        ``2 Phi(radius / sigma) - 1``.

        >>> Gaussian(0.5).margin(0.5, "R2") > 2.0
        True
        >>> round(Gaussian(0.5).margin(0.5, "R1+"), 6)
        0.682689
        """
        steps = nextafter(radius / self.sigma, inf)
        if check_choice("radius kind", kind, ("R2", "R1+")) == "R2":
            return nextafter(2.0 * steps, inf)
        return min(1.0, float(erf(steps / sqrt(2.0))) * MARGIN_ROUNDING)


def lipschitz_radius(margin: float, sigma: float, lipschitz: float | None = None) -> float:
    """Return R1, ``margin / (sqrt(2) L)`` rounded down, with L from smoothing or a smaller constant that is known.

    ``lipschitz`` is a known l2 constant of the *soft* base classifier (softmax at temperature T included, not of its
    logits): smoothing does not raise it, so it can only enlarge the radius.

    >>> lipschitz_radius(0.5, 1.0) < lipschitz_radius(0.5, 1.0, lipschitz=0.1) < 0.5 / (2**0.5 * 0.1)
    True
    """
    if not margin > 0.0:
        return 0.0
    slope = 1.0 / (sigma * sqrt(pi))
    if lipschitz is not None:
        slope = min(slope, check_positive("lipschitz", lipschitz))
    radius = nextafter(margin / (sqrt(2.0) * slope), -inf) * ROUNDING
    return radius if radius >= SMALLEST else 0.0
