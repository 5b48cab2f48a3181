"""The limit of a mean by bettors of their own, with a ceiling and draws seen earlier: what tests and audits ask for."""

import numpy as np

from buckler.bounds.bets import NO_HEAD
from buckler.bounds.betting import wealth_goal
from buckler.bounds.cells import HAZARDS, NODES, bet_compiled, search_compiled
from buckler.types import FloatArray


def own_limit(
    y: FloatArray, alpha: float, ceiling: float = 1.0, head: FloatArray = NO_HEAD, *, hurry: bool = False
) -> float:
    """Return the limit of the mean of draws in [0, 1], or the ceiling if it is not below."""
    n, goal = y.size, wealth_goal(alpha, y.size)
    scaled, held, node = np.empty(n), np.empty(n), int(np.ceil(ceiling * (len(NODES) - 1)))
    low, high, above = bet_compiled(
        y, np.zeros(n), np.zeros(1), np.zeros(n, dtype=np.int64), NODES, head, -np.log(alpha), goal, 0, node,
        np.array([ceiling]), hurry, HAZARDS, scaled, held,
    )  # fmt: skip
    if above:
        return ceiling
    return float(search_compiled(scaled, held, NODES[low, 0], min(NODES[high, 0], ceiling), goal))
