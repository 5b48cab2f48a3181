"""Every candidate mean its own bettor: the limit of the mean by target-recalculating stakes, candidate by candidate.

**The stake.** Were the draws Gaussian with known deviation s, the best test of a candidate m at level alpha and horizon
n would be the z-test, and its wealth a digital option: with wealth K against m and r draws left, hold
``lambda = h / (s sqrt r)``, where ``h = phi(d) / Phi(d)`` and ``Phi(d) = alpha K``. For small alpha K this is the
target-recalculating stake ``sqrt(2 ln(1/(alpha K)) / r) / s`` of Voracek & Orabona (2025). A law of skewness g calls
for ``1 + g h / (6 sqrt r)`` times as much, to first order (the saddlepoint of the option, projected on factors linear
in y). None of this needs to be exact: any number computed from the past is a sound stake, ``min(lambda, CAP / m)``
loses at most CAP of the wealth, and a candidate is rejected when its wealth reaches ``1/alpha`` (Ville).

**Why cells.** Such stakes react to the candidate's own wealth, so rejection need not be monotone in the candidate, and
a bisection could jump over a hole. Here the candidates are cut into cells (l, u], and all candidates of a cell hold the
stakes that follow the wealth of its upper end u. Within a cell the factors ``1 + min(lambda, CAP / m) (y - m)`` fall in
m, so a cell is rejected as a whole when u is, and bisection inside of it is sound. The limit is looked for in the
lowest cell that is not rejected: everything below it is.

**When cells are cut.** After 1/32 of the draws, and whenever their number has doubled, the cells that may still hold
the limit are cut more finely. Candidates at a distance of k standard errors ``s / sqrt n`` should hold different stakes
only once ``k i / n`` is no longer small, so the width is ``FINENESS s sqrt(n) / i``. A cell inherits the stakes of the
one it was cut from, and where to cut follows from the draws so far: a candidate's stakes are predictable.

A cell whose wealth has become hopeless stakes nothing until it is cut again; those above it are of no interest then.

Every limit here is a lower one, rounded down. The goal to be reached is ``betting.wealth_goal``, which is ``1/alpha``
raised by what rounding can add to a wealth.
"""

from math import log, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from buckler.bounds.bets import CAP, HURRIED, PACE, PRIOR
from buckler.bounds.compiled import compiled
from buckler.types import FloatArray, IntArray

FINENESS, COARSE = 0.2, 1.5
"""The width of a cell at the end, in standard errors of the mean; and where there are very many columns."""

DOUBT = 2.5
"""How many deviations the foretold limit may be off; candidates further away stay together in two large cells."""

MOST = 96
"""Into how many cells the window is cut at most."""

OPENING = 32
"""Cells are cut for the first time after this part of the draws; before, all candidates hold the same stakes."""

MOST_CHANGES = 1000
"""How often the slope may change: the stakes of every cell are kept block by block."""

HOPELESS = 16.0
"""How far ``ln K`` may fall before a cell stakes nothing."""

LOST = 1e-200
"""A wealth below is given up, before numbers lose digits to underflow; giving up never rejects."""

TOLERANCE = 1e-10
"""How far below the exact limit, in units of the range, the bisection may stop."""

_STEPS = 200
_ROOTS: FloatArray = np.arange(1, 16 * _STEPS + 2) / _STEPS
_LOG_DENSITY: FloatArray = -0.5 * ndtri_exp(-(_ROOTS**2)) ** 2 - 0.5 * np.log(2.0 * np.pi)
HAZARDS: FloatArray = np.concatenate([[0.0], np.exp(_LOG_DENSITY + _ROOTS**2)])
"""``h`` where ``alpha K = exp(-x^2)``, for x = 0, 1/200, ..., 16; beyond, ``h`` is about ``sqrt(2) x``."""


def _hazard(log_price: float, hazards: FloatArray) -> float:
    x = sqrt(-log_price) * _STEPS
    k = int(x)
    if k + 1 >= hazards.size:
        return 1.4142135623730951 * x / _STEPS
    return float(hazards[k] + (x - k) * (hazards[k + 1] - hazards[k]))


_hazard_compiled: Any = compiled(_hazard)


def _stake(log_price: float, left: int, moments: FloatArray, hazards: FloatArray) -> float:
    """Return the stake of a bettor whose ``ln(alpha K)`` is ``log_price``, with ``left`` draws to go.

    ``moments`` are the count of draws and the sums of y, y^2 and y^3, those of the prior included.
    """
    mean, second, third = moments[1] / moments[0], moments[2] / moments[0], moments[3] / moments[0]
    deviation = sqrt(max(second - mean * mean, 1e-12))
    reach = _hazard_compiled(log_price, hazards) / sqrt(left)
    skewness = (third - 3.0 * mean * second + 2.0 * mean**3) / deviation**3
    return float(reach / deviation * min(max(1.0 + skewness * reach / 6.0, 0.2), 1.5))


