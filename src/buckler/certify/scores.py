"""The door from scores to certificates: ``certify_scores``."""

from collections.abc import Sequence
from typing import cast, get_args

import numpy as np

from buckler.certify.continuous import Slope, check_scores, margin_lower
from buckler.certify.radii import FOLLOWS_FROM, default_radius, radius_from_margin
from buckler.errors import InvalidInput, check_choice, check_label, check_positive, show
from buckler.records import REST, Certificate, MarginBound, Scores
from buckler.types import ArrayLike, Combine, IntArray, Limit, MarginKind, RadiusKind, SimplexMap


def split_method(name: str) -> tuple[Combine, Limit]:
    """Return the combination and the limit of a method's name, such as ``pairwise/star``.

    >>> split_method("bonferroni/sequence")
    ('bonferroni', 'sequence')
    """
    combine, _, limit = name.partition("/")
    if combine not in get_args(Combine) or limit not in get_args(Limit):
        raise InvalidInput(
            f"method must be COMBINE/LIMIT for scores, COMBINE one of {', '.join(get_args(Combine))} and LIMIT one of "
            f"{', '.join(get_args(Limit))}; got {show(name)}"
        )
    return cast(Combine, combine), cast(Limit, limit)


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
    sigma: float,
    alpha: float = 1e-3,
    label: ArrayLike | None = None,
    selection: ArrayLike | Scores | None = None,
    margin: MarginKind = "quantile",
    combine: Combine = "pairwise",
    limit: Limit = "star",
    slope: Slope = "adaptive",
    radius: RadiusKind | None = None,
    map: SimplexMap = "softmax",  # noqa: A002  (the record's own name for it)
    temperature: float | None = None,
    ids: Sequence[str] | None = None,
) -> Certificate | list[Certificate]:
    """Return the certificate of scores ``[n, m]``, or a list of them for ``[inputs, n, m]`` or a ``Scores`` record.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha`` over the draws behind ``scores``, when
    these are independent Gaussian copies with the given sigma and the scores lie in the simplex. The certified class
    is ``label``, fixed beforehand, or the top class of ``selection``, scores of *separate* draws; it is never read
    off ``scores``. With both, the label is certified and the selection sample only tunes the bets and slopes.

    ``map`` and ``temperature`` say how the scores were made and are recorded; a Scores record brings its own. Trying
    several temperatures, maps, margins or limits on the same draws and keeping the best needs ``budget.split(alpha,
    how_many)`` for each.

    >>> rows = np.tile([[0.9, 0.08, 0.02], [0.8, 0.1, 0.1]], (500, 1))
    >>> certificate = certify_scores(rows, sigma=0.5, label=0)
    >>> certificate.predicted, round(certificate.radius, 4)
    (0, 0.5769)
    """
    check_choice("margin", margin, get_args(MarginKind))
    kind = default_radius(margin) if radius is None else check_choice("radius", radius, get_args(RadiusKind))
    if FOLLOWS_FROM[kind] != margin:
        raise InvalidInput(f"radius {kind!r} follows from the {FOLLOWS_FROM[kind]} margin; got margin {margin!r}")
    sigma = check_positive("sigma", sigma)
    if label is None and selection is None:
        raise InvalidInput("label, or selection (scores of n0 > 0 separate draws), must be given; got neither")
    record = scores if isinstance(scores, Scores) else None
    if record is not None:
        map, temperature = record.map, record.temperature  # noqa: A001
        ids = record.ids if ids is None else ids
    single = record is None and np.ndim(scores) == 2  # type: ignore[arg-type]
    values = record.values if record is not None else check_scores("scores", scores)  # type: ignore[arg-type]
    inputs, n = (1 if single else values.shape[0]), values.shape[-2]
    names = [f"input {i}" if inputs > 1 else "input" for i in range(inputs)] if ids is None else list(ids)
    if len(names) != inputs:
        raise InvalidInput(f"ids must hold one name for each of the {inputs} inputs; got {len(names)}")
    n0 = 0
    if label is None:
        chosen = top_class(selection)  # type: ignore[arg-type]
        n0 = (selection.values if isinstance(selection, Scores) else np.asarray(selection)).shape[-2]
    else:
        classes = record.num_classes if record is not None else values.shape[-1]
        chosen = np.atleast_1d(check_label(label, classes, None if single else inputs))
    same = not isinstance(selection, Scores) or (
        record is not None and np.array_equal(selection.columns, record.columns)
    )
    lows = np.atleast_1d(
        margin_lower(
            scores,
            int(chosen[0]) if single else chosen,
            alpha,
            margin,
            combine,
            limit,
            selection if same else None,
            slope=slope,
        )
    )
    certificates = []
    for i in range(inputs):
        bound = MarginBound(kind=margin, low=float(lows[i]), alpha=alpha, method=f"{combine}/{limit}")
        certified = radius_from_margin(bound.low, sigma, kind)
        certificates.append(
            Certificate(
                id=names[i],
                predicted=int(chosen[i]) if certified > 0.0 else None,
                radius=certified,
                radius_kind=kind,
                margin_kind=margin,
                margin=bound.low,
                alpha=alpha,
                n=n,
                n0=n0,
                sigma=sigma,
                map=map,
                temperature=temperature,
                method=bound.method,
                sound=bound.sound,
            )
        )
    return certificates[0] if single else certificates
