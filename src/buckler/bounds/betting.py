"""Lower limits of a mean by betting: the smallest candidate whose wealth never reached 1/alpha.

``star`` limits come from ``cells``, where candidates bet apart; plain ones from ``bets``, where one path of stakes
serves all candidates.

The limit is the smallest candidate that is not rejected (T14); rounding of a wealth is accounted for in F6.
"""

from math import log

import numpy as np

from buckler.bounds.bets import CAP, COARSE_PACE, LOST, NO_EARLIER, PACE, Pair, Plan, plan, plan_below
from buckler.bounds.bounded import SLACK, check_draws, check_range, settle
from buckler.bounds.compiled import compiled
from buckler.bounds.mean_limit import NODES, TOLERANCE, Columns, search, smallest_limit
from buckler.bounds.stakes import HAZARDS
from buckler.errors import check_alpha, check_positive
from buckler.types import ArrayLike, FloatArray, IntArray

MANY = 100
"""Above this many columns stakes are renewed less often, to save time."""

PLAIN_SLOPE: FloatArray = np.zeros(1)
UNIT_SLOPE: FloatArray = np.ones(1)


def wealth_goal(alpha: float, n: int) -> float:
    """Return ``1/alpha`` raised by all that rounding can add to a wealth over n draws.

    >>> wealth_goal(0.001, 10**6)
    1000.0001000010002
    """
    return (1.0 / alpha) * (1.0 + 1e-13 * n + 1e-12)


@compiled
def reaches(y: FloatArray, stakes: FloatArray, index: IntArray, means: FloatArray, goal: float) -> bool:
    """Return whether the wealth against candidate means (one for each slope) ever reaches the goal."""
    wealth = 1.0
    for i in range(y.size):
        m = means[index[i]]
        wealth *= 1.0 + min(stakes[i], CAP / m) * (y[i] - m)
        if wealth >= goal:
            return True
        if wealth < LOST:
            return False
    return False


def rejects(path: Plan, means: FloatArray, goal: float) -> bool:
    """Return whether one planned path rejects the candidate whose mean under slope s is ``means[s]``."""
    return bool(reaches(path.y, path.stakes, path.slope_index, means, goal))


def smallest_lower(
    a: FloatArray, rivals: FloatArray, earlier: FloatArray, alpha: float, order: IntArray, *, star: bool = True
) -> float:
    """Return the smallest of the limits of the means of ``(a - b + 1)/2`` over the rows b of ``rivals``.

    **Guarantee.** For each row, ``P(its limit > its mean) <= alpha`` under the conditions of ``betting_lower``;
    one-sided, a lower limit, rounded down. The smallest limit is one for the smallest mean (intersection-union).

    A row that rejects every candidate up to the smallest limit so far has a larger one, so it need not be solved: the
    result is the plain minimum to within TOLERANCE, whatever the order.
    """
    n = a.size
    goal, log_goal, coarse = wealth_goal(alpha, n), -log(alpha), len(rivals) > MANY
    if star:
        return smallest_limit(Columns(a, rivals, 1.0, earlier), order, NODES, HAZARDS, goal, coarse)
    index = np.zeros(n, dtype=np.int64)
    smallest = 1.0
    for j in order:
        pair = Pair(a, rivals[j], UNIT_SLOPE, index, earlier[j])
        above, path = plan_below(pair, log_goal, COARSE_PACE if coarse else PACE, smallest, goal)
        if not above:
            smallest = search(path.y, path.stakes, 0.0, smallest, goal)
        if smallest <= 0.0:
            break
    return smallest


