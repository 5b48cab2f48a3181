"""What a method would certify on average: from each input's known probability, without drawing anything.

Votes for class A out of n are binomial. With all other votes in one runner-up class, the outcome is (x, n - x), the
limit of the margin rises with x, and the chance that it reaches a margin is one binomial tail.
"""

import numpy as np
from scipy.special import betainc

from buckler.certify.discrete import margin_lower
from buckler.errors import InvalidInput, check_alpha, check_float_array, check_whole
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind


def votes_needed(
    margins: ArrayLike, n: int, *, alpha: float, margin: MarginKind, method: str, num_classes: int
) -> IntArray:
    """Return for each margin the smallest x such that the limit at (x, n - x) reaches it, or ``n + 1``.

    >>> votes_needed([0.5, 3.0, 3.5], 100, alpha=1e-3, margin="quantile", method="top_class", num_classes=10)
    array([ 76, 100, 101])
    """
    goals = np.atleast_1d(check_float_array("margins", margins))
    few, enough = np.full(goals.size, -1, dtype=np.int64), np.full(goals.size, n + 1, dtype=np.int64)
    while (enough - few > 1).any():
        # Each step looks once at each count it needs: neighbouring margins share most of the way.
        middle = np.where(enough - few > 1, (few + enough) // 2, few)
        counts, back = np.unique(np.maximum(middle, 0), return_inverse=True)
        limits = margin_lower(
            counts, n - counts, n, alpha=alpha, margin=margin, method=method, num_classes=num_classes
        )[back]
        reached = limits >= goals
        open_ = enough - few > 1
        enough, few = np.where(open_ & reached, middle, enough), np.where(open_ & ~reached, middle, few)
    return enough


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
    truth = np.atleast_1d(check_float_array("p", p))
    if truth.ndim != 1 or truth.min() < 0.0 or truth.max() > 1.0:
        raise InvalidInput(f"p must hold probabilities, one an input; got shape {truth.shape}")
    draws = check_whole("n", n, 1)
    x = votes_needed(
        margins, draws, alpha=check_alpha(alpha), margin=margin, method=method, num_classes=num_classes
    ).astype(np.float64)
    inside = np.clip(x, 1.0, draws)[:, None]
    tail = betainc(inside, draws - inside + 1.0, truth)
    tail = np.where(x[:, None] <= 0.0, 1.0, np.where(x[:, None] > draws, 0.0, tail))
    return np.asarray(tail.mean(axis=1), dtype=np.float64)
