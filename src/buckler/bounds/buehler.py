"""Buehler's lower confidence limit of a trinomial margin, under the likelihood-ratio ordering with ties broken.

    L_T(x) = inf { theta(q) : P_q(T(X) >= T(x)) > alpha }

is a valid ``1 - alpha`` lower limit of ``theta(q)``, and the largest one that is a nondecreasing function of ``T``
(Buehler, 1957; T4). ``invert`` looks for a margin at which the supremum along the margin curve meets alpha, and returns
it only if that supremum is *proved* to be at most alpha (``supremum``).

**Deviance.** Counts are first shifted: ``a = y + 1/2`` for the probability margin, ``a = y + (-1/4, 3/5, 3/5)`` for the
quantile margin, whose regions reach cells with few counts. There the exact binomial tail of ``X >= k`` behaves like the
deviance of about ``k - 1/3``, that of ``X <= k`` like ``k + 2/3`` (Peizer and Pratt, 1968); a shift of 1/2 would rank
one or two votes above outcomes that Clopper-Pearson ranks higher. With ``N`` the sum of ``a``, the profile deviance of
a margin ``L`` is ``D(y; L) = 2 min {sum a_i log(a_i / (N q_i)) : theta(q) = L}``. An outcome ``y`` *reaches* ``L`` if
``D(y; L) >= z^2`` and its estimate ``theta(a / N)`` lies above ``L``; ``z = Phi^-1(1 - alpha)``.

**Ordering.** The set of outcomes that reach ``L`` is up-closed and shrinks as ``L`` grows (T6). Its boundary runs
parallel to the margin curve, in standard errors, so that the probability along the curve is close to alpha everywhere;
that brings the limit close to the optimum. Margins are taken from the grid ``k * MARGIN_STEP``. The value of an outcome
is the largest index ``k`` that it reaches with ``GUARD`` to spare, and ``R_k`` is the set of outcomes that reach ``k``
without the guard: whatever rounding does, ``R_k`` then holds every outcome with a value of ``k`` or more (F3). A
decision closer than ``NEAR`` is taken again from one fixed start, so that it depends on ``(y, k)`` alone.

**Plateaus** (T6a). Under the likelihood-ratio ordering alone many outcomes share one limit: where the supremum is
attained at ``q3 = 0``, an outcome with ``x3 > 0`` that joins the region changes nothing. Such outcomes form a plateau
below an outcome of the edge ``x1 + x2 = n``. Within a plateau outcomes are ordered again, fewer votes for the rival
first, which raises the limits of all but the last ones; n is at most ``LARGEST_ORDERED_AGAIN``.
"""

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from buckler.bounds.binomial import distinct_rows
from buckler.bounds.compiled import compiled, inner
from buckler.bounds.supremum import DROP, WIDEST, climb, margin_at, scan, supremum_at_most
from buckler.bounds.trinomial import (
    INV_SQRT_TWO_PI,
    PROBABILITY,
    QUANTILE,
    Region,
    curve_top,
    make_region,
    normal_cells,
)
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole, check_whole_array
from buckler.files import usable_cores
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

MARGIN_STEP = 2.0**-30
"""Step of the grid of margins by which outcomes are ordered; so fine that it does not affect limits."""
GUARD = 2.0 * 150.0 * 2.0**-53
"""Distance by which a deviance must clear ``z^2``, per unit of ``n + 200``: twice its rounding error (F3)."""
NEAR = 1e-5
"""A deviance this close to ``z^2`` is computed again from COLD. The error of a rough fit is far smaller."""
COLD = -0.7
"""Curve parameter t from which every fit starts that decides whether an outcome reaches a margin. Heuristic: affects
speed, not results."""
SMALLEST_Z = 0.5
"""Lower clamp of ``z = Phi^-1(1 - alpha)``, for alpha above 0.31; any z makes a valid ordering, one near 0 a useless
one."""
TIGHT, ROUGH = 1e-10, 1e-5
"""Relative step of Newton's rule at which a fit ends, which leaves an error of about its square: far below NEAR in the
deviance."""


