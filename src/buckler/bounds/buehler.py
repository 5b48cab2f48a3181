"""Buehler's lower confidence limit of a trinomial margin, for any monotone ordering of the outcomes.

    L_T(x) = inf { theta(q) : P_q(T(X) >= T(x)) > alpha }

is a valid ``1 - alpha`` lower limit of ``theta(q)`` and the largest one that is a nondecreasing function of ``T``
(Buehler, 1957; T4). A margin at which the supremum along the margin curve meets alpha is looked for (``margin_search``,
which is free to be wrong), and that supremum is then *proved* to be at most alpha (``margin_curve``, which is not).
``invert`` goes back and forth between the two, and returns nothing without a proof.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import inf, sqrt

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.bounds.curve import PROBABILITY, QUANTILE, curve_top
from buckler.bounds.distinct import distinct
from buckler.bounds.margin_curve import DROP, supremum_at_most
from buckler.bounds.margin_search import WIDEST, climb, margin_at, scan
from buckler.bounds.orderings import DEFAULT, Ordering
from buckler.bounds.trinomial import Region, make_region
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole, check_whole_array
from buckler.types import ArrayLike, FloatArray, MarginKind

AIM = 1e-6
"""The search aims at ``alpha (1 - AIM)``, the room in which the proof closes; it costs about ``AIM / sqrt(n)``."""
LARGEST_N = 1_000_000
"""Up to here the account of floating error holds (``trinomial``)."""
SMALLEST_ALPHA = 1e-12
"""Down to here regions were checked in ball arithmetic."""
REMEMBERED = 1 << 16
"""Outcomes whose limits are kept, some tens of MB: more than there are with n = 300."""
ATTEMPTS, CLIMBS, PATIENT = 100, 12, 6
"""Proofs that are tried; alternations of climbing and solving before each; attempts before the margin is lowered by a
retreat that doubles, from ``FIRST_RETREAT`` on: after 94 doublings nothing is left to retreat from."""
FIRST_RETREAT = 1e-9
SETTLED = 0.05
"""A margin that moves by less than this share of what AIM costs is found."""
PART = 64
"""Outcomes that a thread takes at a time."""
CODE = {"probability": PROBABILITY, "quantile": QUANTILE}


@compiled
def invert(kind: int, hint: float, region: Region, alpha: float) -> float:
    """Return a margin ``L`` for which ``sup {P_q : theta(q) <= L} <= alpha`` is proved; -inf or -1 if there is none.

    **Guarantee.** The one place where a margin leaves is behind ``supremum_at_most``, whatever the search did.
    """
    n, drop, top = region.n, DROP * alpha, curve_top(kind)
    goal = alpha * (1.0 - AIM)
    bottom, nothing = (-1.0, -1.0) if kind == PROBABILITY else (-WIDEST, -inf)
    L = margin_at(kind, hint, top, region, goal)
    t, reach = scan(kind, L, region, alpha)
    retreat = 0.0
    for attempt in range(ATTEMPTS):
        for _ in range(CLIMBS):
            t = climb(kind, L, t, 2.0 * reach, region, drop)
            after = margin_at(kind, L, t, region, goal)
            done = abs(after - L) <= SETTLED * AIM / sqrt(n)
            L = min(after, L) if attempt > 0 else after
            if done:
                break
        L -= retreat
        if bottom >= L:
            return nothing
        proved, t = supremum_at_most(kind, L, region, alpha)
        if proved:
            return L
        # Where the proof failed there is a higher maximum: look within a fifth of a standard error of t, or less near
        # the top, where the curve is finer.
        reach = 0.2 / sqrt(n) if kind == QUANTILE else 0.05 / sqrt(n)
        reach = min(reach, max(0.2 * abs(top - t), 0.1 / n))
        if attempt >= PATIENT:
            retreat = max(2.0 * retreat, FIRST_RETREAT)
    return nothing


def buehler_lower(x1: int, x2: int, n: int, alpha: float, margin: MarginKind, *, ordering: Ordering = DEFAULT) -> float:
    """Return the exact lower limit of the margin from counts ``x1`` (class), ``x2`` (rival) of ``n`` draws.

    **Guarantee.** For a trinomial with cell probabilities ``q``, ``P(limit(X) > theta(q)) <= alpha``; one-sided, a
    lower limit for fixed n, no other assumption. Rounded down: never above the exact one, and below it by about ``AIM /
    sqrt(n)``. ``theta`` is ``q1 - q2`` ("probability") or ``Phi^-1(q1) - Phi^-1(q2)`` ("quantile"). The limit rises
    with ``x1`` and falls with ``x2``; it may be negative. It need not rise with alpha: the likelihood ratio orders
    outcomes differently for another alpha, so that limits at two alphas invert two families of regions (an ordering
    that does not look at alpha gives limits that do rise). ``q = (0, 0, 1)`` has quantile margin -inf by convention, so
    that limit is -inf when the outcome (0, 0) is ordered at or above the one seen. A probability margin is never below
    -1, which is returned when nothing more is proved.

    >>> round(buehler_lower(100, 0, 100, 1e-3, "quantile"), 5)
    3.00095
    >>> round(buehler_lower(70, 10, 100, 1e-3, "quantile"), 3)
    0.983
    """
    if alpha < SMALLEST_ALPHA:
        raise InvalidInput(f"alpha must be at least {SMALLEST_ALPHA:g} for the exact limit; got {alpha}")
    kind = CODE[margin]
    c, hint = ordering.region(x1, x2, n, alpha, margin)
    if x2 >= c.size or c[x2] > x1:
        raise ArithmeticError(f"the region of ({x1}, {x2}) of {n} at alpha {alpha} does not hold that outcome")
    if c[0] <= 0:
        if kind == QUANTILE:
            return -inf
        hint = min(hint, -0.01)
    return float(invert(kind, hint, make_region(n, c), alpha))


@lru_cache(maxsize=REMEMBERED)
def _remembered(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    return buehler_lower(x1, x2, n, alpha, margin)


def exact_margin_lower(
    top: ArrayLike, runner_up: ArrayLike, n: ArrayLike, alpha: float, margin: MarginKind = "quantile"
) -> FloatArray:
    """Return exact lower limits of the margin for arrays of counts, which broadcast; repeated triples are solved once.

    **Guarantee.** Each entry alone is a one-sided ``1 - alpha`` lower limit of its margin, rounded down (see
    ``buehler_lower``), with the likelihood-ratio ordering.

    >>> exact_margin_lower([99, 98], [1, 2], 100, 1e-3).round(4)
    array([2.6985, 2.4827])
    """
    alpha = check_alpha(alpha)
    check_choice("margin", margin, tuple(CODE))
    x1, x2, total = np.broadcast_arrays(
        check_whole_array("top", top), check_whole_array("runner_up", runner_up), check_whole_array("n", n, low=1)
    )
    check_whole("n", int(total.max(initial=1)), 1, LARGEST_N)
    if (x1 + x2 > total).any():
        raise InvalidInput("top + runner_up must be at most n")
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

    threads = min(usable_cores(), len(parts))
    if threads < 2:
        return solve(outcomes)
    pool = ThreadPoolExecutor(threads)
    try:
        return [limit for limits in pool.map(solve, parts) for limit in limits]
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for the rest
