"""Evidence on disk -> limits and certificates, from its votes or from its scores. No model is needed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypedDict, Unpack, cast, get_args

import numpy as np

from buckler.certificate import Claim
from buckler.certificates import Certificates
from buckler.certify.methods import Method
from buckler.certify.scores import limits_of_scores
from buckler.certify.settings import ChosenClass, Settings, make_certificates, make_settings, scoring
from buckler.certify.votes import limits_of_votes
from buckler.errors import InvalidInput, StoreError, UnsoundMethod, check_choice
from buckler.runs.plugins import method_named
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import Evidence
from buckler.runs.store.shard import Shard
from buckler.types import FloatArray, IntArray, MarginKind, SimplexMap

CertifiedClass = Literal["winner", "selection", "label"]
"""How the certified class is fixed: the class with the most votes, tested to be the winner; the top class of the
selection draws; or the label."""


class Limits(NamedTuple):
    """Limits of one method: class of each input, how it was chosen, lower limit of its margin, number of draws."""

    ids: tuple[str, ...]
    chosen: ChosenClass
    low: FloatArray
    n: IntArray


class EvidenceLimits(NamedTuple):
    """Limits of all inputs by each method with their settings; labels where known, hashes of the inputs, and votes.

    ``votes`` are a table ``[inputs, m]`` for each shard: of the draws that were certified, or of all where scores were.
    """

    answers: list[tuple[Settings, Limits]]
    labels: IntArray | None
    contents: tuple[str, ...]
    votes: list[IntArray]


class CertifiedRun(NamedTuple):
    """The certificates of all inputs by each method, and the rest of ``EvidenceLimits``."""

    certificates: list[Certificates]
    labels: IntArray | None
    contents: tuple[str, ...]
    votes: list[IntArray]


def certified_class_of(spec: RunSpec, wanted: str | None) -> CertifiedClass:
    """Return how the class is fixed: as wanted, else by the selection draws where there are any, else the winner."""
    chosen = check_choice("class", wanted or ("selection" if spec.n0 else "winner"), get_args(CertifiedClass))
    if chosen == "selection" and spec.n0 == 0:
        raise InvalidInput("class 'selection' needs selection draws, and this run has none (n0 = 0)")
    return cast(CertifiedClass, chosen)


class CertifyKeywords(TypedDict, total=False):
    """Keywords that say how evidence is certified; None is what the run suggests, and alpha is 0.001 unless told."""

    alpha: float | None
    margin: MarginKind | None
    n: int | None
    certified_class: str | None
    map: SimplexMap | None
    temperature: float | None


def certify_evidence(
    evidence: Evidence, *, method: str | Method | None = None, **asked: Unpack[CertifyKeywords]
) -> tuple[Certificates, IntArray | None]:
    """Return the certificates of a run, and the labels where they are known.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha``, for a method, margin, number ``n`` of
    first draws, map and temperature chosen without looking at the estimation draws.

    The method reads votes (``exact``, the default; for an imported log ``top_class``) or scores
    (``pairwise/randomised_star``), as its name says. ``certified_class`` is ``"selection"`` (the default of runs with
    selection draws), ``"winner"`` or ``"label"``.
    """
    made = certify_by_each(evidence, [method or evidence.spec.default_method], **asked)
    return made.certificates[0], made.labels


def certify_by_each(
    evidence: Evidence, methods: Sequence[str | Method], **asked: Unpack[CertifyKeywords]
) -> CertifiedRun:
    """Return the certificates of a run by each of several methods; its files are read, and checked, once.

    **Guarantee.** That of ``certify_evidence``, for each method alone: the best of them, picked afterwards, has none.
    """
    found = limits_of_evidence(evidence, [_sound(method) for method in methods], **asked)
    made = [make_certificates(settings, one.chosen, one.low, one.n, one.ids) for settings, one in found.answers]
    return CertifiedRun(made, *found[1:])


def claim_evidence(
    evidence: Evidence, *, method: str | Method, **asked: Unpack[CertifyKeywords]
) -> tuple[Certificates, IntArray | None]:
    """Return what any method claims, sound or not, and the labels; arguments are those of ``certify_evidence``."""
    rule = method_named(method) if isinstance(method, str) else method
    found = limits_of_evidence(evidence, [rule], **asked)
    settings, one = found.answers[0]
    return make_certificates(settings, one.chosen, one.low, one.n, one.ids, Claim), found.labels


def limits_of_evidence(
    evidence: Evidence, methods: Sequence[Method], **asked: Unpack[CertifyKeywords]
) -> EvidenceLimits:
    """Return the limits of every input by each method, in one pass over the shards."""
    if unknown := sorted(asked.keys() - CertifyKeywords.__annotations__.keys()):
        raise TypeError(f"keywords must be among {', '.join(CertifyKeywords.__annotations__)}; got {unknown[0]!r}")
    spec, rule = evidence.spec, certified_class_of(evidence.spec, asked.get("certified_class"))
    n, scores_of = asked.get("n"), (asked.get("map"), asked.get("temperature"))
    scored = [method for method in methods if method.reads == "scores"]
    names = ", ".join(method.name for method in methods)
    if scores_of != (None, None) and not scored:
        raise InvalidInput(f"map and temperature are for scores, with a method such as pairwise/star; got {names}")
    if scored and spec.scores == "none":
        raise StoreError(f"method {names} is for scores, and {str(evidence.root)!r} was sampled without scores")
    compared, differed = evidence.replayed
    if spec.noise.total is not None and differed:
        raise StoreError(
            f"{str(evidence.root)!r} cannot be certified at alpha 0: {differed} of {compared} rows gave other logits "
            "when they were run again, so its model is not one function of its input"
        )
    settled = {
        "noise": spec.noise,
        "alpha": 1e-3 if asked.get("alpha") is None else asked["alpha"],
        "margin": asked.get("margin"),
    }
    point = evidence.checkpoint(n if len(scored) < len(methods) else None)
    of_scores: dict[str, list[tuple[Settings, Limits]]] = {method.name: [] for method in scored}
    held: list[Shard] = []
    for place, content in zip(evidence.shards, evidence.read_shards(), strict=True):
        if rule == "label":
            needed(content.labels)
        # Of the votes only those of one checkpoint are held; the others of a million inputs would be too many.
        held.append(replace(content, counts=content.counts[:, point : point + 1].copy()))
        if not scored:
            continue
        for scores, selection, label in evidence.scores_of(place, content, n, *scores_of):
            how = scoring(scores.map, scores.temperature)
            labels = [cast(int, label)] if rule == "label" else None
            for method in scored:
                seed = spec.seed if method.randomised else None
                made = make_settings(**settled, method=method, scores=how, seed=seed)  # type: ignore[arg-type]
                settings = replace(made, score_dtype=spec.score_dtype or "float32")
                chosen = None if rule == "winner" else selection
                answer = Limits(scores.ids, *limits_of_scores(scores, settings, labels=labels, selection=chosen))
                of_scores[method.name].append((settings, answer))
    if not held:
        raise StoreError(f"{str(evidence.root)!r} holds no finished shard yet")
    truth = None if held[0].labels is None else np.concatenate([needed(one.labels) for one in held])
    answers = []
    for method in methods:
        if method in scored:
            parts = of_scores[method.name]
            answers.append((parts[0][0], _joined([part for _, part in parts])))
        else:
            settings = make_settings(**settled, method=_unless_enumerated(spec, method))  # type: ignore[arg-type]
            answers.append((settings, _from_votes(held, settings, rule, truth)))
    contents = tuple(name for one in held for name in one.input_hashes)
    return EvidenceLimits(answers, truth, contents, [one.counts[:, 0] for one in held])


def _unless_enumerated(spec: RunSpec, method: Method) -> Method | str:
    return method.name if spec.noise.total is not None else method


def _from_votes(held: Sequence[Shard], settings: Settings, rule: CertifiedClass, labels: IntArray | None) -> Limits:
    selection = np.concatenate([cast(IntArray, one.selection) for one in held]) if rule == "selection" else None
    found = limits_of_votes(
        np.concatenate([one.counts[:, 0] for one in held]),
        settings,
        labels=labels if rule == "label" else None,
        selection=selection,
    )
    return Limits(tuple(name for one in held for name in one.ids), *found)


def _joined(parts: Sequence[Limits]) -> Limits:
    first = parts[0].chosen
    chosen = ChosenClass(
        np.concatenate([one.chosen.classes for one in parts]),
        np.concatenate([one.chosen.n0 for one in parts]),
        first.alpha,
        first.winner_alpha,
    )
    ids = tuple(name for one in parts for name in one.ids)
    return Limits(ids, chosen, np.concatenate([one.low for one in parts]), np.concatenate([one.n for one in parts]))


def _sound(method: str | Method) -> Method:
    rule = method_named(method) if isinstance(method, str) else method
    if not rule.sound:
        raise UnsoundMethod(f"method {rule.name!r} has no guarantee and cannot issue a certificate")
    return rule


def needed(labels: IntArray | None) -> IntArray:
    """Return the labels; raise InvalidInput if there are none."""
    if labels is None:
        raise InvalidInput("class 'label' needs labels, and the data of this run had none")
    return labels
