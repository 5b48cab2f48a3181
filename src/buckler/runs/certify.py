"""Evidence on disk -> limits and certificates, from its votes or from its scores. No model is needed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from buckler.certify.counts import limits_of_counts
from buckler.certify.make_certificates import MarginLimits, Terms, claim, issue, terms_of
from buckler.certify.method import Method
from buckler.certify.scores import limits_of_scores
from buckler.errors import InvalidInput, StoreError, UnsoundMethod, check_choice
from buckler.records import Certificate, Claim, Counts
from buckler.runs.plugins import method_named
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import Evidence
from buckler.runs.store.shard import Shard
from buckler.types import IntArray, MarginKind, SimplexMap

CertifiedClass = Literal["label", "selection", "votes"]


class Question(NamedTuple):
    """How evidence is to be certified; ``n`` is a prefix of the draws, None all of them."""

    method: Method
    alpha: float = 1e-3
    margin: MarginKind | None = None
    n: int | None = None
    certified_class: str | None = None
    map: SimplexMap | None = None
    temperature: float | None = None


def certified_class_of(spec: RunSpec, wanted: str | None) -> CertifiedClass:
    """Return how the class is fixed: as wanted, else by the selection draws where there are any, else by the label.

    Where the votes are those of all copies, they fix it themselves.
    """
    every = spec.noise_law.total is not None
    chosen = wanted or ("votes" if every else "label" if spec.n0 == 0 else "selection")
    check_choice("class", chosen, get_args(CertifiedClass))
    if chosen == "votes" and not every:
        raise InvalidInput("class 'votes' is for votes of all copies of a law; these are of drawn ones")
    if chosen == "selection" and spec.n0 == 0:
        raise InvalidInput("class 'selection' needs selection draws, and this run has none (n0 = 0)")
    return cast(CertifiedClass, chosen)


class CertifiedRun(NamedTuple):
    """The certificates of all inputs by each method; their labels where known, hashes of their values, and votes.

    ``votes`` are a table ``[inputs, m]`` for each shard: of the draws that were certified, or of all where scores were.
    """

    certificates: list[list[Certificate]]
    labels: IntArray | None
    contents: tuple[str, ...]
    votes: list[IntArray]


def certify_evidence(
    evidence: Evidence,
    *,
    alpha: float = 1e-3,
    method: str = "exact",
    margin: MarginKind | None = None,
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
    rule = _sound(method)
    question = Question(rule, alpha, margin, n, certified_class, map, temperature)
    terms, limits, labels = limits_of_evidence(evidence, question)
    return issue(terms, limits), labels


def certify_by_each(evidence: Evidence, methods: Sequence[str], **how: Any) -> CertifiedRun:
    """Return the certificates of a run by each of several methods; its files are read, and checked, once.

    **Guarantee.** That of ``certify_evidence``, for each method alone: the best of them, picked afterwards, has none.
    Keywords are those of ``certify_evidence``.
    """
    found = _limits_by_each(evidence, [Question(_sound(method), **how) for method in methods])
    return CertifiedRun([issue(*pair) for pair in found.limits], *found[1:])


def claim_evidence(evidence: Evidence, *, method: str, **how: Any) -> tuple[list[Claim], IntArray | None]:
    """Return what any method would say, without a promise, and the labels; keywords as in ``certify_evidence``."""
    terms, limits, labels = limits_of_evidence(evidence, Question(method_named(method), **how))
    return claim(terms, limits), labels


def limits_of_evidence(evidence: Evidence, question: Question) -> tuple[Terms, MarginLimits, IntArray | None]:
    """Return the limit of each input's margin with the terms it holds on, and the labels where they are known."""
    found = _limits_by_each(evidence, [question])
    return *found.limits[0], found.labels


class _Found(NamedTuple):
    limits: list[tuple[Terms, MarginLimits]]
    labels: IntArray | None
    contents: tuple[str, ...]
    votes: list[IntArray]


