"""Lower limits of the mean of a bounded variable: closed forms, and betting with one path of bets for every candidate.

Draws are one column ``[n]`` or several ``[n, columns]``, each with a limit of its own. **Closed forms**: Hoeffding,
empirical Bernstein, predictable plug-in (T13). Sums run along contiguous memory, where NumPy adds pairwise, so that
``LIMIT_SLACK`` pays for their rounding for any n up to 1e9 (F7).

**Betting.** The variable is ``y_i = (a_i - c_i b_i + c_i) / (1 + c_i)`` in [0, 1], for draws a and b in [0, 1] and a
slope ``c_i >= 0`` fixed before draw i; a plain variable is the case c = 0, y = a. A bettor against the candidate mean m
stakes ``min(lambda_i, CAP / m)``, and the wealth is multiplied by ``1 + stake (y_i - m)``. The limit is the smallest
candidate whose wealth never reaches ``1/alpha`` (T14), or a share of it after the last draw (T15a); F6 accounts for
rounding of the wealth.

With the same ``lambda_i`` for every candidate the wealth falls in m (T14), so the rejected candidates form an interval,
and bisection finds its end. Bets that react to each candidate's own wealth lose this; ``star`` has both.

**Bets.** ``lambda_i = sqrt(2 ln(1/alpha) / (n s^2))`` (Waudby-Smith & Ramdas 2024), s the standard deviation of the
draws before i and of ``PRIOR`` = 2 imagined draws, one at 0 and one at 1. They are renewed after every draw at first,
and later after every ``1/PACE`` of the draws so far (``COARSE_PACE`` where there are very many columns). How often is
heuristic: any predictable bet is sound.
"""

from collections.abc import Callable
from math import inf, log, log1p, nextafter, sqrt
from typing import Any, NamedTuple

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.bounds.trinomial import ROUNDOFF
from buckler.errors import InvalidInput, check_alpha, check_float_array, check_positive, check_real
from buckler.types import ArrayLike, FloatArray, IntArray

LIMIT_SLACK = 2e-14
"""Subtracted from every limit, in units of the largest magnitude of the range: 180 roundoffs (F7)."""


def check_draws(x: ArrayLike, low: object, high: object, least: int = 1) -> tuple[FloatArray, float, float]:
    """Return draws as contiguous ``[columns, n]``, and the ends of their range, checked.

    Every draw must lie in [low, high], ``low < high``, and n be at least ``least``.
    """
    left, right = check_real("low", low), check_real("high", high)
    if not left < right:
        raise InvalidInput(f"low must be below high; got low {left} and high {right}")
    array = check_float_array("x", x)
    if array.ndim not in {1, 2} or 0 in array.shape:
        raise InvalidInput(f"x must have shape [n] or [n, columns] with at least one draw; got shape {array.shape}")
    if array.shape[0] < least:
        raise InvalidInput(f"x must hold at least {least} draws for this limit; got {array.shape[0]}")
    if array.min() < left or array.max() > right:
        where = tuple(int(i) for i in np.argwhere((array < left) | (array > right))[0])
        raise InvalidInput(f"x must lie in [{left}, {right}]; got {array[where]} at draw {where[0]}")
    return np.ascontiguousarray(array.reshape(array.shape[0], -1).T), left, right


def limits_of_columns(
    x: ArrayLike, low: float, high: float, find: Callable[[FloatArray], FloatArray], least: int = 1
) -> FloatArray:
    """Return each column's limit: ``find`` of the draws ``[columns, n]`` scaled to [0, 1], scaled back, rounded down.

    A limit is lowered to the sample mean, which a running maximum over prefixes can pass, and which would be of no use;
    and raised to ``low``, below which no mean is.
    """
    draws, left, right = check_draws(x, low, high, least)
    ends = find(np.clip((draws - left) / (right - left), 0.0, 1.0))
    limits = np.minimum(left + (right - left) * ends, draws.mean(axis=1)) - LIMIT_SLACK * max(abs(left), abs(right))
    return np.asarray(np.maximum(limits, left).reshape(np.shape(x)[1:]), dtype=np.float64)


