"""The evidence of a run, votes and scores on disk -> confidence limits and certificates. No model is needed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, TypedDict, Unpack, cast, get_args

import numpy as np

from buckler.certificate import OWN, Certificate, Claim
from buckler.certificates import Certificates
from buckler.certify.methods import Method, Reads, find, own_method, register
from buckler.certify.scores import limits_of_scores
from buckler.certify.settings import ChosenClass, Settings, make_certificates, make_settings, scoring
from buckler.certify.votes import limits_of_votes
from buckler.errors import InvalidInput, StoreError, UnsoundMethod, check_choice, check_whole
from buckler.runs.spec import CertifiedClass, RunSpec
from buckler.runs.store.evidence import Evidence
from buckler.runs.store.shard import Shard
from buckler.sampling.models import find_function, modules_here
from buckler.types import FloatArray, IntArray, MarginKind, SimplexMap


class Limits(NamedTuple):
    """Result of one method for each input: the class, how it was chosen, and the lower limit ``low`` of its margin.

    ``n`` holds the number of draws behind each limit, and ``chosen`` the classes.
    """

    ids: tuple[str, ...]
    chosen: ChosenClass
    low: FloatArray
    n: IntArray


class EvidenceLimits(NamedTuple):
    """Result of ``limits_of_evidence``: in ``answers`` the settings and limits of each method, for all inputs.

    ``labels`` are the true classes, or None, and ``contents`` hashes of the inputs' values. ``votes`` holds for each
    file of the run a table ``[inputs, classes]``: of the draws that votes were certified from, or of all draws.
    """

    answers: list[tuple[Settings, Limits]]
    labels: IntArray | None
    contents: tuple[str, ...]
    votes: list[IntArray]


class CertifiedRun(NamedTuple):
    """Certificates of all inputs of a run, one ``Certificates`` for each method, with the true classes where known.

    ``contents`` and ``votes`` are those of ``EvidenceLimits``.
    """

    certificates: list[Certificates]
    contents: tuple[str, ...]
    votes: list[IntArray]


class CertifyKeywords(TypedDict, total=False):
    """Keywords for certifying evidence; one left out or None takes its default: alpha 0.001, else the run's own.

    ``n`` is the number of first draws to use. ``certified_class`` is ``winner``, ``selection`` or ``label``. ``map``
    and ``temperature`` turn stored logits into scores.
    """

    alpha: float | None
    margin: MarginKind | None
    n: int | None
    certified_class: str | None
    map: SimplexMap | None
    temperature: float | None


def method_named(name: str, reads: Reads | None = None) -> Method:
    """Return the ``Method`` called ``name``; InvalidInput if it does not read ``reads`` (votes or scores; None: any).

    A name ``package.module:function`` is imported, with the working directory on sys.path, and is a bound of the
    user's: either a function ``(counts, alpha) -> lows``, which has no guarantee, or a ``Method`` made in that module,
    which is registered under its own name and is sound if it says so.
    """
    if ":" not in name or name.startswith(OWN):
        return find(name, reads)
    found = find_function(name, "method")
    if isinstance(found, Method):
        return find(register(found).name, reads)
    return own_method(name, _run_here(found))


def _run_here(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*given: Any) -> Any:
        with modules_here():
            return function(*given)

    return run


def certified_class_of(spec: RunSpec, wanted: str | None) -> CertifiedClass:
    """Return how a run's certified class is fixed: ``wanted``, unless that is None, else the run's default.

    That is ``selection`` for a run with selection draws, and ``winner`` for one without.
    """
    chosen = check_choice("class", wanted or ("selection" if spec.n0 else "winner"), get_args(CertifiedClass))
    if chosen == "selection" and spec.n0 == 0:
        raise InvalidInput("class must be winner or label for a run without selection draws (n0 = 0); got 'selection'")
    return cast(CertifiedClass, chosen)


def certify_evidence(
    evidence: Evidence, *, method: str | Method | None = None, **asked: Unpack[CertifyKeywords]
) -> Certificates:
    """Return the certificates of all inputs of a run, with the true classes where they are known.

    **Guarantee.** Each certificate is wrong with probability at most ``alpha``, for a method, margin, number ``n`` of
    first draws, map and temperature chosen without looking at the estimation draws.

    ``method`` reads votes (``exact``, the default; for an imported log ``top_class``) or scores
    (``pairwise/randomised_star``), as its name says. ``certified_class`` is ``"selection"`` (the default of runs with
    selection draws), ``"winner"`` or ``"label"``; the other keywords are those of ``CertifyKeywords``.
    """
    return certify_by_each(evidence, [method or evidence.spec.default_method], **asked).certificates[0]


def certify_by_each(
    evidence: Evidence, methods: Sequence[str | Method], **asked: Unpack[CertifyKeywords]
) -> CertifiedRun:
    """Return the certificates of a run by each of several methods; the run's files are read once, and checked.

    **Guarantee.** That of ``certify_evidence``, for each method alone: the best of them, picked afterwards, has none.
    """
    rules = [method_named(method) if isinstance(method, str) else method for method in methods]
    for rule in rules:
        if not rule.sound:
            raise UnsoundMethod(f"method {rule.name!r} has no guarantee and cannot issue a certificate")
    return claim_by_each(evidence, rules, **asked)


def claim_by_each(evidence: Evidence, methods: Sequence[Method], **asked: Unpack[CertifyKeywords]) -> CertifiedRun:
    """Return what each method claims about each input: a ``Certificate`` by a sound method, else a mere ``Claim``."""
    found = limits_of_evidence(evidence, methods, **asked)
    made = []
    for settings, one in found.answers:
        kind = Certificate if settings.method.sound else Claim
        claims = make_certificates(settings, one.chosen, one.low, one.n, one.ids, kind)
        made.append(replace(claims, labels=found.labels))
    return CertifiedRun(made, found.contents, found.votes)


def settings_for(
    evidence: Evidence,
    method: Method,
    *,
    alpha: float | None = None,
    margin: MarginKind | None = None,
    n: int | None = None,
    certified_class: str | None = None,
    map: SimplexMap | None = None,  # noqa: A002
    temperature: float | None = None,
) -> Settings:
    """Return the ``Settings`` with which ``method`` certifies a run, after checking that the run has what they need.

    Keywords are those of ``CertifyKeywords``. No file of votes or scores is read.
    """
    spec, how = evidence.spec, None
    certified_class_of(spec, certified_class)
    if method.reads == "scores":
        how = scoring(*evidence.score_map(map, temperature))
        if n is not None:
            check_whole("n", n, 1, spec.kept_draws)
    else:
        evidence.checkpoint(n)
    compared, differed = evidence.replayed
    if spec.noise.total is not None and differed:
        raise StoreError(
            f"{str(evidence.root)!r} cannot be certified at alpha 0: {differed} of {compared} rows gave other logits "
            "when they were run again, so its model is not one function of its input"
        )
    made = make_settings(
        noise=spec.noise,
        alpha=1e-3 if alpha is None else alpha,
        method=method if spec.noise.total is None else method.name,
        margin=margin,
        scores=how,
        seed=spec.seed if method.randomised else None,
    )
    return made if how is None else replace(made, score_dtype=spec.score_dtype or "float32")


def limits_of_evidence(
    evidence: Evidence, methods: Sequence[Method], **asked: Unpack[CertifyKeywords]
) -> EvidenceLimits:
    """Return the confidence limits of every input by each method; the files of the run are read once.

    Keywords are those of ``CertifyKeywords``. Methods without a guarantee will do, since limits are no certificates.
    """
    settled = [settings_for(evidence, method, **asked) for method in methods]
    n, scores_of = asked.get("n"), (asked.get("map"), asked.get("temperature"))
    scored = [settings for settings in settled if settings.scores is not None]
    if scores_of != (None, None) and not scored:
        names = ", ".join(method.name for method in methods)
        raise InvalidInput(f"map and temperature are for scores, with a method such as pairwise/star; got {names}")
    rule = certified_class_of(evidence.spec, asked.get("certified_class"))
    point = evidence.checkpoint(n if len(scored) < len(methods) else None)
    parts: list[list[Limits]] = [[] for _ in scored]
    held: list[Shard] = []
    for place, content in zip(evidence.shards, evidence.read_shards(), strict=True):
        if rule == "label":
            needed(content.labels)
        # Of the votes only those of one checkpoint are held; the others of a million inputs would be too many.
        held.append(replace(content, counts=content.counts[:, point : point + 1].copy()))
        for scores, selection, label in evidence.scores_of(place, content, n, *scores_of) if scored else ():
            labels = [cast(int, label)] if rule == "label" else None
            chosen = None if rule == "winner" else selection
            for settings, part in zip(scored, parts, strict=True):
                found = limits_of_scores(scores, settings, labels=labels, selection=chosen)
                part.append(Limits(scores.ids, *found))
    if not held:
        raise StoreError(f"{str(evidence.root)!r} holds no finished shard yet")
    truth = None if held[0].labels is None else np.concatenate([needed(one.labels) for one in held])
    of_scores = iter(parts)
    answers = [
        (settings, _from_votes(held, settings, rule, truth) if settings.scores is None else _joined(next(of_scores)))
        for settings in settled
    ]
    contents = tuple(name for one in held for name in one.input_hashes)
    return EvidenceLimits(answers, truth, contents, [one.counts[:, 0] for one in held])


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


def needed(labels: IntArray | None) -> IntArray:
    """Return ``labels``; raise InvalidInput if they are None, since the class to certify is the label."""
    if labels is None:
        raise InvalidInput("class 'label' needs labels, and the data of this run had none")
    return labels
