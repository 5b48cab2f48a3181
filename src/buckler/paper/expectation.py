"""What a method would certify on average: from each input's known probability, without drawing anything.

Votes for class A out of n are binomial. With all other votes in one runner-up class, the outcome is (x, n - x), the
limit of the margin rises with x, and the chance that it reaches a margin is one binomial tail.
"""

from bisect import bisect_left
from functools import cache

import numpy as np
from scipy.special import betainc

from buckler.certify.discrete import margin_lower
from buckler.errors import InvalidInput, check_float_array
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind


def votes_needed(
    margins: ArrayLike, n: int, *, alpha: float, margin: MarginKind, method: str, num_classes: int
) -> IntArray:
    """Return for each margin the smallest x such that the limit at (x, n - x) reaches it, or ``n + 1``.

    >>> votes_needed([0.5, 3.0, 3.5], 100, alpha=1e-3, margin="quantile", method="top_class", num_classes=10)
    array([ 76, 100, 101])
    """

    @cache  # neighbouring margins share most of the way
    def limit(x: int) -> float:
        return float(margin_lower(x, n - x, n, alpha=alpha, margin=margin, method=method, num_classes=num_classes))

    goals = np.atleast_1d(check_float_array("margins", margins)).tolist()
    return np.array([bisect_left(range(n + 1), goal, key=limit) for goal in goals], dtype=np.int64)


def expected_accuracy(
    p: ArrayLike,
    margins: ArrayLike,
    n: int,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    method: str = "exact",
    num_classes: int,
) -> FloatArray:
    """Return the expected share of inputs certified to at least each margin by n votes, ``p`` being each one's p_A.

    Exact for the ``p`` given and the worst split of the other votes: all of them in one class. An input whose class A
    is not the true one has p = 0. A forecast, not a certificate.

    >>> expected_accuracy([0.99, 0.9, 0.0], [1.0, 3.0], 100, method="top_class", num_classes=10).round(3)
    array([0.66 , 0.122])
    """
    truth = check_float_array("p", p)
    if truth.ndim != 1 or truth.min() < 0.0 or truth.max() > 1.0:
        raise InvalidInput(f"p must hold probabilities, one an input; got shape {truth.shape}")
    x = votes_needed(margins, n, alpha=alpha, margin=margin, method=method, num_classes=num_classes)
    inside = np.clip(x, 1, n)[:, None]
    tail = np.where(x[:, None] > n, 0.0, betainc(inside, n - inside + 1.0, truth))
    return np.asarray(np.where(x <= 0, 1.0, tail.mean(axis=1)), dtype=np.float64)