def hoeffding_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return Hoeffding's lower limit of the mean.

    **Guarantee.** For independent draws in [low, high] with a common mean, ``P(limit > mean) <= alpha``; one-sided,
    fixed n. Rounded down.

    ``mean - (high - low) sqrt(ln(1/alpha) / (2 n))`` (Hoeffding 1963, theorem 2).

    >>> round(float(hoeffding_lower(np.full(100, 0.9), 0.001)), 6)
    0.714154
    """
    price = -log(check_alpha(alpha))
    return limits_of_columns(x, low, high, lambda y: y.mean(axis=1) - sqrt(price / (2 * y.shape[1])) * (1.0 + 1e-14))


def bernstein_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the empirical Bernstein lower limit of the mean; needs two draws.

    **Guarantee.** For independent, identically distributed draws in [low, high], ``P(limit > mean) <= alpha``;
    one-sided, fixed n. Rounded down.

    ``mean - sqrt(2 V ln(2/alpha) / n) - 7 (high - low) ln(2/alpha) / (3 (n - 1))``, V the unbiased sample variance
    (Maurer & Pontil 2009, theorem 4, whose logarithm is of ``2/alpha``: one half pays for the variance).

    >>> round(float(bernstein_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.681668
    """
    cost = (log(2.0) - log(check_alpha(alpha))) * (1.0 + 1e-15)

    def find(y: FloatArray) -> FloatArray:
        n = y.shape[1]
        # The two-pass variance errs by LIMIT_SLACK relative to itself and by the square of the mean's error.
        variance = y.var(axis=1, ddof=1) * (1.0 + LIMIT_SLACK) + LIMIT_SLACK**2
        width = np.sqrt(2.0 * variance * cost / n) + 7.0 * cost / (3.0 * (n - 1))
        return np.asarray(y.mean(axis=1) - width * (1.0 + 1e-14))

    return limits_of_columns(x, low, high, find, least=2)


def _psi(bet: float) -> float:
    """Return ``(-ln(1 - bet) - bet) / 4``, rounded up; a power series for small bets, where the difference cancels."""
    if bet > 0.05:
        return 0.25 * (-log1p(-bet) - bet) * (1.0 + 1e-13)
    tail = 0.0
    for k in range(14, 1, -1):
        tail = tail * bet + 1.0 / k
    return 0.25 * tail * bet * bet * (1.0 + 1e-13)


_psi_compiled: Any = compiled(_psi)


def _sequence(y: FloatArray, log_goal: float) -> float:
    """Return the largest of the lower limits computed after each draw of ``y``, one column of draws in [0, 1].

    All sums are of nonnegative terms, so each is off by at most ``(i + 9)`` roundoffs relative to itself; the limit
    gives away twice that much of its two parts.
    """
    n = y.size
    total, squares = 0.5, 0.25
    bets, wins, costs, largest = 0.0, 0.0, log_goal, -inf
    for i in range(1, n + 1):
        variance = squares / i
        bet = min(0.5, sqrt(2.0 * log_goal / (variance * (i * log(1.0 + i)))))
        x = y[i - 1]
        bets += bet
        wins += bet * x
        costs += 4.0 * (x - total / i) ** 2 * _psi_compiled(bet)
        largest = max(largest, (wins - costs - 2.0 * (i + 9) * ROUNDOFF * (wins + costs)) / bets)
        total += x
        squares += (x - total / (i + 1)) ** 2
    return largest


_sequence_compiled: Any = compiled(_sequence)


