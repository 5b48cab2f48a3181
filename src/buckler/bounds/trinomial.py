"""Trinomial counts: cell probabilities along the curve of one margin, and the probability of an up-closed region.

**Curve** (T5). The supremum of an up-closed region's probability over ``{q : theta(q) <= L}`` lies on

- quantile margin: ``q1 = Phi(t + L/2)``, ``q2 = Phi(t - L/2)``, ``t <= 0``;
- probability margin: ``q1 = max(L, 0) + r``, ``q2 = max(-L, 0) + r``, ``r = (1 - |L|) t / 2``, ``0 <= t <= 1``.

A point carries its third probability: where ``q2`` rounds to 1, ``1 - q1 - q2`` would be rounding error alone (F1).

**Region.** An up-closed region ``{x1 >= c(x2)}`` is stored as its boundary, an int64 array ``c``: column ``j``, where
``x2 = j``, holds the outcomes with ``x1 >= c[j]``. ``c`` is nondecreasing; columns ``0 .. len(c) - 1`` are nonempty
(``c[j] <= n - j``), all later ones are empty. Every region ``{T >= t}`` of a statistic that rises with ``x1`` and falls
with ``x2`` has this form.
"""

from math import erfc, exp, floor, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from buckler.bounds.compiled import compiled, inner
from buckler.types import FloatArray, IntArray

SQRT_HALF = 0.7071067811865476
INV_SQRT_TWO_PI = 0.3989422804014327
PROBABILITY = 0
QUANTILE = 1
LARGEST_SUBTRACTED = 0.75
"""Up to this value of ``q2``, ``1 - q2`` loses no digits; above, the complement is computed separately."""
LEAST_PROBABILITY = 1e-30
LOG_TWO_PI = 1.8378770664093453
RESCALE = 600
"""Sums of probabilities above ``2^RESCALE`` are divided by ``2^RESCALE``, and the divisions counted."""
ROUNDOFF = 2.0**-53
DEEP = 3.0
"""The rounding error of a log scale below ``-DEEP n`` is added in ``unscaled``; F2 covers the others."""
RELATIVE_ERROR = 1e-8
"""Largest relative error by which a computed probability may be too small, for n up to a million (F2)."""


class Trinomial(NamedTuple):
    """Probabilities that a draw votes for the class, for its rival, and for any other class."""

    q1: float
    q2: float
    q3: float


@inner
def normal_cells(L: float, a: float, b: float) -> Trinomial:
    """Return ``q1 = Phi(b + L/2)``, ``q2 = Phi(a - L/2)`` and what they leave of 1, without cancellation in the tails.

    The rest is the smaller of the two complements, ``1 - q1`` for ``L >= 0`` and ``1 - q2`` for ``L < 0``, less the
    other cell: its error is a few roundoffs of that complement, never of 1.
    """
    u, v = b + 0.5 * L, a - 0.5 * L
    q1, q2 = 0.5 * erfc(-u * SQRT_HALF), 0.5 * erfc(-v * SQRT_HALF)
    if L < 0.0:
        return Trinomial(q1, q2, 0.5 * erfc(v * SQRT_HALF) - q1)
    return Trinomial(q1, q2, 0.5 * erfc(u * SQRT_HALF) - q2)


@compiled
def corner(kind: int, L: float, a: float, b: float) -> Trinomial:
    """Return the trinomial of ``q1`` at parameter ``b`` and ``q2`` at ``a`` of the curve of margin ``L``, ``a <= b``.

    On ``[a, b]`` no q1 of the curve is larger and no q2 smaller. ``kind`` is PROBABILITY or QUANTILE. Unless ``q2`` is
    large, ``q3`` is exactly what the rounded ``q1`` and ``q2`` leave. If it is, and may round to 1, ``q3`` is computed
    on its own.
    """
    if kind == PROBABILITY:
        width = 1.0 - abs(L)
        q1, q2 = max(L, 0.0) + 0.5 * width * b, max(-L, 0.0) + 0.5 * width * a
        q3 = width * (1.0 - 0.5 * (a + b))
    else:
        q1, q2, q3 = normal_cells(L, a, b)
    if q2 <= LARGEST_SUBTRACTED:
        d = 1.0 - q2
        q3 = (d - q1) + ((1.0 - d) - q2)
    return Trinomial(q1, q2, max(q3, 0.0))


