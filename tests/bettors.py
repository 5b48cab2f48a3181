"""The limit of a mean by bettors of their own, with a ceiling and draws seen earlier: what tests and audits ask for."""

import numpy as np

from buckler.bounds.betting import NO_EARLIER, Pair, last_goal, search, wealth_goal
from buckler.bounds.star import HAZARDS, MEAN_NODES, Game, lowest_cell
from buckler.types import FloatArray


def own_limit(
    y: FloatArray,
    alpha: float,
    ceiling: float = 1.0,
    earlier: FloatArray = NO_EARLIER,
    *,
    coarse: bool = False,
    uniform: float = 1.0,
) -> float:
    """Return the limit of the mean of draws in [0, 1], or the ceiling if it is not below."""
    n, goal = y.size, wealth_goal(alpha, y.size)
    pair = Pair(y, np.zeros(n), np.zeros(1), np.zeros(n, dtype=np.int64), earlier)
    last = last_goal(goal, uniform)
    bets = Game(pair, MEAN_NODES, goal, last, HAZARDS, coarse)
    cell = lowest_cell(bets, 0, int(np.ceil(ceiling * (len(MEAN_NODES) - 1))), np.array([ceiling]))
    if cell.above:
        return ceiling
    return float(
        search(cell.y, cell.stakes, MEAN_NODES[cell.low, 0], min(MEAN_NODES[cell.high, 0], ceiling), goal, last)
    )