def sequence_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the largest limit of the predictable plug-in empirical-Bernstein sequence, no more than the mean.

    **Guarantee.** For draws in [low, high] whose conditional mean given the past is constant (i.i.d. draws are such),
    ``P(limit > mean) <= alpha``; one-sided, and uniform over prefixes, so that n may be any stopping time. Rounded
    down.

    With draws scaled to [0, 1]: ``sum l_i X_i / sum l_i - (ln(1/alpha) + sum v_i psi(l_i)) / sum l_i``,
    ``v_i = 4 (X_i - mu_{i-1})^2``, ``psi(l) = (-ln(1-l) - l)/4``,
    ``l_i = min(1/2, sqrt(2 ln(1/alpha) / (s2_{i-1} i ln(1+i))))``, ``mu_i = (1/2 + sum X)/(i+1)``,
    ``s2_i = (1/4 + sum (X_k - mu_k)^2)/(i+1)``; the running maximum over i (Waudby-Smith & Ramdas 2024, theorem 2,
    one side of it).

    >>> round(float(sequence_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.756869
    """
    log_goal = -log(check_alpha(alpha)) * (1.0 + 1e-15)
    return limits_of_columns(x, low, high, lambda y: np.array([_sequence_compiled(row, log_goal) for row in y]))


CAP = 0.99
"""Largest share of the wealth that one draw can lose."""

PACE, COARSE_PACE = 64, 8
"""A bet made after i draws is kept for ``1 + i // PACE`` draws; ``COARSE_PACE`` where columns are many. Heuristic:
affects tightness and speed, not validity."""

LOST = 1e-200
"""Wealth below this is set to 0, which is conservative, before it underflows."""

PRIOR = 2.0
"""Imagined draws, half of them at 0 and half at 1, from which the estimates start."""

NO_EARLIER: FloatArray = np.zeros(10)
"""The ten sums of ``earlier_moments`` where no draws were seen earlier: zeros."""


class Pair(NamedTuple):
    """Draws ``a``, ``b`` of two columns, bet on as one variable ``(a - c b + c)/(1 + c)``.

    The slope c of draw i is ``slopes[slope_index[i]]``, fixed before draw i.
    """

    a: FloatArray
    b: FloatArray
    slopes: FloatArray
    slope_index: IntArray
    earlier: FloatArray
    """Sums over draws seen earlier (``earlier_moments``)."""


def plain(y: FloatArray) -> Pair:
    """Return draws in [0, 1] of one column as a pair: ``b`` and the slope are 0."""
    return Pair(y, np.zeros(y.size), np.zeros(1), np.zeros(y.size, dtype=np.int64), NO_EARLIER)


class Bets(NamedTuple):
    """Bets on one pair of columns: scaled draws ``y``, the stake on each draw, and the index of each draw's slope."""

    y: FloatArray
    stakes: FloatArray
    slope_index: IntArray


def wealth_goal(alpha: float, n: int) -> float:
    """Return ``1/alpha`` raised by the largest rounding error of a wealth over n draws (F6).

    >>> round(wealth_goal(0.001, 10**6), 6)
    1000.0001
    """
    return (1.0 / alpha) * (1.0 + 1e-13 * n + 1e-12)


def last_goal(goal: float, uniform: float) -> float:
    """Return ``uniform`` times ``goal``, the wealth that rejects after the last draw; ``goal`` does at any (T15a)."""
    return min(nextafter(uniform * goal, inf), goal)


@compiled
def deviation(count: float, total: float, squares: float, scale: float) -> float:
    """Return the standard deviation of ``y = scale (a - c b + c)``, from the sums of ``a - c b`` and of its square.

    ``PRIOR`` imagined draws of variance 1/4 are added.
    """
    spread = 0.0
    if count > 0.0:
        spread = max((squares - total * total / count) * scale * scale, 0.0)
    return sqrt((PRIOR * 0.25 + spread) / (PRIOR + count))


@compiled
def plug_in_bets(pair: Pair, log_goal: float, pace: int = PACE) -> Bets:
    """Return the bets of one pair of columns, one path for every candidate; bet i uses the draws before i alone."""
    a, b, slopes, index, earlier = pair
    n = a.size
    y, stakes = np.empty(n), np.empty(n)
    count, sa, sb, saa, sab, sbb = earlier[0], earlier[1], earlier[2], earlier[3], earlier[4], earlier[5]
    stake, scale = 0.0, 1.0
    due, current = 0, index[0]
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
        stakes[i] = stake
        p, q = a[i], b[i]
        y[i] = min(max((p - c * q + c) * scale, 0.0), 1.0)
        count += 1.0
        sa += p
        sb += q
        saa += p * p
        sab += p * q
        sbb += q * q
    return Bets(y, stakes, index)


def earlier_moments(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the count of draws seen earlier and the sums of a, b, aa, ab, bb, aaa, aab, abb and bbb."""
    aa, bb = a * a, b * b
    third = [aa @ a, aa @ b, a @ bb, bb @ b]
    return np.array([a.size, a.sum(), b.sum(), aa.sum(), a @ b, bb.sum(), *third], dtype=np.float64)


@compiled
def rejects(bets: Bets, means: FloatArray, goal: float, last: float = inf) -> bool:
    """Return whether the wealth against a candidate ever reaches the goal, or ``last`` at the end.

    ``means[s]`` is the candidate's mean under slope s.
    """
    wealth = 1.0
    for i in range(bets.y.size):
        m = means[bets.slope_index[i]]
        wealth *= 1.0 + min(bets.stakes[i], CAP / m) * (bets.y[i] - m)
        if wealth >= goal:
            return True
        if wealth < LOST:
            return False
    return wealth >= last


class Candidates(NamedTuple):
    """Values of what a limit is of, each slope's mean rising in them: the means themselves, or margins."""

    values: FloatArray
    """Nodes, between which ``star`` cuts cells."""
    table: FloatArray
    """``means_of`` each node, ``[nodes, slopes]``."""
    means_of: Callable[[float], FloatArray]
    """Value -> its mean under each slope."""
    nothing: float
    """The limit where nothing is rejected: the first node if that is a limit without any proof, else -inf."""
    tolerance: float
    """How far below the exact limit bisection may stop."""


MEAN_NODES: FloatArray = np.linspace(0.0, 1.0, 2**18 + 1)
MEANS = Candidates(MEAN_NODES, MEAN_NODES[:, None], lambda m: np.array([m]), 0.0, 1e-10)
"""Candidate means of one slope; nodes are 4e-6 apart."""


def largest_rejected(
    bets: Bets, candidates: Candidates, low: float, high: float, goal: float, last: float = inf
) -> float:
    """Return the largest candidate of (low, high] that bisection finds rejected, rounded down, or ``low``.

    ``low`` is known to be rejected, or is ``candidates.nothing``. The bets are the same for every candidate, so the
    wealth falls in it and bisection is sound.
    """
    if rejects(bets, candidates.means_of(high), goal, last):
        return high
    if low == -inf:
        first = float(candidates.values[0])
        if not rejects(bets, candidates.means_of(first), goal, last):
            return low
        low = first
    while high - low > candidates.tolerance:
        middle = 0.5 * (low + high)
        if rejects(bets, candidates.means_of(middle), goal, last):
            low = middle
        else:
            high = middle
    return low


def path_limit(
    pair: Pair, candidates: Candidates, alpha: float, high: float, uniform: float = 1.0, *, coarse: bool = False
) -> float:
    """Return the end of the candidates that the one path of plug-in bets on a pair rejects; at most ``high``.

    **Guarantee.** As ``betting_lower``, for slopes and sums of the pair that use earlier draws alone. ``high`` may come
    from anywhere. ``coarse`` renews stakes less often, to save time.
    """
    goal = wealth_goal(alpha, pair.a.size)
    bets = plug_in_bets(pair, -log(alpha), COARSE_PACE if coarse else PACE)
    return largest_rejected(bets, candidates, candidates.nothing, high, goal, last_goal(goal, uniform))


def betting_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, uniform: float = 1.0) -> FloatArray:
    """Return the one-sided betting limit of the mean, with predictable plug-in bets.

    **Guarantee.** For draws in [low, high] whose conditional mean given the past is constant (i.i.d. draws are such),
    ``P(limit > mean) <= alpha``; one-sided. The bets aim at the n given, which is to be fixed beforehand; wealth
    counts at its running maximum (Ville's inequality). Rounded down, within 1e-9 of the exact limit for a range of
    unit size.

    The limit is the smallest m with ``max_t prod_{i<=t} (1 + min(lambda_i, .99/m) (X_i - m)) < 1/alpha``,
    ``lambda_i = sqrt(2 ln(1/alpha) / (n s2_{i-1}))`` (Waudby-Smith & Ramdas 2024, one side of their hedged capital),
    and no more than the sample mean. With ``uniform``, a number drawn uniformly from (0, 1] that has no part in the
    draws and is used for them alone, a wealth of ``uniform / alpha`` after the last draw rejects as well (T15a).

    >>> round(float(betting_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.834014
    """
    level = check_alpha(alpha)
    return limits_of_columns(
        x, low, high, lambda y: np.array([path_limit(plain(row), MEANS, level, 1.0, uniform) for row in y])
    )


def constant_stake_lower(x: ArrayLike, alpha: float, stake: float, low: float = 0.0, high: float = 1.0) -> float:
    """Return the lower limit of the average mean of draws ``[n]`` that need not have a common mean, by one fixed stake.

    **Guarantee.** For independent draws in [low, high] and a stake fixed before them, ``P(limit > m) <= alpha``, m the
    average of the n means; one-sided, fixed n. Rounded down by up to BISECTION_TOLERANCE of the range.

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
        below, above = 0.0, 1.0
        while above - below > MEANS.tolerance:
            m = 0.5 * (below + above)
            # Sums of logarithms are off by less than 1e-12 of their size (F7).
            logs = np.log1p(min(share, CAP / m) * (y - m))
            below, above = (m, above) if logs.sum() - 1e-12 * np.abs(logs).sum() >= goal else (below, m)
        return below

    return float(limits_of_columns(x, low, high, lambda y: np.array([largest(row) for row in y])))
