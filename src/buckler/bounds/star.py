"""Lower limits of a mean with target-recalculating bets, and the smallest limit over many pairs of columns.

``partition`` finds the lowest cell of candidates that is not rejected; bisection inside of it gives the limit (T15).
"""

from math import ceil, log
from typing import NamedTuple

import numpy as np

from buckler.bounds.betting import (
    COARSE_PACE,
    NO_EARLIER,
    PACE,
    Pair,
    from_unit,
    last_goal,
    plug_in_bets_below,
    scaled_draws,
    search,
    wealth_goal,
)
from buckler.bounds.compiled import compiled
from buckler.bounds.partition import HAZARDS, Game, lowest_cell
from buckler.errors import check_alpha
from buckler.types import ArrayLike, FloatArray, IntArray

MANY = 100
"""Above this many columns bets are renewed less often, to save time."""

NODES: FloatArray = np.linspace(0.0, 1.0, 2**18 + 1)[:, None]
"""Candidates of a plain mean between which cells may be cut, 4e-6 apart."""

UNIT_SLOPE: FloatArray = np.ones(1)


class Columns(NamedTuple):
    """Class A, its rivals as rows, the slope between them, and sums over earlier draws of each pair, one a row."""

    a: FloatArray
    rivals: FloatArray
    slope: float
    earlier: FloatArray


@compiled
def smallest_limit(
    columns: Columns, order: IntArray, nodes: FloatArray, hazards: FloatArray, goal: float, last: float, coarse: bool
) -> float:
    """Return the smallest limit of the mean of ``(a - c b + c)/(1 + c)``, c the slope, over the rows b of ``rivals``.

    A row that rejects every candidate up to the smallest limit so far has a larger one, and is not solved.
    """
    n = columns.a.size
    slopes, index, means = np.array([columns.slope]), np.zeros(n, dtype=np.int64), np.ones(1)
    top = nodes.shape[0] - 1
    smallest = 1.0
    for j in order:
        means[0] = smallest
        pair = Pair(columns.a, columns.rivals[j], slopes, index, columns.earlier[j])
        cell = lowest_cell(Game(pair, nodes, goal, last, hazards, coarse), 0, ceil(smallest * top), means)
        if not cell.above:
            smallest = search(cell.y, cell.stakes, nodes[cell.low, 0], min(nodes[cell.high, 0], smallest), goal, last)
        if smallest <= 0.0:
            break
    return smallest


def star_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, uniform: float = 1.0) -> FloatArray:
    """Return the betting limit of the mean with target-recalculating bets, which follow each candidate's own wealth.

    **Guarantee.** As ``betting_lower``: ``P(limit > mean) <= alpha``, one-sided, n fixed beforehand, rounded down;
    ``uniform`` means the same there.

    Each bet is as large as is needed to bring the candidate's wealth to ``1/alpha`` by draw n (after Voracek & Orabona
    2025). Candidates are cut into cells (``partition``); within a cell they hold the same bets, so that the wealth
    falls in m and bisection is sound, and every cell below the limit is rejected.

    >>> round(float(star_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.833199
    """
    draws, scaled, left, right = scaled_draws(x, low, high)
    n = draws.shape[1]
    goal, nothing, order = wealth_goal(check_alpha(alpha), n), np.zeros((1, n)), np.zeros(1, dtype=np.int64)
    last = last_goal(goal, uniform)
    columns = [Columns(y, nothing, 0.0, NO_EARLIER[None]) for y in scaled]
    ends = np.array([smallest_limit(one, order, NODES, HAZARDS, goal, last, False) for one in columns])
    return from_unit(ends, draws, left, right, np.shape(x))


def smallest_lower(
    a: FloatArray,
    rivals: FloatArray,
    earlier: FloatArray,
    alpha: float,
    order: IntArray,
    *,
    star: bool = True,
    uniform: float = 1.0,
) -> float:
    """Return the smallest of the limits of the means of ``(a - b + 1)/2`` over the rows b of ``rivals``.

    **Guarantee.** For each row, ``P(its limit > its mean) <= alpha`` under the conditions of ``betting_lower``;
    one-sided, a lower limit, rounded down. The smallest limit is one for the smallest mean (intersection-union),
    with one ``uniform`` number for all rows.

    A row that rejects every candidate up to the smallest limit so far has a larger one, so it need not be solved: the
    result is the plain minimum to within TOLERANCE, whatever the order.
    """
    n = a.size
    goal, log_goal, coarse = wealth_goal(alpha, n), -log(alpha), len(rivals) > MANY
    last = last_goal(goal, uniform)
    if star:
        return smallest_limit(Columns(a, rivals, 1.0, earlier), order, NODES, HAZARDS, goal, last, coarse)
    index = np.zeros(n, dtype=np.int64)
    smallest = 1.0
    for j in order:
        pair = Pair(a, rivals[j], UNIT_SLOPE, index, earlier[j])
        above, bets = plug_in_bets_below(pair, log_goal, COARSE_PACE if coarse else PACE, smallest, goal, last)
        if not above:
            smallest = search(bets.y, bets.stakes, 0.0, smallest, goal, last)
        if smallest <= 0.0:
            break
    return smallest
