"""Predictable bets: from draws seen so far to the stake on the next one, one path for every candidate mean.

The variable is ``y_i = (a_i - c_i b_i + c_i) / (1 + c_i)`` in [0, 1], for draws a and b in [0, 1] and a slope
``c_i >= 0`` fixed before draw i; a plain variable is the case c = 0, y = a. A gambler who holds that the mean exceeds
the candidate m stakes ``min(lambda_i, CAP / m)``, and the wealth is multiplied by ``1 + stake (y_i - m)``.

**Why one path.** With one ``lambda_i`` for every candidate wealth falls in m (T14), the rejected candidates are an
interval, and a bisection finds its end. Stakes that react to each
candidate's own wealth lose this; ``cells`` shows how to have both.

The stakes are ``sqrt(2 ln(1/alpha) / (n s^2))`` (Waudby-Smith & Ramdas 2024), s the deviation of the draws so far
beside ``PRIOR`` = 2 imagined draws, one at 0 and one at 1. They are renewed after every draw at first, and later on
after every ``1/PACE`` of the draws so far; ``COARSE_PACE`` will do where there are very many columns. How often
is heuristic: any predictable stake is sound.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.types import FloatArray, IntArray

CAP = 0.99
"""The largest share of the wealth that one draw can lose."""

PACE, COARSE_PACE = 64, 8
"""Renewals of the stake while the number of draws grows by itself."""

LOST = 1e-200
"""A wealth below is given up, before numbers lose digits to underflow; giving up never rejects."""

PRIOR = 2.0
"""How many imagined draws, half of them at 0 and half at 1, the estimates start from."""


class Pair(NamedTuple):
    """Draws of two columns, and how they make one variable: c_i is ``slopes[slope_index[i]]``, fixed before draw i."""

    a: FloatArray
    b: FloatArray
    slopes: FloatArray
    slope_index: IntArray
    earlier: FloatArray
    """Sums over draws seen earlier (``earlier_moments``)."""


class Plan(NamedTuple):
    """One column's scaled draws and its stakes."""

    y: FloatArray
    stakes: FloatArray
    slope_index: IntArray


@compiled
def deviation(count: float, total: float, squares: float, scale: float) -> float:
    """Return the deviation of y from the sums of ``a - c b`` and of its square, beside the prior draws."""
    spread = 0.0
    if count > 0.0:
        spread = max((squares - total * total / count) * scale * scale, 0.0)
    return sqrt((PRIOR * 0.25 + spread) / (PRIOR + count))


@compiled
def plan_below(pair: Pair, log_goal: float, pace: int, candidate: float, goal: float) -> tuple[bool, Plan]:
    """Return the scaled draws and stakes of a pair; and True, with the rest left out, if ``candidate`` is rejected.

    Where only limits below ``candidate`` matter (and the slope never changes), planning ends as soon as the wealth
    against it reaches the goal: this column's limit is above. ``candidate = 1`` never is rejected.
    """
    a, b, slopes, index, earlier = pair
    n = a.size
    y, stakes = np.empty(n), np.empty(n)
    count, sa, sb, saa, sab, sbb = earlier[0], earlier[1], earlier[2], earlier[3], earlier[4], earlier[5]
    stake, scale, capped = 0.0, 1.0, 0.0
    due, current = 0, index[0]
    wealth, most = 1.0, CAP / candidate
    for i in range(n):
        s = index[i]
        c = slopes[s]
        if i >= due or s != current:
            due, current = i + 1 + i // pace, s
            scale = 1.0 / (1.0 + c)
            spread = deviation(count, sa - c * sb, saa - 2.0 * c * sab + c * c * sbb, scale)
            stake = sqrt(2.0 * log_goal / n) / spread
            if not stake > 0.0:
                # Never so by the formula; a stake that is no number, or against the mean, would break the proof.
                stake = 0.0
            capped = min(stake, most)
        stakes[i] = stake
        p, q = a[i], b[i]
        x = min(max((p - c * q + c) * scale, 0.0), 1.0)
        y[i] = x
        wealth *= 1.0 + capped * (x - candidate)
        if wealth >= goal:
            return True, Plan(y, stakes, index)
        if wealth < LOST:
            wealth = 0.0
        count += 1.0
        sa += p
        sb += q
        saa += p * p
        sab += p * q
        sbb += q * q
    return False, Plan(y, stakes, index)


NO_EARLIER: FloatArray = np.zeros(10)


def earlier_moments(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the count of draws seen earlier and the sums of a, b, aa, ab, bb, aaa, aab, abb and bbb."""
    aa, bb = a * a, b * b
    third = [aa @ a, aa @ b, a @ bb, bb @ b]
    return np.array([a.size, a.sum(), b.sum(), aa.sum(), a @ b, bb.sum(), *third], dtype=np.float64)


def plan(pair: Pair, log_goal: float) -> Plan:
    """Return the scaled draws and stakes of one pair of columns; stake i uses draws before i alone.

    >>> made = plan(Pair(np.ones(4), np.zeros(4), np.ones(1), np.zeros(4, dtype=np.int64), NO_EARLIER), 7.0)
    >>> made.stakes.round(4)
    array([3.7417, 4.5826, 5.2915, 5.9161])
    """
    return plan_below(pair, log_goal, PACE, 1.0, np.inf)[1]