def _limits_by_each(evidence: Evidence, questions: Sequence[Question]) -> _Found:
    """Return the answers to questions that differ in their method alone, in one pass over the shards."""
    first = questions[0]
    by_label = certified_class_of(evidence.spec, first.certified_class) == "label"
    scored = [question for question in questions if question.method.reads == "scores"]
    names = ", ".join(question.method.name for question in questions)
    if (first.map is not None or first.temperature is not None) and not scored:
        raise InvalidInput(f"map and temperature are for scores, with a method such as pairwise/star; got {names}")
    if scored and evidence.spec.scores == "none":
        raise StoreError(f"method {names} is for scores, and {str(evidence.root)!r} was sampled without scores")
    point = evidence.checkpoint(first.n if len(scored) < len(questions) else None)
    of_scores: dict[str, list[MarginLimits]] = {question.method.name: [] for question in scored}
    kind: tuple[SimplexMap, float | None] = ("softmax", None)
    held: list[Shard] = []
    for place, content in zip(evidence.shards, evidence.read_shards(), strict=True):
        if by_label:
            needed(content.labels)
        # Of the votes only those of one checkpoint are held; the others of a million inputs would be too many.
        held.append(replace(content, counts=content.counts[:, point : point + 1].copy()))
        if not scored:
            continue
        for scores, selection, label in evidence.scores_of(place, content, first.n, first.map, first.temperature):
            kind = scores.map, scores.temperature
            about = [cast(int, label)] if by_label else None
            for question in scored:
                terms = terms_for(evidence, question, *kind)
                made_of = limits_of_scores(scores, terms, label=about, selection=selection)
                of_scores[question.method.name].append(made_of)
    if not held:
        raise StoreError(f"{str(evidence.root)!r} holds no finished shard yet")
    labels = None if held[0].labels is None else np.concatenate([needed(one.labels) for one in held])
    made = []
    for question in questions:
        if question in scored:
            made.append((terms_for(evidence, question, *kind), _joined(of_scores[question.method.name])))
        else:
            terms = terms_for(evidence, question)
            made.append((terms, _of_votes(held, terms, labels if by_label else None)))
    contents = tuple(name for one in held for name in one.input_hashes)
    return _Found(made, labels, contents, [one.counts[:, 0] for one in held])


def _of_votes(held: Sequence[Shard], terms: Terms, labels: IntArray | None) -> MarginLimits:
    ids = tuple(name for one in held for name in one.ids)
    drawn = None
    if labels is None and terms.law.total is None:
        drawn = np.concatenate([cast(IntArray, one.selection) for one in held])
    return limits_of_counts(
        Counts(ids, np.concatenate([one.counts[:, 0] for one in held])),
        terms,
        label=labels,
        selection=None if drawn is None else Counts(ids, drawn),
    )


def _joined(made: Sequence[MarginLimits]) -> MarginLimits:
    parts = ("chosen", "low", "n", "n0")
    chosen, low, n, n0 = (np.concatenate([getattr(one, part) for one in made]) for part in parts)
    return MarginLimits([name for one in made for name in one.ids], chosen, low, n, n0)


def _sound(name: str) -> Method:
    rule = method_named(name)
    if not rule.sound:
        raise UnsoundMethod(f"method {name!r} has no guarantee and cannot issue a certificate")
    return rule


def terms_for(
    evidence: Evidence,
    question: Question,
    map: SimplexMap = "hardmax",  # noqa: A002
    temperature: float | None = None,
) -> Terms:
    """Return the terms on which a question about evidence is answered: the law is that of its draws."""
    spec = evidence.spec
    return terms_of(
        question.method, law=spec.noise_law, alpha=question.alpha, margin=question.margin, scores=(map, temperature),
    )  # fmt: skip


def needed(labels: IntArray | None) -> IntArray:
    """Return the labels, or say that they are missing."""
    if labels is None:
        raise InvalidInput("class 'label' needs labels, and the data of this run had none")
    return labels