def _lower(x: ArrayLike, alpha: float, low: float, high: float, star: bool) -> FloatArray:
    left, right = check_range(low, high)
    alpha = check_alpha(alpha)
    draws = check_draws(x, left, right)
    span = right - left
    n = draws.shape[1]
    scaled = np.clip((draws - left) / span, 0.0, 1.0)
    nothing, index = np.zeros(n), np.zeros(n, dtype=np.int64)
    goal, log_goal = wealth_goal(alpha, n), -log(alpha)
    ends = np.empty(draws.shape[0])
    for column, values in enumerate(scaled):
        if star:
            only = Columns(values, nothing[None], 0.0, NO_EARLIER[None])
            ends[column] = smallest_limit(only, index[:1], NODES, HAZARDS, goal, False)
        else:
            path = plan(Pair(values, nothing, PLAIN_SLOPE, index, NO_EARLIER), log_goal)
            ends[column] = search(path.y, path.stakes, 0.0, 1.0, goal)
    limits = left + span * ends - SLACK * max(abs(left), abs(right))
    return settle(limits, draws, left, right, np.shape(x))


def betting_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the one-sided betting limit of the mean, with plain predictable stakes.

    **Guarantee.** For draws in [low, high] whose conditional mean given the past is constant (i.i.d. draws are such),
    ``P(limit > mean) <= alpha``; one-sided. The stakes aim at the n given, which is to be fixed beforehand; wealth
    counts at its running maximum (Ville's inequality). Rounded down, within 1e-9 of the exact limit for a range of
    unit size.

    The limit is the smallest m with ``max_t prod_{i<=t} (1 + min(lambda_i, .99/m) (X_i - m)) < 1/alpha``,
    ``lambda_i = sqrt(2 ln(1/alpha) / (n s2_{i-1}))`` (Waudby-Smith & Ramdas 2024, one side of their hedged capital),
    and no more than the sample mean.

    >>> round(float(betting_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.834014
    """
    return _lower(x, alpha, low, high, star=False)


def star_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the betting limit of the mean with target-recalculating stakes, each candidate mean its own bettor.

    **Guarantee.** As ``betting_lower``: ``P(limit > mean) <= alpha``, one-sided, n fixed beforehand, rounded down.

    The stakes follow ``cells``: at each step as large as is needed to bring the candidate's wealth to ``1/alpha`` by
    draw n (after Voracek & Orabona 2025). Candidates are cut into cells; within a cell they hold the same stakes, so
    that wealth falls in m and bisection is sound, and every cell below the limit is rejected.

    >>> round(float(star_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.833199
    """
    return _lower(x, alpha, low, high, star=True)


def constant_stake_lower(x: ArrayLike, alpha: float, stake: float, low: float = 0.0, high: float = 1.0) -> float:
    """Return the lower limit of the average mean of draws ``[n]`` that need not have a common mean, by one fixed stake.

    **Guarantee.** For independent draws in [low, high] and a stake fixed before them, ``P(limit > m) <= alpha``, m the
    average of the n means; one-sided, fixed n. Rounded down by up to TOLERANCE of the range.

    The limit is the smallest m with ``prod (1 + min(stake, .99/m) (Y_i - m)) < 1/alpha``, Y scaled to [0, 1], after
    the last draw alone: the mean of the product is at most 1, since geometric means are at most arithmetic ones (T14a).
    Stakes that change, and running maxima over draws, are valid only where all draws have the same mean.

    >>> round(constant_stake_lower(np.repeat([1.0, 0.0], 500), 0.001, 0.25), 6)
    0.441357
    """
    left, right = check_range(low, high)
    draws = check_draws(x, left, right)
    span, n = right - left, draws.shape[1]
    scaled = np.clip((draws[0] - left) / span, 0.0, 1.0)
    goal = log(wealth_goal(check_alpha(alpha), n))
    below, above = 0.0, 1.0
    while above - below > TOLERANCE:
        m = 0.5 * (below + above)
        # Sums of logarithms are off by less than 1e-12 of their size (F7).
        logs = np.log1p(min(check_positive("stake", stake), CAP / m) * (scaled - m))
        below, above = (m, above) if logs.sum() - 1e-12 * np.abs(logs).sum() >= goal else (below, m)
    limit = left + span * below - SLACK * max(abs(left), abs(right))
    return float(settle(np.array([limit]), draws[:1], left, right, (n, 1))[0])
