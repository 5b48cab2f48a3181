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

A cell whose wealth has become hopeless is given up, which never rejects; then those above it are of no interest.
"""

from math import log, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from buckler.bounds.bets import CAP, HURRIED, PACE, PRIOR
from buckler.bounds.compiled import compiled
from buckler.types import FloatArray, IntArray

FINENESS, COARSE = 0.2, 1.0
"""The width of a cell at the end, in standard errors of the mean; and where there are very many columns."""

DOUBT = 2.5
"""How many deviations the foretold limit may be off; candidates further away stay together in two large cells."""

MOST = 96
"""Into how many cells the window is cut at most."""

OPENING = 32
"""Cells are cut for the first time after this part of the draws; before, all candidates hold the same stakes."""

HOPELESS = 16.0
"""How far ``ln K`` may fall before a cell is given up."""

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


def _wealth(y: FloatArray, starts: IntArray, stakes: FloatArray, m: float, goal: float) -> float:
    """Return the wealth against m after all of ``y``, or when it reached the goal; 0 where it is lost.

    ``stakes[j]`` holds from draw ``starts[j]`` on.
    """
    wealth = 1.0
    for j in range(starts.size):
        stop = starts[j + 1] if j + 1 < starts.size else y.size
        wealth = _follow_compiled(y[starts[j] : stop], stakes[j], m, wealth, goal)
        if wealth == 0.0 or wealth >= goal:
            break
    return wealth


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
_wealth_compiled: Any = compiled(_wealth)


def _cut(low: float, high: float, bottom: float, top: float, width: float) -> FloatArray:
    """Return the upper ends of the parts of a cell (low, high].

    What is below ``bottom`` or above ``top`` stays in one part each; between them no part is wider than ``width``.
    """
    left, right = min(max(low, bottom), high), max(min(high, top), low)
    inner = max(int(np.ceil((right - left) / width)), 0)
    ends = np.empty(inner + 2)
    found = 0
    if low < left:
        ends[found] = left
        found += 1
    for k in range(1, inner + 1):
        ends[found] = left + (right - left) * k / inner
        found += 1
    if found == 0 or ends[found - 1] < high:
        found += 1
    ends[found - 1] = high
    return ends[:found]


_cut_compiled: Any = compiled(_cut)


def _window(moments: FloatArray, n: int, i: int, log_goal: float, fineness: float) -> tuple[float, float, float]:
    """Return between which candidates the limit is expected after i draws, and how wide cells should be there."""
    mean = moments[1] / moments[0]
    deviation = sqrt(max(moments[2] / moments[0] - mean * mean, 1e-12))
    error, doubt = deviation / sqrt(n), DOUBT * deviation * sqrt(1.0 / moments[0] + 1.0 / n)
    bottom, top = max(mean - doubt - 4.0 * error - log_goal / n, 0.0), min(mean + doubt - 2.5 * error, 1.0)
    return bottom, top, max(fineness * error * n / i, (top - bottom) / MOST)


_window_compiled: Any = compiled(_window)


def _refine(
    cells: tuple[FloatArray, FloatArray, FloatArray],
    seen: FloatArray,
    starts: IntArray,
    floor: float,
    ceiling: float,
    window: tuple[float, float, float],
    goal: float,
    begin: bool,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the cells cut to the window: upper ends, wealths there, and stakes, those of the parent.

    Rejected and lost cells stay whole, unless this is the beginning. Cells that lie above the ceiling are dropped.
    """
    upper, wealth, stakes = cells
    ends, parents = np.empty(3 * upper.size + MOST), np.empty(3 * upper.size + MOST, dtype=np.int64)
    found, low = 0, floor
    for k in range(upper.size):
        whole = not (begin or 0.0 < wealth[k] < goal)
        parts = upper[k : k + 1] if whole else _cut_compiled(low, upper[k], window[0], window[1], window[2])
        for end in parts:
            if low < ceiling:
                ends[found], parents[found] = end, k
                found, low = found + 1, end
    rich, rows = np.empty(found), np.empty((found, stakes.shape[1]))
    for k in range(found):
        parent = parents[k]
        rows[k, : starts.size] = stakes[parent, : starts.size]
        rich[k] = wealth[parent]
        if ends[k] < upper[parent]:
            rich[k] = _wealth_compiled(seen, starts, rows[k], ends[k], goal)
    return ends[:found], rich, rows


_refine_compiled: Any = compiled(_refine)


def _search(y: FloatArray, starts: IntArray, stakes: FloatArray, low: float, high: float, goal: float) -> float:
    """Return the largest candidate of a cell (low, high] found rejected, within TOLERANCE, or ``low``."""
    while high - low > TOLERANCE:
        m = 0.5 * (low + high)
        if _wealth_compiled(y, starts, stakes, m, goal) >= goal:
            low = m
        else:
            high = m
    return low


