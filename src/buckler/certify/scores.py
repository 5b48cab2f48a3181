"""Scores -> certificates.

Scores are simplex rows in draw order, ``[inputs, draws, classes]``, or a ``Scores`` record with kept columns. A method
takes a limit at level alpha for each rival j, and the smallest of them, which is valid without any correction: it errs
only if the limit of the one closest rival errs (T2).

Each limit holds alone. Whoever looks at several methods, temperatures or prefixes of the same draws and keeps the best
must give each of them ``budget.split_alpha(alpha, how_many)``, or choose on a selection sample.
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import cast

import numpy as np

from buckler.bounds.betting import MEANS, NO_EARLIER, Candidates, Pair, cells_limit, earlier_moments, star_lower
from buckler.bounds.means import LIMIT_SLACK, bernstein_lower, hoeffding_lower, sequence_lower
from buckler.certificate import ABSTAINED, LEAST_UNIFORM, SIMPLEX_MAPS
from buckler.certificates import Certificates
from buckler.certify.methods import ScoreDraws
from buckler.certify.predictions import winner_of_scores
from buckler.certify.settings import (
    ChosenClass,
    Scoring,
    Settings,
    Softmax,
    choose_class,
    make_certificates,
    make_settings,
    names_or_numbers,
)
from buckler.certify.settings import scoring as scoring_named
from buckler.certify.tangents import (
    LARGEST_REPORTED_MARGIN,
    MARGINS,
    SLOPES,
    best_slopes,
    estimate,
    margin_from_height,
    predictable_slopes,
)
from buckler.certify.votes import warn_of_few_draws
from buckler.errors import (
    InvalidInput,
    check_choice,
    check_float_array,
    check_positive,
    check_whole,
    check_whole_array,
    show,
)
from buckler.types import (
    LARGEST_SEED,
    OTHERS,
    ArrayLike,
    BoolArray,
    FloatArray,
    IntArray,
    Limit,
    MarginKind,
    Noise,
    SimplexMap,
)

LIMITS: dict[str, Callable[[FloatArray, float, float, float], FloatArray]] = {
    "star": star_lower,
    "sequence": sequence_lower,
    "bernstein": bernstein_lower,
    "hoeffding": hoeffding_lower,
}
MANY = 100
"""Above this many rival classes the limit ``star`` renews its bets less often, to save time. Heuristic: affects
tightness, not validity."""

ROW_SUM_TOLERANCE = 5e-3
"""Largest difference from 1 of the sum of all classes' scores in a draw; ten scores in float16 stay well below it."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of noisy copies in the simplex, ``values[input, draw, column]``, in the order of the draws.

    ``columns[input, column]`` is the class of each column. Where classes are left out, ``OTHERS`` marks the column with
    the maximum over them: it is at least each of them draw by draw, so a limit against it is one against each. The
    choice of columns must be fixed beforehand or come from separate draws. ``map`` and ``temperature`` say how logits
    became scores.
    """

    ids: tuple[str, ...]
    values: FloatArray
    columns: IntArray
    num_classes: int
    map: SimplexMap
    temperature: float | None = None

    def __post_init__(self) -> None:
        values = check_float_array("scores", self.values)
        columns = check_whole_array("columns", self.columns, low=OTHERS)
        classes = check_whole("num_classes", self.num_classes, 2)
        if values.ndim != 3 or 0 in values.shape or columns.shape != (values.shape[0], values.shape[2]):
            raise InvalidInput(
                f"scores must have shape [inputs, draws, columns] and columns [inputs, columns]; "
                f"got {values.shape} and {columns.shape}"
            )
        check_choice("map", self.map, SIMPLEX_MAPS)
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if (columns >= classes).any() or any(len(set(row.tolist())) != row.size for row in columns):
            raise InvalidInput(f"columns must be different classes below {classes}, or {OTHERS}; got {show(columns)}")
        others = (columns == OTHERS).any(axis=1)
        if not others.all() and columns.shape[1] < classes:
            raise InvalidInput(
                f"columns must hold every class or one of the rest ({OTHERS}); got {columns.shape[1]} of {classes} "
                f"classes at input {int(others.argmin())}"
            )
        names_or_numbers(self.ids, values.shape[0])
        object.__setattr__(self, "values", check_rows("scores", values, ~others))
        object.__setattr__(self, "columns", columns)

    @property
    def n(self) -> int:
        """The number of draws of each input."""
        return int(self.values.shape[1])


def check_rows(name: str, values: FloatArray, full: BoolArray) -> FloatArray:
    """Return scores ``values[inputs, draws, columns]``, each cut at 1; raise InvalidInput unless they are in a simplex.

    The columns of a draw must sum to one where ``full[input]`` says that all classes are there, else to at most one.
    ``name`` is what the error calls them.
    """
    sums = values.sum(axis=2)
    least = np.where(full, 1.0 - ROW_SUM_TOLERANCE, 0.0)[:, None]
    wrong = (values < 0.0).any(axis=2) | (sums < least) | (sums > 1.0 + ROW_SUM_TOLERANCE)
    if wrong.any():
        i, draw = (int(k) for k in np.argwhere(wrong)[0])
        raise InvalidInput(
            f"{name} must be nonnegative and sum to one, or to at most one without all classes, within "
            f"{ROW_SUM_TOLERANCE}; got {show(values[i, draw].tolist())} at input {i}, draw {draw}"
        )
    return np.minimum(values, 1.0) if values.max() > 1.0 else values


def certify_scores(
    scores: ArrayLike | Scores,
    *,
    sigma: float | None = None,
    noise: Noise | str | None = None,
    alpha: float = 1e-3,
    labels: ArrayLike | None = None,
    selection: ArrayLike | Scores | None = None,
    margin: MarginKind | None = None,
    method: str | None = None,
    scoring: Scoring | None = None,
    ids: Sequence[str] | None = None,
    seed: int | None = None,
) -> Certificates:
    """Return certificates from scores of noisy copies, ``[inputs, draws, classes]`` or a ``Scores``, one an input.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind its scores, when
    these are independent copies under the noise, their number was fixed beforehand, and scores lie in the simplex.

    The certified class is the one with the largest mean score, if a test at a tenth of alpha shows that its expected
    score is the largest (T18d), else none is; or it is the class in ``labels``, fixed beforehand; or the one with the
    largest mean in ``selection``, scores of *separate* draws. With labels and selection, the selection sample only
    tunes bets and slopes. The noise is Gaussian of standard deviation ``sigma``, or else ``noise``. ``method`` is
    ``pairwise/star`` or another ``pairwise/LIMIT``. ``scoring``, ``Softmax(T)`` or ``Sparsemax()``, says how the scores
    were made and is recorded.

    With a ``seed``, fixed before the scores were seen, the default is ``pairwise/randomised_star``: larger radii by one
    random number for each input, which follows from the seed and the input's id (T15a). ``ids`` must then be given, and
    two inputs of one id would share their number.

    >>> rows = np.tile([[0.9, 0.08, 0.02], [0.8, 0.1, 0.1]], (500, 1))
    >>> certify_scores([rows], sigma=0.5, labels=[0]).radii.round(4)
    array([0.5769])
    """
    how: Scoring | None = Softmax() if scoring is None else scoring
    if isinstance(scores, Scores):
        if scoring is not None:
            raise InvalidInput(f"scoring must be left out for a Scores record, which names its map; got {scoring}")
        how = scoring_named(scores.map, scores.temperature)
    if seed is not None:
        check_whole("seed", seed, 0, LARGEST_SEED)
    settings = make_settings(sigma=sigma, noise=noise, alpha=alpha, method=method, margin=margin, scores=how, seed=seed)
    if settings.method.randomised and ids is None and not isinstance(scores, Scores):
        raise InvalidInput(f"ids must be given with method {settings.method.name!r}; got None")
    record = as_scores("scores", scores, ids)
    made = scores_to_certificates(record, settings, labels=labels, selection=selection)
    warn_of_few_draws(record.n, settings, record.num_classes, winner=labels is None and selection is None)
    return replace(made, classes=range(record.num_classes))


def as_scores(name: str, scores: ArrayLike | Scores, ids: Sequence[str] | None = None) -> Scores:
    """Return scores ``[inputs, draws, classes]`` as a checked ``Scores`` record; a record itself, with any ``ids``.

    ``name`` is what an error calls the scores.
    """
    if isinstance(scores, Scores):
        return scores if ids is None else replace(scores, ids=tuple(ids))
    array = check_float_array(name, scores)
    if array.ndim != 3 or 0 in array.shape or array.shape[2] < 2:
        raise InvalidInput(
            f"{name} must have shape [inputs, draws, classes] with two classes or more; got shape {array.shape}"
        )
    inputs, _, m = array.shape
    values = check_rows(name, array, np.ones(inputs, dtype=np.bool_))
    return Scores(tuple(names_or_numbers(ids, inputs)), values, np.tile(np.arange(m), (inputs, 1)), m, "softmax")


def scores_to_certificates(
    scores: ArrayLike | Scores,
    settings: Settings,
    *,
    labels: ArrayLike | None = None,
    selection: ArrayLike | Scores | None = None,
    ids: Sequence[str] | None = None,
) -> Certificates:
    """Return certificates from scores under ``settings``; the other arguments are those of ``certify_scores``."""
    record = as_scores("scores", scores, ids)
    chosen, low, n = limits_of_scores(record, settings, labels=labels, selection=selection)
    return make_certificates(settings, chosen, low, n, record.ids)


def limits_of_scores(
    scores: Scores, settings: Settings, *, labels: ArrayLike | None = None, selection: ArrayLike | Scores | None = None
) -> tuple[ChosenClass, FloatArray, IntArray]:
    """Return each input's class, the lower limit of its margin, and its number of draws, from its scores.

    **Guarantee.** For a sound method, the probability that the class is not the smoothed prediction or that the limit
    exceeds its margin is at most ``settings.alpha``; with labels or selection, the probability that the limit does.
    """
    inputs = len(scores.values)
    earlier = None if selection is None else as_scores("selection", selection)
    selected = None
    if earlier is not None:
        _check_separate(scores, earlier)
        if labels is None:
            selected = largest_mean_class(earlier), np.full(inputs, earlier.n, dtype=np.int64)
        if not np.array_equal(earlier.columns, scores.columns):
            earlier = None  # it chose the class, and cannot tune bets on other columns

    def winner(level: float) -> IntArray:
        columns = winner_of_scores(scores.values, alpha=level)
        named = scores.columns[np.arange(inputs), np.maximum(columns, 0)]
        return np.asarray(np.where((columns < 0) | (named == OTHERS), ABSTAINED, named), dtype=np.int64)

    chosen = choose_class(settings.level, inputs, scores.num_classes, labels=labels, selected=selected, winner=winner)
    low = np.full(inputs, -np.inf)
    for i in np.flatnonzero(chosen.classes != ABSTAINED).tolist():
        uniform = uniform_of(cast(int, settings.seed), scores.ids[i]) if settings.method.randomised else 1.0
        given = draws_of(scores, i, int(chosen.classes[i]), earlier, uniform)
        low[i] = float(settings.method.limit(given, chosen.alpha, settings.margin))
    return chosen, low, np.full(inputs, scores.n, dtype=np.int64)


def uniform_of(seed: int, name: str) -> float:
    """Return the random number of the input called ``name``, from ``LEAST_UNIFORM`` to 1: a hash of seed and name.

    The method ``pairwise/randomised_star`` multiplies by it the wealth that rejects after the input's last draw. It is
    at most u with probability at most u, for every u, and has no part in any noise. It may be used for one limit, after
    the draws fixed beforehand; a limit that goes on, or a second one in its place, would use it again (T15a).

    >>> round(uniform_of(0, "7"), 6), round(uniform_of(1, "7"), 6)
    (0.866173, 0.757821)
    """
    text = seed.to_bytes(8, "little") + name.encode("utf-8", "surrogatepass")
    word = int.from_bytes(blake2b(text, digest_size=8, person=b"buckler-uniform").digest(), "little")
    # The upper 53 bits: every value is a float, so nothing is rounded.
    return max(((word >> 11) + 1) / 2**53, LEAST_UNIFORM)


def _check_separate(scores: Scores, selection: Scores) -> None:
    values, other = scores.values, selection.values
    if len(other) != len(values) or selection.num_classes != scores.num_classes:
        raise InvalidInput(f"selection must match scores in inputs and classes; got {other.shape} and {values.shape}")
    if np.shares_memory(other, values) or _is_copy(other, values):
        raise InvalidInput("selection must be scores of separate draws; got the same scores as the evidence")


MOST_REPEATED = 0.1
"""Largest share of repeated rows among an input's scores at which selection scores that all occur among them are taken
for a copy. Where more repeat (saturated scores, noise with few outcomes), a separate draw may equal one too."""


def _is_copy(selection: FloatArray, values: FloatArray) -> bool:
    """Return whether all selected rows are evidence rows of their input, as float32, and these hardly repeat."""
    telling = False
    for some, rows in zip(selection, values, strict=True):
        seen = {row.tobytes() for row in rows.astype(np.float32)}
        if not all(row.tobytes() in seen for row in some.astype(np.float32)):
            return False
        telling |= len(seen) >= (1.0 - MOST_REPEATED) * len(rows)
    return telling


def largest_mean_class(selection: ArrayLike | Scores) -> IntArray:
    """Return the class with the largest mean score at each input of ``selection``, ``[inputs, draws, classes]``.

    Ties go to the lowest column. The column ``OTHERS`` of a ``Scores`` names no class and is passed over: any choice
    made on separate draws is allowed.

    >>> largest_mean_class([[[0.2, 0.8], [0.9, 0.1], [0.3, 0.7]]])
    array([1])
    """
    made = as_scores("selection", selection)
    best = np.where(made.columns == OTHERS, -1.0, made.values.mean(axis=1)).argmax(axis=1)
    return np.asarray(made.columns[np.arange(len(best)), best], dtype=np.int64)


def draws_of(scores: Scores, i: int, label: int, selection: Scores | None = None, uniform: float = 1.0) -> ScoreDraws:
    """Return the scores of input i as a method reads them: of class ``label``, and of every other column.

    ``selection`` gives the sums over earlier draws of the same columns, zeros for None; ``uniform`` is passed on.
    """
    place = scores.columns[i].tolist()
    if label not in place:
        raise InvalidInput(f"label must be a class whose column was kept; got {label} at input {i}, kept {show(place)}")
    own = place.index(label)
    by_class = np.ascontiguousarray(scores.values[i].T)
    rivals, earlier = np.delete(by_class, own, axis=0), np.zeros((len(place) - 1, NO_EARLIER.size))
    if selection is not None:
        before = np.ascontiguousarray(selection.values[i].T)
        earlier = np.stack([earlier_moments(before[own], rival) for rival in np.delete(before, own, axis=0)])
    return ScoreDraws(by_class[own], rivals, earlier, scores.num_classes, uniform)


def _first(given: ScoreDraws, alpha: float, limit: Limit) -> float:
    a, rivals = given[:2]
    means = rivals.mean(axis=1)
    if limit == "star":
        index = np.zeros(rivals.shape, dtype=np.int64)
        end = _smallest(given, SLOPES[:1], index, MEANS, np.argsort(-means, kind="stable"), 1.0, alpha)
        return max(-1.0, min(2.0 * end - 1.0 - LIMIT_SLACK, float(a.mean() - means.max()) - LIMIT_SLACK))
    return max(-1.0, float(LIMITS[limit](np.clip(a - rivals, -1.0, 1.0).T, alpha, -1.0, 1.0).min()) - LIMIT_SLACK)


def _second(given: ScoreDraws, alpha: float, limit: Limit) -> float:
    a, rivals, earlier = given[:3]
    ceilings = estimate(a, rivals)
    smallest = min(LARGEST_REPORTED_MARGIN, float(ceilings.min()))
    if smallest <= 0.0:
        return -np.inf
    if limit == "star":
        index, order = predictable_slopes(a, rivals, earlier, alpha), np.argsort(ceilings, kind="stable")
        return _smallest(given, SLOPES, index, MARGINS, order, smallest, alpha)
    slopes = SLOPES[best_slopes(earlier, a.size, alpha)] if earlier[:, 0].any() else np.ones(len(rivals))
    for c in np.unique(slopes):
        draws = np.clip(a - c * rivals[slopes == c], -c, 1.0).T
        mean = LIMITS[limit](draws, alpha, -float(c), 1.0).min() - LIMIT_SLACK * (1.0 + c)
        smallest = min(smallest, float(margin_from_height(float(mean), float(c))))
    return smallest


def _smallest(
    given: ScoreDraws,
    slopes: FloatArray,
    index: IntArray,
    candidates: Candidates,
    order: IntArray,
    smallest: float,
    alpha: float,
) -> float:
    """Return the smallest betting limit over rivals, at most ``smallest``; each holds at level alpha (T2).

    A rival that rejects every candidate up to the smallest limit so far has a larger one, and is not solved: the
    result is the plain minimum to within the tolerance, whatever the order.
    """
    coarse = len(given.rivals) > MANY
    for j in order:
        pair = Pair(given.a, given.rivals[j], slopes, index[j], given.earlier[j])
        smallest = cells_limit(pair, candidates, alpha, smallest, given.uniform, coarse=coarse)
        if smallest <= candidates.nothing:
            break
    return smallest


def limit_of(limit: Limit, given: ScoreDraws, alpha: float, margin: MarginKind) -> float:
    """Return a lower limit of one input's margin: the smallest over its rivals, each by the named ``limit``.

    **Guarantee.** For independent, identically distributed draws, and a class, a limit and earlier draws that do not
    depend on them, ``P(limit > margin) <= alpha``; one-sided, fixed n, rounded down. May be negative; -inf where
    nothing is proved.

    Probability margin: a limit of ``E[X_A - X_j]``, X_A and X_j being scores of the class and of another one, is taken
    for each j, and the smallest comes back. Quantile margin: the same of ``E[X_A - c X_j]``, turned into a margin (see
    ``tangents``). For ``star`` the slope c is renewed step by step from the draws before, earlier ones included; limits
    in closed form use the slope that suits the earlier draws, or c = 1 without any. Earlier draws also give the bets
    their first mean and variance. A ``uniform`` below 1 is drawn uniformly from (0, 1] and used for this limit alone,
    and is for ``star`` (T15a). Arguments are not checked.

    >>> rows = np.tile([[0.9, 0.08, 0.02], [0.7, 0.2, 0.1]], (50, 1))
    >>> given = draws_of(as_scores("scores", rows[None]), 0, 0)
    >>> round(limit_of("star", given, 1e-3, "probability"), 4), round(limit_of("star", given, 1e-3, "quantile"), 4)
    (0.5381, 1.4725)
    """
    if limit == "bernstein" and given.a.size < 2:
        raise InvalidInput("scores must hold at least 2 draws for limit 'bernstein'; got 1")
    return _first(given, alpha, limit) if margin == "probability" else _second(given, alpha, limit)
