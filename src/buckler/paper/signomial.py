"""The paper's optimisation problem: the series of its quantile, its signomial programme, and three ways to attack it.

The observed estimate is ``theta~ = g(x/n)`` and its law ``Pi(theta~ | q) = P_q(g(X/n) <= theta~)``; the paper asks for
``inf {Pi(theta~ | q) : g(q) <= L}``. First margin: ``g = q1 - q2`` over the whole simplex. Second margin:
``g = Phi_M^-1(q1) - Phi_M^-1(q2)`` over ``chi^2 = {q1 >= 1/2}``, which is what Algorithm 6 asks of its Clopper-Pearson
gate and where the paper compares ``Phi_M^-1`` with ``Phi^-1``.

``Phi_M^-1`` is the Taylor series of the Gaussian quantile about 1/2, of order M (its proofs appendix). With
``u = 2p - 1``: ``Phi_M^-1(p) = sqrt(2) sum_{k <= M} c_k / (2k + 1) (sqrt(pi)/2 u)^(2k + 1)``, ``c_0 = 1`` and
``c_k = sum_{m < k} c_m c_{k-1-m} / ((m + 1)(2m + 1))``. All coefficients are positive, so the series is odd about 1/2,
increasing, bounded, and nearer to zero than the quantile itself: below it above 1/2, above it below 1/2.

A *monomial* is ``c x_1^a_1 ... x_v^a_v`` with c > 0; a *signomial* is a linear combination of monomials (the paper's
first appendix). A signomial programme is not convex, and SciPy's solver is a local one: ``solve`` (the paper's
SolveSignomial) starts it from many points, ``fast_solve`` (FastSolveSignomial) from one. Either value is attained at a
feasible point, hence is an *upper* bound of the infimum; neither is a proof of a lower one.

``curve_infimum`` finds the same infimum in less time. ``Pi(theta~ | q)`` is the probability of a set of outcomes that
is closed under losing a vote for class 1 and gaining one for class 2, so it falls with q1 and rises with q2: its
infimum lies on the curve ``g(q) = L``. This is a search (a grid and three zooms), not a proof: enough for an estimator
that has none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from buckler.bounds.trinomial import Region, make_region, region_probabilities
from buckler.errors import check_whole
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

NEWTON_STEPS = 4

SMALLEST_VARIABLE = 1e-10
"""Smallest value of a programme's variable: they are positive, and this closes their range."""

FEASIBLE = 1e-7
"""Largest violation of a constraint at a point that still counts as feasible."""

LATTICE = 8
"""``published_starts`` are the observed frequencies and the inner points of a lattice of the simplex with this many
steps."""

CURVE_GRID_POINTS, ZOOM_POINTS, ZOOMS = 49, 13, 3
DROPPED = 1e-15
"""For ``curve_infimum``: number of points of the curve, of points of a zoom, and of zooms; largest probability that a
sum leaves out."""


