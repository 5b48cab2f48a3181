"""``Phi_M^-1``: the Taylor series of the Gaussian quantile about 1/2, of order M (the paper, proofs appendix).

With ``u = 2p - 1``: ``Phi_M^-1(p) = sqrt(2) sum_{k <= M} c_k / (2k + 1) (sqrt(pi)/2 u)^(2k + 1)``, ``c_0 = 1`` and
``c_k = sum_{m < k} c_m c_{k-1-m} / ((m + 1)(2m + 1))``. All coefficients are positive, so the series is odd about 1/2,
increasing, bounded, and nearer to zero than the quantile itself: below it above 1/2, above it below 1/2.
"""

from functools import lru_cache
from math import pi, sqrt

import numpy as np

from buckler.errors import check_whole
from buckler.types import ArrayLike, FloatArray

NEWTON_STEPS = 4


@lru_cache(maxsize=64)
def series(order: int) -> tuple[float, ...]:
    """Return the coefficients ``a_k`` of ``Phi_M^-1(p) = sum_k a_k u^(2k + 1)``, ``u = 2p - 1``, k = 0 .. order.

    >>> [round(a, 6) for a in series(2)]
    [1.253314, 0.328117, 0.180392]
    """
    c = np.ones(check_whole("order", order, 0) + 1)
    m = np.arange(order)
    weights = 1.0 / ((m + 1) * (2 * m + 1))
    for k in range(1, order + 1):
        c[k] = np.sum(c[:k] * c[:k][::-1] * weights[:k])
    return tuple(sqrt(2.0) * float(c[k]) / (2 * k + 1) * (sqrt(pi) / 2.0) ** (2 * k + 1) for k in range(order + 1))


def odd_series(u: FloatArray, order: int) -> FloatArray:
    """Return ``sum_k a_k u^(2k + 1)`` by Horner's rule; exactly odd in floating point."""
    square, total = u * u, np.zeros_like(u)
    for a in reversed(series(order)):
        total = total * square + a
    return u * total


def published_quantile(p: ArrayLike, order: int = 10) -> FloatArray:
    """Return ``Phi_M^-1(p)`` for p in [0, 1]; finite at both ends.

    >>> float(published_quantile(1.0, 10).round(4))
    2.2812
    """
    return odd_series(2.0 * np.asarray(p, dtype=np.float64) - 1.0, order)


@lru_cache(maxsize=64)
def _table(order: int) -> tuple[FloatArray, FloatArray]:
    u = np.linspace(0.0, 1.0, 1025)
    return odd_series(u, order), u


def published_quantile_inverse(z: ArrayLike, order: int = 10) -> FloatArray:
    """Return the p in [0, 1] with ``Phi_M^-1(p) = z``; 0 or 1 beyond the range of the series.

    Newton's rule from a table: the series is convex in ``u >= 0``, so from the second step on it falls to the root.

    >>> float(published_quantile_inverse(published_quantile(0.9)).round(12))
    0.9
    """
    goal = np.asarray(z, dtype=np.float64)
    size = np.abs(goal)
    slopes = [(2 * k + 1) * a for k, a in enumerate(series(order))]
    u = np.interp(size, *_table(order))
    for _ in range(NEWTON_STEPS):
        square, slope = u * u, np.zeros_like(u)
        for a in reversed(slopes):
            slope = slope * square + a
        u = np.clip(u - (odd_series(u, order) - size) / slope, 0.0, 1.0)
    return 0.5 * (1.0 + np.copysign(u, goal))