@compiled
def without_rival(q: Trinomial) -> float:
    """Return the probability ``1 - q2`` that a draw is not for the rival, without cancellation."""
    return 1.0 - q.q2 if q.q2 <= LARGEST_SUBTRACTED else q.q1 + q.q3


@compiled
def curve_point(kind: int, L: float, t: float) -> Trinomial:
    """Return the trinomial at parameter ``t`` of the curve of all that have margin ``L``: q1 and q2 rise in t.

    ``kind``, PROBABILITY or QUANTILE, says which margin; t lies between ``curve_bottom`` and ``curve_top``.
    """
    return corner(kind, L, t, t)


@compiled
def curve_top(kind: int) -> float:
    """Return the upper end of the curve's parameter t, where ``q3 = 0``: 1 for PROBABILITY, 0 for QUANTILE margins."""
    return 1.0 if kind == PROBABILITY else 0.0


@compiled
def curve_bottom(kind: int) -> float:
    """Return the lower end of the curve's parameter t: 0 for PROBABILITY, -inf for QUANTILE margins."""
    return 0.0 if kind == PROBABILITY else -inf


@inner
def stirling_error(k: int) -> float:
    """Return ``log k! - log(sqrt(2 pi k) (k/e)^k)`` to full relative precision (Loader, 2000); 0 stands for k = 0."""
    if k == 0:
        return 0.0
    if k < 16:
        factorial = 1.0
        for i in range(2, k + 1):
            factorial *= i
        return log(factorial) - 0.5 * (LOG_TWO_PI + log(k)) - k * log(k) + k
    s = 1.0 / (float(k) * k)
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (691 / 360360)))))) / k


@inner
def deviance_term(k: int, mean: float) -> float:
    """Return ``k log(k / mean) + mean - k`` without cancellation when k is near the mean (Loader, 2000)."""
    if k == 0:
        return mean
    d = k - mean
    if abs(d) < 0.1 * (k + mean):
        v = d / (k + mean)
        total = d * v
        power = 2.0 * k * v
        for i in range(1, 200):
            power *= v * v
            step = total + power / (2 * i + 1)
            if step == total:
                return step
            total = step
        return total
    return k * log(k / mean) - d


@compiled
def log_pmf(n: int, x1: int, x2: int, q1: float, q2: float, q3: float) -> float:
    """Return the log of the trinomial probability of counts ``(x1, x2, n - x1 - x2)``, by Loader's expansion (2000)."""
    total = stirling_error(n) + 0.5 * (LOG_TWO_PI + log(n))
    for k, q in ((x1, q1), (x2, q2), (n - x1 - x2, q3)):
        total -= stirling_error(k) + deviance_term(k, n * q)
        if k > 0:
            total -= 0.5 * (LOG_TWO_PI + log(k))
    return total


@inner
def column_sum(n: int, c: int, j: int, q1: float, q2: float, q3: float) -> tuple[float, float]:
    """Return the probability of ``{x1 >= c, x2 = j}`` for n draws, as ``(log scale, sum)``.

    It is ``exp(log scale) * sum``, in which the terms that the sum leaves out are bounded from above.
    """
    m = n - j
    start = min(max(c, floor((m + 1) * (q1 / (q1 + q3)))), m)
    total, term = 1.0, 1.0
    for x1 in range(start, m):
        ratio = (m - x1) * q1 / ((x1 + 1) * q3)
        term *= ratio
        total += term
        if ratio < 0.999 and term < 1e-16 * total:
            total += term * ratio / (1.0 - ratio)
            break
    term = 1.0
    for x1 in range(start, c, -1):
        ratio = x1 * q3 / ((m - x1 + 1) * q1)
        term *= ratio
        total += term
        if ratio < 0.999 and term < 1e-16 * total:
            total += term * ratio / (1.0 - ratio)
            break
    return log_pmf(n, start, j, q1, q2, q3), total


@inner
def column_start(n: int, c: int, j: int, q1: float, q2: float, q3: float) -> tuple[float, float, float]:
    """Return ``column_sum`` and, on the same scale, the probability of the outcome ``(c - 1, j)`` just below it."""
    scale, total = column_sum(n, c, j, q1, q2, q3)
    if c == 0:
        return scale, total, 0.0
    if c >= floor((n - j + 1) * (q1 / (q1 + q3))):  # the scale is that of (c, j), the outcome's neighbour
        return scale, total, c * q3 / ((n - j - c + 1) * q1)
    log_g = log_pmf(n, c - 1, j, q1, q2, q3)
    base = max(scale, log_g)
    return base, total * exp(scale - base), exp(log_g - base)


