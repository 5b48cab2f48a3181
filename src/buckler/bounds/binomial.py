"""Binomial proportions: Clopper-Pearson limits, rounded outward, and sign tests of two classes.

**Limits.** SciPy's inverse of the incomplete beta function lies on the wrong side of the exact limit about half of the
time, so it serves only as a guess here: the guess is moved outward until the *forward* tail probability, whose relative
error is below 5e-12, is at most ``alpha (1 - ALPHA_SLACK)`` (F5).

**Sign tests** of "class j has no larger probability than class A", any-time by e-values and at a fixed n (T21). A draw
is ``Y = X_j - X_A``: +1, -1 or 0. If ``E[Y] <= 0``, each factor ``1 + stake Y`` has mean at most one, so products over
draws, and averages of products over fixed stakes, are supermartingales (T12). Draws that vote for neither class do not
count.
"""

import numpy as np
from scipy.special import betainc, betaincc, betainccinv, betaincinv

from buckler.errors import InvalidInput, check_alpha, check_whole_array
from buckler.types import ArrayLike, FloatArray, IntArray

ALPHA_SLACK = 1e-9
"""Share by which limits here lower alpha, to pay for floating error.

The one inexact step is the tail probability that SciPy computes. Its relative error is assumed to be at most this, 200
times the 4.2e-12 seen against ball arithmetic for n up to 1e6 and alpha down to 1e-12 (SciPy 1.17).
"""

_EPS = np.finfo(np.float64).eps


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """Return the lower limit of a probability p after ``k`` successes in ``n`` draws; k and n broadcast.

    **Guarantee.** For X ~ Binomial(n, p), fixed n: ``P(lower(X) > p) <= alpha``, one-sided. Rounded down.

    The limit is the p at which ``P(Binomial(n, p) >= k) = alpha`` (Clopper and Pearson 1934), the alpha-quantile of
    Beta(k, n - k + 1); it is 0 at k = 0 and ``alpha^(1/n)`` at k = n.

    >>> clopper_pearson_lower([0, 99, 100], 100, 0.001)
    array([0.        , 0.91137311, 0.9332543 ])
    """
    successes, draws, where, level = _validated(k, n, alpha)
    lower = np.zeros(successes.shape)
    every = successes == draws
    exponent = np.log(level) / draws[every]
    lower[every] = np.exp(exponent) * (1.0 - _exponential_error(exponent))
    inner = (successes > 0) & ~every
    a, b = successes[inner].astype(np.float64), (draws - successes)[inner] + 1.0
    target = level * (1.0 - ALPHA_SLACK)
    guess = np.asarray(betaincinv(a, b, target), dtype=np.float64)
    step = _EPS
    limit = guess
    while (over := betainc(a, b, limit) > target).any():
        limit = np.where(over, guess * max(0.0, 1.0 - step), limit)
        step *= 2.0
    lower[inner] = limit
    return np.asarray(lower[where])


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """Return the upper limit of a probability p after ``k`` successes in ``n`` draws; k and n broadcast.

    **Guarantee.** For X ~ Binomial(n, p), fixed n: ``P(upper(X) < p) <= alpha``, one-sided. Rounded up.

    The limit is the p at which ``P(Binomial(n, p) <= k) = alpha``: ``1 - alpha^(1/n)`` at k = 0 and 1 at k = n. It is
    found from its own tail, not as one minus the lower limit of the failures, so small limits keep their digits.

    >>> clopper_pearson_upper([0, 1, 100], 100, 0.001)
    array([0.0667457 , 0.08862689, 1.        ])
    """
    successes, draws, where, level = _validated(k, n, alpha)
    upper = np.ones(successes.shape)
    none = successes == 0
    exponent = np.log(level) / draws[none]
    upper[none] = np.minimum(1.0, -np.expm1(exponent) * (1.0 + _exponential_error(exponent)))
    inner = (successes < draws) & ~none
    a, b = successes[inner] + 1.0, (draws - successes)[inner].astype(np.float64)
    target = level * (1.0 - ALPHA_SLACK)
    guess = np.asarray(betainccinv(a, b, target), dtype=np.float64)
    step = _EPS
    limit = guess
    while (over := betaincc(a, b, limit) > target).any():
        limit = np.where(over, np.minimum(1.0, guess * (1.0 + step)), limit)
        step *= 2.0
    upper[inner] = limit
    return np.asarray(upper[where])


def _exponential_error(exponent: FloatArray) -> FloatArray:
    """Return a bound of the relative error of ``exp`` or ``expm1`` of an exponent that is off by two roundings."""
    return 4.0 * _EPS * (1.0 + np.abs(exponent))


