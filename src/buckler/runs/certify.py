"""Evidence on disk -> certificates, from its votes or from its scores. No model is needed."""

from typing import cast

import numpy as np

from buckler.certify.methods import certify_counts
from buckler.certify.scores import certify_scores, split_method
from buckler.errors import InvalidInput, check_choice
from buckler.records import Certificate
from buckler.runs.store.evidence import Evidence
from buckler.types import IntArray, MarginKind, SimplexMap


def certify_evidence(
    evidence: Evidence,
    *,
    alpha: float = 1e-3,
    method: str = "exact",
    margin: MarginKind = "quantile",
    n: int | None = None,
    certified_class: str | None = None,
    map: SimplexMap | None = None,  # noqa: A002  (the record's own name for it)
    temperature: float | None = None,
) -> tuple[list[Certificate], IntArray | None]:
    """Return the certificates of a run, and the labels where they are known.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha``, for a method, margin, prefix ``n``, map
    and temperature chosen without looking at the estimation draws.

    A method with a slash, ``pairwise/star`` say, reads the scores; any other reads the votes. ``certified_class`` is
    ``"selection"`` (the default where selection draws are there) or ``"label"``.
    """
    chosen = certified_class or ("label" if evidence.spec.n0 == 0 else "selection")
    check_choice("class", chosen, ("label", "selection"))
    if chosen == "selection" and evidence.spec.n0 == 0:
        raise InvalidInput("class 'selection' needs selection draws, and this run has none (n0 = 0)")
    if "/" in method:
        return _from_scores(evidence, alpha, method, margin, n, chosen, map, temperature)
    if map is not None or temperature is not None:
        raise InvalidInput(f"map and temperature are for scores, with a method such as pairwise/star; got {method!r}")
    counts, selection, labels = evidence.counts(n)
    made = certify_counts(
        counts.values,
        sigma=evidence.spec.sigma,
        alpha=alpha,
        label=_needed(labels) if chosen == "label" else None,
        selection=selection.values if chosen == "selection" and selection is not None else None,
        margin=margin,
        method=method,
        ids=counts.ids,
    )
    return cast(list[Certificate], made), labels


def _from_scores(
    evidence: Evidence,
    alpha: float,
    method: str,
    margin: MarginKind,
    n: int | None,
    chosen: str,
    map: SimplexMap | None,  # noqa: A002
    temperature: float | None,
) -> tuple[list[Certificate], IntArray | None]:
    combine, limit = split_method(method)
    certificates: list[Certificate] = []
    labels: list[int | None] = []
    for scores, selection, label in evidence.scores(n, map, temperature):
        if chosen == "label" and label is None:
            _needed(None)
        made = certify_scores(
            scores,
            sigma=evidence.spec.sigma,
            alpha=alpha,
            label=None if chosen == "selection" else [cast(int, label)],
            selection=selection,
            margin=margin,
            combine=combine,
            limit=limit,
        )
        certificates += cast(list[Certificate], made)
        labels.append(label)
    known = [label for label in labels if label is not None]
    return certificates, np.array(known, dtype=np.int64) if len(known) == len(labels) else None


def _needed(labels: IntArray | None) -> IntArray:
    if labels is None:
        raise InvalidInput("class 'label' needs labels, and the data of this run had none")
    return labels