@compiled
def at_most_one(total: float) -> float:
    """Return ``min(1, total)``; 1, which is conservative, if the total is infinite or NaN."""
    return min(1.0, total)


@compiled
def unscaled(total: float, scale: float, shifts: float, n: int) -> float:
    """Return ``total exp(scale) 2^(RESCALE shifts)``, a probability for n draws, raised by its rounding error."""
    excess = 6.0 * ROUNDOFF * max(-scale - DEEP * n, 0.0)
    return total * exp(scale + shifts * (RESCALE * log(2.0)) + excess)


class Region(NamedTuple):
    """An up-closed set of outcomes (x1, x2) of ``n`` draws, those with ``x1 >= c[x2]``, and ratios of neighbours in it.

    The ratios are those factors of their probabilities that do not depend on the trinomial's q; x3 is ``n - x1 - x2``.
    """

    n: int
    c: IntArray
    column: FloatArray
    """``j / (n - j + 1)``: factor of an outcome's probability, without q, in going from ``x2 = j`` to ``j - 1``."""
    across: FloatArray
    """``j / (x3 + 1)`` at ``(c[j] - 1, j)``: such a factor in going from there to ``(c[j] - 1, j - 1)``."""
    down: FloatArray
    """``x1 / (x3 + 1)`` for each ``x1`` below the boundary of a column: such a factor in going to ``(x1 - 1, x2)``."""


def make_region(n: int, c: IntArray) -> Region:
    """Return the region ``{(x1, x2): x1 >= c[x2]}`` of the outcomes of n draws; it holds no ``x2 >= len(c)``."""
    j = np.arange(c.size)
    down = np.zeros(c[-1] + 1 if c.size else 1)
    if c.size:
        x1 = np.arange(c[0], c[-1])
        down[c[0] : c[-1]] = x1 / (n - np.repeat(j[:-1], np.diff(c)) - x1 + 1.0)
    return Region(n, c, j / (n - j + 1.0), j / (n - j - c + 2.0), down)


@compiled
def region_probability(region: Region, q: Trinomial, drop: float) -> float:
    """Return the probability of a region under the trinomial ``q``, too large by at most ``2 * drop``.

    That is ``P(x1 >= c[x2])`` for the region's boundary ``c`` and its ``n`` draws.

    Columns are taken from high ``x2`` to low. With ``H(j) = P(x1 >= c[j], x2 = j)``, ``g`` the probability of the
    outcome ``(c[j] - 1, j)`` and ``r = q1 / (1 - q2)``::

        H(j - 1 | same c) = (H(j) + r g) P(x2 = j - 1) / P(x2 = j),    H(j | c - 1) = H(j | c) + g,

    from ``P(Bin(m + 1, r) >= c) = P(Bin(m, r) >= c) + r P(Bin(m, r) = c - 1)``. Every term is positive, so nothing
    cancels: the relative error is a few units in the last place for each step, over ``O(sqrt(n q2))`` columns.
    Columns above a Bernstein limit, and below the point where a geometric series bounds the rest, hold at most
    ``drop`` each; that mass is added. Probabilities that would underflow are carried with a common scale.
    """
    n, c, column, across, down = region
    if c.size == 0:
        return 0.0
    none = n - n  # not the literal 0, for which numba would compile the callees once more
    q1, q2, q3 = max(q.q1, LEAST_PROBABILITY), q.q2, max(q.q3, LEAST_PROBABILITY)
    d = without_rival(Trinomial(q1, q2, q3))
    if q2 <= 0.0:
        scale, total = column_sum(n, c[0], none, q1, 0.0, q3)
        return at_most_one(unscaled(total, scale, 0.0, n))
    spread = -log(drop)
    top = n * q2 + sqrt(2.0 * spread * n * q2 * d) + spread
    j = c.size - 1
    outside = 0.0
    if top < j:
        j = int(top)
        outside = drop
    log_f = log_pmf(n, none, j, LEAST_PROBABILITY, q2, d)
    # Columns that would underflow: above the mean they are left out, as their sum is far below drop, and lower ones
    # are looked for; below the mean all lower ones are smaller still, and nothing is left.
    while log_f < -690.0 and j > n * q2:
        j -= 1
        outside = drop
        log_f = log_pmf(n, none, j, LEAST_PROBABILITY, q2, d)
    if log_f < -690.0:
        return outside + drop
    f = exp(log_f)
    level = c[j]
    scale, h, g = column_start(n, level, j, q1, q2, q3)
    total, shifts = h, 0.0
    r, odds_column, odds_across, odds_down = q1 / d, d / q2, q3 / q2, q3 / q1
    big = 2.0**RESCALE
    while j > 0:
        ratio = column[j] * odds_column
        if ratio < 0.99 and f * ratio < drop * (1.0 - ratio):
            outside += f * ratio / (1.0 - ratio)
            break
        h = (h + r * g) * ratio
        f *= ratio
        g *= across[j] * odds_across
        j -= 1
        bound = c[j]
        while level > bound:
            h += g
            level -= 1
            g *= down[level] * odds_down
            if h > big:
                h /= big
                g /= big
                total /= big
                shifts += 1.0
        total += h
    return at_most_one(unscaled(total, scale, shifts, n) + outside)


