"""Counts -> a lower limit of the margin.

Votes of n noisy copies are multinomial. By Lemma 1 (the smallest of limits that each hold at level alpha holds at level
alpha) and because every limit here falls as the other count rises, only ``(top, runner_up, n)`` matter: the count of
the certified class A and the largest count among the other classes. A must not depend on these counts.
"""

from typing import get_args

import numpy as np

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certify.budget import split
from buckler.certify.margins import margin_from_limits
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole, check_whole_array
from buckler.types import ArrayLike, DiscreteMethod, FloatArray, IntArray, MarginKind


def margin_lower(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    method: DiscreteMethod = "exact",
    num_classes: int | None = None,
    uniform: ArrayLike | None = None,
) -> FloatArray:
    """Return lower limits of the margin; arrays broadcast, and a limit may be negative or -inf.

    **Guarantee.** For a class A fixed beforehand and X multinomial with fixed n:
    ``P(margin_lower(X_A, max_j X_j, n) > margin) <= alpha``, one-sided.

    - ``"exact"``: Buehler's limit under the likelihood-ratio ordering, the tightest here; nowhere found below
      Bonferroni, and ``top_class`` itself when ``num_classes`` is 2. With ``uniform``, one independent draw on [0, 1)
      for each entry, ties between outcomes are broken at random and the level alpha is met exactly.
    - ``"bonferroni"``: Clopper-Pearson at alpha/2 below for A, at alpha/2 above for the runner-up.
    - ``"bonferroni_all"``: Clopper-Pearson at alpha/m for each of the m classes (Algorithm 3 of the paper); needs
      ``num_classes``.
    - ``"top_class"``: Clopper-Pearson at alpha for A, and ``p_j <= 1 - p_A`` (Cohen, Rosenfeld and Kolter 2019).
    - ``"published"``: the paper's Algorithms 4 and 6 as printed; **no guarantee**, may be +inf (see ``published``).

    >>> margin_lower([100, 90], [0, 5], 100).round(4)
    array([3.0009, 1.8669])
    >>> margin_lower([100, 90], [0, 5], 100, method="bonferroni").round(4)
    array([2.9048, 1.7061])
    """
    x1, x2, draws = _validated(top, runner_up, n)
    level = check_alpha(alpha)
    check_choice("margin", margin, get_args(MarginKind))
    check_choice("method", method, get_args(DiscreteMethod))
    if uniform is not None and method != "exact":
        raise InvalidInput(f"uniform serves the method 'exact' alone; got method {method!r}")
    if method == "exact":
        return _exact(x1, x2, draws, level, margin, num_classes, uniform)
    if method == "bonferroni":
        return _bonferroni(x1, x2, draws, split(level, 2), margin)
    if method == "bonferroni_all":
        if num_classes is None:
            raise InvalidInput("num_classes must be given for method 'bonferroni_all'; got None")
        return _bonferroni(x1, x2, draws, split(level, check_whole("num_classes", num_classes, 2)), margin)
    if method == "published":
        from buckler.certify.published.discrete import published_margin_lower

        return published_margin_lower(x1, x2, draws, alpha=level, margin=margin)
    return _top_class(x1, draws, level, margin)


def _exact(
    top: IntArray,
    runner_up: IntArray,
    n: IntArray,
    alpha: float,
    margin: MarginKind,
    num_classes: int | None,
    uniform: ArrayLike | None,
) -> FloatArray:
    from buckler.bounds.buehler import exact_margin_lower  # compiled code, loaded only where it is used

    if num_classes == 2 and uniform is None:
        # With two classes the truth lies on the binary edge, where Clopper-Pearson at alpha is the best limit there is.
        return _top_class(top, n, alpha, margin)
    return exact_margin_lower(top, runner_up, n, alpha, margin, uniform)


def _bonferroni(top: IntArray, runner_up: IntArray, n: IntArray, share: float, margin: MarginKind) -> FloatArray:
    return margin_from_limits(margin, clopper_pearson_lower(top, n, share), clopper_pearson_upper(runner_up, n, share))


def _top_class(top: IntArray, n: IntArray, alpha: float, margin: MarginKind) -> FloatArray:
    low = clopper_pearson_lower(top, n, alpha)
    return margin_from_limits(margin, low, np.nextafter(1.0 - low, 1.0))


def _validated(top: ArrayLike, runner_up: ArrayLike, n: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
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
