"""Lower limits of a mean by betting: target-recalculating bets, which follow their own wealth, and cells of candidates.

**Betting.** The variable is ``y_i = (a_i - c_i b_i + c_i) / (1 + c_i)`` in [0, 1], for draws a and b in [0, 1] and a
slope ``c_i >= 0`` fixed before draw i; a plain variable is the case c = 0, y = a. A bettor against the candidate mean m
stakes ``min(lambda_i, CAP / m)``, and the wealth is multiplied by ``1 + stake (y_i - m)``. The limit is the smallest
candidate whose wealth never reaches ``1/alpha`` (T14), or a share of it after the last draw (T15a); F6 accounts for
rounding of the wealth. Where several candidates hold the same ``lambda_i``, the wealth falls in m (T14), so the
rejected ones form an interval, and bisection finds its end.

**Bets.** Were the draws Gaussian with known deviation s, the best test of a candidate m at level alpha and horizon n
would be the z-test, and its wealth a digital option: with wealth K against m and r draws left, the bet is
``lambda = h / (s sqrt r)``, where ``h = phi(d) / Phi(d)`` and ``Phi(d) = alpha K``. For small alpha K this is the
target-recalculating bet ``sqrt(2 ln(1/(alpha K)) / r) / s`` of Voracek & Orabona (2025). Draws of skewness g call for
``1 + g h / (6 sqrt r)`` times as much, to first order (the saddlepoint of the option, projected on factors linear in
y). Moments are those of the draws so far and of ``PRIOR`` imagined ones. Heuristic: any nonnegative number computed
from the past is a sound bet, so nothing here needs to be exact.

**Cells.** These bets react to the candidate's own wealth, so rejection need not be monotone in the candidate, and a
bisection could jump over a candidate that is not rejected. So candidates are cut into cells (l, u], and all candidates
of a cell hold the bets that follow the wealth of its upper end u. A cell is rejected as a whole when the wealth of u
reaches ``1/alpha`` (Ville), and bisection inside of it is sound. The limit is searched in the lowest cell that is not
rejected: everything below it is (T15).

**When cells are cut.** After 1/32 of the draws, and whenever their number has doubled, the cells that may still hold
the limit are cut more finely. Candidates k standard errors ``s / sqrt n`` apart should hold different bets only once
``k i / n`` is no longer small, so the width is ``FINE_CELL s sqrt(n) / i``. A cell inherits the bets of the one it was
cut from, and where to cut follows from the draws so far: a candidate's bets are predictable. A cell whose wealth is
below ``exp(-DROPPED_BELOW)`` bets nothing until it is cut again; the cells above it are then dropped.

Where to cut, when, and when to give up is heuristic: it moves the limit, never its validity.
"""

from collections.abc import Callable
from math import inf, log, nextafter, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri_exp

from buckler.bounds.compiled import compiled, inner
from buckler.bounds.means import limits_of_columns
from buckler.errors import check_alpha, check_positive
from buckler.types import ArrayLike, FloatArray, IntArray

CAP = 0.99
"""Largest share of a bettor's wealth that one draw can lose."""

LOST = 1e-200
"""Wealth below this is set to 0, which is conservative, before it underflows."""

PRIOR = 2.0
"""Imagined draws, half of them at 0 and half at 1, from which estimates of the moments start."""

HAZARDS_IN_UNIT = 200
"""Entries of the table ``HAZARDS`` for a unit of its argument x."""

LAST_ROOT = 16
"""Largest argument x of ``HAZARDS``; beyond, the hazard is ``sqrt(2) x`` to within 1 percent."""

LEAST_VARIANCE = 1e-12
"""Lower clamp of an estimated variance, about the rounding error of the moments."""

LEAST_CORRECTION, MOST_CORRECTION = 0.2, 1.5
"""Clamps of the factor by which skewness changes a bet, a first-order term. Heuristic, as all constants here."""

PACE, COARSE_PACE = 64, 8
"""A bet made after i draws is kept for ``1 + i // PACE`` draws; ``COARSE_PACE`` instead where rivals are many."""

FINE_CELL, COARSE_CELL = 0.2, 1.5
"""Final width of a cell of candidates, in standard errors of the mean; the second where rivals are many."""