@inner
def quantile_fit(a1: float, a2: float, a3: float, L: float, start: float, tolerance: float) -> float:
    """Return the ``t < 0`` at which the trinomial of quantile margin ``L`` is likeliest for counts ``a1, a2, a3``.

    Its probabilities ``q_i(t)`` are those of ``curve_point``. ``-sum a_i log q_i(t)`` is convex, since ``Phi`` is
    log-concave and ``q3`` is the Gaussian mass of an interval whose ends are linear in t. Newton's rule goes from
    ``start`` until a step is below ``tolerance``.
    """
    t = start
    low, high = -60.0, 0.0
    for _ in range(100):
        u, v = t + 0.5 * L, t - 0.5 * L
        q1, q2, q3 = normal_cells(L, t, t)
        f1, f2 = INV_SQRT_TWO_PI * exp(-0.5 * u * u), INV_SQRT_TWO_PI * exp(-0.5 * v * v)
        if q1 < 1e-280 or q2 < 1e-280:
            low = t
            t = 0.5 * (low + high)
            continue
        if q3 <= 0.0:
            high = t
            t = 0.5 * (low + high)
            continue
        m1, m2, m3 = f1 / q1, f2 / q2, (f1 + f2) / q3
        slope = a3 * m3 - a1 * m1 - a2 * m2
        if slope > 0.0:
            high = t
        else:
            low = t
        bend = a1 * m1 * (u + m1) + a2 * m2 * (v + m2) + a3 * (m3 * m3 - (u * f1 + v * f2) / q3)
        step = -slope / bend if bend > 0.0 else 0.0
        after = t + step
        if not low < after < high or bend <= 0.0:
            after = 0.5 * (low + high)
        if abs(after - t) <= tolerance * abs(t):
            return after
        t = after
    return t


@compiled
def profile(
    kind: int, y1: float, y2: float, n: int, L: float, start: float, tolerance: float = TIGHT
) -> tuple[float, float, float, float]:
    """Return the profile deviance of votes y1, y2 of n at the margin ``L``, its slope in y1, ``a1 - N q1`` and t.

    y1 are for the class, y2 for its rival. The last two are of the fit: ``a1`` is the shifted count of the class,
    ``q1`` its fitted probability, ``N`` the sum of all shifted counts, t the parameter of the curve of margin L, on
    which the fit goes from ``start`` until steps are below ``tolerance``.
    """
    a1, a2, a3 = y1 + 0.5, y2 + 0.5, n - y1 - y2 + 0.5
    if kind == QUANTILE:
        a1, a2, a3 = y1 - 0.25, y2 + 0.6, n - y1 - y2 + 0.6
    total = a1 + a2 + a3
    if kind == QUANTILE:
        t = quantile_fit(a1, a2, a3, L, start, tolerance)
        q1, q2, q3 = normal_cells(L, t, t)
    else:
        # Cells r, r + |L| and w - 2 r, w = 1 - |L|: the likelihood equation is 2 N r^2 - b r - a |L| w = 0, a the count
        # of the cell r, with one positive root, taken without cancellation.
        far = abs(L)
        w, a = 1.0 - far, a1 if L < 0.0 else a2
        b = (a1 + a2) * w - 2.0 * (a + a3) * far
        root = sqrt(b * b + 8.0 * total * a * far * w)
        r = (b + root) / (4.0 * total) if b >= 0.0 else 2.0 * a * far * w / (root - b)
        t, q3 = far + 2.0 * r, w - 2.0 * r
        q1, q2 = (r, r + far) if L < 0.0 else (r + far, r)
    if q1 <= 0.0 or q2 <= 0.0 or q3 <= 0.0:
        return 1e300, 0.0, a1 - total * q1, t
    r1, r2, r3 = log(a1 / (total * q1)), log(a2 / (total * q2)), log(a3 / (total * q3))
    return 2.0 * (a1 * r1 + a2 * r2 + a3 * r3), 2.0 * (r1 - r3), a1 - total * q1, t


