"""The door from scores to certificates: ``certify_scores``."""

from collections.abc import Sequence

import numpy as np

from buckler.certificates import Certificates
from buckler.certify.continuous import Slope, limits_by, options_of
from buckler.certify.draws import check_scores
from buckler.certify.make_certificates import MarginLimits, Terms, issue, terms_of
from buckler.certify.registry import sound_method
from buckler.errors import InvalidInput, check_label
from buckler.records import REST, Certificate, Scores
from buckler.types import ArrayLike, Combine, IntArray, Law, Limit, MarginKind, SimplexMap


def top_class(selection: ArrayLike | Scores) -> IntArray:
    """Return the class of the largest mean score of each input of a selection sample, ties to the lowest column.

    The column of the rest names no class and is passed over: any choice made on separate draws is allowed.

    >>> top_class([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7]])
    array([1])
    """
    if isinstance(selection, Scores):
        means = np.where(selection.columns == REST, -1.0, selection.values.mean(axis=1))
        best = means.argmax(axis=1)
        return np.asarray(selection.columns[np.arange(len(best)), best], dtype=np.int64)
    values = check_scores("selection", selection)
    return np.atleast_1d(np.asarray(values.mean(axis=-2).argmax(axis=-1), dtype=np.int64))


def certify_scores(
    scores: ArrayLike | Scores,
    *,
    sigma: float | None = None,
    law: Law | None = None,
    alpha: float = 1e-3,
    label: ArrayLike | None = None,
    selection: ArrayLike | Scores | None = None,
    margin: MarginKind | None = None,
    combine: Combine | None = None,
    limit: Limit | None = None,
    method: str | None = None,
    slope: Slope = "adaptive",
    map: SimplexMap = "softmax",  # noqa: A002  (the record's own name for it)
    temperature: float | None = None,
    ids: Sequence[str] | None = None,
) -> Certificate | Certificates:
    """Return the certificate of scores ``[n, m]``, or ``Certificates`` for ``[inputs, n, m]`` or a ``Scores`` record.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind ``scores``, when
    these are independent copies under the given noise and the scores lie in the simplex. The certified class
    is ``label``, fixed beforehand, or the top class of ``selection``, scores of *separate* draws; it is never read
    off ``scores``. With both, the label is certified and the selection sample only tunes the bets and slopes.

    The noise is Gaussian of standard deviation ``sigma``, or follows ``law``: give one of both. ``method`` is the name
    of any method that reads scores, in the place of ``combine`` and ``limit``; ``pairwise/star`` is the default.

    ``map`` and ``temperature`` say how the scores were made and are recorded; a Scores record brings its own. Trying
    several temperatures, maps, margins or limits on the same draws and keeping the best needs ``budget.split(alpha,
    how_many)`` for each.

    >>> rows = np.tile([[0.9, 0.08, 0.02], [0.8, 0.1, 0.1]], (500, 1))
    >>> certificate = certify_scores(rows, sigma=0.5, label=0)
    >>> certificate.predicted, round(certificate.radius, 4)
    (0, 0.5769)
    """
    if method is not None and (combine is not None or limit is not None):
        raise InvalidInput(f"method stands for combine and limit; got method {method!r} with one of them")
    if isinstance(scores, Scores):
        map, temperature = scores.map, scores.temperature  # noqa: A001
    rule = sound_method(method or f"{combine or 'pairwise'}/{limit or 'star'}", "scores")
    terms = terms_of(rule, sigma=sigma, law=law, alpha=alpha, margin=margin, scores=(map, temperature))
    limits = limits_of_scores(scores, terms, label=label, selection=selection, slope=slope, ids=ids)
    made = issue(terms, limits)
    return Certificates(made) if isinstance(scores, Scores) or np.ndim(scores) == 3 else made[0]


def limits_of_scores(
    scores: ArrayLike | Scores,
    terms: Terms,
    *,
    label: ArrayLike | None = None,
    selection: ArrayLike | Scores | None = None,
    slope: Slope = "adaptive",
    ids: Sequence[str] | None = None,
) -> MarginLimits:
    """Return the limit of each input's margin by a method that reads scores, and the class it is about.

    **Guarantee.** Where the method is sound, each limit exceeds the margin of its class with probability at most
    ``terms.alpha``, the allowance for drawing included.
    """
    if label is None and selection is None:
        raise InvalidInput("label, or selection (scores of n0 > 0 separate draws), must be given; got neither")
    record = scores if isinstance(scores, Scores) else None
    values = record.values if record is not None else check_scores("scores", scores)  # type: ignore[arg-type]
    single = values.ndim == 2
    inputs = 1 if single else values.shape[0]
    if ids is None:
        ids = record.ids if record is not None else [f"input {i}" if inputs > 1 else "input" for i in range(inputs)]
    if len(ids) != inputs:
        raise InvalidInput(f"ids must hold one name for each of the {inputs} inputs; got {len(ids)}")
    n0 = 0
    if label is None:
        chosen = top_class(selection)  # type: ignore[arg-type]
        n0 = (selection.values if isinstance(selection, Scores) else np.asarray(selection)).shape[-2]
    else:
        classes = record.num_classes if record is not None else values.shape[-1]
        chosen = np.atleast_1d(check_label(label, classes, None if single else inputs))
    if isinstance(selection, Scores) and (record is None or not np.array_equal(selection.columns, record.columns)):
        selection = None  # it chose the class, and cannot tune bets on other columns
    about = int(chosen[0]) if single else chosen
    options = options_of(terms.method, slope, selection)
    draws = np.full(inputs, values.shape[-2], dtype=np.int64)

    terms.check_draws(draws)
    low = np.atleast_1d(limits_by(terms.method, scores, about, terms.level, terms.margin, selection, options))
    return MarginLimits(ids, chosen, low, draws, np.full(inputs, n0, dtype=np.int64))
