"""Lower limits of the mean of a bounded variable in closed form: Hoeffding, empirical Bernstein, predictable plug-in.

The draws are one column ``[n]`` or several ``[n, columns]``, each with a limit of its own (T13). Sums run along
contiguous memory, where NumPy adds pairwise: their relative error stays below 40 units of roundoff for any n up to 1e9,
and ``SLACK`` pays for that and for the few operations after it (F7).
"""

from math import inf, log, log1p, sqrt
from typing import Any

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.errors import InvalidInput, check_alpha, check_float_array, check_real
from buckler.types import ArrayLike, FloatArray

SLACK = 2e-14
"""Subtracted from every limit, in units of the largest magnitude of the range: 90 units of roundoff."""

ROUNDOFF = 2.0**-53


def check_range(low: object, high: object) -> tuple[float, float]:
    """Return the ends of a range with ``low < high``."""
    left, right = check_real("low", low), check_real("high", high)
    if not left < right:
        raise InvalidInput(f"low must be below high; got low {left} and high {right}")
    return left, right


def check_draws(x: ArrayLike, low: float, high: float, least: int = 1) -> FloatArray:
    """Return draws as contiguous ``[columns, n]`` with every value in [low, high] and n of at least ``least``."""
    array = check_float_array("x", x)
    if array.ndim not in {1, 2} or 0 in array.shape:
        raise InvalidInput(f"x must have shape [n] or [n, columns] with at least one draw; got shape {array.shape}")
    if array.shape[0] < least:
        raise InvalidInput(f"x must hold at least {least} draws for this limit; got {array.shape[0]}")
    if array.min() < low or array.max() > high:
        where = tuple(int(i) for i in np.argwhere((array < low) | (array > high))[0])
        raise InvalidInput(f"x must lie in [{low}, {high}]; got {array[where]} at draw {where[0]}")
    return np.ascontiguousarray(array.reshape(array.shape[0], -1).T)


def settle(limits: FloatArray, draws: FloatArray, low: float, high: float, shape: tuple[int, ...]) -> FloatArray:
    """Return limits of the columns of ``draws`` lowered to the sample mean, raised to ``low``, in the caller's shape.

    Lowering a lower limit keeps it valid, and a running maximum over prefixes can pass the mean of all draws, which
    would be of no use; the mean is never below ``low``, so raising to it costs nothing.
    """
    scale = max(abs(low), abs(high))
    ceiling = draws.mean(axis=1) - SLACK * scale
    return np.asarray(np.maximum(np.minimum(limits, ceiling), low).reshape(shape[1:]), dtype=np.float64)


def hoeffding_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return Hoeffding's lower limit of the mean.

    **Guarantee.** For independent draws in [low, high] with a common mean, ``P(limit > mean) <= alpha``; one-sided,
    fixed n. Rounded down.

    ``mean - (high - low) sqrt(ln(1/alpha) / (2 n))`` (Hoeffding 1963, theorem 2).

    >>> round(float(hoeffding_lower(np.full(100, 0.9), 0.001)), 6)
    0.714154
    """
    left, right = check_range(low, high)
    alpha = check_alpha(alpha)
    draws = check_draws(x, left, right)
    scale = max(abs(left), abs(right))
    width = (right - left) * sqrt(-log(alpha) / (2 * draws.shape[1]))
    limits = draws.mean(axis=1) - width * (1.0 + 1e-14) - SLACK * scale
    return settle(limits, draws, left, right, np.shape(x))


def bernstein_lower(x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0) -> FloatArray:
    """Return the empirical Bernstein lower limit of the mean; needs two draws.

    **Guarantee.** For independent, identically distributed draws in [low, high], ``P(limit > mean) <= alpha``;
    one-sided, fixed n. Rounded down.

    ``mean - sqrt(2 V ln(2/alpha) / n) - 7 (high - low) ln(2/alpha) / (3 (n - 1))``, V the unbiased sample variance
    (Maurer & Pontil 2009, theorem 4, whose logarithm is of ``2/alpha``: one half pays for the variance).

    >>> round(float(bernstein_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.681668
    """
    left, right = check_range(low, high)
    alpha = check_alpha(alpha)
    draws = check_draws(x, left, right, least=2)
    n = draws.shape[1]
    scale = max(abs(left), abs(right))
    cost = (log(2.0) - log(alpha)) * (1.0 + 1e-15)
    # The two-pass variance errs by SLACK relative to itself and by the square of the mean's error.
    variance = draws.var(axis=1, ddof=1) * (1.0 + SLACK) + (SLACK * scale) ** 2
    width = np.sqrt(2.0 * variance * cost / n) + 7.0 * (right - left) * cost / (3.0 * (n - 1))
    return settle(draws.mean(axis=1) - width * (1.0 + 1e-14) - SLACK * scale, draws, left, right, np.shape(x))


def _psi(bet: float) -> float:
    """Return ``(-ln(1 - bet) - bet) / 4`` rounded up; the series where the difference would cancel."""
    if bet > 0.05:
        return 0.25 * (-log1p(-bet) - bet) * (1.0 + 1e-13)
    tail = 0.0
    for k in range(14, 1, -1):
        tail = tail * bet + 1.0 / k
    return 0.25 * tail * bet * bet * (1.0 + 1e-13)


_psi_compiled: Any = compiled(_psi)


def _sequence(y: FloatArray, log_goal: float) -> float:
    """Return the largest of the limits after each draw of one column in [0, 1].

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
    left, right = check_range(low, high)
    log_goal = -log(check_alpha(alpha)) * (1.0 + 1e-15)
    draws = check_draws(x, left, right)
    span = right - left
    best = np.array([_sequence_compiled(y, log_goal) for y in np.clip((draws - left) / span, 0.0, 1.0)])
    return settle(left + span * best - SLACK * max(abs(left), abs(right)), draws, left, right, np.shape(x))