DOUBT = 2.5
"""Half-width of the window of candidate means that is cut into cells, in standard deviations of the predicted limit;
one large cell lies below it and one above."""

NEAREST, FURTHEST = 2.5, 4.0
"""Least and largest expected distance of the limit below the mean, in standard errors (the normal quantile is 3.09 at
alpha = 1e-3)."""

MOST_CELLS = 96
"""Largest number of cells into which the window of ``DOUBT`` is cut."""

OPENING = 32
"""Candidates are first cut into cells after ``n / OPENING`` draws; before, all hold the same bets."""

BEYOND = 1e-6
"""Bets aim at a log wealth of ``ln(goal) + BEYOND``; aimed at the goal itself, they would fade out just below it."""

DROPPED_BELOW = 16.0
"""A cell bets nothing once the logarithm of its wealth is below ``-DROPPED_BELOW``."""

_ROOTS: FloatArray = np.arange(1, LAST_ROOT * HAZARDS_IN_UNIT + 2) / HAZARDS_IN_UNIT
_LOG_DENSITY: FloatArray = -0.5 * ndtri_exp(-(_ROOTS**2)) ** 2 - 0.5 * np.log(2.0 * np.pi)
HAZARDS: FloatArray = np.concatenate([[0.0], np.exp(_LOG_DENSITY + _ROOTS**2)])
"""Normal hazards ``phi(d) / Phi(d)`` where ``Phi(d) = exp(-x^2)``, for x = 0, 1/200, ... up to ``LAST_ROOT``."""

NO_EARLIER: FloatArray = np.zeros(10)
"""The ten sums of ``earlier_moments`` where no draws were seen earlier: zeros."""


class Pair(NamedTuple):
    """Scores ``a`` of one class and ``b`` of another, one a draw, bet on as the variable ``(a - c b + c)/(1 + c)``.

    The slope c of draw i is ``slopes[slope_index[i]]``, fixed before draw i.
    """

    a: FloatArray
    b: FloatArray
    slopes: FloatArray
    slope_index: IntArray
    earlier: FloatArray
    """The ten sums over draws seen earlier that ``earlier_moments`` returns: the first bets rest on them."""


def plain(y: FloatArray) -> Pair:
    """Return draws ``y``, ``[n]`` in [0, 1], as a ``Pair`` whose variable is y itself: ``b`` and the slope are 0."""
    return Pair(y, np.zeros(y.size), np.zeros(1), np.zeros(y.size, dtype=np.int64), NO_EARLIER)