@compiled
def reaches_margin(kind: int, y1: int, y2: int, n: int, k: int, zz: float) -> bool:
    """Return whether the votes y1, y2 of n reach the margin ``k * MARGIN_STEP``.

    They do if the estimated margin lies above it, and its deviance from the votes is at least ``zz``.
    """
    if kind == QUANTILE and y1 == 0:
        return False
    deviance, _, excess, _ = profile(kind, y1, y2, n, k * MARGIN_STEP, COLD, TIGHT)
    return excess > 0.0 and deviance >= zz


@compiled
def value(kind: int, x1: int, x2: int, n: int, zz: float) -> int:
    """Return the number k by which the outcome (x1, x2) of n draws is ordered, a margin in units of ``MARGIN_STEP``.

    Found by bisection: the outcome reaches margin k with ``GUARD`` to spare, and not margin k + 1; or k is the lowest.
    """
    needed = zz + GUARD * (n + 200)
    low = int((-1.0 if kind == PROBABILITY else -40.0) / MARGIN_STEP)
    high = -low
    while high - low > 1:
        k = (low + high) // 2
        if reaches_margin(kind, x1, x2, n, k, needed):
            low = k
        else:
            high = k
    return low


@inner
def settled(y: int, first: int, j: int, n: int, deviance: float, slope: float, zz: float) -> bool:
    """Return whether ``first`` votes for the class are shown to reach a margin, and ``first - 1`` not to.

    ``deviance`` and ``slope`` are those at ``y`` votes for the class, ``j`` for its rival, of n. The deviance D lies
    above its tangent and below a parabola (T7; of quantile margins only for ``L >= 0``). Both must clear ``zz = z^2``
    by ``NEAR``, where any evaluation of D decides alike. The tangent at a ``first`` below the estimate would be
    negative, so a ``first`` that passes lies above it.
    """
    ahead, behind = first - y, first - 1 - y
    far = max(abs(ahead), abs(behind)) + 1.0
    a1, a3 = y - far, n - y - j - far
    if a1 < far or a3 < far:
        return False
    bend = behind * behind * (1.0 / a1 + 1.0 / a3)
    return deviance + slope * ahead >= zz + NEAR and deviance + slope * behind + bend < zz - NEAR


@inner
def first_reaching(
    kind: int, j: int, n: int, k: int, zz: float, floor: int, guess: int, start: float
) -> tuple[int, float]:
    """Return the fewest votes for the class, from ``floor`` up, that reach margin k beside ``j`` for its rival; and t.

    ``n - j + 1`` if none do. The search starts from ``guess`` votes; fits start from ``start``, and t is that of the
    last one.
    """
    low, high = floor - 1, n - j + 1
    y = min(max(guess, floor), n - j)
    t = start
    jump = 1
    while high - low > 1:
        deviance, slope, excess, t = profile(kind, y, j, n, k * MARGIN_STEP, t, ROUGH)
        above = excess > 0.0
        inside = above and deviance >= zz
        if not above or abs(deviance - zz) < NEAR:
            inside = reaches_margin(kind, y, j, n, k, zz)
        if inside:
            high = y
        else:
            low = y
        if above and slope > 0.0:
            root = y + (zz - deviance) / slope
            if low < root < high and (kind == PROBABILITY or k >= 0):
                first = int(root) + 1
                if settled(y, first, j, n, deviance, slope, zz):
                    return first, t
            y = int(min(max(root, -1.0), n + 1.0)) + 1
            if inside and y >= high:
                y = high - 1
        else:
            y = low + jump
            jump *= 2
        y = min(max(y, low + 1), high - 1)
    return high, t


@compiled
def fill_boundary(kind: int, n: int, k: int, zz: float, c: IntArray) -> int:
    """Fill ``c`` with the boundary of the outcomes that reach margin k (``region_boundary``); return its length.

    For the quantile margin outcomes with ``x1 = 0`` are ordered below all others: no limit but -inf holds there, and
    kept out of every other region they cost those nothing.
    """
    t, last, rise = COLD, 1 if kind == QUANTILE else 0, 0
    for j in range(n + 1):
        level, t = first_reaching(kind, j, n, k, zz, last, last + rise, t)
        if level > n - j:
            return j
        rise = level - last if j > 0 else 0
        last = level
        c[j] = level
    return n + 1


