"""Candidates that bet apart: cells of candidate means, each with the stakes that follow its own wealth.

**Why cells.** The stakes of ``stakes`` react to the candidate's own wealth, so rejection need not be monotone in the
candidate, and a bisection could jump over a hole. Here the candidates are cut into cells (l, u], and all candidates of
a cell hold the stakes that follow the wealth of its upper end u, ``min(lambda, CAP / m)``, which loses at most CAP of
the wealth. Within a cell the factors ``1 + min(lambda, CAP / m) (y - m)`` fall in m, so a cell is rejected as a whole
when the wealth of u reaches ``1/alpha`` (Ville), and bisection inside of it is sound. The limit is looked for in the
lowest cell that is not rejected: everything below it is (T15).

**When cells are cut.** After 1/32 of the draws, and whenever their number has doubled, the cells that may still hold
the limit are cut more finely. Candidates at a distance of k standard errors ``s / sqrt n`` should hold different stakes
only once ``k i / n`` is no longer small, so the width is ``FINE s sqrt(n) / i``. A cell inherits the stakes of the one
it was cut from, and where to cut follows from the draws so far: a candidate's stakes are predictable. A cell whose
wealth has become hopeless stakes nothing until it is cut again; those above it are of no interest then.

Where to cut, when, and when to give up is heuristic: it moves the limit, never its validity.
"""

from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np

from buckler.bounds.bets import CAP, COARSE_PACE, LOST, PACE, Pair
from buckler.bounds.compiled import compiled, inner
from buckler.bounds.stakes import add_draws, deviation_of, fill_moments, stake_for
from buckler.types import FloatArray, IntArray

FINE, COARSE = 0.2, 1.5
"""The width of a cell at the end, in standard errors of the mean; and where there are very many columns."""

DOUBT = 2.5
"""How many deviations the predicted limit may be off; candidates further away stay together in two large cells."""

NEAREST, FURTHEST = 2.5, 4.0
"""How many standard errors a limit is expected below the mean; the normal quantile is 3.09 at alpha = 1e-3."""

MOST = 96
"""Into how many cells the window is cut at most."""

OPENING = 32
"""Cells are cut for the first time after this part of the draws; before, all candidates hold the same stakes."""

BEYOND = 1e-6
"""How far beyond ``ln(goal)`` stakes aim: aimed at the goal itself, they fade out just below it and never reach it."""

HOPELESS = 16.0
"""How far ``ln K`` may fall before a cell stakes nothing."""


class Bets(NamedTuple):
    """What is bet on, against which candidates, and for how much.

    Candidates are the rows of ``table``, the nodes, and what lies between them: ``table[k, s]`` is the mean of the
    pair's variable under candidate k for slope s, and rises with k.
    """

    pair: Pair
    table: FloatArray
    goal: float
    """``1/alpha``, raised by what rounding can add to a wealth (``betting.wealth_goal``)."""
    hazards: FloatArray
    """The table of ``stakes``."""
    coarse: bool
    """Whether cells are wider and stakes renewed less often, to save time."""


class Cell(NamedTuple):
    """The lowest cell (low, high] of nodes that is not rejected; empty, ``low == high``, if all were that matter."""

    low: int
    high: int
    above: bool
    """Whether everything up to the ceiling is rejected."""
    y: FloatArray
    """The scaled draws, and the stakes held in the cell; of an empty cell neither is complete."""
    stakes: FloatArray


@compiled
def follow(y: FloatArray, stake: float, m: float, wealth: float, goal: float) -> float:
    """Return the wealth against m after these draws at one stake, or when it reached the goal; 0 where it is lost."""
    stake = min(stake, CAP / m)
    for value in y:
        wealth *= 1.0 + stake * (value - m)
        if wealth >= goal:
            return wealth
        if wealth < LOST:
            return 0.0
    return wealth


