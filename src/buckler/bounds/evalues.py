"""E-values against the null "the margin is at most L", valid at every stopping time, for either margin.

One pair of classes at a time: a draw is of the first class, of the second, or of neither, with probabilities
``q = (q1, q2, q3)``. The null is convex: for the quantile margin ``H0(L) = {q : Phi^-1(q1) - Phi^-1(q2) <= L}``,
``L >= 0``, since ``psi_L(b) = Phi(L + Phi^-1(b))`` is concave; for the probability margin the half-space ``q1 - q2 <=
L``. A factor ``a`` per outcome, divided by its supremum over the null, has mean at most one under every member. So
products over draws are supermartingales, any average of products is one too, and the probability that it *ever* reaches
``1/alpha`` is at most alpha, whatever the stopping rule (T12, T16).

**Quantile margin.** Likelihood ratios against the reverse information projection are the best such factors. By the
optimality conditions at a boundary point ``q(t) = (Phi(t + L/2), Phi(t - L/2), rest)``, ``t <= 0``, the alternatives
that project onto it form a ray, ``p = q (1 + lambda (v - h))`` with ``v = (1, -c, 0)``, ``c = exp(-L t)`` and
``h = q1 - c q2``. The mixture averages the products over a fixed grid of rays and of points on them. It needs no
estimate and no optimiser, and depends on the counts alone, not on their order nor on batches.

**Probability margin.** With ``v = (1, -1, 0)`` the factor ``1 + lambda (v - L)``, ``0 <= lambda <= 1/(1 + L)``, has
mean at most one under the null. By the optimality conditions of a half-space an alternative p projects onto
``q = p / (1 + lambda (v - L))``, so no factor is better, and the mixture needs a grid in lambda alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from scipy.special import ndtr, ndtri, rel_entr, xlogy

from buckler.errors import InvalidInput, check_alpha, check_float_array, check_real, check_whole_array, show
from buckler.types import ArrayLike, FloatArray

SUPREMUM_ROUNDING = 1e-13
"""Relative amount by which suprema of means are raised against rounding (F8); tests miss at most 1e-15 without it."""

LOWEST_T = -37.0
"""Lowest parameter t of a boundary point of the null: ``Phi`` underflows at -38.4, and any larger t is sound."""

RAY_REACH = 2.5
"""Rays of alternatives start at points of the null's boundary down to ``q1 = Phi(-RAY_REACH)``, six votes in a
thousand."""

RAY_SPACING = 0.25
"""Distance of neighbouring rays in the parameter t of the boundary points where they start."""

RAY_RATIO, RAY_POINTS = 0.8, 30
"""Ratio of neighbouring points' places ``1 - sqrt(1 - lambda/lambda_max)`` on a ray, and number of points."""

POINT_POWER, RAY_POWER = 0.6, 3.0
"""Exponents of a point's weight in the mixture: of its place ``1 - sqrt(1 - lambda/lambda_max)`` on the ray, and,
inverse, of the ray's number, counted from the one that starts at ``q1 + q2 = 1``."""

LAMBDA_HALVINGS = 60
"""Bisection steps for the best lambda in ``distance_to_half_space``, enough for double precision."""

LOG_ROUNDING = 1e-14
"""Relative and absolute allowance by which ``ln(1/alpha)``, the log wealth that rejects, is rounded up."""

OUTCOMES: FloatArray = np.array([1.0, -1.0, 0.0])
"""Difference of votes in a draw: for the first class, for the second, for neither."""


def log_needed(alpha: float) -> float:
    """Return ``ln(1/alpha)``, rounded up: the log wealth at which a test of level ``alpha`` rejects (T12).

    >>> round(log_needed(1e-3), 6)
    6.907755
    """
    return -log(check_alpha(alpha)) * (1.0 + LOG_ROUNDING) + LOG_ROUNDING


def _check_margin(L: object) -> float:
    number = check_real("L", L)
    if number < 0.0:
        raise InvalidInput(f"L must be at least 0, where the null is convex; got {show(L)}")
    return number


