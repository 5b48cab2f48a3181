"""The lower limit of a plain mean by betting: bisection inside of one cell, and the smallest limit of many columns.

**Guarantee** of both functions, with ``goal = betting.wealth_goal(alpha, n)``: ``P(limit > mean) <= alpha`` for each
column, one-sided, n fixed beforehand; a lower limit, rounded down by up to TOLERANCE.
"""

from math import ceil
from typing import NamedTuple

import numpy as np

from buckler.bounds.bets import CAP, LOST, Pair
from buckler.bounds.compiled import compiled
from buckler.bounds.partition import Bets, lowest_cell
from buckler.types import FloatArray, IntArray

TOLERANCE = 1e-10
"""How far below the exact limit, in units of the range, the bisection may stop."""

NODES: FloatArray = np.linspace(0.0, 1.0, 2**18 + 1)[:, None]
"""Candidates of a plain mean between which cells may be cut, 4e-6 apart."""


class Columns(NamedTuple):
    """Class A, its rivals as rows, the slope between them, and sums over earlier draws of each pair, one a row."""

    a: FloatArray
    rivals: FloatArray
    slope: float
    earlier: FloatArray


@compiled
def search(y: FloatArray, stakes: FloatArray, low: float, high: float, goal: float) -> float:
    """Return the largest mean of a cell (low, high] found rejected, within TOLERANCE, or ``low``.

    Stakes are the same for every candidate of the cell, so wealth falls in the mean and bisection is sound.
    """
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


@compiled
def smallest_limit(
    columns: Columns, order: IntArray, nodes: FloatArray, hazards: FloatArray, goal: float, coarse: bool
) -> float:
    """Return the smallest limit of the mean of ``(a - c b + c)/(1 + c)``, c the slope, over the rows b of ``rivals``.

    A row that rejects every candidate up to the smallest limit so far has a larger one, and is not solved.
    """
    n = columns.a.size
    slopes, index, means = np.array([columns.slope]), np.zeros(n, dtype=np.int64), np.ones(1)
    last = nodes.shape[0] - 1
    smallest = 1.0
    for j in order:
        means[0] = smallest
        pair = Pair(columns.a, columns.rivals[j], slopes, index, columns.earlier[j])
        cell = lowest_cell(Bets(pair, nodes, goal, hazards, coarse), 0, ceil(smallest * last), means)
        if not cell.above:
            smallest = search(cell.y, cell.stakes, nodes[cell.low, 0], min(nodes[cell.high, 0], smallest), goal)
        if smallest <= 0.0:
            break
    return smallest
