"""Scores -> a lower limit of the margin between class A and all others.

``scores`` are simplex rows in draw order, ``[n, m]`` or ``[inputs, n, m]``, or a ``Scores`` record with kept columns.
Class A (``label``) must not depend on them.

Three ways to combine classes, each at total error alpha:

- ``pairwise``: a limit at level alpha for each rival j, and the smallest of them. The smallest is valid without any
  correction: it errs only if the limit of the one closest rival errs (T2).
- ``bonferroni``: a limit for each of the m class means at ``alpha/m``, as in the paper.
- ``margin_variable``: the limit of the mean of ``Z = X_A - max_j X_j``, as in the paper; first margin alone, since
  ``E Z`` is at most that margin, while no such inequality holds for the second.

**One choice, one alpha.** Each limit holds alone. Whoever looks at several methods, temperatures, maps or prefixes of
the same draws and keeps the best must give each of them ``budget.split(alpha, how_many)``, or choose on the selection
sample.
"""

from collections.abc import Callable, Mapping
from math import log
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtri

from buckler.bounds.betting import NO_EARLIER, Pair, betting_lower, plug_in_bets, wealth_goal
from buckler.bounds.bounded import SLACK, bernstein_lower, hoeffding_lower, sequence_lower
from buckler.bounds.star import MANY, smallest_lower, star_lower
from buckler.certify.budget import split
from buckler.certify.draws import draws_of
from buckler.certify.method import Draws, Method
from buckler.certify.registry import sound_method
from buckler.certify.tangents import (
    SLOPES,
    TOP,
    best_slopes,
    cells_limit,
    estimate,
    margin_from_height,
    path_limit,
    predictable_slopes,
)
from buckler.errors import InvalidInput, check_alpha, check_choice
from buckler.records import Scores
from buckler.types import ArrayLike, Combine, FloatArray, Limit, MarginKind

Slope = Literal["adaptive", "selection", "one"]
LIMITS: dict[str, Callable[[FloatArray, float, float, float], FloatArray]] = {
    "star": star_lower,
    "betting": betting_lower,
    "sequence": sequence_lower,
    "bernstein": bernstein_lower,
    "hoeffding": hoeffding_lower,
}
BETS = ("star", "betting")


def _first(given: Draws, alpha: float, limit: Limit) -> float:
    a, rivals, earlier = given[:3]
    means = rivals.mean(axis=1)
    if limit in BETS:
        order = np.argsort(-means, kind="stable")
        end = smallest_lower(a, rivals, earlier, alpha, order, star=limit == "star")
        return max(-1.0, min(2.0 * end - 1.0 - SLACK, float(a.mean() - means.max()) - SLACK))
    return float(LIMITS[limit](np.clip(a - rivals, -1.0, 1.0).T, alpha, -1.0, 1.0).min()) - SLACK


def _second(given: Draws, alpha: float, limit: Limit, slope: Slope) -> float:
    a, rivals, earlier = given[:3]
    ceilings = estimate(a, rivals)
    smallest = min(TOP, float(ceilings.min()))
    if smallest <= 0.0:
        return -np.inf
    if limit not in BETS:
        chosen = SLOPES[best_slopes(earlier, a.size, alpha)] if slope == "selection" else np.ones(len(rivals))
        for c in np.unique(chosen):
            draws = np.clip(a - c * rivals[chosen == c], -c, 1.0).T
            mean = LIMITS[limit](draws, alpha, -float(c), 1.0).min() - SLACK * (1.0 + c)
            smallest = min(smallest, float(margin_from_height(float(mean), float(c))))
        return smallest
    n, goal = a.size, wealth_goal(alpha, a.size)
    if slope == "adaptive":
        index = predictable_slopes(a, rivals, earlier, alpha)
    else:
        fixed = best_slopes(earlier, n, alpha) if slope == "selection" else np.zeros(len(rivals), dtype=np.int64)
        index = np.ascontiguousarray(np.broadcast_to(fixed[:, None], rivals.shape))
    for j in np.argsort(ceilings, kind="stable"):
        if limit == "star":
            smallest = cells_limit(a, rivals[j], index[j], earlier[j], alpha, smallest, coarse=len(rivals) > MANY)
        else:
            path = plug_in_bets(Pair(a, rivals[j], SLOPES, index[j], earlier[j]), -log(alpha))
            smallest = path_limit(path, goal, smallest)
        if smallest == -np.inf:
            break
    return smallest