@compiled
def region_probabilities(region: Region, q: FloatArray, drop: float, out: FloatArray) -> None:
    """Fill ``out`` with a region's probability under each trinomial of ``q[points, 3]``, as ``region_probability``.

    Points should be near one another: all go through the same columns ``x2 = j`` together, from the highest to the
    lowest that any of them needs (above by Bernstein's inequality, below by Chernoff's), so that the steps of the
    recurrence are loops over points, which the processor takes several at a time. A point whose sum overflows is
    computed alone.
    """
    n, c, column, across, down = region
    points = q.shape[0]
    lanes = (points + 15) // 16 * 16
    h, g, total, scale, shifts = np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes)
    r, odds_column, odds_across, odds_down = np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes)
    spread = -log(drop)
    first, last = c.size - 1, c.size
    highest = 0.0
    for i in range(points):
        mean = n * q[i, 1]
        d = without_rival(Trinomial(q[i, 0], q[i, 1], q[i, 2]))
        highest = max(highest, mean + sqrt(2.0 * spread * mean * d) + spread)
        last = min(last, floor(mean - sqrt(2.0 * spread * mean)))
    first, last = min(first, int(highest)), max(last, 0)
    outside = (drop if first < c.size - 1 else 0.0) + (drop if last > 0 else 0.0)
    if first < last:
        for i in range(points):
            out[i] = min(2.0 * drop, 1.0)
        return
    level = c[first]
    for i in range(lanes):
        at = min(i, points - 1)
        p1, p2, p3 = (
            max(q[at, 0], LEAST_PROBABILITY),
            max(q[at, 1], LEAST_PROBABILITY),
            max(q[at, 2], LEAST_PROBABILITY),
        )
        d = without_rival(Trinomial(p1, p2, p3))
        r[i], odds_column[i], odds_across[i], odds_down[i] = p1 / d, d / p2, p3 / p2, p3 / p1
        if i < points:
            scale[i], h[i], g[i] = column_start(n, level, first, p1, p2, p3)
        else:
            scale[i], h[i], g[i] = scale[i - 1], h[i - 1], g[i - 1]
        total[i], shifts[i] = h[i], 0.0
    big = 2.0**RESCALE
    for j in range(first, last, -1):
        for i in range(lanes):
            h[i] = (h[i] + r[i] * g[i]) * (column[j] * odds_column[i])
            g[i] *= across[j] * odds_across[i]
        while level > c[j - 1]:
            level -= 1
            for i in range(lanes):
                h[i] += g[i]
                g[i] *= down[level] * odds_down[i]
        over = False
        for i in range(lanes):
            total[i] += h[i]
            over |= h[i] > big
        if over:
            for i in range(lanes):
                if h[i] > big:
                    h[i] /= big
                    g[i] /= big
                    total[i] /= big
                    shifts[i] += 1.0
    for i in range(points):
        out[i] = at_most_one(unscaled(total[i], scale[i], shifts[i], n) + outside)
        if not total[i] < inf:
            out[i] = region_probability(region, Trinomial(q[i, 0], q[i, 1], q[i, 2]), drop)
