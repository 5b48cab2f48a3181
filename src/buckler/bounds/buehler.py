"""Buehler's lower confidence limit of a trinomial margin, for any monotone ordering of the outcomes.

    L_T(x) = inf { theta(q) : P_q(T(X) >= T(x)) > alpha }

is a valid ``1 - alpha`` lower limit of ``theta(q)`` and the largest one that is a nondecreasing function of ``T``
(Buehler, 1957). The infimum is found by searching for the margin at which the supremum along the margin curve meets
alpha, and then *proving* that supremum at the margin returned (``margin_curve``): the search may be heuristic, the
proof is not, and a margin without a proof is never returned.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.bounds.curve import PROBABILITY, QUANTILE, corner, curve_bottom, curve_point, curve_top
from buckler.bounds.distinct import distinct
from buckler.bounds.margin_curve import DROP, Event, event_probabilities, event_probability, supremum_at_most
from buckler.bounds.orderings import DEFAULT, Ordering
from buckler.bounds.trinomial import make_region
from buckler.errors import InvalidInput, check_alpha, check_choice, check_float_array, check_whole, check_whole_array
from buckler.types import ArrayLike, FloatArray, MarginKind

AIM = 1e-6
"""The search aims at ``alpha (1 - AIM)``, the room in which the proof closes; it costs about ``AIM / sqrt(n)``."""
LARGEST_N = 1_000_000
SMALLEST_ALPHA = 1e-12
REMEMBERED = 1 << 16
PART = 64
"""Outcomes that a thread takes at a time."""
SCANNED = 16
"""Points of a scan that are evaluated together."""
CODE = {"probability": PROBABILITY, "quantile": QUANTILE}


@compiled
def log_at(kind: int, L: float, t: float, event: Event, drop: float) -> float:
    """Return the log of the probability at one point of the curve."""
    return log(max(event_probability(event, curve_point(kind, L, t), drop), 1e-300))


@compiled
def margin_at(kind: int, L: float, t: float, event: Event, alpha: float) -> float:
    """Return the margin at which the probability, at parameter ``t``, meets ``alpha``, found from a first guess L."""
    drop = DROP * alpha
    limit = 1.0 if kind == PROBABILITY else 80.0
    goal = log(alpha)
    step = 0.5 / sqrt(event.region.n)
    low = high = min(max(L, -limit), limit)
    f_low = f_high = log_at(kind, low, t, event, drop) - goal
    while f_low > 0.0 and low > -limit:
        high, f_high = low, f_low
        low = max(low - step, -limit)
        f_low = log_at(kind, low, t, event, drop) - goal
        step *= 2.0
    while f_high <= 0.0 and high < limit:
        low, f_low = high, f_high
        high = min(high + step, limit)
        f_high = log_at(kind, high, t, event, drop) - goal
        step *= 2.0
    if f_high <= 0.0 or f_low > 0.0:
        return high if f_high <= 0.0 else low
    # False position with the Illinois rule; a plain halving whenever the bracket does not shrink fast enough.
    g_low, g_high, side, width = f_low, f_high, 0, inf
    for i in range(200):
        if high - low <= 4e-16 * max(abs(low), abs(high), 0.25):
            break
        x = low - g_low * (high - low) / (g_high - g_low)
        if i % 3 == 2:
            if high - low > 0.25 * width:
                x = 0.5 * (low + high)
            width = high - low
        if not low < x < high:
            return low if abs(f_low) < abs(f_high) else high
        f = log_at(kind, x, t, event, drop) - goal
        if abs(f) < 1e-13:
            return x
        if f > 0.0:
            high, f_high, g_high = x, f, f
            if side == 1:
                g_low *= 0.5
            side = 1
        else:
            low, f_low, g_low = x, f, f
            if side == -1:
                g_high *= 0.5
            side = -1
    return low


@compiled
def climb(kind: int, L: float, t: float, reach: float, event: Event, drop: float) -> float:
    """Return a local maximiser along the curve, by golden section within ``reach`` of ``t``."""
    top = curve_top(kind)
    low, high = t - reach, min(t + reach, top)
    if kind == PROBABILITY:
        low = max(low, 0.0)
    golden = 0.6180339887498949
    x, y = high - golden * (high - low), low + golden * (high - low)
    f, g = log_at(kind, L, x, event, drop), log_at(kind, L, y, event, drop)
    while high - low > 3e-4 * reach:
        if f > g:
            high, y, g = y, x, f
            x = high - golden * (high - low)
            f = log_at(kind, L, x, event, drop)
        else:
            low, x, f = x, y, g
            y = low + golden * (high - low)
            g = log_at(kind, L, y, event, drop)
    best = 0.5 * (low + high)
    if kind == PROBABILITY and low <= 0.0 and log_at(kind, L, 0.0, event, drop) >= max(f, g):
        best = 0.0
    if high >= top and log_at(kind, L, top, event, drop) >= max(f, g):
        best = top
    return best


@compiled
def scan(kind: int, L: float, event: Event, alpha: float) -> tuple[float, float]:
    """Return the best of a few parameters along the curve, finer towards its two ends, and the local spacing."""
    n, drop = event.region.n, DROP * alpha
    bottom = curve_bottom(kind)
    ts, steps, values = np.empty((3, SCANNED))
    points = np.empty((SCANNED, 3))
    t, step = curve_top(kind), 0.3 / n
    best, where, reach = -inf, t, step
    ended = False
    while not ended:
        count = 0
        while count < SCANNED and not ended:
            points[count, 0], points[count, 1], points[count, 2] = curve_point(kind, L, t)
            ts[count], steps[count] = t, step
            ended = event_probability(event, corner(kind, L, bottom, t), drop) <= alpha
            step = min(1.5 * step, 0.12)
            if kind == PROBABILITY:
                step = min(step, 0.04, 0.3 * t)
                ended = ended or step < 0.01 / n
            t -= step
            count += 1
        event_probabilities(event, points[:count], drop, values)
        for i in range(count):
            if values[i] > best:
                best, where, reach = values[i], ts[i], steps[i]
    return where, reach


@compiled
def invert(kind: int, hint: float, event: Event, alpha: float) -> float:
    """Return a margin ``L`` for which ``sup {P_q : theta(q) <= L} <= alpha`` is proved; -inf or -1 if there is none."""
    n, drop = event.region.n, DROP * alpha
    goal = alpha * (1.0 - AIM)
    bottom, nothing = (-1.0, -1.0) if kind == PROBABILITY else (-80.0, -inf)
    L = margin_at(kind, hint, curve_top(kind), event, goal)
    t, reach = scan(kind, L, event, alpha)
    retreat = 0.0
    for attempt in range(100):
        for _ in range(12):
            t = climb(kind, L, t, 2.0 * reach, event, drop)
            after = margin_at(kind, L, t, event, goal)
            done = abs(after - L) <= 0.05 * AIM / sqrt(n)
            L = min(after, L) if attempt > 0 else after
            if done:
                break
        L -= retreat
        if bottom >= L:
            return nothing
        proved, t = supremum_at_most(kind, L, event, alpha)
        if proved:
            return L
        reach = 0.2 / sqrt(n) if kind == QUANTILE else 0.05 / sqrt(n)
        reach = min(reach, max(0.2 * abs(curve_top(kind) - t), 0.1 / n))
        if attempt >= 6:
            retreat = max(2.0 * retreat, 1e-9)
    return nothing


def buehler_lower(
    x1: int,
    x2: int,
    n: int,
    alpha: float,
    margin: MarginKind,
    *,
    ordering: Ordering = DEFAULT,
    uniform: float | None = None,
) -> float:
    """Return the exact lower limit of the margin from counts ``x1`` (class), ``x2`` (rival) of ``n`` draws.

    **Guarantee.** For a trinomial with cell probabilities ``q``, ``P(limit(X) > theta(q)) <= alpha``; one-sided, fixed
    n, no other assumption. ``theta`` is ``q1 - q2`` ("probability") or ``Phi^-1(q1) - Phi^-1(q2)`` ("quantile").
    The limit rises with ``x1`` and falls with ``x2``; it may be negative. It need not rise with alpha: the likelihood
    ratio orders outcomes differently for another alpha, so that limits at two alphas invert two families of regions
    (an ordering that does not look at alpha gives limits that do rise). ``q = (0, 0, 1)`` has quantile
    margin -inf by convention, so that limit is -inf when the outcome (0, 0) is ordered at or above the one seen. A
    probability margin is never below -1, which is returned when nothing more is proved.

    With ``uniform``, one draw ``u`` of a uniform variable on [0, 1) that is independent of the counts, ties are broken
    at random: ``(T, u)`` is ordered first by T, then by u, and with ``w = 1 - u`` uniform on (0, 1]::

        P((T(X), U) >= (t, u)) = P(T > t) + w P(T = t) = w P(T >= t) + (1 - w) P(T > t),

    which is again monotone in q, so the same proof applies and the level alpha is met exactly instead of from below.
    ``w`` is kept at or above ``2 alpha``, which only lowers the limit, so that it stays finite.

    >>> round(buehler_lower(100, 0, 100, 1e-3, "quantile"), 5)
    3.00095
    >>> round(buehler_lower(70, 10, 100, 1e-3, "quantile"), 3)
    0.983
    """
    if alpha < SMALLEST_ALPHA:
        raise InvalidInput(f"alpha must be at least {SMALLEST_ALPHA:g} for the exact limit; got {alpha}")
    kind = CODE[margin]
    weight = 1.0 if uniform is None else max(1.0 - uniform, min(2.0 * alpha, 1.0))
    c, hint = ordering.region(x1, x2, n, alpha, margin)
    if x2 >= c.size or c[x2] > x1:
        raise ArithmeticError(f"the region of ({x1}, {x2}) of {n} at alpha {alpha} does not hold that outcome")
    if c[0] <= 0:
        if kind == QUANTILE:
            return -inf
        hint = min(hint, -0.01)
    region = strict = make_region(n, c)
    if uniform is not None:
        strict = make_region(n, ordering.region(x1, x2, n, alpha, margin, ties=False)[0])
    return float(invert(kind, hint, Event(region, strict, weight), alpha))


@lru_cache(maxsize=REMEMBERED)
def _remembered(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    return buehler_lower(x1, x2, n, alpha, margin)


def exact_margin_lower(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    alpha: float,
    margin: MarginKind = "quantile",
    uniform: ArrayLike | None = None,
) -> FloatArray:
    """Return exact lower limits of the margin for arrays of counts, which broadcast; repeated triples are solved once.

    **Guarantee.** Each entry alone is a one-sided ``1 - alpha`` lower limit of its margin (see ``buehler_lower``), with
    the likelihood-ratio ordering. ``uniform`` needs one independent draw on [0, 1) for each entry.

    >>> exact_margin_lower([99, 98], [1, 2], 100, 1e-3).round(4)
    array([2.6985, 2.4827])
    """
    alpha = check_alpha(alpha)
    check_choice("margin", margin, tuple(CODE))
    x1, x2, total = np.broadcast_arrays(
        check_whole_array("top", top), check_whole_array("runner_up", runner_up), check_whole_array("n", n, low=1)
    )
    shape = np.broadcast_shapes(np.shape(top), np.shape(runner_up), np.shape(n))
    check_whole("n", int(total.max(initial=1)), 1, LARGEST_N)
    if (x1 + x2 > total).any():
        raise InvalidInput("top + runner_up must be at most n")
    if uniform is not None:
        draws = check_float_array("uniform", uniform)
        if draws.shape != shape or (draws < 0.0).any() or (draws >= 1.0).any():
            raise InvalidInput(f"uniform must hold one draw in [0, 1) for each entry, shape {shape}")
        limits = [
            buehler_lower(a, b, m, alpha, margin, uniform=u)
            for a, b, m, u in zip(*(each.ravel().tolist() for each in (x1, x2, total, draws)), strict=True)
        ]
        return np.asarray(limits, dtype=np.float64).reshape(shape)
    outcomes, where = distinct(x1, x2, total)
    return np.asarray(np.array(_solve(outcomes.tolist(), alpha, margin), dtype=np.float64)[where])


def usable_cores() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _solve(outcomes: list[list[int]], alpha: float, margin: MarginKind) -> list[float]:
    """Return the limit of each outcome; many are shared out among threads, since the kernels run beside one another."""
    parts = [outcomes[i : i + PART] for i in range(0, len(outcomes), PART)]

    def solve(part: list[list[int]]) -> list[float]:
        return [_remembered(x1, x2, n, alpha, margin) for x1, x2, n in part]

    pool = ThreadPoolExecutor(min(usable_cores(), max(len(parts), 1)))
    try:
        return [limit for limits in pool.map(solve, parts) for limit in limits]
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the rest