_stake_compiled: Any = compiled(_stake)


def _fill_moments(sums: FloatArray, c: float, moments: FloatArray) -> None:
    """Fill in the count and the sums of y, y^2 and y^3 for ``y = (a - c b + c)/(1 + c)``, the prior included.

    ``sums`` are the count and the sums of a, b, aa, ab, bb, aaa, aab, abb and bbb.
    """
    count, z = sums[0], sums[1] - c * sums[2]
    zz = sums[3] - 2.0 * c * sums[4] + c * c * sums[5]
    zzz = sums[6] - 3.0 * c * sums[7] + 3.0 * c * c * sums[8] - c**3 * sums[9]
    scale = 1.0 / (1.0 + c)
    half = 0.5 * PRIOR
    moments[0], moments[1] = PRIOR + count, half + (z + c * count) * scale
    moments[2] = half + (zz + 2.0 * c * z + c * c * count) * scale**2
    moments[3] = half + (zzz + 3.0 * c * zz + 3.0 * c * c * z + c**3 * count) * scale**3


_fill_moments_compiled: Any = compiled(_fill_moments)


def _add(a: FloatArray, b: FloatArray, sums: FloatArray) -> None:
    """Add draws to ``sums``."""
    sa = sb = saa = sab = sbb = saaa = saab = sabb = sbbb = 0.0
    for i in range(a.size):
        p, q = a[i], b[i]
        pp, qq = p * p, q * q
        sa, sb = sa + p, sb + q
        saa, sab, sbb = saa + pp, sab + p * q, sbb + qq
        saaa, saab, sabb, sbbb = saaa + pp * p, saab + pp * q, sabb + p * qq, sbbb + q * qq
    sums[0] += a.size
    sums[1] += sa
    sums[2] += sb
    sums[3] += saa
    sums[4] += sab
    sums[5] += sbb
    sums[6] += saaa
    sums[7] += saab
    sums[8] += sabb
    sums[9] += sbbb


_add_compiled: Any = compiled(_add)


def _follow(y: FloatArray, stake: float, m: float, wealth: float, goal: float) -> float:
    """Return the wealth against m after these draws at one stake, or when it reached the goal; 0 where it is lost."""
    stake = min(stake, CAP / m)
    for value in y:
        wealth *= 1.0 + stake * (value - m)
        if wealth >= goal:
            return wealth
        if wealth < LOST:
            return 0.0
    return wealth


_follow_compiled: Any = compiled(_follow)


def _wealth(
    y: FloatArray, starts: IntArray, index: IntArray, stakes: FloatArray, means: FloatArray, goal: float
) -> float:
    """Return the wealth of one candidate after all of ``y``, or when it reached the goal; 0 where it is lost.

    ``stakes[j]`` holds from draw ``starts[j]`` on, and ``means[index[i]]`` is the candidate's mean at draw i.
    """
    wealth = 1.0
    for j in range(starts.size):
        stop = starts[j + 1] if j + 1 < starts.size else y.size
        wealth = _follow_compiled(y[starts[j] : stop], stakes[j], means[index[starts[j]]], wealth, goal)
        if wealth == 0.0 or wealth >= goal:
            break
    return wealth


_wealth_compiled: Any = compiled(_wealth)


def _node(table: FloatArray, s: int, value: float) -> int:
    """Return the last node whose mean under slope s is at most ``value``, or -1."""
    low, high = -1, table.shape[0]
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle, s] <= value:
            low = middle
        else:
            high = middle
    return low


_node_compiled: Any = compiled(_node)


def _cut(low: int, high: int, bottom: int, top: int, width: float, table: FloatArray, s: int) -> IntArray:
    """Return the upper nodes of the parts of a cell (low, high].

    What is below ``bottom`` or above ``top`` stays in one part each; between them parts are about ``width`` wide.
    """
    left, right = min(max(low, bottom), high), max(min(high, top), low)
    inner = 0
    if left < right:
        inner = min(int((table[right, s] - table[max(left, 0), s]) / width) + 1, right - left)
    ends = np.empty(inner + 2, dtype=np.int64)
    found = 0
    if low < left:
        ends[found] = left
        found += 1
    for k in range(1, inner + 1):
        ends[found] = left + (right - left) * k // inner
        found += 1
    if found == 0 or ends[found - 1] < high:
        ends[found] = high
        found += 1
    return ends[:found]


_cut_compiled: Any = compiled(_cut)


