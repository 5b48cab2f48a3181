"""Is a mean above zero? An any-time test for draws in [-1, 1]: two classes against one another, votes or scores (T21).

For one class against another a draw is ``Y = X_j - X_A``: +1, -1 or 0 for votes, any number between for scores. If
``E[Y] <= 0``, each factor ``1 + stake Y`` has mean at most one, so products over draws, and averages of products over
fixed stakes, are supermartingales (T12). Draws that vote for neither class do not count.
"""

import numpy as np
from scipy.special import betainc

from buckler.errors import InvalidInput, check_float_array, check_whole_array
from buckler.types import ArrayLike, FloatArray

STAKES: FloatArray = np.array([0.95 * 2.0 ** (-0.5 * k) for k in range(16)])
"""From 0.95 to 0.005; the best one for a share theta of the decisive votes is ``2 theta - 1``. Power, not validity."""

ROUNDING = 1e-14
"""Each logarithm is low by this share of itself, which covers a sum of counts times logarithms (F8)."""


def _log_factors(y: FloatArray) -> FloatArray:
    logs = np.log1p(STAKES * y[..., None])
    return np.asarray(logs - ROUNDING * np.abs(logs) - 1e-16, dtype=np.float64)


_WIN, _LOSS = _log_factors(np.array(1.0)), _log_factors(np.array(-1.0))


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
    tail = betainc(np.maximum(x, 1), y + 1.0, 0.5) * (1.0 + 1e-9)
    return np.asarray(np.where(x > 0, np.clip(tail, 1e-300, 1.0), 1.0), dtype=np.float64)


def log_wealth_of_scores(differences: ArrayLike) -> FloatArray:
    """Return a lower bound of the logarithm of the e-value after each of the draws ``X_j - X_A``, in draw order.

    **Guarantee.** As for votes, for draws in [-1, 1] with ``E[X_j - X_A] <= 0``.

    >>> print(log_wealth_of_scores([1.0, 1.0, -1.0]).round(4), log_wealth_of_votes(2, 1).round(4))
    [0.1839 0.4165 0.0062] 0.0062
    """
    y = check_float_array("differences", differences)
    if y.ndim != 1 or (np.abs(y) > 1.0).any():
        raise InvalidInput("differences must be numbers from -1 to 1, one a draw")
    logs = _log_factors(y)
    # A running sum of i terms is off by at most i u of the sum of their sizes.
    slack = 1.2e-16 * (1.0 + np.arange(len(y)))[:, None] * np.cumsum(np.abs(logs), axis=0)
    return _average(np.cumsum(logs, axis=0) - slack)