@lru_cache(maxsize=64)
def series(order: int) -> tuple[float, ...]:
    """Return the Taylor coefficients about 1/2 of the normal quantile ``Phi^-1(p)``, ``order + 1`` of them.

    They are ``a_k`` in ``sum_k a_k u^(2k + 1)``, ``u = 2p - 1``, for k = 0, ..., order; the other powers have none.

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
    """Return the Taylor series of the normal quantile of ``p = (1 + u)/2``, of ``series(order)``; exactly odd in u."""
    square, total = u * u, np.zeros_like(u)
    for a in reversed(series(order)):
        total = total * square + a
    return u * total


def published_quantile(p: ArrayLike, order: int = 10) -> FloatArray:
    """Return the paper's ``Phi_M^-1(p)``, the Taylor series of the normal quantile to order M; finite at p = 0 and 1.

    >>> float(published_quantile(1.0, 10).round(4))
    2.2812
    """
    return odd_series(2.0 * np.asarray(p, dtype=np.float64) - 1.0, order)


@lru_cache(maxsize=64)
def _quantile_table(order: int) -> tuple[FloatArray, FloatArray]:
    u = np.linspace(0.0, 1.0, 1025)
    return odd_series(u, order), u


def published_quantile_inverse(z: ArrayLike, order: int = 10) -> FloatArray:
    """Return the p in [0, 1] with ``published_quantile(p, order) = z``; 0 or 1 beyond the range of the series.

    Newton's rule from a table: the series is convex in ``u >= 0``, so from the second step on it falls to the root.

    >>> float(published_quantile_inverse(published_quantile(0.9)).round(12))
    0.9
    """
    goal = np.asarray(z, dtype=np.float64)
    size = np.abs(goal)
    slopes = [(2 * k + 1) * a for k, a in enumerate(series(order))]
    u = np.interp(size, *_quantile_table(order))
    for _ in range(NEWTON_STEPS):
        square, slope = u * u, np.zeros_like(u)
        for a in reversed(slopes):
            slope = slope * square + a
        u = np.clip(u - (odd_series(u, order) - size) / slope, 0.0, 1.0)
    return 0.5 * (1.0 + np.copysign(u, goal))


@dataclass(frozen=True, eq=False)
class Signomial:
    """Function of positive x: ``sum over k of signs[k] exp(logs[k]) prod over v of x[v] ** exponents[k, v]``.

    Coefficients are kept as logarithms, since 1000! is not a float.
    """

    signs: FloatArray
    logs: FloatArray
    exponents: FloatArray

    @classmethod
    def of(cls, terms: Iterable[tuple[float, Sequence[float]]]) -> "Signomial":
        """Return the signomial with these ``terms``, pairs of a coefficient and the variables' exponents.

        Those with a coefficient of 0 are dropped.
        """
        coefficients, exponents = zip(*(term for term in terms if term[0] != 0.0), strict=True)
        signed = np.array(coefficients, dtype=np.float64)
        return cls(np.sign(signed), np.log(np.abs(signed)), np.array(exponents, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.logs)

    def _terms(self, x: FloatArray) -> FloatArray:
        return self.signs * np.exp(self.logs + self.exponents @ np.log(np.maximum(x, SMALLEST_VARIABLE)))

    def value(self, x: FloatArray) -> float:
        """Return the signomial's value at a point with positive coordinates."""
        return float(self._terms(x).sum())

    def gradient(self, x: FloatArray) -> FloatArray:
        """Return the partial derivatives: each monomial's exponent over the variable, times the monomial."""
        return np.asarray(self._terms(x) @ self.exponents / np.maximum(x, SMALLEST_VARIABLE), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class SignomialProgram:
    """Programme to minimise ``objective`` over variables in (0, 1] under ``above[i] >= 0`` and ``zero[i] = 0``."""

    objective: Signomial
    above: tuple[Signomial, ...]
    zero: tuple[Signomial, ...] = ()

    def feasible(self, x: FloatArray) -> bool:
        """Return whether the point x keeps every constraint, to within ``FEASIBLE``."""
        kept = [f.value(x) >= -FEASIBLE for f in self.above] + [abs(f.value(x)) <= FEASIBLE for f in self.zero]
        return all(kept)

    def fast_solve(self, start: FloatArray, steps: int = 20) -> float:
        """Return the least value that one local search finds from ``start``, in at most ``steps`` steps.

        It is the paper's FastSolveSignomial. A search that ends outside of the feasible set has found nothing, and
        gives 1, the largest value of a probability.
        """
        constraints: Any = [
            *({"type": "ineq", "fun": f.value, "jac": f.gradient} for f in self.above),
            *({"type": "eq", "fun": f.value, "jac": f.gradient} for f in self.zero),
        ]
        found = minimize(
            self.objective.value,
            np.clip(start, SMALLEST_VARIABLE, 1.0),
            jac=self.objective.gradient,
            method="SLSQP",
            bounds=[(SMALLEST_VARIABLE, 1.0)] * len(start),
            constraints=constraints,
            options={"maxiter": steps, "ftol": 1e-14},
        )
        return min(float(found.fun), 1.0) if self.feasible(found.x) else 1.0

    def solve(self, starts: Sequence[FloatArray]) -> float:
        """Return the least value that local searches find from all of ``starts``; it is the paper's SolveSignomial."""
        return min(self.fast_solve(start, steps=200) for start in starts)


@lru_cache(maxsize=64)
def frequency_terms(n: int, margin: MarginKind, order: int) -> FloatArray:
    """Return the terms ``h[n + 1]`` of the estimated margin: ``h[x1] - h[x2]`` for classes with x1 and x2 of n votes.

    ``h[k]`` is ``k/n`` ("probability") or ``Phi_M^-1(k/n)`` ("quantile"), M = ``order``.
    """
    k = np.arange(n + 1)
    return k / n if margin == "probability" else odd_series((2 * k - n) / n, order)


def published_counted(theta: float, n: int, margin: MarginKind, order: int, *, inclusive: bool = False) -> IntArray:
    """Return for x2 = 0, ..., n votes for the rival how many x1 = 0, 1, ... for the class are counted by the paper.

    They are those whose estimated margin (``frequency_terms``) is at most ``theta``, the observed one. If
    ``inclusive``, it is below ``theta``: ties count in the tail beyond, as a lower limit needs.
    """
    values = frequency_terms(n, margin, order)
    if margin == "probability":  # whole numbers, in which ties are exact
        values, theta = np.arange(n + 1.0), float(round(theta * n))
    counted = np.searchsorted(values, values + theta)
    # The sum rounds; the difference is what theta~ was computed as, so that the observed outcome ties with itself.
    for _ in range(2):
        gap = values[np.minimum(counted, n)] - values
        counted += (counted <= n) & (gap < theta if inclusive else gap <= theta)
    gap = values[np.maximum(counted - 1, 0)] - values
    counted -= (counted > 0) & (gap >= theta if inclusive else gap > theta)
    return np.minimum(counted, n + 1 - np.arange(n + 1))


def published_program(counted: IntArray, n: int, L: float, margin: MarginKind, order: int = 10) -> SignomialProgram:
    """Return the paper's programme: the least probability of the ``counted`` outcomes under a margin of at most ``L``.

    ``counted`` is what ``published_counted`` returns for n draws. For the probability margin the variables are the
    probabilities q1, q2, q3 of the class, its rival and the rest. The quantile margin has also ``u1 = 2 q1 - 1`` and
    ``u2 = 1 - 2 q2``, positive where ``q1 > 1/2 > q2``, in which the Taylor constraint ``L - sum a_k u1^(2k+1) -
    sum a_k u2^(2k+1) >= 0`` is a signomial of 2M + 3 terms, M = ``order``; multiplied out in q1 and q2 it would lose
    all digits by order 25.
    """
    v = 5 if margin == "quantile" else 3
    x2 = np.repeat(np.arange(n + 1), counted)
    x1 = np.concatenate([np.arange(k) for k in counted.tolist()])
    x = np.column_stack([x1, x2, n - x1 - x2]).astype(np.float64)
    objective = Signomial(
        np.ones(len(x)), gammaln(n + 1.0) - gammaln(x + 1.0).sum(axis=1), np.hstack([x, np.zeros((len(x), v - 3))])
    )

    def power(variable: int, exponent: float = 1.0) -> list[float]:
        return [exponent if k == variable else 0.0 for k in range(v)]

    one = [0.0] * v
    simplex = Signomial.of([(1.0, power(0)), (1.0, power(1)), (1.0, power(2)), (-1.0, one)])
    if margin == "probability":
        return SignomialProgram(objective, (Signomial.of([(L, one), (-1.0, power(0)), (1.0, power(1))]),), (simplex,))
    taylor = [(-a, power(u, 2 * k + 1)) for u in (3, 4) for k, a in enumerate(series(order))]
    u1 = Signomial.of([(2.0, power(0)), (-1.0, one), (-1.0, power(3))])
    u2 = Signomial.of([(1.0, one), (-2.0, power(1)), (-1.0, power(4))])
    return SignomialProgram(objective, (Signomial.of([(L, one), *taylor]),), (simplex, u1, u2))


def published_starts(x1: int, x2: int, n: int, margin: MarginKind) -> list[FloatArray]:
    """Return the points from which ``SignomialProgram.solve`` starts; ``fast_solve`` starts at the first alone.

    The first are the frequencies of x1 votes for the class and x2 for its rival of n.
    """
    observed = (np.array([x1, x2, n - x1 - x2]) + 0.5) / (n + 1.5)
    inner = range(1, LATTICE)
    lattice = [np.array([i, j, LATTICE - i - j]) / LATTICE for i in inner for j in inner if i + j < LATTICE]
    points = [observed, *lattice]
    return points if margin == "probability" else [np.append(q, [2 * q[0] - 1, 1 - 2 * q[1]]) for q in points]


def upper_region(counted: IntArray, n: int) -> Region:
    """Return the region of the outcomes (x1, x2) of n draws that ``published_counted`` did *not* count.

    Those are the ones with ``x1 >= counted[x2]``.
    """
    open_columns = counted <= n - np.arange(n + 1)
    return make_region(n, np.ascontiguousarray(counted[: int(open_columns.sum())]))


def curve_infimum(region: Region, L: float, margin: MarginKind, order: int, below: float = 0.0) -> float:
    """Return the least probability of all outcomes outside of ``region`` under a margin of at most ``L``.

    For the quantile margin, with ``Phi_M^-1`` of order M = ``order``, the class has a probability of at least 1/2. The
    search ends at the first value under ``below``, which is then returned: whoever asks whether the least is smaller
    need not know by how much.
    """
    low, high = _ends(L, margin, order)
    best, t = (
        -1.0,
        low + (high - low) * 0.5 * (1.0 - np.cos(pi * np.arange(CURVE_GRID_POINTS) / (CURVE_GRID_POINTS - 1))),
    )
    for _ in range(1 + ZOOMS):
        q1, q2 = _point(t, L, margin, order)
        tails = np.empty(t.size)
        d = 1.0 - q2
        region_probabilities(region, np.stack([q1, q2, (d - q1) + ((1.0 - d) - q2)], axis=1), DROPPED, tails)
        k = int(np.argmax(tails))
        best = max(best, float(tails[k]))
        if 1.0 - min(best, 1.0) < below:
            break
        t = np.linspace(t[max(k - 1, 0)], t[min(k + 1, len(t) - 1)], ZOOM_POINTS)
    return 1.0 - min(best, 1.0)


def _ends(L: float, margin: MarginKind, order: int) -> tuple[float, float]:
    """Return the range of the curve's parameter: q1 + q2 for the first margin, Phi_M^-1(q1) for the second."""
    if margin == "probability":
        return min(abs(L), 1.0), 1.0
    largest = float(published_quantile(1.0, order))
    high = min(L / 2.0, largest)
    return min(max(0.0, L - largest), high), high


def _point(t: FloatArray, L: float, margin: MarginKind, order: int) -> tuple[FloatArray, FloatArray]:
    if margin == "probability":
        return np.minimum((t + L) / 2.0, 1.0), np.maximum((t - L) / 2.0, 0.0)
    q1, q2 = published_quantile_inverse(np.stack([t, t - L]), order)
    return q1, np.minimum(q2, 1.0 - q1)
