"""Evidence on disk -> limits and certificates, from its votes or from its scores. No model is needed."""

from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from buckler.certify.counts import limits_of_counts
from buckler.certify.issue import MarginLimits, Terms, claim, issue, terms_of
from buckler.certify.method import Method
from buckler.certify.scores import limits_of_scores
from buckler.errors import InvalidInput, UnsoundMethod, check_choice
from buckler.laws import Gaussian
from buckler.records import Certificate, Claim
from buckler.runs.own_method import method_named
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import Evidence
from buckler.types import IntArray, MarginKind, SimplexMap

CertifiedClass = Literal["label", "selection"]


class Question(NamedTuple):
    """How evidence is to be certified; ``n`` is a prefix of the draws, None all of them."""

    method: Method
    alpha: float = 1e-3
    margin: MarginKind = "quantile"
    n: int | None = None
    certified_class: str | None = None
    map: SimplexMap | None = None
    temperature: float | None = None


def certified_class_of(spec: RunSpec, wanted: str | None) -> CertifiedClass:
    """Return how the class is fixed: as wanted, else by the selection draws where there are any, else by the label."""
    chosen = wanted or ("label" if spec.n0 == 0 else "selection")
    check_choice("class", chosen, get_args(CertifiedClass))
    if chosen == "selection" and spec.n0 == 0:
        raise InvalidInput("class 'selection' needs selection draws, and this run has none (n0 = 0)")
    return cast(CertifiedClass, chosen)


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

    The method reads votes (``exact``) or scores (``pairwise/star``), as its name says. ``certified_class`` is
    ``"selection"`` (the default where selection draws are there) or ``"label"``.
    """
    rule = method_named(method)
    if not rule.sound:
        raise UnsoundMethod(f"method {method!r} has no guarantee and cannot issue a certificate")
    question = Question(rule, alpha, margin, n, certified_class, map, temperature)
    terms, limits, labels = limits_of_evidence(evidence, question)
    return issue(terms, limits), labels


def claim_evidence(evidence: Evidence, *, method: str, **how: Any) -> tuple[list[Claim], IntArray | None]:
    """Return what any method would say, without a promise, and the labels; keywords as in ``certify_evidence``."""
    terms, limits, labels = limits_of_evidence(evidence, Question(method_named(method), **how))
    return claim(terms, limits), labels


def limits_of_evidence(evidence: Evidence, question: Question) -> tuple[Terms, MarginLimits, IntArray | None]:
    """Return the limit of each input's margin with the terms it holds on, and the labels where they are known."""
    by_label = certified_class_of(evidence.spec, question.certified_class) == "label"
    if question.method.reads == "scores":
        return _from_scores(evidence, question, by_label)
    if question.map is not None or question.temperature is not None:
        raise InvalidInput(
            f"map and temperature are for scores, with a method such as pairwise/star; got {question.method.name!r}"
        )
    counts, selection, labels = evidence.counts(question.n)
    limits = limits_of_counts(
        counts,
        question.method,
        alpha=question.alpha,
        margin=question.margin,
        label=needed(labels) if by_label else None,
        selection=None if by_label else selection,
    )
    return _terms(evidence, question), limits, labels


def _from_scores(evidence: Evidence, question: Question, by_label: bool) -> tuple[Terms, MarginLimits, IntArray | None]:
    made: list[MarginLimits] = []
    labels: list[int | None] = []
    kind: SimplexMap = "softmax"
    temperature: float | None = None
    for scores, selection, label in evidence.scores(question.n, question.map, question.temperature):
        if by_label and label is None:
            needed(None)
        made.append(
            limits_of_scores(
                scores,
                question.method,
                alpha=question.alpha,
                margin=question.margin,
                label=[cast(int, label)] if by_label else None,
                selection=selection,
            )
        )
        labels.append(label)
        kind, temperature = scores.map, scores.temperature
    known = [label for label in labels if label is not None]
    chosen, low, n, n0 = (np.concatenate([getattr(one, part) for one in made]) for part in ("chosen", "low", "n", "n0"))
    return (
        _terms(evidence, question, kind, temperature),
        MarginLimits([name for one in made for name in one.ids], chosen, low, n, n0),
        np.array(known, dtype=np.int64) if len(known) == len(labels) else None,
    )


def _terms(
    evidence: Evidence,
    question: Question,
    map: SimplexMap = "hardmax",  # noqa: A002
    temperature: float | None = None,
) -> Terms:
    law = Gaussian(evidence.spec.sigma)
    return terms_of(
        question.method, law=law, alpha=question.alpha, margin=question.margin, map=map, temperature=temperature
    )


def needed(labels: IntArray | None) -> IntArray:
    """Return the labels, or say that they are missing."""
    if labels is None:
        raise InvalidInput("class 'label' needs labels, and the data of this run had none")
    return labels
