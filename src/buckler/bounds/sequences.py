"""The predictable plug-in empirical-Bernstein sequence: a lower limit of a mean at every n at once (T13, F7)."""

from math import inf, log, log1p, sqrt
from typing import Any

import numpy as np

from buckler.bounds.bounded import SLACK, check_draws, check_range, settle
from buckler.bounds.compiled import compiled
from buckler.errors import check_alpha
from buckler.types import ArrayLike, FloatArray

ROUNDOFF = 2.0**-53


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