@inner
def wealth_of(
    y: FloatArray, starts: IntArray, index: IntArray, stakes: FloatArray, means: FloatArray, goal: float
) -> float:
    """Return the wealth of one candidate after all of ``y``, or when it reached the goal; 0 where it is lost.

    ``stakes[j]`` holds from draw ``starts[j]`` on, and ``means[index[i]]`` is the candidate's mean at draw i.
    """
    wealth = 1.0
    for j in range(starts.size):
        stop = starts[j + 1] if j + 1 < starts.size else y.size
        wealth = follow(y[starts[j] : stop], stakes[j], means[index[starts[j]]], wealth, goal)
        if wealth == 0.0 or wealth >= goal:
            break
    return wealth


@compiled
def node_below(table: FloatArray, s: int, value: float) -> int:
    """Return the last node whose mean under slope s is at most ``value``, or -1."""
    low, high = -1, table.shape[0]
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle, s] <= value:
            low = middle
        else:
            high = middle
    return low


@compiled
def cut(low: int, high: int, window: tuple[int, int], width: float, table: FloatArray, s: int) -> IntArray:
    """Return the upper nodes of the parts of a cell (low, high].

    What is below or above the window stays in one part each; inside of it parts are about ``width`` wide.
    """
    bottom, top = window
    left, right = min(max(low, bottom), high), max(min(high, top), low)
    parts = 0
    if left < right:
        parts = min(int((table[right, s] - table[max(left, 0), s]) / width) + 1, right - left)
    ends = np.empty(parts + 2, dtype=np.int64)
    found = 0
    if low < left:
        ends[found] = left
        found += 1
    for k in range(1, parts + 1):
        ends[found] = left + (right - left) * k // parts
        found += 1
    if found == 0 or ends[found - 1] < high:
        ends[found] = high
        found += 1
    return ends[:found]


@inner
def expected(moments: FloatArray, n: int, i: int, log_goal: float, fineness: float) -> tuple[float, float, float]:
    """Return between which means the limit is expected after i draws, and how wide cells should be there."""
    mean, deviation = moments[1] / moments[0], deviation_of(moments)
    error, doubt = deviation / sqrt(n), DOUBT * deviation * sqrt(1.0 / moments[0] + 1.0 / n)
    bottom = max(mean - doubt - FURTHEST * error - log_goal / n, 0.0)
    top = min(mean + doubt - NEAREST * error, 1.0)
    return bottom, top, max(fineness * error * n / i, (top - bottom) / MOST)


@compiled
def most_blocks(index: IntArray, pace: int) -> int:
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


