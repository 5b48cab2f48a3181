"""The two margins between the certified class A and another class j, and their limits.

- first or *probability* margin: ``p_A - p_j``;
- second or *quantile* margin: ``Phi^-1(p_A) - Phi^-1(p_j)``.

The margin of an input is the smallest over all j != A.
"""

import numpy as np
from scipy.special import ndtri

from buckler.types import ArrayLike, FloatArray, MarginKind

QUANTILE_ERROR = 4e-15
"""Relative error allowed for ``scipy.special.ndtri``, ten times what is seen against ball arithmetic (F10)."""


def margin(kind: MarginKind, p_top: ArrayLike, p_other: ArrayLike) -> FloatArray:
    """Return the margin of known probabilities, not rounded: for truths, not for limits.

    ``margin("quantile", 0, 0)`` is -inf: an outcome that never shows either class certifies nothing.

    >>> round(float(margin("quantile", 0.9, 0.1)), 6)
    2.563103
    """
    top, other = np.asarray(p_top, dtype=np.float64), np.asarray(p_other, dtype=np.float64)
    if kind == "probability":
        return np.asarray(top - other)
    with np.errstate(invalid="ignore"):
        value = ndtri(top) - ndtri(other)
    return np.where(np.isnan(value), -np.inf, value)


def margin_from_limits(kind: MarginKind, p_low: ArrayLike, p_high: ArrayLike) -> FloatArray:
    """Return the lower limit of the margin that follows from ``p_A >= p_low`` and ``p_j <= p_high``, rounded down.

    >>> float(margin_from_limits("probability", 0.75, 0.25)) < 0.5
    True
    """
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    if kind == "probability":
        return np.nextafter(low - high, -np.inf)
    a, b = ndtri(low), ndtri(high)
    with np.errstate(invalid="ignore"):
        value = a - b - QUANTILE_ERROR * (np.abs(a) + np.abs(b))
    # A limit of 0 for p_A, or of 1 for p_j, proves nothing.
    return np.where((low <= 0.0) | (high >= 1.0), -np.inf, value)