def _window(moments: FloatArray, n: int, i: int, log_goal: float, fineness: float) -> tuple[float, float, float]:
    """Return between which means the limit is expected after i draws, and how wide cells should be there."""
    mean = moments[1] / moments[0]
    deviation = sqrt(max(moments[2] / moments[0] - mean * mean, 1e-12))
    error, doubt = deviation / sqrt(n), DOUBT * deviation * sqrt(1.0 / moments[0] + 1.0 / n)
    bottom, top = max(mean - doubt - 4.0 * error - log_goal / n, 0.0), min(mean + doubt - 2.5 * error, 1.0)
    return bottom, top, max(fineness * error * n / i, (top - bottom) / MOST)


_window_compiled: Any = compiled(_window)


def _refine(
    cells: tuple[IntArray, FloatArray, FloatArray],
    seen: FloatArray,
    starts: IntArray,
    index: IntArray,
    table: FloatArray,
    floor: int,
    ceiling: int,
    window: tuple[float, float, float],
    goal: float,
    begin: bool,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the cells cut to the window: upper nodes, wealths there, and stakes, those of the parent.

    Rejected and lost cells stay whole, unless this is the beginning. Cells that lie above the ceiling are dropped.
    """
    upper, wealth, stakes = cells
    s = index[seen.size]
    bottom, top = _node_compiled(table, s, window[0]), min(_node_compiled(table, s, window[1]) + 1, table.shape[0] - 1)
    # Each node of the window ends one part at most, each cell another, and so do the two ends of the window.
    ends = np.empty(max(top - bottom, 0) + upper.size + 2, dtype=np.int64)
    parents = np.empty(ends.size, dtype=np.int64)
    found, low = 0, floor
    for k in range(upper.size):
        whole = not (begin or 0.0 < wealth[k] < goal)
        for end in upper[k : k + 1] if whole else _cut_compiled(low, upper[k], bottom, top, window[2], table, s):
            if low < ceiling:
                ends[found], parents[found] = end, k
                found, low = found + 1, end
    rich, rows = np.empty(found), np.empty((found, stakes.shape[1]))
    for k in range(found):
        parent = parents[k]
        rows[k, : starts.size] = stakes[parent, : starts.size]
        rich[k] = wealth[parent]
        if ends[k] < upper[parent]:
            rich[k] = _wealth_compiled(seen, starts, index, rows[k], table[ends[k]], goal)
    return ends[:found], rich, rows


_refine_compiled: Any = compiled(_refine)


def _most_blocks(index: IntArray, pace: int) -> int:
    """Return a number of blocks, draws at one stake, that is never exceeded.

    A block ends where its length is used up, where the slope changes, where cells are cut, or with the draws. Blocks
    of full length are no more than if there were no others, since ``i + 1 + i // pace`` rises with i; and cells are
    cut for the first time at draw ``n // OPENING`` or 1, later after twice as many.
    """
    n = index.size
    blocks, i = 1, 0
    while i < n:
        i += 1 + i // pace
        blocks += 1
    for t in range(1, n):
        if index[t] != index[t - 1]:
            blocks += 1
    cutting = max(1, n // OPENING)
    while cutting < n:
        cutting *= 2
        blocks += 1
    return blocks


_most_blocks_compiled: Any = compiled(_most_blocks)


def _bet(
    a: FloatArray,
    b: FloatArray,
    slopes: FloatArray,
    index: IntArray,
    table: FloatArray,
    head: FloatArray,
    log_goal: float,
    goal: float,
    floor: int,
    ceiling: int,
    ceiling_means: FloatArray,
    hurry: bool,
    hazards: FloatArray,
    y: FloatArray,
    held: FloatArray,
) -> tuple[int, int, bool]:
    """Fill ``y`` and the stakes ``held`` in the lowest cell (l, u] that is not rejected; return l, u and False.

    Candidates are the rows of ``table``, the nodes, and what lies between them: ``table[k, s]`` is the mean of
    ``y = (a - c b + c)/(1 + c)`` under candidate k for slope s, and rises with k. ``index[i]`` is the slope of draw i,
    fixed before it. Candidates up to the node ``floor`` count as rejected. ``head`` are sums over draws seen earlier
    (``head_of``). In a ``hurry`` cells are wider and stakes renewed less often.

    Where only limits below some candidate matter, ``ceiling_means`` are its means and ``ceiling`` the first node not
    below it; if all up to it are rejected, the last of what is returned is True. That saves work and changes no stake,
    so the ceiling may come from these very draws.
    """
    n = a.size
    pace, fineness = (HURRIED, COARSE) if hurry else (PACE, FINENESS)
    sums, moments = head.copy(), np.empty(4)
    most = _most_blocks_compiled(index, pace)
    starts = np.empty(most, dtype=np.int64)
    upper, wealth, stakes = np.array([table.shape[0] - 1]), np.ones(1), np.empty((1, most))
    first, cells, at_ceiling = 0, 1, 0.0
    opening = cutting = max(1, n // OPENING)
    i = j = 0
    while i < n:
        s = index[i]
        _fill_moments_compiled(sums, slopes[s], moments)
        if i == cutting:
            cutting *= 4 if hurry else 2
            window = _window_compiled(moments, n, i, log_goal, fineness)
            kept = upper[first:cells], wealth[first:cells], stakes[first:cells]
            upper, wealth, stakes = _refine_compiled(
                kept, y[:i], starts[:j], index, table, floor, ceiling, window, goal, i == opening
            )
            first, cells, at_ceiling = 0, upper.size, 0.0
            if upper[cells - 1] >= ceiling:
                at_ceiling = _wealth_compiled(y[:i], starts[:j], index, stakes[cells - 1], ceiling_means, goal)
        stop = min(i + 1 + i // pace, n)
        if i < cutting < stop:
            stop = cutting
        for t in range(i + 1, stop):
            if index[t] != s:
                stop = t
                break
        c, scale = slopes[s], 1.0 / (1.0 + slopes[s])
        for t in range(i, stop):
            y[t] = min(max((a[t] - c * b[t] + c) * scale, 0.0), 1.0)
        starts[j] = i
        for k in range(first, cells):
            log_price = -log_goal
            if i >= opening:
                log_price += log(wealth[k]) if wealth[k] > 0.0 else -np.inf
            stakes[k, j] = 0.0
            if log_price < 0.0 and log_price > -log_goal - HOPELESS:
                stakes[k, j] = _stake_compiled(log_price, n - i, moments, hazards)
                wealth[k] = _follow_compiled(y[i:stop], stakes[k, j], table[upper[k], s], wealth[k], goal)
            elif log_price < 0.0 and k + 1 < cells:
                # It will hardly be rejected as it is, and then what is above it does not matter.
                cells, at_ceiling = k + 1, 0.0
                break
        if at_ceiling > 0.0:
            at_ceiling = _follow_compiled(y[i:stop], stakes[cells - 1, j], ceiling_means[s], at_ceiling, goal)
            if at_ceiling >= goal:
                wealth[cells - 1] = goal
        while first < cells and wealth[first] >= goal:
            floor, first = upper[first], first + 1
        if first == cells:
            return floor, floor, floor >= ceiling
        _add_compiled(a[i:stop], b[i:stop], sums)
        i, j = stop, j + 1
    for k in range(j):
        held[starts[k] : starts[k + 1] if k + 1 < j else n] = stakes[first, k]
    return floor, upper[first], False


bet_compiled: Any = compiled(_bet)


def _search(y: FloatArray, stakes: FloatArray, low: float, high: float, goal: float) -> float:
    """Return the largest mean of a cell (low, high] found rejected, within TOLERANCE, or ``low``."""
    while high - low > TOLERANCE:
        m = 0.5 * (low + high)
        most = CAP / m
        wealth = 1.0
        for i in range(y.size):
            wealth *= 1.0 + min(stakes[i], most) * (y[i] - m)
            if wealth >= goal or wealth < LOST:
                break
        if wealth >= goal:
            low = m
        else:
            high = m
    return low


search_compiled: Any = compiled(_search)


def _smallest_limit(
    a: FloatArray, rivals: FloatArray, slope: float, heads: FloatArray, order: IntArray, log_goal: float, goal: float,
    hurry: bool, hazards: FloatArray, nodes: FloatArray,
) -> float:  # fmt: skip
    """Return the smallest limit of the mean of ``(a - c b + c)/(1 + c)``, c the slope, over the rows b of ``rivals``.

    A row that rejects every candidate up to the smallest limit so far has a larger one, and is not solved.
    """
    n = a.size
    slopes, index, means = np.array([slope]), np.zeros(n, dtype=np.int64), np.ones(1)
    y, held = np.empty(n), np.empty(n)
    last = nodes.shape[0] - 1
    smallest = 1.0
    for j in order:
        means[0] = smallest
        low, high, above = bet_compiled(
            a, rivals[j], slopes, index, nodes, heads[j], log_goal, goal, 0, int(np.ceil(smallest * last)), means,
            hurry, hazards, y, held,
        )  # fmt: skip
        if not above:
            smallest = search_compiled(y, held, nodes[low, 0], min(nodes[high, 0], smallest), goal)
        if smallest <= 0.0:
            break
    return smallest


smallest_limit_compiled: Any = compiled(_smallest_limit)

NODES: FloatArray = np.linspace(0.0, 1.0, 2**18 + 1)[:, None]
"""Candidates of a plain mean between which cells may be cut."""
