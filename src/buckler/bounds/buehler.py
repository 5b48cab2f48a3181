"""Buehler's lower confidence limit of a trinomial margin, under the likelihood-ratio ordering with ties broken.

    L_T(x) = inf { theta(q) : P_q(T(X) >= T(x)) > alpha }

is a valid ``1 - alpha`` lower limit of ``theta(q)``, and the largest one that is a nondecreasing function of ``T``
(Buehler, 1957; T4). ``invert`` looks for a margin at which the supremum along the margin curve meets alpha
(``margin_search``, a heuristic), and returns it only if that supremum is *proved* to be at most alpha
(``margin_curve``).

**Plateaus** (T6a). Under the likelihood-ratio ordering alone many outcomes share one limit: where the supremum is
attained at ``q3 = 0``, an outcome with ``x3 > 0`` that joins the region changes nothing. Such outcomes form a plateau
below an outcome of the edge ``x1 + x2 = n``. Within a plateau outcomes are ordered again, fewer votes for the rival
first, which raises the limits of all but the last ones; n is at most ``LARGEST_ORDERED_AGAIN``.
"""

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from buckler.bounds.binomial import distinct
from buckler.bounds.compiled import compiled
from buckler.bounds.margin_curve import DROP, supremum_at_most
from buckler.bounds.margin_search import WIDEST, climb, margin_at, scan
from buckler.bounds.ordering import STEP, boundary, deviance_needed, value
from buckler.bounds.trinomial import PROBABILITY, QUANTILE, Region, curve_top, make_region
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole, check_whole_array
from buckler.files import usable_cores
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

AIM = 1e-6
"""The search aims at ``alpha (1 - AIM)``, so that the proof can close; it lowers limits by about ``AIM / sqrt(n)``."""
LARGEST_N = 1_000_000
"""Largest n for which the floating error is accounted for (F1 to F4)."""
SMALLEST_ALPHA = 1e-12
"""Smallest alpha for which the floating error is accounted for (F1), and checked in ball arithmetic."""
LARGEST_ORDERED_AGAIN = 1000
"""Largest n for which plateaus are ordered again; at n = 1000 limits rise by 0.03 % on average."""
TOLERANCE = 1e-6
"""Largest difference of limits in a plateau, and so the most that the second ordering can lower a limit."""
HALVINGS = 12
"""Steps of the bisection that finds the end of a plateau. Heuristic: affects tightness, not validity."""
REMEMBERED = 1 << 16
"""Outcomes whose limits are kept, some tens of MB: more than there are with n = 300."""
PLATEAUS = 1 << 11
"""Plateaus that are kept, 32 MB at n = 1000."""
ATTEMPTS, CLIMBS, PATIENT = 100, 12, 6
"""Proofs that are tried; alternations of climbing and solving before each; attempts before the margin is lowered by a
retreat that doubles, from ``FIRST_RETREAT`` on: after 94 doublings nothing is left to retreat from."""
FIRST_RETREAT = 1e-9
SETTLED = 0.05
"""The search stops where the margin moves by less than this share of ``AIM / sqrt(n)``."""
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


def region_limit(c: IntArray, n: int, alpha: float, margin: MarginKind, hint: float) -> float:
    """Return the largest margin found for which ``P_q(region) <= alpha`` is proved for all q of that margin or less.

    ``c`` is the boundary of the region (``trinomial``), ``hint`` a first guess. If the region holds (0, 0), the limit
    of the quantile margin is -inf.
    """
    kind = CODE[margin]
    if c[0] <= 0:
        if kind == QUANTILE:
            return -inf
        hint = min(hint, -0.01)
    return float(invert(kind, hint, make_region(n, c), alpha))


class Plateau(NamedTuple):
    """Outcomes with values from ``low`` up to that of an edge outcome, whose limits are nearly the same."""

    low: int
    top: float
    """The largest of the limits; the others are at least ``top - TOLERANCE``."""
    outer: IntArray
    """Boundary of the outcomes with a value of ``low`` or more."""
    inner: IntArray
    """Boundary of the outcomes above the plateau."""


@lru_cache(maxsize=REMEMBERED)
def edge_value(x1: int, n: int, alpha: float, margin: MarginKind) -> int:
    """Return the value of the outcome ``(x1, n - x1)``; it does not fall as ``x1`` rises (F3)."""
    return int(value(CODE[margin], x1, n - x1, n, deviance_needed(alpha)))