def deviance_needed(alpha: float) -> float:
    """Return ``z^2``, the deviance with which an outcome reaches a margin: ``z = Phi^-1(1 - alpha)``, at least 0.5."""
    return max(-float(ndtri(alpha)), SMALLEST_Z) ** 2


def region_boundary(kind: int, n: int, k: int, zz: float) -> IntArray:
    """Return for x2 = 0, 1, ... the fewest votes x1 with which (x1, x2) reaches margin k, while there are any."""
    c = np.zeros(n + 1, dtype=np.int64)
    return c[: fill_boundary(kind, n, k, zz, c)].copy()


AIM = 1e-6
"""The search aims at a probability of ``alpha (1 - AIM)``, so that the proof that it is at most alpha can close; this
lowers limits by about ``AIM / sqrt(n)``."""
LARGEST_EXACT_N = 1_000_000
"""Largest n for which the floating error is accounted for (F1 to F4)."""
SMALLEST_EXACT_ALPHA = 1e-12
"""Smallest alpha for which the floating error is accounted for (F1), and checked in ball arithmetic."""
LARGEST_ORDERED_AGAIN = 1000
"""Largest n for which the outcomes of a plateau (``Plateau``) are ordered a second time; this raises limits at n = 1000
by 0.03 % on average."""
PLATEAU_TOLERANCE = 1e-6
"""Largest difference of limits in a plateau, and so the most that the second ordering can lower a limit."""
PLATEAU_HALVINGS = 12
"""Steps of the bisection that finds the end of a plateau. Heuristic: affects tightness, not validity."""
REMEMBERED = 1 << 16
"""Size of the cache of limits, in outcomes (some tens of MB): more than there are outcomes of n = 300 draws."""
PLATEAUS = 1 << 11
"""Size of the cache of plateaus: 32 MB at n = 1000."""
ATTEMPTS, CLIMBS, PATIENT = 100, 12, 6
"""For ``invert``: largest number of proofs tried; of rounds of ``climb`` and ``margin_at`` before each; and of failed
proofs before the margin is lowered too, by ``FIRST_RETREAT`` and then twice as much each time: 94 doublings pass the
lowest margin."""
FIRST_RETREAT = 1e-9
SETTLED_SHARE = 0.05
"""``invert`` goes on to the proof once the margin moves by less than this share of ``AIM / sqrt(n)``."""
PART = 64
"""Outcomes whose limits a thread computes at a time."""
CODE = {"probability": PROBABILITY, "quantile": QUANTILE}


