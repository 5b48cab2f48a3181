"""Lower limits of the mean of a bounded variable in closed form: Hoeffding, empirical Bernstein, predictable plug-in.

Draws are one column ``[n]`` or several ``[n, columns]``, each with a limit of its own (T13). Sums run along contiguous
memory, where NumPy adds pairwise, so that ``LIMIT_SLACK`` pays for their rounding for any n up to 1e9 (F7).
"""

from collections.abc import Callable
from math import inf, log, log1p, sqrt

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.bounds.trinomial import ROUNDOFF
from buckler.errors import InvalidInput, check_alpha, check_float_array, check_real
from buckler.types import ArrayLike, FloatArray

LIMIT_SLACK = 2e-14
"""Subtracted from every limit against rounding, in units of the larger of ``|low|`` and ``|high|``: 180 roundoffs
(F7)."""

NARROWEST = 1e-300
"""Smallest width of a range: in narrower ones ``LIMIT_SLACK`` would underflow."""


def check_draws(x: ArrayLike, low: object, high: object, least: int = 1) -> tuple[FloatArray, float, float]:
    """Return draws ``x``, ``[n]`` or ``[n, columns]``, as a contiguous ``[columns, n]``, with ``low`` and ``high``.

    Raise InvalidInput unless every draw lies in [low, high], ``high - low`` is at least NARROWEST and finite, and n is
    at least ``least``.
    """
    left, right = check_real("low", low), check_real("high", high)
    if not NARROWEST <= right - left < inf:
        raise InvalidInput(f"low must be below high, by {NARROWEST:g} to 1.7e+308; got low {left} and high {right}")
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
    """Return the lower limit of each column's mean, rounded down, for draws ``x``, ``[n]`` or ``[n, columns]``.

    ``find`` takes the draws scaled to [0, 1], ``[columns, n]``, and returns a limit for each column, which is scaled
    back. A limit above the sample mean, as a running maximum over prefixes may be, would be of no use and is lowered to
    it; one below ``low``, below which no mean is, is raised to that. n must be at least ``least``.
    """
    draws, left, right = check_draws(x, low, high, least)
    ends = find(np.clip((draws - left) / (right - left), 0.0, 1.0))
    limits = np.minimum(left + (right - left) * ends, draws.mean(axis=1)) - LIMIT_SLACK * max(abs(left), abs(right))
    return np.asarray(np.maximum(limits, left).reshape(np.shape(x)[1:]), dtype=np.float64)


def hoeffding_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return Hoeffding's lower limit of the mean of each column of draws ``x``, ``[n]`` or ``[n, columns]``.

    **Guarantee.** For independent draws in [low, high] with a common mean, ``P(limit > mean) <= alpha``; one-sided,
    fixed n. Rounded down.

    ``mean - (high - low) sqrt(ln(1/alpha) / (2 n))`` (Hoeffding 1963, theorem 2).

    >>> round(float(hoeffding_lower(np.full(100, 0.9), 0.001)), 6)
    0.714154
    """
    price = -log(check_alpha(alpha))
    return limits_of_columns(x, low, high, lambda y: y.mean(axis=1) - sqrt(price / (2 * y.shape[1])) * (1.0 + 1e-14))


def bernstein_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the empirical Bernstein lower limit of each column's mean, for draws ``x``, ``[n]`` or ``[n, columns]``.

    **Guarantee.** For independent, identically distributed draws in [low, high], ``P(limit > mean) <= alpha``;
    one-sided, fixed n. Rounded down.

    ``mean - sqrt(2 V ln(2/alpha) / n) - 7 (high - low) ln(2/alpha) / (3 (n - 1))``, V the unbiased sample variance
    (Maurer & Pontil 2009, theorem 4, whose logarithm is of ``2/alpha``: one half pays for the variance); n at least 2.

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


@compiled
def _psi(bet: float) -> float:
    """Return ``(-ln(1 - bet) - bet) / 4``, rounded up; a power series for small bets, where the difference cancels."""
    if bet > 0.05:
        return 0.25 * (-log1p(-bet) - bet) * (1.0 + 1e-13)
    tail = 0.0
    for k in range(14, 1, -1):
        tail = tail * bet + 1.0 / k
    return 0.25 * tail * bet * bet * (1.0 + 1e-13)


@compiled
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
        costs += 4.0 * (x - total / i) ** 2 * _psi(bet)
        largest = max(largest, (wins - costs - 2.0 * (i + 9) * ROUNDOFF * (wins + costs)) / bets)
        total += x
        squares += (x - total / (i + 1)) ** 2
    return largest


def sequence_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the predictable plug-in empirical-Bernstein limit of each column's mean, for ``[n]`` or ``[n, columns]``.

    It is the largest of the lower limits after each draw, but no more than the sample mean.

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
    return limits_of_columns(x, low, high, lambda y: np.array([_sequence(row, log_goal) for row in y]))