@lru_cache(maxsize=PLATEAUS)
def find_plateau(x1: int, n: int, alpha: float, margin: MarginKind) -> Plateau | None:
    """Return the plateau whose highest outcome is ``(x1, n - x1)``, or None if its limit is infinite.

    Its lowest value, above that of the next edge outcome, is found by bisection: the region of that value has a limit
    of at least ``top - TOLERANCE``.
    """
    kind, zz = CODE[margin], deviance_needed(alpha)
    below, high = edge_value(x1 - 1, n, alpha, margin), edge_value(x1, n, alpha, margin)
    top = region_limit(boundary(kind, n, high, zz), n, alpha, margin, high * STEP)
    if not np.isfinite(top):
        return None
    low = high
    for _ in range(HALVINGS):
        middle = (below + low) // 2
        c = boundary(kind, n, middle, zz)
        if middle > below and c[0] > 0 and supremum_at_most(kind, top - TOLERANCE, make_region(n, c), alpha)[0]:
            low = middle
        else:
            below = middle
    return Plateau(low, top, boundary(kind, n, low, zz), boundary(kind, n, high + 1, zz))


def outcome_region(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> tuple[IntArray, float]:
    """Return the boundary of the outcomes ordered at or above ``(x1, x2)``, and a first guess of the limit.

    Outcomes are ordered by value; those of one plateau by fewer votes ``x2``, then by more votes ``x1``. With the
    quantile margin the outcomes with ``x1 = 0`` come last, and their region holds every outcome.
    """
    kind, zz = CODE[margin], deviance_needed(alpha)
    if x1 == 0 and kind == QUANTILE:
        return np.zeros(n + 1, dtype=np.int64), -inf
    k = int(value(kind, x1, x2, n, zz))
    if n <= LARGEST_ORDERED_AGAIN:
        edge = bisect_left(range(n + 1), k, key=partial(edge_value, n=n, alpha=alpha, margin=margin))
        plateau = find_plateau(edge, n, alpha, margin) if 0 < edge <= n else None
        if plateau is not None and k >= plateau.low:
            c = plateau.inner.copy() if plateau.inner.size > x2 else np.zeros(x2 + 1, dtype=np.int64)
            c[x2] = min(c[x2], x1) if plateau.inner.size > x2 else x1
            c[:x2] = plateau.outer[:x2]
            return c, plateau.top
    return boundary(kind, n, k, zz), k * STEP


def buehler_lower(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    """Return the exact lower limit of the margin from counts ``x1`` (class), ``x2`` (rival) of ``n`` draws.

    **Guarantee.** For a trinomial with cell probabilities ``q``, ``P(limit(X) > theta(q)) <= alpha``; one-sided, a
    lower limit for fixed n, no other assumption. Rounded down: never above the exact one, and below it by about ``AIM /
    sqrt(n)``. ``theta`` is ``q1 - q2`` ("probability") or ``Phi^-1(q1) - Phi^-1(q2)`` ("quantile"). The limit rises
    with ``x1`` and falls with ``x2``; it may be negative. It need not rise with alpha, since another alpha orders
    outcomes differently. ``q = (0, 0, 1)`` has quantile margin -inf by convention, so that limit is -inf when the
    outcome (0, 0) is ordered at or above the one seen. A probability margin is never below -1, which is returned when
    nothing more is proved.

    >>> round(buehler_lower(100, 0, 100, 1e-3, "quantile"), 5)
    3.00095
    >>> round(buehler_lower(95, 0, 100, 1e-3, "quantile"), 4)
    2.7603
    """
    if alpha < SMALLEST_ALPHA:
        raise InvalidInput(f"alpha must be at least {SMALLEST_ALPHA:g} for the exact limit; got {alpha}")
    c, hint = outcome_region(x1, x2, n, alpha, margin)
    if x2 >= c.size or c[x2] > x1:
        raise ArithmeticError(f"the region of ({x1}, {x2}) of {n} at alpha {alpha} does not hold that outcome")
    return region_limit(c, n, alpha, margin, hint)


@lru_cache(maxsize=REMEMBERED)
def _remembered(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    return buehler_lower(x1, x2, n, alpha, margin)


def exact_margin_lower(
    top: ArrayLike, runner_up: ArrayLike, n: ArrayLike, alpha: float, margin: MarginKind = "quantile"
) -> FloatArray:
    """Return exact lower limits of the margin for arrays of counts, which broadcast; repeated triples are solved once.

    **Guarantee.** Each entry alone is a one-sided ``1 - alpha`` lower limit of its margin, rounded down (see
    ``buehler_lower``).

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


def _solve(outcomes: list[list[int]], alpha: float, margin: MarginKind) -> list[float]:
    """Return the limit of each outcome, computed by several threads where there are many (kernels release the GIL)."""
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
