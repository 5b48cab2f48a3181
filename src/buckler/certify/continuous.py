"""Scores -> a lower limit of the margin between class A and all others.

``scores`` are simplex rows in draw order, ``[n, m]`` or ``[inputs, n, m]``, or a ``Scores`` record with kept columns.
Class A (``label``) must not depend on them.

Three ways to combine classes, each at total error alpha:

- ``pairwise``: a limit at level alpha for each rival j, and the smallest of them. The smallest is valid without any
  correction: it errs only if the limit of the one closest rival errs (intersection-union).
- ``bonferroni``: a limit for each of the m class means at ``alpha/m``, as in the paper.
- ``margin_variable``: the limit of the mean of ``Z = X_A - max_j X_j``, as in the paper; first margin alone, since
  ``E Z`` is at most that margin, while no such inequality holds for the second.

**One choice, one alpha.** Each limit holds alone. Whoever looks at several methods, temperatures, maps or prefixes of
the same draws and keeps the best must give each of them ``budget.split(alpha, how_many)``, or choose on the selection
sample.
"""

from collections.abc import Callable, Iterator
from math import log
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import ndtri

from buckler.bounds.bets import NO_EARLIER, Pair, earlier_moments, plan
from buckler.bounds.betting import MANY, betting_lower, smallest_lower, star_lower, wealth_goal
from buckler.bounds.bounded import SLACK, bernstein_lower, hoeffding_lower
from buckler.bounds.sequences import sequence_lower
from buckler.certify.budget import split
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
from buckler.errors import InvalidInput, UnsoundMethod, check_alpha, check_choice, check_float_array, check_label, show
from buckler.records import REST, ROW_SUM_TOLERANCE, Scores
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


class Rivalry(NamedTuple):
    """One input's draws: class A, its rivals as contiguous rows, and moments of each pair seen beforehand."""

    a: FloatArray
    rivals: FloatArray
    earlier: FloatArray