@compiled
def invert(kind: int, hint: float, region: Region, alpha: float) -> float:
    """Return the largest margin L found for which ``P_q(region) <= alpha`` is proved for all q of margin at most L.

    The search starts from ``hint``. If no margin is proved, the trivial limit comes back: -1 of probability margins,
    -inf of quantile margins.

    **Guarantee.** ``supremum_at_most`` has proved every margin that is returned, however it was found.
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
            done = abs(after - L) <= SETTLED_SHARE * AIM / sqrt(n)
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
    """Return the lower limit of the margin shared by the outcomes at the edge of a region, by ``invert``.

    ``c`` is the boundary of the region, ``{(x1, x2): x1 >= c[x2]}`` of n draws, ``hint`` a first guess. If the region
    holds (0, 0), the limit of the quantile margin is -inf.
    """
    kind = CODE[margin]
    if c[0] <= 0:
        if kind == QUANTILE:
            return -inf
        hint = min(hint, -0.01)
    return float(invert(kind, hint, make_region(n, c), alpha))


class Plateau(NamedTuple):
    """Outcomes of nearly the same limit, from ``value`` ``low`` up to that of an edge outcome (x1, n - x1)."""

    low: int
    top: float
    """Largest limit of an outcome here; the limits of the others are at least ``top - PLATEAU_TOLERANCE``."""
    outer: IntArray
    """Boundary, as that of a ``Region``, of the outcomes with a value of ``low`` or more."""
    inner: IntArray
    """Boundary of the outcomes ordered above the plateau."""


@lru_cache(maxsize=REMEMBERED)
def edge_value(x1: int, n: int, alpha: float, margin: MarginKind) -> int:
    """Return the number that orders the outcome ``(x1, n - x1)`` (``value``); it does not fall as ``x1`` rises (F3)."""
    return int(value(CODE[margin], x1, n - x1, n, deviance_needed(alpha)))


@lru_cache(maxsize=PLATEAUS)
def find_plateau(x1: int, n: int, alpha: float, margin: MarginKind) -> Plateau | None:
    """Return the plateau whose highest outcome is ``(x1, n - x1)``, or None if its limit is infinite.

    Bisection finds its lowest value, which lies above that of the edge outcome below: the region of that value has a
    limit of at least ``top - PLATEAU_TOLERANCE``.
    """
    kind, zz = CODE[margin], deviance_needed(alpha)
    below, high = edge_value(x1 - 1, n, alpha, margin), edge_value(x1, n, alpha, margin)
    top = region_limit(region_boundary(kind, n, high, zz), n, alpha, margin, high * MARGIN_STEP)
    if not np.isfinite(top):
        return None
    low = high
    for _ in range(PLATEAU_HALVINGS):
        middle = (below + low) // 2
        c = region_boundary(kind, n, middle, zz)
        if middle > below and c[0] > 0 and supremum_at_most(kind, top - PLATEAU_TOLERANCE, make_region(n, c), alpha)[0]:
            low = middle
        else:
            below = middle
    return Plateau(low, top, region_boundary(kind, n, low, zz), region_boundary(kind, n, high + 1, zz))


def outcome_region(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> tuple[IntArray, float]:
    """Return the boundary of the outcomes ordered at or above ``(x1, x2)``, and a first guess of the limit.

    ``x1`` votes are for the class, ``x2`` for its rival, of n; the boundary is that of a ``Region``. Outcomes are
    ordered by ``value``; those of one plateau by fewer votes ``x2``, then by more votes ``x1``. With the quantile
    margin the outcomes with ``x1 = 0`` come last, and their region holds every outcome.
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
    return region_boundary(kind, n, k, zz), k * MARGIN_STEP


def buehler_lower(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    """Return Buehler's lower limit of the margin of a class with ``x1`` of ``n`` votes over a rival with ``x2``.

    **Guarantee.** For counts X that are trinomial with the probabilities ``q = (q1, q2, q3)`` of class, rival and the
    rest, ``P(limit(X) > theta(q)) <= alpha``; one-sided, a lower limit for fixed n, no other assumption. The margin
    ``theta`` is ``q1 - q2`` ("probability") or ``Phi^-1(q1) - Phi^-1(q2)`` ("quantile"). Rounded down: never above the
    exact limit, and below it by about ``AIM / sqrt(n)``. The limit rises with ``x1`` and falls with ``x2``; it may be
    negative. It need not rise with alpha, since another alpha orders outcomes differently. ``q = (0, 0, 1)`` has
    quantile margin -inf by convention, so that limit is -inf when the outcome (0, 0) is ordered at or above the one
    seen. A probability margin is never below -1, which is returned when nothing more is proved.

    >>> round(buehler_lower(100, 0, 100, 1e-3, "quantile"), 5)
    3.00095
    >>> round(buehler_lower(95, 0, 100, 1e-3, "quantile"), 4)
    2.7603
    """
    if alpha < SMALLEST_EXACT_ALPHA:
        raise InvalidInput(f"alpha must be at least {SMALLEST_EXACT_ALPHA:g} for the exact limit; got {alpha}")
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
    """Return Buehler's lower limits of margins of classes with ``top`` of ``n`` votes over rivals with ``runner_up``.

    The three arrays broadcast; repeated triples are solved once.

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
    check_whole("n", int(total.max(initial=1)), 1, LARGEST_EXACT_N)
    if (x1 + x2 > total).any():
        raise InvalidInput(f"top + runner_up must be at most n; got {(x1 + x2 - total).max()} votes more than draws")
    outcomes, where = distinct_rows(x1, x2, total)
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