def check_three(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as an array ``[..., 3]``; raise InvalidInput unless they are that, and nonnegative numbers.

    The last axis holds a number for each outcome of a draw: first class, second class, neither.
    """
    array = check_float_array(name, values)
    if array.ndim == 0 or array.shape[-1] != 3 or (array < 0.0).any():
        raise InvalidInput(f"{name} must hold three nonnegative numbers in its last axis; got {show(values)}")
    return array


def null_supremum(a: ArrayLike, L: float) -> FloatArray:
    """Return the largest mean of factors ``a[..., 3]`` under a quantile margin of at most ``L``, rounded up.

    A draw is of the first class, the second or neither, with probabilities q, and its factor is ``a[..., 0]``, ``[...,
    1]`` or ``[..., 2]``. The supremum of ``E_q[a]`` is over ``H0(L) = {q : Phi^-1(q1) - Phi^-1(q2) <= L}``, ``L >= 0``.

    **Guarantee.** Never below the exact supremum, for any nonnegative ``a``: floating error is included; tight to
    1e-12.

    The mean is linear in q, so its supremum is at an extreme point of ``H0(L)``: the corners ``(0,1,0)`` and
    ``(0,0,1)``, with the second and third factor, a2 and a3, as values, or the boundary curve. On the curve it exceeds
    a3 only if ``a1 > a3``; then it is ``a3 + (a1 - a3) h`` with ``h = Phi(t + L/2) - c Phi(t - L/2)``, where ``c =
    (a3 - a2)/(a1 - a3)`` is the slope and ``t = -ln(c)/L`` its point of tangency, or ``t = 0`` if ``c < 1``, where the
    curve meets ``q3 = 0``. The tangent at *any* t of slope ``exp(-L t) <= c`` lies above the curve, so t is rounded
    towards 0 and its own slope used.

    >>> print(null_supremum([1.5, 0.25, 0.75], 1.0).round(10))
    1.1143280766
    """
    a1, a2, a3 = np.moveaxis(check_three("a", a), -1, 0)
    L = _check_margin(L)
    rise = np.where(a1 > a3, a1 - a3, 1.0)
    with np.errstate(over="ignore"):
        # Below -1 the second class alone is the supremum, and the curve's value at -1 is already less.
        c = np.maximum((a3 - a2) / rise, -1.0)
        t = (4e-15 - np.log(np.maximum(c, 1.0)) * (1.0 - 4e-15)) / L if L > 0.0 else np.where(c > 1.0, LOWEST_T, 0.0)
    t = np.clip(t, LOWEST_T, 0.0)
    slope = np.where(c < 1.0, c, np.exp(-L * t))
    top = ndtr(t + 0.5 * L)
    h = top - slope * ndtr(t - 0.5 * L)
    curve = np.where(a1 > a3, a3 + rise * np.maximum(h, 0.0) + SUPREMUM_ROUNDING * (a3 + rise * top), a3)
    return np.asarray(np.maximum(curve, np.maximum(a2, a3)) * (1.0 + SUPREMUM_ROUNDING) + 1e-300, dtype=np.float64)


def log_factors(a: ArrayLike, supremum: FloatArray) -> FloatArray:
    """Return ``ln(a / supremum)``, rounded down: logarithms of factors whose mean is at most one under the null.

    ``a[..., 3]`` holds a factor for each outcome of a draw, ``supremum`` the largest mean that it has under the null.

    **Guarantee.** ``E_q[exp(log_factors)] <= 1`` for every q of which ``supremum`` bounds ``E_q[a]``, whatever ``a``: a
    likelihood ratio ``p / q~`` against a poorly optimised q~ loses power, never validity. Each value is low by 1e-14 of
    itself and of ``ln a``, which covers the rounding of a sum of counts times values.

    >>> a = np.array([1.5, 0.25, 0.75])
    >>> print(log_factors(a, null_supremum(a, 1.0)).round(6))
    [ 0.297214 -1.494546 -0.395934]
    """
    array = np.maximum(check_three("a", a), 1e-300)
    logs = np.log(array) - np.log(supremum)[..., None]
    return np.asarray(logs - 1e-14 * (np.abs(np.log(array)) + np.abs(logs)) - 1e-16, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """E-value of a sequence of draws: a weighted average of products, each with one factor for every draw.

    ``logs[g]`` are the logarithms of product g's factors for a draw of the first class, of the second, of neither. The
    e-value of ``counts`` of the three is ``sum over g of exp(log_weights[g] + counts @ logs[g])``.
    """

    logs: FloatArray
    log_weights: FloatArray

    def log_wealth(self, x1: ArrayLike, x2: ArrayLike, n: ArrayLike) -> FloatArray:
        """Return the log e-value, rounded down, of ``n`` draws, ``x1`` of the first class and ``x2`` of the second.

        **Guarantee.** Where the margin is at most the L that the mixture was made for, ``P(some n >= 1 has log_wealth
        >= ln(1/alpha)) <= alpha``, for every alpha at once: any-time, one-sided, for independent draws. Nonincreasing
        in x2 at fixed x1 and n.

        >>> wealth = tangent_mixture(2 * 1.2815515655446004)
        >>> print(wealth.log_wealth([108, 109], [1, 1], [109, 110]).round(4))
        [6.4805 6.5704]
        """
        first = check_whole_array("x1", x1)
        second = check_whole_array("x2", x2)
        rest = check_whole_array("n", n) - first - second
        if (rest < 0).any():
            raise InvalidInput(f"n must be at least x1 + x2; got {-rest.min()} votes more than draws")
        counts = np.stack(np.broadcast_arrays(first, second, rest), axis=-1).astype(np.float64)
        terms = counts @ self.logs.T + self.log_weights
        peak = terms.max(axis=-1)
        return np.asarray(peak + np.log(np.exp(terms - peak[..., None]).sum(axis=-1)) - 1e-12, dtype=np.float64)


@lru_cache(maxsize=1024)
def tangent_mixture(L: float) -> Mixture:
    """Return e-values against "the quantile margin is at most L", ``L >= 0``, as a ``Mixture``.

    It averages over rays of alternatives, each from a boundary point t of the null, and over points on each ray, given
    by lambda, which is 0 at the boundary. The places ``1 - sqrt(1 - lambda/lambda_max)`` of a ray's points are
    geometric: alternatives near the null are told apart on the scale of their distance from it, which is what the draws
    needed to see them can resolve.
    """
    L = _check_margin(L)
    # Slopes beyond e^500 are left out: they bet against classes of probability zero, and would overflow.
    t = -np.arange(0.0, min(0.5 * L + RAY_REACH, 500.0 / max(L, 1.0)), RAY_SPACING)
    c = np.exp(-L * t)
    h = ndtr(t + 0.5 * L) - c * ndtr(t - 0.5 * L)
    place = RAY_RATIO ** np.arange(RAY_POINTS)
    share = 1.0 - (1.0 - place) ** 2
    stake = share[None, :] / (c + h)[:, None]
    v_less_h = np.stack([1.0 - h, -c - h, -h], axis=-1)
    a = np.maximum(1.0 + stake[..., None] * v_less_h[:, None, :], 0.0).reshape(-1, 3)
    weights = (1.0 + np.arange(t.size))[:, None] ** -RAY_POWER * place[None, :] ** POINT_POWER
    weights /= weights.sum() * (1.0 + 1e-12)
    return Mixture(log_factors(a, null_supremum(a, L)), np.log(weights.ravel()))


def distance_to_null(p: FloatArray, L: float) -> FloatArray:
    """Return the distance of trinomials ``p[..., 3]`` from quantile margin ``L``: ``sqrt(2 min KL(p || q))``, signed.

    The minimum is over the q of that margin; the sign is plus where p has a larger margin. Heuristic: a plan, not a
    bound; accurate to about 1e-9, found by zooming into a grid on the curve between the points that share ``p1`` and
    ``p2`` with p.

    >>> print(distance_to_null(np.array([[0.99, 0.01, 0.0], [0.5, 0.5, 0.0]]), 2.0).round(4))
    [ 0.5166 -0.7921]
    """
    ends = ndtri(p[..., 1]) + 0.5 * L, ndtri(p[..., 0]) - 0.5 * L
    low, high = (np.clip(pick(*ends), LOWEST_T, 0.0) for pick in (np.minimum, np.maximum))
    grid = np.linspace(0.0, 1.0, 65)
    for _ in range(5):
        t = low[..., None] + (high - low)[..., None] * grid
        bottom = ndtr(t - 0.5 * L)
        q = np.stack([ndtr(t + 0.5 * L), bottom, np.maximum(ndtr(-t - 0.5 * L) - bottom, 0.0)], axis=-1)
        divergence = rel_entr(p[..., None, :], q).sum(axis=-1)
        best = divergence.argmin(axis=-1)[..., None]
        low = np.take_along_axis(t, np.maximum(best - 1, 0), axis=-1)[..., 0]
        high = np.take_along_axis(t, np.minimum(best + 1, 64), axis=-1)[..., 0]
    least = np.maximum(np.take_along_axis(divergence, best, axis=-1)[..., 0], 0.0)
    return np.asarray(np.where(ends[1] > ends[0], 1.0, -1.0) * np.sqrt(2.0 * least), dtype=np.float64)


def half_space_supremum(a: ArrayLike, L: float) -> FloatArray:
    """Return the largest mean of factors ``a[..., 3]`` under a probability margin of at most ``L``, rounded up.

    A draw is of the first class, the second or neither, with probabilities q, and its factor is ``a[..., 0]``, ``[...,
    1]`` or ``[..., 2]``. The supremum of ``E_q[a]`` is over the q with ``q1 - q2 <= L``, ``0 <= L <= 1``.

    **Guarantee.** Never below the exact supremum, for any nonnegative ``a``: floating error is included; tight to
    1e-12.

    The mean is linear in q, so its supremum is at an extreme point of the null: the corners ``(0, 1, 0)`` and
    ``(0, 0, 1)``, or where the boundary leaves the simplex, ``((1 + L)/2, (1 - L)/2, 0)`` and ``(L, 0, 1 - L)``.

    >>> print(half_space_supremum([1.5, 0.25, 0.75], 0.5).round(10))
    1.1875
    """
    if not 0.0 <= check_real("L", L) <= 1.0:
        raise InvalidInput(f"L must be from 0 to 1; got {show(L)}")
    a1, a2, a3 = np.moveaxis(check_three("a", a), -1, 0)
    edge = np.maximum(0.5 * (a1 * (1.0 + L) + a2 * (1.0 - L)), a1 * L + a3 * (1.0 - L))
    return np.asarray(np.maximum(edge, np.maximum(a2, a3)) * (1.0 + SUPREMUM_ROUNDING) + 1e-300, dtype=np.float64)


@lru_cache(maxsize=1024)
def half_space_mixture(L: float) -> Mixture:
    """Return e-values against "the probability margin is at most L", ``0 <= L <= 1``, as a ``Mixture``.

    It averages over one grid of stakes lambda, placed and weighted as the points of a ray of ``tangent_mixture``.

    **Guarantee.** For draws with ``q1 - q2 <= L``, ``P(some n >= 1 has log_wealth >= ln(1/alpha)) <= alpha``, for every
    alpha at once: any-time, one-sided, for independent draws (theory T16).

    >>> print(half_space_mixture(0.8).log_wealth([108, 109], [1, 1], [109, 110]).round(4))
    [6.5984 6.6888]
    """
    place = RAY_RATIO ** np.arange(RAY_POINTS)
    stake = (1.0 - (1.0 - place) ** 2) / (1.0 + L)
    a = np.maximum(1.0 + stake[:, None] * (OUTCOMES - L), 1e-300)
    weights = place**POINT_POWER
    return Mixture(log_factors(a, half_space_supremum(a, L)), np.log(weights / (weights.sum() * (1.0 + 1e-12))))


def distance_to_half_space(p: FloatArray, L: float) -> FloatArray:
    """Return the distance of trinomials ``p[..., 3]`` from probability margin L: ``sqrt(2 min KL(p || q))``, signed.

    The minimum is over the q with ``q1 - q2 = L``; the sign is plus where p has a larger margin. A plan, not a bound:
    accurate to about 1e-9. The divergence is the most that ``E_p[ln(1 + lambda (v - L))]`` can be, v the outcome's 1,
    -1 or 0, found by the sign of its slope in lambda.

    >>> print(distance_to_half_space(np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0]]), 0.5).round(6))
    [ 0.380684 -0.328984]
    """
    side = p[..., 0] - p[..., 1] - L
    furthest = np.where(side > 0.0, 1.0 / (1.0 + L), -1.0 / max(1.0 - L, 1e-9))
    near, far = np.zeros(side.shape), furthest
    gain = OUTCOMES - L
    for _ in range(LAMBDA_HALVINGS):
        middle = 0.5 * (near + far)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(p > 0.0, p * gain / (1.0 + middle[..., None] * gain), 0.0).sum(axis=-1)
        onward = slope * furthest > 0.0
        near, far = np.where(onward, middle, near), np.where(onward, far, middle)
    growth = np.maximum(xlogy(p, np.maximum(1.0 + near[..., None] * gain, 0.0)).sum(axis=-1), 0.0)
    return np.asarray(np.copysign(np.sqrt(2.0 * growth), side), dtype=np.float64)
