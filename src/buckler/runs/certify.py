"""Evidence on disk -> certificates, from its votes or from its scores. No model is needed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from buckler.certify.methods import certify_counts
from buckler.certify.scores import certify_scores, split_method
from buckler.errors import InvalidInput, StoreError, check_choice
from buckler.records import Certificate
from buckler.runs.store.evidence import Evidence
from buckler.runs.store.shard import Shard
from buckler.types import IntArray, MarginKind, SimplexMap


class CertifiedRun(NamedTuple):
    """The certificates of all inputs by each method; their labels where known, and hashes of their values."""

    certificates: list[list[Certificate]]
    labels: IntArray | None
    contents: tuple[str, ...]


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
    made = certify_by_each(
        evidence,
        [method],
        alpha=alpha,
        margin=margin,
        n=n,
        certified_class=certified_class,
        map=map,
        temperature=temperature,
    )
    return made.certificates[0], made.labels


def certify_by_each(
    evidence: Evidence,
    methods: Sequence[str],
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    n: int | None = None,
    certified_class: str | None = None,
    map: SimplexMap | None = None,  # noqa: A002
    temperature: float | None = None,
) -> CertifiedRun:
    """Return the certificates of a run by each of several methods; its files are read, and checked, once.

    **Guarantee.** That of ``certify_evidence``, for each method alone: the best of them, picked afterwards, has none.
    """
    chosen = certified_class or ("label" if evidence.spec.n0 == 0 else "selection")
    check_choice("class", chosen, ("label", "selection"))
    if chosen == "selection" and evidence.spec.n0 == 0:
        raise InvalidInput("class 'selection' needs selection draws, and this run has none (n0 = 0)")
    scored = [method for method in methods if "/" in method]
    if (map is not None or temperature is not None) and not scored:
        raise InvalidInput(
            f"map and temperature are for scores, with a method such as pairwise/star; got {', '.join(methods)}"
        )
    if scored and evidence.spec.scores == "none":
        raise StoreError(f"method {scored[0]!r} is for scores, and {str(evidence.root)!r} was sampled without scores")
    by_votes = len(scored) < len(methods)
    place = evidence.checkpoint(n) if by_votes else 0
    settings: dict[str, Any] = {"sigma": evidence.spec.sigma, "alpha": alpha, "margin": margin}
    made: dict[str, list[Certificate]] = {method: [] for method in methods}
    held: list[Shard] = []
    for shard, content in zip(evidence.shards, evidence.read_shards(), strict=True):
        if chosen == "label" and content.labels is None:
            raise InvalidInput("class 'label' needs labels, and the data of this run had none")
        # Of the votes only those of one checkpoint are held; the others of a million inputs would be too many.
        held.append(replace(content, counts=content.counts[:, place : place + 1].copy()))
        if not scored:
            continue
        for scores, selection, label in evidence.scores_of(shard, content, n, map, temperature):
            truth = None if chosen == "selection" else [cast(int, label)]
            for method in scored:
                combine, limit = split_method(method)
                made[method] += cast(
                    list[Certificate],
                    certify_scores(scores, label=truth, selection=selection, combine=combine, limit=limit, **settings),
                )
    if not held:
        raise StoreError(f"{str(evidence.root)!r} holds no finished shard yet")
    if by_votes:
        votes = [method for method in methods if method not in scored]
        made |= _by_votes(held, votes, use_labels=chosen == "label", **settings)
    contents = tuple(name for one in held for name in one.inputs)
    return CertifiedRun([made[method] for method in methods], _labels(held), contents)


def _by_votes(
    held: Sequence[Shard], methods: Sequence[str], *, use_labels: bool, **settings: Any
) -> dict[str, list[Certificate]]:
    counts = np.concatenate([one.counts[:, 0] for one in held])
    settings |= {"ids": [name for one in held for name in one.ids]}
    settings["label"] = _labels(held) if use_labels else None
    settings["selection"] = None if use_labels else np.concatenate([cast(IntArray, one.selection) for one in held])
    return {m: cast(list[Certificate], certify_counts(counts, method=m, **settings)) for m in methods}


def _labels(held: Sequence[Shard]) -> IntArray | None:
    known = [one.labels for one in held if one.labels is not None]
    return np.concatenate(known) if len(known) == len(held) else None