def check_scores(name: str, scores: ArrayLike) -> FloatArray:
    """Return scores as float64 ``[n, m]`` or ``[inputs, n, m]``: nonnegative rows that sum to one within 5e-3."""
    array = check_float_array(name, scores)
    if array.ndim not in {2, 3} or 0 in array.shape or array.shape[-1] < 2:
        raise InvalidInput(f"{name} must have shape [n, m] or [inputs, n, m] with m >= 2; got shape {array.shape}")
    sums = array.sum(axis=-1)
    if array.min() < 0.0 or np.abs(sums - 1.0).max() > ROW_SUM_TOLERANCE:
        wrong = (array < 0.0).any(axis=-1) | (np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = f"draw {where[-1]}" if len(where) == 1 else f"input {where[0]}, draw {where[1]}"
        raise InvalidInput(
            f"{name} must be nonnegative and sum to one within {ROW_SUM_TOLERANCE}; "
            f"got {show(array[where].tolist())} at {at}"
        )
    return np.minimum(array, 1.0) if array.max() > 1.0 else array


def _columns(scores: Scores) -> Iterator[tuple[int, list[int]]]:
    for i, row in enumerate(scores.columns):
        if REST not in row and row.size < scores.num_classes:
            raise InvalidInput(
                f"scores must keep every class or hold a column of the rest ({REST}); "
                f"got {row.size} of {scores.num_classes} classes at input {i} ({scores.ids[i]})"
            )
        yield i, row.tolist()


def rivalries(scores: ArrayLike | Scores, label: ArrayLike, selection: ArrayLike | Scores | None) -> list[Rivalry]:
    """Return the draws of each input split into class A and its rivals, with moments from the selection sample.

    Kept columns may include the maximum of the rest: it is at least each of its members draw by draw, so a limit
    against it is one against each of them. Which columns are kept must not depend on the estimation draws.
    """
    if isinstance(scores, Scores):
        values = scores.values
        labels = check_label(label, scores.num_classes, values.shape[0])
        positions = []
        for i, row in _columns(scores):
            if int(labels[i]) not in row:
                raise InvalidInput(f"label must be a kept column; got {int(labels[i])}, kept {show(row)}, at input {i}")
            positions.append(row.index(int(labels[i])))
    else:
        values = check_scores("scores", scores)
        labels = check_label(label, values.shape[-1], values.shape[0] if values.ndim == 3 else None)
        positions = np.atleast_1d(labels).tolist()
    earlier: FloatArray | None = None
    if isinstance(selection, Scores):
        if not isinstance(scores, Scores) or not np.array_equal(selection.columns, scores.columns):
            raise InvalidInput("selection must keep the same columns as scores, or be left out where label is given")
        earlier = selection.values
    elif selection is not None:
        earlier = check_scores("selection", selection)
    if earlier is not None and (
        earlier.ndim != values.ndim
        or earlier.shape[-1] != values.shape[-1]
        or (values.ndim == 3 and earlier.shape[0] != values.shape[0])
    ):
        raise InvalidInput(
            f"selection must match scores in inputs and classes; got shapes {earlier.shape} and {values.shape}"
        )
    found = []
    stacked = values.reshape(-1, *values.shape[-2:])
    for i, position in enumerate(positions):
        by_class = stacked[i].T
        others = np.delete(np.arange(by_class.shape[0]), position)
        rivals = np.empty((others.size, by_class.shape[1]))
        rivals[:position], rivals[position:] = by_class[:position], by_class[position + 1 :]
        moments = np.zeros((others.size, NO_EARLIER.size))
        if earlier is not None:
            before = np.ascontiguousarray(earlier.reshape(-1, *earlier.shape[-2:])[i].T)
            moments = np.stack([earlier_moments(before[position], before[j]) for j in others])
        found.append(Rivalry(np.ascontiguousarray(by_class[position]), rivals, moments))
    return found


def _first(given: Rivalry, alpha: float, limit: Limit) -> float:
    a, rivals, earlier = given
    means = rivals.mean(axis=1)
    if limit in BETS:
        order = np.argsort(-means, kind="stable")
        end = smallest_lower(a, rivals, earlier, alpha, order, star=limit == "star")
        return max(-1.0, min(2.0 * end - 1.0 - SLACK, float(a.mean() - means.max()) - SLACK))
    return float(LIMITS[limit](np.clip(a - rivals, -1.0, 1.0).T, alpha, -1.0, 1.0).min()) - SLACK


def _second(given: Rivalry, alpha: float, limit: Limit, slope: Slope) -> float:
    a, rivals, earlier = given
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
            path = plan(Pair(a, rivals[j], SLOPES, index[j], earlier[j]), -log(alpha))
            smallest = path_limit(path, goal, smallest)
        if smallest == -np.inf:
            break
    return smallest


def _bonferroni(given: Rivalry, alpha: float, margin: MarginKind, limit: Limit) -> float:
    a, rivals, _ = given
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
    alpha = check_alpha(alpha)
    check_choice("margin", margin, get_args(MarginKind))
    check_choice("combine", combine, get_args(Combine))
    check_choice("limit", limit, get_args(Limit))
    check_choice("slope", slope, get_args(Slope))
    if combine == "published":
        raise UnsoundMethod("combine 'published' has no guarantee; the printed estimators are in certify.published")
    if combine == "margin_variable" and margin == "quantile":
        raise InvalidInput("combine 'margin_variable' bounds the probability margin alone; got margin 'quantile'")
    if slope == "selection" and selection is None:
        raise InvalidInput("slope 'selection' needs a selection sample; got selection None")
    if limit not in BETS and selection is not None and slope == "adaptive":
        slope = "selection"
    found = []
    for given in rivalries(scores, label, selection):
        if limit == "bernstein" and given.a.size < 2:
            raise InvalidInput("scores must hold at least 2 draws for limit 'bernstein'; got 1")
        if combine == "bonferroni":
            low = _bonferroni(given, alpha, margin, limit)
        elif combine == "margin_variable":
            strongest = given.rivals.max(axis=0)[None, :]
            low = _first(Rivalry(given.a, strongest, np.zeros((1, NO_EARLIER.size))), alpha, limit)
        elif margin == "probability":
            low = _first(given, alpha, limit)
        else:
            low = _second(given, alpha, limit, slope)
        found.append(low)
    single = not isinstance(scores, Scores) and np.ndim(scores) == 2
    return np.asarray(found[0] if single else found, dtype=np.float64)