def earlier_moments(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return ten sums over draws seen earlier: their count, and those of a, b, aa, ab, bb, aaa, aab, abb and bbb."""
    aa, bb = a * a, b * b
    third = [aa @ a, aa @ b, a @ bb, bb @ b]
    return np.array([a.size, a.sum(), b.sum(), aa.sum(), a @ b, bb.sum(), *third], dtype=np.float64)


class Candidates(NamedTuple):
    """Candidates for the quantity whose lower limit is sought, a mean or a margin.

    For each slope a candidate implies a mean of the variable of ``Pair``, or the largest one possible; larger
    candidates imply larger means.
    """

    values: FloatArray
    """Nodes: candidates in rising order, at which intervals of candidates, the cells, begin and end."""
    table: FloatArray
    """``means_of`` each node, ``[nodes, slopes]``."""
    means_of: Callable[[float], FloatArray]
    """Function from a candidate to the mean that it implies, for each slope."""
    nothing: float
    """The limit where no candidate is rejected: the first node if that is a limit without any proof, else -inf."""
    tolerance: float
    """How far below the exact limit bisection may stop."""


MEAN_NODES: FloatArray = np.linspace(0.0, 1.0, 2**18 + 1)
MEANS = Candidates(MEAN_NODES, MEAN_NODES[:, None], lambda m: np.array([m]), 0.0, 1e-10)
"""Candidates for the mean of a variable in [0, 1], which has no slope; nodes are 4e-6 apart."""


def wealth_goal(alpha: float, n: int) -> float:
    """Return the wealth at which bets on n draws reject at level ``alpha``: ``1/alpha``, raised by a rounding error.

    The error is the largest that the wealth, a product of n factors, can have (F6).

    >>> round(wealth_goal(0.001, 10**6), 6)
    1000.0001
    """
    return (1.0 / alpha) * (1.0 + 1e-13 * n + 1e-12)


def last_goal(goal: float, uniform: float) -> float:
    """Return the wealth that rejects after the last draw, ``uniform * goal``; at any draw ``goal`` does (T15a)."""
    return min(nextafter(uniform * goal, inf), goal)


@compiled
def hazard(log_price: float, hazards: FloatArray) -> float:
    """Return the normal hazard ``phi(d) / Phi(d)`` where ``ln Phi(d) = log_price < 0``, from the table ``HAZARDS``."""
    x = sqrt(-log_price) * HAZARDS_IN_UNIT
    k = int(x)
    if k + 1 >= hazards.size:
        return 1.4142135623730951 * x / HAZARDS_IN_UNIT
    return float(hazards[k] + (x - k) * (hazards[k + 1] - hazards[k]))


@inner
def deviation_of(moments: FloatArray) -> float:
    """Return the standard deviation of draws y from ``moments``: their count and the sums of y and y^2."""
    mean = moments[1] / moments[0]
    return sqrt(max(moments[2] / moments[0] - mean * mean, LEAST_VARIANCE))


@inner
def stake_for(log_price: float, left: int, moments: FloatArray, hazards: FloatArray) -> float:
    """Return the next stake, before its cap ``CAP / m``, with ``left`` draws to go.

    A draw y multiplies the wealth of bets against the mean m by ``1 + stake (y - m)``.
    ``log_price`` is the logarithm of alpha times the bettor's wealth, ``moments`` are the count of draws and the sums
    of y, y^2 and y^3, imagined draws (``PRIOR``) included, and ``hazards`` is the table ``HAZARDS``.
    """
    mean, second, third = moments[1] / moments[0], moments[2] / moments[0], moments[3] / moments[0]
    deviation = deviation_of(moments)
    reach = hazard(log_price, hazards) / sqrt(left)
    skewness = (third - 3.0 * mean * second + 2.0 * mean**3) / deviation**3
    return float(reach / deviation * min(max(1.0 + skewness * reach / 6.0, LEAST_CORRECTION), MOST_CORRECTION))


@inner
def fill_moments(sums: FloatArray, c: float, moments: FloatArray) -> None:
    """Fill ``moments`` with the count and the sums of y, y^2 and y^3 for ``y = (a - c b + c)/(1 + c)``.

    ``sums`` are those of ``earlier_moments`` over the draws so far; the imagined draws of ``PRIOR`` are added.
    """
    count, z = sums[0], sums[1] - c * sums[2]
    zz = sums[3] - 2.0 * c * sums[4] + c * c * sums[5]
    zzz = sums[6] - 3.0 * c * sums[7] + 3.0 * c * c * sums[8] - c**3 * sums[9]
    scale = 1.0 / (1.0 + c)
    half = 0.5 * PRIOR
    moments[0], moments[1] = PRIOR + count, half + (z + c * count) * scale
    moments[2] = half + (zz + 2.0 * c * z + c * c * count) * scale**2
    moments[3] = half + (zzz + 3.0 * c * zz + 3.0 * c * c * z + c**3 * count) * scale**3


@inner
def add_draws(a: FloatArray, b: FloatArray, sums: FloatArray) -> None:
    """Add to ``sums`` those of the draws ``a``, ``b``, in the order of ``earlier_moments``."""
    sa = sb = saa = sab = sbb = saaa = saab = sabb = sbbb = 0.0
    for i in range(a.size):
        p, q = a[i], b[i]
        pp, qq = p * p, q * q
        sa, sb = sa + p, sb + q
        saa, sab, sbb = saa + pp, sab + p * q, sbb + qq
        saaa, saab, sabb, sbbb = saaa + pp * p, saab + pp * q, sabb + p * qq, sbbb + q * qq
    sums += np.array([float(a.size), sa, sb, saa, sab, sbb, saaa, saab, sabb, sbbb])


class Game(NamedTuple):
    """What the bets of ``lowest_cell`` are about: the draws, the candidates, and the wealth that rejects one.

    Candidates are the nodes, which are the rows of ``table``, and what lies between them: ``table[k, s]`` is the mean
    of the pair's variable under node k for slope s, and rises with k.
    """

    pair: Pair
    table: FloatArray
    goal: float
    """Wealth that rejects at any draw: ``1/alpha``, raised by what rounding can add to a wealth (``wealth_goal``)."""
    last: float
    """Wealth that rejects after the last draw (``last_goal``); at most ``goal``."""
    hazards: FloatArray
    """The table ``HAZARDS``."""
    coarse: bool
    """Whether cells are wider and stakes renewed less often, to save time."""


class LowestCell(NamedTuple):
    """The lowest interval of candidates that its bets do not reject: those above node ``low``, up to node ``high``.

    ``low == high`` if every cell that is still bet on is rejected; ``starts`` and ``stakes`` are then not complete.
    """

    low: int
    high: int
    above: bool
    """Whether every candidate up to the ceiling of ``lowest_cell`` is rejected."""
    y: FloatArray
    """The variable bet on, at each draw; next the draws at which blocks of one stake start, and these stakes."""
    starts: IntArray
    stakes: FloatArray


@compiled
def follow(y: FloatArray, stake: float, m: float, wealth: float, goal: float) -> float:
    """Return the wealth of bets against the mean m after the draws ``y`` at one stake, ``wealth`` before them.

    The first value of at least ``goal`` is returned at once, and 0 once the wealth is below ``LOST``.
    """
    stake = min(stake, CAP / m)
    for value in y:
        wealth *= 1.0 + stake * (value - m)
        if wealth >= goal:
            return wealth
        if wealth < LOST:
            return 0.0
    return wealth


@compiled
def wealth_of(
    y: FloatArray, starts: IntArray, index: IntArray, stakes: FloatArray, means: FloatArray, goal: float
) -> float:
    """Return the wealth of bets against one candidate after the draws ``y``; it is 1 before them.

    ``stakes[j]`` holds from draw ``starts[j]`` on, and ``means[index[i]]`` is the candidate's mean at draw i. The first
    value of at least ``goal`` is returned at once, and 0 once the wealth is below ``LOST``.
    """
    wealth = 1.0
    for j in range(starts.size):
        stop = starts[j + 1] if j + 1 < starts.size else y.size
        wealth = follow(y[starts[j] : stop], stakes[j], means[index[starts[j]]], wealth, goal)
        if wealth == 0.0 or wealth >= goal:
            break
    return wealth


@compiled
def cut_cell(low: int, high: int, window: tuple[int, int], width: float, table: FloatArray, s: int) -> IntArray:
    """Return the parts into which the cell above node ``low`` up to node ``high`` is cut, as the upper node of each.

    What is below or above ``window``, two nodes, stays in one part each; inside of it parts are about ``width`` wide,
    in means under slope ``s`` (``table[:, s]``).
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
    """Return means between which the limit is expected after ``i`` of ``n`` draws, and a width for the cells there."""
    mean, deviation = moments[1] / moments[0], deviation_of(moments)
    error, doubt = deviation / sqrt(n), DOUBT * deviation * sqrt(1.0 / moments[0] + 1.0 / n)
    bottom = max(mean - doubt - FURTHEST * error - log_goal / n, 0.0)
    top = min(mean + doubt - NEAREST * error, 1.0)
    return bottom, top, max(fineness * error * n / i, (top - bottom) / MOST_CELLS)


@compiled
def most_blocks(index: IntArray, pace: int) -> int:
    """Return an upper bound of the number of blocks, runs of draws at one bet, given the slope ``index`` of each draw.

    A block ends at its full length of ``1 + i // pace``, where the slope changes, where cells are cut, or at the last
    draw. A block that ends early does not make more blocks of full length, since ``i + 1 + i // pace`` rises with i.
    Cells are cut first at draw ``n // OPENING`` or 1, and then each time that the number of draws has doubled.
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
    game: Game,
    floor: int,
    ceiling: int,
    window: tuple[float, float, float],
    begin: bool,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the cells, those in the window cut into parts: upper nodes, wealths there, and stakes of the cell cut.

    ``seen`` are the variable's values so far and the draws at which blocks start. ``window`` is what ``expected``
    returns, ``floor`` the node at which the first cell begins. Cells whose wealth has reached the goal, or is 0, stay
    whole, unless ``begin``, at the first cut. Cells that lie above the node ``ceiling`` are dropped.
    """
    upper, wealth, stakes = cells
    y, starts = seen
    table, index = game.table, game.pair.slope_index
    s = index[y.size]
    below, above = np.searchsorted(table[:, s], np.array(window[:2]), side="right")
    nodes = below - 1, above
    # Each node of the window ends one part at most, each cell another, and so do the two ends of the window.
    ends = np.empty(max(nodes[1] - nodes[0], 0) + upper.size + 2, dtype=np.int64)
    parents = np.empty(ends.size, dtype=np.int64)
    found, low = 0, floor
    for k in range(upper.size):
        whole = not (begin or 0.0 < wealth[k] < game.goal)
        for end in upper[k : k + 1] if whole else cut_cell(low, upper[k], nodes, window[2], table, s):
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
            rich[k] = wealth_of(y, starts, index, rows[k], table[ends[k]], game.goal)
    return ends[:found], rich, rows


@compiled
def lowest_cell(game: Game, floor: int, ceiling: int, ceiling_means: FloatArray) -> LowestCell:
    """Return the lowest cell of candidates that its bets do not reject, with these bets.

    Candidates up to the node ``floor`` count as rejected. Where only limits below some candidate matter,
    ``ceiling_means`` are its means and ``ceiling`` the first node not below it. That saves work and changes no stake,
    so the ceiling may come from these very draws.
    """
    a, b, slopes, index, earlier = game.pair
    n = a.size
    log_goal, goal = log(game.goal) + BEYOND, game.goal
    pace, fineness = (COARSE_PACE, COARSE_CELL) if game.coarse else (PACE, FINE_CELL)
    y, sums, moments = np.empty(n), earlier.copy(), np.empty(4)
    most = most_blocks(index, pace)
    starts = np.empty(most, dtype=np.int64)
    upper, wealth, stakes = np.array([game.table.shape[0] - 1]), np.ones(1), np.empty((1, most))
    first, cells, at_ceiling = 0, 1, 0.0
    opening = cutting = max(1, n // OPENING)
    i = j = n - n  # not the literal 0, for which numba would compile the callees once more
    while i < n:
        s = index[i]
        c, scale = slopes[s], 1.0 / (1.0 + slopes[s])
        fill_moments(sums, c, moments)
        if i == cutting:
            cutting *= 4 if game.coarse else 2
            window = expected(moments, n, i, log_goal, fineness)
            kept = upper[first:cells], wealth[first:cells], stakes[first:cells]
            upper, wealth, stakes = refine(kept, (y[:i], starts[:j]), game, floor, ceiling, window, i == opening)
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
            if log_price < 0.0 and log_price > -log_goal - DROPPED_BELOW:
                stakes[k, j] = stake_for(log_price, n - i, moments, game.hazards)
                wealth[k] = follow(y[i:stop], stakes[k, j], game.table[upper[k], s], wealth[k], goal)
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
            return LowestCell(floor, floor, floor >= ceiling, y, starts, y)
        add_draws(a[i:stop], b[i:stop], sums)
        i, j = stop, j + 1
    if at_ceiling >= game.last:
        wealth[cells - 1] = goal
    while first < cells and wealth[first] >= game.last:
        floor, first = upper[first], first + 1
    if first == cells:
        return LowestCell(floor, floor, floor >= ceiling, y, starts, y)
    held = np.empty(j)
    for k in range(j):
        held[k] = stakes[first, k]
    return LowestCell(floor, upper[first], False, y, starts[:j], held)


def largest_rejected(rejects: Callable[[FloatArray], bool], candidates: Candidates, low: float, high: float) -> float:
    """Return the largest candidate of (low, high] that bisection finds rejected, rounded down, or ``low``.

    ``low`` is known to be rejected, or is ``candidates.nothing``. ``rejects(candidates.means_of(value))`` says whether
    a candidate is; its bets must be the same for every candidate, so that the wealth falls in it and bisection is
    sound.
    """
    if rejects(candidates.means_of(high)):
        return high
    if low == -inf:
        first = float(candidates.values[0])
        if not rejects(candidates.means_of(first)):
            return low
        low = first
    while high - low > candidates.tolerance:
        middle = 0.5 * (low + high)
        if rejects(candidates.means_of(middle)):
            low = middle
        else:
            high = middle
    return low


def cells_limit(
    pair: Pair, candidates: Candidates, alpha: float, high: float, uniform: float = 1.0, *, coarse: bool = False
) -> float:
    """Return the lower limit of what ``candidates`` are candidates for, at most ``high``: all below it are rejected.

    **Guarantee.** That of ``star_lower``, if slopes and sums of ``pair`` use earlier draws alone. ``high`` saves work
    and may come from anywhere; ``uniform`` is that of ``star_lower``; ``coarse`` makes cells wider, to save time.
    """
    goal = wealth_goal(alpha, pair.a.size)
    last = last_goal(goal, uniform)
    game = Game(pair, candidates.table, goal, last, HAZARDS, coarse)
    floor = 0 if candidates.nothing == candidates.values[0] else -1
    cell = lowest_cell(game, floor, int(np.searchsorted(candidates.values, high)), candidates.means_of(high))
    if cell.above:
        return high

    def rejects(means: FloatArray) -> bool:
        return bool(wealth_of(cell.y, cell.starts, pair.slope_index, cell.stakes, means, goal) >= last)

    low = candidates.nothing if cell.low < 0 else float(candidates.values[cell.low])
    return largest_rejected(rejects, candidates, low, min(float(candidates.values[cell.high]), high))


def star_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, uniform: float = 1.0) -> FloatArray:
    """Return the lower limit by betting of each column's mean, for draws ``x``, ``[n]`` or ``[n, columns]``.

    **Guarantee.** For draws in [low, high] whose conditional mean given the past is constant (i.i.d. draws are such),
    ``P(limit > mean) <= alpha``; one-sided. The bets aim at the n given, which is to be fixed beforehand. Rounded down,
    within 1e-9 of the exact limit for a range of unit size.

    A candidate mean m is rejected once the wealth of bets against it reaches ``1/alpha``; each bet is as large as is
    needed to bring the wealth there by draw n (after Voracek & Orabona 2025). All candidates of one cell, an interval,
    hold the same bets, so that the wealth falls in m and bisection is sound, and every cell below the limit is
    rejected. The limit is no more than the sample mean. With ``uniform``, a number drawn uniformly from (0, 1] that has
    no part in the draws and is used for them alone, a wealth of ``uniform / alpha`` after the last draw rejects as well
    (T15a).

    >>> round(float(star_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.833199
    """
    level = check_alpha(alpha)
    return limits_of_columns(
        x, low, high, lambda y: np.array([cells_limit(plain(row), MEANS, level, 1.0, uniform) for row in y])
    )


def constant_stake_lower(x: ArrayLike, alpha: float, stake: float, low: float = 0.0, high: float = 1.0) -> float:
    """Return the lower limit of the average of the means of draws ``x``, ``[n]``, which may differ, by one fixed stake.

    **Guarantee.** For independent draws in [low, high] and a stake fixed before them, ``P(limit > m) <= alpha``, m the
    average of the n means; one-sided, fixed n. Rounded down by up to 1e-10 of the range.

    The limit is the smallest m with ``prod (1 + min(stake, .99/m) (Y_i - m)) < 1/alpha``, Y scaled to [0, 1], after
    the last draw alone: the mean of the product is at most 1, since geometric means are at most arithmetic ones (T14a).
    Stakes that change, and running maxima over draws, are valid only where all draws have the same mean.

    >>> round(constant_stake_lower(np.repeat([1.0, 0.0], 500), 0.001, 0.25), 6)
    0.441357
    """
    share = check_positive("stake", stake)
    level = check_alpha(alpha)

    def largest(y: FloatArray) -> float:
        goal = log(wealth_goal(level, y.size))

        def rejects(means: FloatArray) -> bool:
            m = means[0]
            # Sums of logarithms are off by less than 1e-12 of their size (F7).
            logs = np.log1p(min(share, CAP / m) * (y - m))
            return bool(logs.sum() - 1e-12 * np.abs(logs).sum() >= goal)

        return largest_rejected(rejects, MEANS, 0.0, 1.0)

    return float(limits_of_columns(x, low, high, lambda y: np.array([largest(row) for row in y])))
