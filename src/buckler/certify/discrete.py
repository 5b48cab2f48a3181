"""Counts -> a lower limit of the margin.

Votes of n noisy copies are multinomial. By T2 (the smallest of limits that each hold at level alpha holds at level
alpha) and because every limit here falls as the other count rises, only ``(top, runner_up, n)`` matter: the count of
the certified class A and the largest count among the other classes. A must not depend on these counts.
"""

from typing import get_args

import numpy as np

from buckler.certify.method import Method, Votes
from buckler.certify.registry import find
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole_array
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind


def margin_lower(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    method: str = "exact",
    num_classes: int | None = None,
) -> FloatArray:
    """Return lower limits of the margin; arrays broadcast, and a limit may be negative or -inf.

    **Guarantee.** For a class A fixed beforehand and X multinomial with fixed n:
    ``P(margin_lower(X_A, max_j X_j, n) > margin) <= alpha``, one-sided, rounded down.

    - ``"exact"``: Buehler's limit under the likelihood-ratio ordering, the tightest here; nowhere found below
      Bonferroni, and ``top_class`` itself when ``num_classes`` is 2.
    - ``"bonferroni"``: Clopper-Pearson at alpha/2 below for A, at alpha/2 above for the runner-up.
    - ``"bonferroni_all"``: Clopper-Pearson at alpha/m for each of the m classes (Algorithm 3 of the paper); needs
      ``num_classes``.
    - ``"top_class"``: Clopper-Pearson at alpha for A, and ``p_j <= 1 - p_A`` (Cohen, Rosenfeld and Kolter 2019).
    - ``"published"``: the paper's Algorithms 4 and 6 as printed; **no guarantee** (see ``paper.discrete``).

    >>> margin_lower([100, 90], [0, 5], 100).round(4)
    array([3.0009, 1.8669])
    >>> margin_lower([100, 90], [0, 5], 100, method="bonferroni").round(4)
    array([2.9048, 1.7061])
    """
    x1, x2, draws = check_votes(top, runner_up, n)
    level = check_alpha(alpha)
    check_choice("margin", margin, get_args(MarginKind))
    rule = find(method, "votes")
    return limits_by(rule, Votes(x1, x2, draws, num_classes), level, margin)


def limits_by(method: Method, votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the limits that a method which reads votes gives, one an entry; arguments are trusted."""
    method.check_margin(margin)
    return np.asarray(method.limit(votes, alpha, margin), dtype=np.float64)


def check_votes(top: ArrayLike, runner_up: ArrayLike, n: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
    """Return the three, broadcast; votes must be whole, not negative, and no more than there are draws."""
    try:
        x1, x2, draws = np.broadcast_arrays(
            check_whole_array("top", top), check_whole_array("runner_up", runner_up), check_whole_array("n", n, low=1)
        )
    except ValueError as mismatch:
        if isinstance(mismatch, InvalidInput):
            raise
        raise InvalidInput(f"top, runner_up and n must broadcast together; got {mismatch}") from None
    over = x1 + x2 > draws
    if over.any():
        raise InvalidInput(
            f"top + runner_up must be at most n; got {x1[over].flat[0]} + {x2[over].flat[0]} > {draws[over].flat[0]}"
        )
    return x1, x2, draws