def _validated(k: ArrayLike, n: ArrayLike, alpha: float) -> tuple[IntArray, IntArray, IntArray, float]:
    """Return the distinct pairs (k, n) as two arrays, the index of each entry's pair in them, and the checked alpha."""
    successes, draws = np.broadcast_arrays(check_whole_array("k", k), check_whole_array("n", n, low=1))
    if (successes > draws).any():
        raise InvalidInput(f"k must be at most n; got k = {successes[successes > draws].flat[0]}")
    pairs, where = distinct_rows(successes, draws)
    return pairs[:, 0], pairs[:, 1], where, check_alpha(alpha)


def distinct_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct tuples of entries that stand at one place of several arrays, and each place's tuple.

    The arrays have one shape and hold whole numbers of at least 0. Tuples come as rows, in rising order, and each
    place's tuple as the index of its row, an array of that shape.

    >>> rows, where = distinct_rows(np.array([3, 1, 3]), np.array([5, 5, 5]))
    >>> rows.tolist(), where.tolist()
    ([[1, 5], [3, 5]], [1, 0, 1])
    """
    rows = np.stack([column.ravel() for column in columns], axis=1)
    base = int(rows.max(initial=0)) + 1
    if base ** len(columns) < 2**63:  # one number for each row: a million are sorted in a tenth of a second
        keys = rows @ base ** np.arange(len(columns) - 1, -1, -1)
        _, first, where = np.unique(keys, return_index=True, return_inverse=True)
        return rows[first], where.reshape(columns[0].shape)
    found, where = np.unique(rows, axis=0, return_inverse=True)
    return found, where.reshape(columns[0].shape)


STAKES: FloatArray = np.array([0.95 * 2.0 ** (-0.5 * k) for k in range(16)])
"""Stakes, from 0.95 to 0.005 of the wealth, over which ``log_wealth_of_votes`` averages: if j has a share theta of the
votes for j or A, the best stake is ``2 theta - 1``. Heuristic: affects power, not validity."""

WEALTH_ROUNDING = 1e-14
"""Share by which the logarithm of each factor of an e-value is lowered, for the rounding of counts times it (F8)."""

SMALLEST_P_VALUE = 1e-200
"""Lower clamp of a p-value: SciPy returns 0 once ``2^-n`` underflows, where the true one may be 4e-254 (n = 1,075)."""


def _log_factors(y: float) -> FloatArray:
    logs = np.log1p(STAKES * y)
    return np.asarray(logs - WEALTH_ROUNDING * np.abs(logs) - 1e-16, dtype=np.float64)


_WIN, _LOSS = _log_factors(1.0), _log_factors(-1.0)


def _average(terms: FloatArray) -> FloatArray:
    """Return a lower bound of the logarithm of the mean over stakes, in the last axis, of ``exp(terms)``."""
    peak = terms.max(axis=-1)
    mean = peak + np.log(np.exp(terms - peak[..., None]).mean(axis=-1))
    return np.asarray(mean - 1e-12 * (1.0 + np.abs(peak)), dtype=np.float64)


def log_wealth_of_votes(wins: ArrayLike, losses: ArrayLike) -> FloatArray:
    """Return the log e-value, rounded down, of ``wins`` votes for a class j and ``losses`` for a class A.

    **Guarantee.** If a draw votes for j with a probability ``p_j <= p_A``, then ``P(the value ever reaches
    ln(1/alpha)) <= alpha``, for every alpha at once: any-time, one-sided, for independent draws, whatever the stopping
    rule; j and A are fixed before the draws. The value rises with wins where wins + losses stay the same.

    >>> print(log_wealth_of_votes([18, 600], [2, 450]).round(4))
    [4.8172 8.4753]
    """
    x, y = check_whole_array("wins", wins), check_whole_array("losses", losses)
    if (x < 0).any() or (y < 0).any():
        raise InvalidInput(f"wins and losses must be at least 0; got {min(x.min(), y.min())}")
    return _average(x[..., None] * _WIN + y[..., None] * _LOSS)


def tail_of_votes(wins: ArrayLike, losses: ArrayLike) -> FloatArray:
    """Return the p-value of ``wins`` votes for a class j, ``losses`` for a class A, against "j is no likelier than A".

    **Guarantee.** If a draw votes for j with a probability ``p_j <= p_A``, the p-value is at most alpha with
    probability at most alpha, at one number of draws fixed beforehand: it is ``P(Bin(wins + losses, 1/2) >= wins)``,
    rounded up, and given how many draws vote for either class, the wins are binomial with a share of at most one half
    (T21, F5).

    >>> print(tail_of_votes([18, 0], [2, 5]).round(6))
    [2.01e-04 1.00e+00]
    """
    x, y = check_whole_array("wins", wins), check_whole_array("losses", losses)
    tail = betainc(np.maximum(x, 1), y + 1.0, 0.5) * (1.0 + ALPHA_SLACK)
    return np.asarray(np.where(x > 0, np.clip(tail, SMALLEST_P_VALUE, 1.0), 1.0), dtype=np.float64)
