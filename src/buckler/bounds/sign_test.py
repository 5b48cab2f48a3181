"""Sign tests of "class j has no larger probability than class A": any-time by e-values, and at a fixed n (T21).

A draw is ``Y = X_j - X_A``: +1, -1 or 0. If ``E[Y] <= 0``, each factor ``1 + stake Y`` has mean at most one, so
products over draws, and averages of products over fixed stakes, are supermartingales (T12). Draws that vote for neither
class do not count.
"""

import numpy as np
from scipy.special import betainc

from buckler.bounds.binomial import SLACK
from buckler.errors import InvalidInput, check_whole_array
from buckler.types import ArrayLike, FloatArray

STAKES: FloatArray = np.array([0.95 * 2.0 ** (-0.5 * k) for k in range(16)])
"""From 0.95 to 0.005; the best stake is ``2 theta - 1`` if j has a share theta of the votes for j or A. Heuristic:
affects power, not validity."""

ROUNDING = 1e-14
"""Each logarithm is low by this share of itself, which covers a sum of counts times logarithms (F8)."""

SMALLEST = 1e-200
"""Lower clamp of the p-value: SciPy's tail is 0 once ``2^-n`` is, where the true one may be 4e-254 (n = 1,075)."""


def _log_factors(y: float) -> FloatArray:
    logs = np.log1p(STAKES * y)
    return np.asarray(logs - ROUNDING * np.abs(logs) - 1e-16, dtype=np.float64)


_WIN, _LOSS = _log_factors(1.0), _log_factors(-1.0)


def _average(terms: FloatArray) -> FloatArray:
    """Return a lower bound of the logarithm of the mean over stakes, in the last axis, of ``exp(terms)``."""
    peak = terms.max(axis=-1)
    mean = peak + np.log(np.exp(terms - peak[..., None]).mean(axis=-1))
    return np.asarray(mean - 1e-12 * (1.0 + np.abs(peak)), dtype=np.float64)


def log_wealth_of_votes(wins: ArrayLike, losses: ArrayLike) -> FloatArray:
    """Return a lower bound of the logarithm of the e-value of ``wins`` votes for j and ``losses`` for A.

    **Guarantee.** If ``p_j <= p_A``, then ``P(the value ever reaches ln(1/alpha)) <= alpha``, for every alpha at once:
    any-time, one-sided, for independent draws, whatever the stopping rule; j and A are fixed before the draws.
    Rises with wins, falls with losses at a fixed sum.

    >>> print(log_wealth_of_votes([18, 600], [2, 450]).round(4))
    [4.8172 8.4753]
    """
    x, y = check_whole_array("wins", wins), check_whole_array("losses", losses)
    if (x < 0).any() or (y < 0).any():
        raise InvalidInput("wins and losses must be numbers of votes, at least 0")
    return _average(x[..., None] * _WIN + y[..., None] * _LOSS)


def tail_of_votes(wins: ArrayLike, losses: ArrayLike) -> FloatArray:
    """Return an upper bound of ``P(Bin(wins + losses, 1/2) >= wins)``, for a number of draws fixed beforehand.

    **Guarantee.** If ``p_j <= p_A``, it is at most alpha with probability at most alpha, at that one number of draws:
    given how many draws vote for either class, the wins are binomial with a share of at most one half (T21, F5).

    >>> print(tail_of_votes([18, 0], [2, 5]).round(6))
    [2.01e-04 1.00e+00]
    """
    x, y = check_whole_array("wins", wins), check_whole_array("losses", losses)
    tail = betainc(np.maximum(x, 1), y + 1.0, 0.5) * (1.0 + SLACK)
    return np.asarray(np.where(x > 0, np.clip(tail, SMALLEST, 1.0), 1.0), dtype=np.float64)