_search_compiled: Any = compiled(_search)


def _own_limit(
    y: FloatArray, before: FloatArray, log_goal: float, goal: float, ceiling: float, hurry: bool, hazards: FloatArray
) -> float:
    """Return the end of the rejected candidates, or ``ceiling`` where it is above; within TOLERANCE, rounded down.

    ``before`` are the count and the sums of y, y^2, y^3 over draws seen earlier. The ceiling saves work and changes no
    stake, so it may come from these very draws. In a ``hurry`` cells are wider and stakes renewed less often.
    """
    n = y.size
    pace, fineness = (HURRIED, COARSE) if hurry else (PACE, FINENESS)
    moments = before + PRIOR * np.array([1.0, 0.5, 0.5, 0.5])
    most = 2 * pace + 8 + int((pace + 1) * log(1.0 + n / pace))
    starts = np.empty(most, dtype=np.int64)
    upper, wealth, stakes = np.ones(1), np.ones(1), np.empty((1, most))
    floor, first, cells, at_ceiling = 0.0, 0, 1, 0.0
    opening = cutting = max(1, n // OPENING)
    i = j = 0
    while i < n:
        if i == cutting:
            cutting *= 2
            window = _window_compiled(moments, n, i, log_goal, fineness)
            kept = upper[first:cells], wealth[first:cells], stakes[first:cells]
            upper, wealth, stakes = _refine_compiled(
                kept, y[:i], starts[:j], floor, ceiling, window, goal, i == opening
            )
            first, cells, at_ceiling = 0, upper.size, 0.0
            if upper[cells - 1] > ceiling:
                at_ceiling = _wealth_compiled(y[:i], starts[:j], stakes[cells - 1], ceiling, goal)
        stop = min(i + 1 + i // pace, n)
        if i < cutting < stop:
            stop = cutting
        starts[j] = i
        for k in range(first, cells):
            log_price = -log_goal
            if i >= opening:
                log_price += log(wealth[k]) if wealth[k] > 0.0 else -np.inf
            stakes[k, j] = 0.0
            if log_price < 0.0 and log_price > -log_goal - HOPELESS:
                stakes[k, j] = _stake_compiled(log_price, n - i, moments, hazards)
                wealth[k] = _follow_compiled(y[i:stop], stakes[k, j], upper[k], wealth[k], goal)
            elif log_price < 0.0 and k + 1 < cells:
                # Not rejected and never will be: what is above it does not matter.
                cells, at_ceiling = k + 1, 0.0
                break
        if at_ceiling > 0.0:
            at_ceiling = _follow_compiled(y[i:stop], stakes[cells - 1, j], ceiling, at_ceiling, goal)
            if at_ceiling >= goal:
                wealth[cells - 1] = goal
        while first < cells and wealth[first] >= goal:
            floor, first = upper[first], first + 1
        if first == cells:
            return min(floor, ceiling)
        for value in y[i:stop]:
            moments[0] += 1.0
            moments[1] += value
            moments[2] += value * value
            moments[3] += value * value * value
        i, j = stop, j + 1
    return float(_search_compiled(y, starts[:j], stakes[first], floor, min(upper[first], ceiling), goal))


own_limit_compiled: Any = compiled(_own_limit)


def _smallest_limit(
    a: FloatArray, rivals: FloatArray, heads: FloatArray, order: IntArray, log_goal: float, goal: float,
    hurry: bool, hazards: FloatArray,
) -> float:  # fmt: skip
    """Return the smallest of the limits of the means of ``(a - b + 1)/2`` over the rows b of ``rivals``.

    A row that rejects every candidate up to the smallest limit so far has a larger one, and is not solved. ``heads``
    are moments of draws seen earlier (``bets.head_of``).
    """
    smallest = 1.0
    before = np.empty(4)
    for j in order:
        count, first = heads[j, 0], heads[j, 1] - heads[j, 2]
        second, third = heads[j, 3] - 2.0 * heads[j, 4] + heads[j, 5], heads[j, 6]
        before[0], before[1] = count, (first + count) / 2.0
        before[2], before[3] = (second + 2.0 * first + count) / 4.0, (third + 3.0 * (second + first) + count) / 8.0
        y = 0.5 * (a - rivals[j] + 1.0)
        smallest = own_limit_compiled(y, before, log_goal, goal, smallest, hurry, hazards)
        if smallest <= 0.0:
            break
    return smallest


smallest_limit_compiled: Any = compiled(_smallest_limit)