def _bonferroni(given: Draws, alpha: float, margin: MarginKind, limit: Limit) -> float:
    a, rivals = given[:2]
    part = split(alpha, len(rivals) + 1)
    low = float(LIMITS[limit](a, part, 0.0, 1.0))
    # An upper limit of a mean is one minus the lower limit of the mean of one minus the variable.
    high = 1.0 - float(LIMITS[limit]((1.0 - rivals).T, part, 0.0, 1.0).min()) + SLACK
    if margin == "probability":
        return max(-1.0, low - high - SLACK)
    if low <= 0.0 or high >= 1.0:
        return -np.inf
    gap = float(ndtri(low) - ndtri(high))
    return gap - 1e-13 * (1.0 + abs(float(ndtri(low))) + abs(float(ndtri(high))))


def limit_of(
    combine: Combine, limit: Limit, given: Draws, alpha: float, margin: MarginKind, slope: Slope = "adaptive"
) -> float:
    """Return the limit of one input's margin by one of our methods; arguments are trusted, see ``margin_lower``."""
    if limit == "bernstein" and given.a.size < 2:
        raise InvalidInput("scores must hold at least 2 draws for limit 'bernstein'; got 1")
    if combine == "bonferroni":
        return _bonferroni(given, alpha, margin, limit)
    if combine == "margin_variable":
        strongest = given.rivals.max(axis=0)[None, :]
        return _first(Draws(given.a, strongest, np.zeros((1, NO_EARLIER.size)), 2), alpha, limit)
    if margin == "probability":
        return _first(given, alpha, limit)
    return _second(given, alpha, limit, slope)


def margin_lower(
    scores: ArrayLike | Scores,
    label: ArrayLike,
    alpha: float = 1e-3,
    margin: MarginKind = "probability",
    combine: Combine = "pairwise",
    limit: Limit = "star",
    selection: ArrayLike | Scores | None = None,
    *,
    slope: Slope = "adaptive",
) -> FloatArray:
    """Return a lower limit of the margin of class ``label``: a scalar array, or one number for each input.

    **Guarantee.** For independent, identically distributed rows, and a label, options and selection sample that do
    not depend on them, ``P(limit > margin) <= alpha`` for each input; one-sided, fixed n, rounded down. May be
    negative; -inf where nothing is proved.

    First margin: the limit of ``E[X_A - X_j]``. Second margin: through tangents of slope c (see ``tangents``), c
    being ``adaptive`` (renewed step by step from the draws before, and from the selection sample if there is one;
    for the betting limits), ``selection`` (fixed by the selection sample) or ``one``. Limits in closed form use the
    selection sample's slope if there is one, else c = 1.
    The selection sample also gives the bets their first mean and variance.

    >>> rows = np.tile([[0.9, 0.08, 0.02], [0.7, 0.2, 0.1]], (50, 1))
    >>> round(float(margin_lower(rows, 0)), 4), round(float(margin_lower(rows, 0, margin="quantile")), 4)
    (0.5381, 1.4725)
    """
    check_choice("combine", combine, get_args(Combine))
    check_choice("limit", limit, get_args(Limit))
    method = sound_method(f"{combine}/{limit}")
    return limits_by(method, scores, label, alpha, margin, selection, options_of(method, slope, selection))


def options_of(method: Method, slope: Slope, selection: ArrayLike | Scores | None) -> dict[str, Slope]:
    """Return the options for a method, refusing a slope that it cannot use or that wants for a selection sample."""
    check_choice("slope", slope, get_args(Slope))
    if "slope" not in method.options:
        if slope != "adaptive":
            raise InvalidInput(f"slope serves pairwise methods alone; got slope {slope!r} with method {method.name!r}")
        return {}
    bets = method.parameters["limit"] in BETS
    if slope == "selection" and selection is None:
        raise InvalidInput("slope 'selection' needs a selection sample; got selection None")
    return {"slope": "selection" if slope == "adaptive" and selection is not None and not bets else slope}


def limits_by(
    method: Method,
    scores: ArrayLike | Scores,
    label: ArrayLike,
    alpha: float,
    margin: MarginKind,
    selection: ArrayLike | Scores | None,
    options: Mapping[str, object],
) -> FloatArray:
    """Return the limits that a method which reads scores gives: a scalar array, or one number for each input."""
    level = check_alpha(alpha)
    check_choice("margin", margin, get_args(MarginKind))
    method.check_margin(margin)
    found = [float(method.limit(given, level, margin, **options)) for given in draws_of(scores, label, selection)]
    single = not isinstance(scores, Scores) and np.ndim(scores) == 2
    return np.asarray(found[0] if single else found, dtype=np.float64)