@inner
def refine(
    cells: tuple[IntArray, FloatArray, FloatArray],
    seen: tuple[FloatArray, IntArray],
    bets: Bets,
    floor: int,
    ceiling: int,
    window: tuple[float, float, float],
    begin: bool,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the cells cut to the window: upper nodes, wealths there, and stakes, those of the parent.

    ``seen`` are the scaled draws so far and where their blocks start. Rejected and lost cells stay whole, unless this
    is the beginning. Cells that lie above the ceiling are dropped.
    """
    upper, wealth, stakes = cells
    y, starts = seen
    table, index = bets.table, bets.pair.slope_index
    s = index[y.size]
    nodes = node_below(table, s, window[0]), min(node_below(table, s, window[1]) + 1, table.shape[0] - 1)
    # Each node of the window ends one part at most, each cell another, and so do the two ends of the window.
    ends = np.empty(max(nodes[1] - nodes[0], 0) + upper.size + 2, dtype=np.int64)
    parents = np.empty(ends.size, dtype=np.int64)
    found, low = 0, floor
    for k in range(upper.size):
        whole = not (begin or 0.0 < wealth[k] < bets.goal)
        for end in upper[k : k + 1] if whole else cut(low, upper[k], nodes, window[2], table, s):
            if low < ceiling:
                ends[found], parents[found] = end, k
                found, low = found + 1, end
    rich, rows = np.empty(found), np.empty((found, stakes.shape[1]))
    for k in range(found):
        parent = parents[k]
        for j in range(starts.size):  # not as a slice, for whose error message numba compiles for a second
            rows[k, j] = stakes[parent, j]
        rich[k] = wealth[parent]
        if ends[k] < upper[parent]:
            rich[k] = wealth_of(y, starts, index, rows[k], table[ends[k]], bets.goal)
    return ends[:found], rich, rows


@compiled
def lowest_cell(bets: Bets, floor: int, ceiling: int, ceiling_means: FloatArray) -> Cell:
    """Return the lowest cell that is not rejected, with its stakes, all candidates up to the node ``floor`` being so.

    Where only limits below some candidate matter, ``ceiling_means`` are its means and ``ceiling`` the first node not
    below it. That saves work and changes no stake, so the ceiling may come from these very draws.
    """
    a, b, slopes, index, earlier = bets.pair
    n = a.size
    log_goal, goal = log(bets.goal) + BEYOND, bets.goal
    pace, fineness = (COARSE_PACE, COARSE) if bets.coarse else (PACE, FINE)
    y, sums, moments = np.empty(n), earlier.copy(), np.empty(4)
    most = most_blocks(index, pace)
    starts = np.empty(most, dtype=np.int64)
    upper, wealth, stakes = np.array([bets.table.shape[0] - 1]), np.ones(1), np.empty((1, most))
    first, cells, at_ceiling = 0, 1, 0.0
    opening = cutting = max(1, n // OPENING)
    i = j = n - n  # not the literal 0, for which numba would compile the callees once more
    while i < n:
        s = index[i]
        c, scale = slopes[s], 1.0 / (1.0 + slopes[s])
        fill_moments(sums, c, moments)
        if i == cutting:
            cutting *= 4 if bets.coarse else 2
            window = expected(moments, n, i, log_goal, fineness)
            kept = upper[first:cells], wealth[first:cells], stakes[first:cells]
            upper, wealth, stakes = refine(kept, (y[:i], starts[:j]), bets, floor, ceiling, window, i == opening)
            first, cells, at_ceiling = 0, upper.size, 0.0
            if upper[cells - 1] >= ceiling:
                at_ceiling = wealth_of(y[:i], starts[:j], index, stakes[cells - 1], ceiling_means, goal)
        stop = min(i + 1 + i // pace, n)
        if i < cutting < stop:
            stop = cutting
        for t in range(i + 1, stop):
            if index[t] != s:
                stop = t
                break
        for t in range(i, stop):
            y[t] = min(max((a[t] - c * b[t] + c) * scale, 0.0), 1.0)
        starts[j] = i
        for k in range(first, cells):
            log_price = -log_goal
            if i >= opening:
                log_price += log(wealth[k]) if wealth[k] > 0.0 else -inf
            stakes[k, j] = 0.0
            if log_price < 0.0 and log_price > -log_goal - HOPELESS:
                stakes[k, j] = stake_for(log_price, n - i, moments, bets.hazards)
                wealth[k] = follow(y[i:stop], stakes[k, j], bets.table[upper[k], s], wealth[k], goal)
            elif log_price < 0.0 and k + 1 < cells:
                # It will hardly be rejected as it is, and then what is above it does not matter.
                cells, at_ceiling = k + 1, 0.0
                break
        if at_ceiling > 0.0:
            at_ceiling = follow(y[i:stop], stakes[cells - 1, j], ceiling_means[s], at_ceiling, goal)
            if at_ceiling >= goal:
                wealth[cells - 1] = goal
        while first < cells and wealth[first] >= goal:
            floor, first = upper[first], first + 1
        if first == cells:
            return Cell(floor, floor, floor >= ceiling, y, y)
        add_draws(a[i:stop], b[i:stop], sums)
        i, j = stop, j + 1
    held = np.empty(n)
    for k in range(j):
        held[starts[k] : starts[k + 1] if k + 1 < j else n] = stakes[first, k]
    return Cell(floor, upper[first], False, y, held)
