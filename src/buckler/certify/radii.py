"""A margin's lower limit and sigma -> a certified l2 radius, rounded down.

Given the margin, these are deterministic facts about the smoothed classifier; balls are open.

- ``R1 = M1 / (sqrt(2) L)`` with L the Lipschitz constant of the smoothed soft classifier; any map into the simplex
  smoothed with sigma has ``L <= 1 / (sigma sqrt(pi))``, so ``R1 = sigma sqrt(pi / 2) M1``.
- ``R1+ = sigma Phi^-1((1 + M1) / 2)``: what a first margin alone implies through the quantile radius, never below R1.
- ``R2 = (sigma / 2) M2`` (Cohen, Rosenfeld and Kolter 2019).
"""

from math import nextafter, pi, sqrt

from scipy.special import ndtri

from buckler.certify.margins import QUANTILE_ERROR
from buckler.errors import InvalidInput, check_positive
from buckler.types import MarginKind, RadiusKind

FOLLOWS_FROM: dict[RadiusKind, MarginKind] = {"R1": "probability", "R1+": "probability", "R2": "quantile"}

_ROUNDING = 1.0 - QUANTILE_ERROR


def default_radius(margin: MarginKind) -> RadiusKind:
    """Return the larger radius that follows from a kind of margin: R2, or R1+ for a first margin."""
    return "R2" if margin == "quantile" else "R1+"


def radius_from_margin(low: float, sigma: float, kind: RadiusKind, *, lipschitz: float | None = None) -> float:
    """Return the certified radius for a margin of at least ``low``; 0.0 if ``low <= 0``.

    ``lipschitz`` is a known l2 constant of the *soft* base classifier (softmax at temperature T included, not of its
    logits) and can only enlarge R1.

    >>> radius_from_margin(3.0, 0.25, "R2") <= 0.375
    True
    >>> radius_from_margin(0.5, 0.25, "R1") < radius_from_margin(0.5, 0.25, "R1+")
    True
    """
    check_positive("sigma", sigma)
    if lipschitz is not None and kind != "R1":
        raise InvalidInput(f"lipschitz serves the radius R1 alone; got radius {kind}")
    if not low > 0.0:
        return 0.0
    if kind == "R2":
        return sigma * low / 2.0 * _ROUNDING
    if kind == "R1+":
        half = nextafter((1.0 + low) / 2.0, 0.0)
        return max(0.0, sigma * float(ndtri(half)) * _ROUNDING)
    slope = 1.0 / (sigma * sqrt(pi))
    if lipschitz is not None:
        slope = min(slope, check_positive("lipschitz", lipschitz))
    return nextafter(low / (sqrt(2.0) * slope), 0.0) * _ROUNDING
