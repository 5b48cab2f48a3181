"""Orderings of trinomial outcomes: statistics ``T(x1, x2)`` that rise with ``x1`` and fall with ``x2``.

``ordering.region(x1, x2, n, alpha, margin)`` returns the boundary (see ``trinomial``) of ``{y : T(y) >= T(x)}``, ties
included, and a margin near which to start searching; with ``ties=False`` the boundary of ``{y : T(y) > T(x)}``. Each
T is one deterministic function, evaluated identically on every outcome: the regions of all outcomes nest, which is
what Buehler's argument needs.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.special import betaincinv, ndtri

from buckler.bounds.curve import PROBABILITY, QUANTILE
from buckler.bounds.likelihood_ratio import STEP, fill_boundary, value
from buckler.errors import InvalidInput
from buckler.types import FloatArray, IntArray, MarginKind

LARGEST_TABLE = 2000
SMALLEST_Z = 0.5


class Ordering(Protocol):
    """What the inversion needs of an ordering."""

    def region(
        self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind, *, ties: bool = True
    ) -> tuple[IntArray, float]:
        """Return the boundary of ``{T >= T(x)}`` (``{T > T(x)}`` without ties) and a first guess of the limit."""


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Signed-root likelihood ratio of shifted counts (see ``likelihood_ratio``); the default.

    T is the largest margin below the estimate whose profile deviance reaches ``z^2``, ``z = Phi^-1(1 - alpha)``, on a
    grid of ``2^-30`` (see ``likelihood_ratio`` for the proof that T is monotone and its regions nest). Its regions
    run parallel to the margin curve, in standard errors, so the probability along the curve is close to alpha
    everywhere, which is what brings the limit close to the optimum.
    """

    def region(
        self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind, *, ties: bool = True
    ) -> tuple[IntArray, float]:
        """Return the boundary at the grid index of ``x``; without ties at the next index."""
        kind = PROBABILITY if margin == "probability" else QUANTILE
        zz = max(-float(ndtri(alpha)), SMALLEST_Z) ** 2
        k = value(kind, x1, x2, n, zz)
        c = np.zeros(n + 1, dtype=np.int64)
        if x1 == 0 and margin == "quantile" and ties:
            return c, k * STEP
        return c[: fill_boundary(kind, n, k if ties else k + 1, zz, c)], k * STEP


@lru_cache(maxsize=64)
def _clopper_pearson(n: int, alpha: float, margin: MarginKind) -> tuple[FloatArray, FloatArray]:
    k = np.arange(n + 1)
    low, high = np.zeros(n + 1), np.ones(n + 1)
    low[1:] = betaincinv(k[1:], n - k[1:] + 1, alpha)
    high[:-1] = 1.0 - low[:0:-1]
    if margin == "quantile":
        # The upper limit's quantile by symmetry, so that no 1 - p is formed.
        low, high = ndtri(low), -ndtri(low[::-1])
    return np.maximum.accumulate(low), np.maximum.accumulate(high)


@dataclass(frozen=True, slots=True)
class Bonferroni:
    """The difference of two Clopper-Pearson limits at ``alpha / 2`` each: ``T = u(x1) - v(x2)``.

    An ordering spends no alpha: the levels only shape T, and any others would be as valid.

    Monotone because u and v are made nondecreasing and a rounded difference is monotone in both its terms. T is a
    valid limit, so the inversion never falls below it.
    """

    def region(
        self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind, *, ties: bool = True
    ) -> tuple[IntArray, float]:
        """Return the boundary by binary search over ``x1`` in all columns at once."""
        u, v = _clopper_pearson(n, 0.5 * alpha, margin)
        seen = u[x1] - v[x2]
        j = np.arange(n + 1)
        low, high = np.full(n + 1, -1), n - j + 1
        while (high - low > 1).any():
            middle = np.clip((low + high) // 2, 0, n - j)
            at = u[middle] - v
            inside = at >= seen if ties else at > seen
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return _nonempty(high, n), float(np.clip(seen, *((-0.9, 0.9) if margin == "probability" else (-8.0, 8.0))))


@lru_cache(maxsize=8)
def _wald_table(n: int, z: float, margin: MarginKind) -> FloatArray:
    x1, x2 = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    with np.errstate(invalid="ignore"):
        p1, p2 = (x1 + 1.0) / (n + 3.0), (x2 + 1.0) / (n + 3.0)
        if margin == "probability":
            t = p1 - p2 - z * np.sqrt((p1 + p2 - (p1 - p2) ** 2) / (n + 3.0))
        else:
            u, v = ndtri(p1), ndtri(p2)
            slope1, slope2 = np.sqrt(2.0 * np.pi) * np.exp(0.5 * u * u), np.sqrt(2.0 * np.pi) * np.exp(0.5 * v * v)
            variance = slope1**2 * p1 * (1.0 - p1) + slope2**2 * p2 * (1.0 - p2) + 2.0 * slope1 * slope2 * p1 * p2
            t = u - v - z * np.sqrt(variance / (n + 3.0))
    t = np.where(x1 + x2 <= n, t, -np.inf)
    t = np.maximum.accumulate(t, axis=0)
    return np.asarray(np.maximum.accumulate(t[:, ::-1], axis=1)[:, ::-1])


@dataclass(frozen=True, slots=True)
class Wald:
    """Wald's limit with 1 added to each count, replaced by its majorant; ``n`` up to 2000, since it takes a table.

    Wald's limit alone is not monotone. ``T(x) = max {W(y) : y1 <= x1, y2 >= x2}`` is, and is the smallest such
    statistic above W.
    """

    z: float = 2.5

    def region(
        self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind, *, ties: bool = True
    ) -> tuple[IntArray, float]:
        """Return the boundary by counting, in each column, the outcomes below."""
        del alpha
        if n > LARGEST_TABLE:
            raise InvalidInput(f"the Wald ordering takes n up to {LARGEST_TABLE}; got {n}")
        table = _wald_table(n, self.z, margin)
        seen = table[x1, x2]
        outside = table < seen if ties else table <= seen
        c = np.minimum(outside.sum(axis=0), n + 1 - np.arange(n + 1))
        return _nonempty(c, n), float(np.clip(seen, *((-0.9, 0.9) if margin == "probability" else (-8.0, 8.0))))


def _nonempty(c: IntArray, n: int) -> IntArray:
    empty = c > n - np.arange(n + 1)
    last = int(np.argmax(empty)) if empty.any() else n + 1
    return np.ascontiguousarray(c[:last], dtype=np.int64)


DEFAULT = LikelihoodRatio()
