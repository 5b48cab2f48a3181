"""Reads a folder or a file of a run as one ``Result``: its certificates by each method, and how they were made."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from buckler.certificate import Refutation
from buckler.certificates import Certificates
from buckler.certify.methods import sound_methods
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, check_whole, first_repeated
from buckler.evaluate.population import LARGEST_POPULATION_N
from buckler.runs.certify import CertifyKeywords, certify_by_each, method_named
from buckler.runs.identity import Lookup, Provenance, provenance, records_in, replayed_in
from buckler.runs.spec import IMPORTED, NO_RIVALS, RunSpec, from_dict
from buckler.runs.store.evidence import Evidence, open_evidence, refuse_log
from buckler.runs.store.tables import certificates_in, contents_in, read_decisions, read_refutations, read_rows
from buckler.sampling.datasets import open_dataset
from buckler.types import AnyArray, IntArray

SHOWN_CLASSES = 4
"""Number of classes whose votes are shown beside a certificate."""


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """The inputs of a result as arrays, in its order, with values from ``low`` to ``high``; they are iterated once."""

    low: float
    high: float
    inputs: Iterable[AnyArray]


@dataclass(frozen=True, slots=True, eq=False)
class TopVotes:
    """The classes with the most votes for each input, most first, as arrays ``[inputs, places]``.

    ``classes[i, k]`` has ``counts[i, k]`` of the ``n[i]`` votes of input i. Where an input has votes for fewer classes,
    counts end in zeros.
    """

    classes: IntArray
    counts: IntArray
    n: IntArray


def top_votes(shards: Iterable[IntArray], classes: int = SHOWN_CLASSES) -> TopVotes:
    """Return the ``classes`` classes with the most votes of each input, from tables of votes ``[inputs, all classes]``.

    The inputs of one table come after those of the table before.

    >>> top_votes([np.array([[3, 0, 90, 7]])], 2).classes
    array([[2, 3]])
    """
    found = []
    for votes in shards:
        order = np.argsort(-votes, axis=1, kind="stable")[:, :classes]
        found.append((order, np.take_along_axis(votes, order, axis=1), votes.sum(axis=1)))
    return TopVotes(*(np.concatenate(part) for part in zip(*found, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One run, or one file of certificates, as reports read it.

    ``groups`` holds for each method the certificates of all inputs, the same inputs in the same order; ``planned`` is
    the number of inputs of the whole run. ``contents`` are hashes of the inputs' values, or None. ``spec`` is the run's
    specification, ``spec_toml`` the same as text, and ``commands`` make the run again from a file spec.toml.
    ``origins`` describe its model and its data, ``environment`` the versions and devices, and ``caution`` what a reader
    must know about who drew it. ``asked`` are the radii given to ``decide``. ``votes`` are those that were certified
    from, or None. ``refutations`` are what ``refute`` found. ``true_votes``, ``[inputs, 2]``, count votes for the true
    class and all others, among the first draws of each input.
    """

    path: Path
    groups: tuple[Certificates, ...]
    planned: int
    contents: tuple[str, ...] | None
    spec: Mapping[str, Any] | None
    spec_toml: str | None
    origins: Mapping[str, str]
    environment: Mapping[str, str]
    caution: str
    commands: tuple[str, ...]
    pictures: Pictures | None = None
    asked: tuple[float, ...] = ()
    votes: TopVotes | None = None
    refutations: tuple[Refutation, ...] = ()
    true_votes: IntArray | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the inputs; the certificates of each method have the same ones in the same order."""
        return tuple(self.groups[0].ids)

    @property
    def labels(self) -> IntArray | None:
        """The true class of each input; None where they are not known."""
        return self.groups[0].labels


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each path: its last parts, as many as tell it from the other paths.

    >>> short_names([Path("/home/me/a/evidence"), Path("/home/me/b/evidence"), Path("c/d.parquet")])
    ['a/evidence', 'b/evidence', 'd.parquet']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput(f"runs must be different paths; got one twice in {', '.join(map(str, paths))}")
    whole = [path.resolve().parts for path in paths]
    return ["/".join(parts[-_needed(parts, whole) :]) for parts in whole]


def _needed(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> int:
    """Return the smallest number of last parts of a path that no other path ends in."""
    return next(k for k in range(1, len(parts) + 1) if sum(other[-k:] == parts[-k:] for other in others) == 1)


def read_result(path: Path, methods: Sequence[str] = (), **asked: Unpack[CertifyKeywords]) -> Result:
    """Return the ``Result`` at a path: a run is certified by each of ``methods``; certificates in a file are read.

    Without ``methods`` a run is certified by every sound method for votes, and all certificates of a file are read.
    Other keywords are those of ``certify_evidence``, for runs alone.
    """
    if path.is_dir():
        return _from_evidence(path, methods, asked)
    if path.is_file():
        refuse_log(path)
    if not path.is_file() or path.suffix == ".csv":
        raise InvalidInput(
            f"RUN must be a folder of buckler sample or a Parquet file of certificates; got {str(path)!r}"
            + ("" if path.exists() else ", which does not exist")
        )
    return _from_certificates(path, methods, asked)


def _from_evidence(path: Path, methods: Sequence[str], asked: CertifyKeywords) -> Result:
    evidence = open_evidence(path)
    drawn = evidence.provenance()
    alone = evidence.spec.noise.total is not None or evidence.spec.model == IMPORTED
    usual = (evidence.spec.default_method,) if alone else tuple(method.name for method in sound_methods())
    made = certify_by_each(evidence, methods or usual, **asked)
    return Result(
        path=path,
        groups=tuple(made.certificates),
        planned=evidence.inputs,
        contents=made.contents,
        spec=evidence.spec.as_dict(),
        spec_toml=_again(evidence.spec),
        origins={"classifier": evidence.seals[0]["drawn_by"]["answers"], **evidence.manifest["owner"]},
        environment=drawn.environment,
        caution=f"Note: {NO_RIVALS}." if evidence.spec.model == IMPORTED else drawn.caution,
        commands=(_command("sample", {str(path): None, "--spec": "spec.toml"}),),
        votes=top_votes(made.votes),
        true_votes=None if _lacking(evidence, asked.get("n")) else _true_votes(evidence, asked.get("n")),
    )


def votes_for_limit(evidence: Evidence, n: int | None = None) -> IntArray:
    """Return how many of each input's first draws voted for its true class, and how many did not, ``[inputs, 2]``.

    The draws are the first ``n``, or without n as many as a limit for the population (``population_accuracy``) can
    take. InvalidInput says what the run lacks for this, as labels.
    """
    if n is not None:
        evidence.checkpoint(check_whole("n", n, 1, LARGEST_POPULATION_N))
    votes = None if _lacking(evidence, n) else _true_votes(evidence, n)
    if votes is None:
        lacks = _lacking(evidence, n) or "labels (sample takes them from --data, or for arrays without from --labels)"
        raise InvalidInput(f"the run must have {lacks}; {str(evidence.root)!r} has none")
    return votes


def _true_votes(evidence: Evidence, n: int | None) -> IntArray | None:
    """Return what ``votes_for_limit`` returns, None where there are no labels."""
    draws = max(p for p in evidence.spec.checkpoints if p <= (n or inf) and p <= LARGEST_POPULATION_N)
    votes = evidence.counts(draws)
    if votes.labels is None:
        return None
    known = (votes.labels >= 0) & (votes.labels < evidence.spec.num_classes)  # others are classes that the model lacks
    right = np.where(known, votes.values[np.arange(len(known)), np.where(known, votes.labels, 0)], 0)
    return np.stack([right, draws - right], axis=1)


def _lacking(evidence: Evidence, n: int | None) -> str | None:
    """Return what a run lacks, beside labels, for the votes of true classes to be known; None if nothing."""
    spec, smallest = evidence.spec, evidence.spec.checkpoints[0]
    if spec.model == IMPORTED:
        return "votes that were counted, not recovered from a log"
    if spec.noise.total is not None:
        return f"noise that is drawn at random, not {spec.noise.describe()}"
    if not evidence.shards:
        return "a finished shard"
    if smallest > min(n or LARGEST_POPULATION_N, LARGEST_POPULATION_N):
        return f"a checkpoint of at most {LARGEST_POPULATION_N:,} draws (its first is {smallest:,})"
    return None


def _from_certificates(path: Path, methods: Sequence[str], asked: CertifyKeywords) -> Result:
    for name, value in asked.items():
        if value is not None:
            called = name.removeprefix("certified_")
            raise InvalidInput(f"{called} is for folders of evidence; {str(path)!r} holds certificates already made")
    table, origin = read_rows(path)
    names = [method_named(method).name for method in methods]  # certificates by one's own need it registered
    groups = _grouped(path, certificates_in(table, path).by_kind(), names)
    spec, owner = origin.get("spec"), _table(origin, "owner") if "owner" in origin else origin
    votes = None
    drawn = Provenance({k: str(v) for k, v in _table(origin, "environment").items()}, str(origin.get("caution", "")))
    if "drawn_by" in origin:
        made, records = read_decisions(path), records_in(origin)
        drawn = provenance([(records[drawing.drawn_by], 1) for drawing in made.drawings], replayed_in(origin))
        votes = _votes_of(made.decided) if len(groups) == 1 else None
    return Result(
        path=path,
        groups=groups,
        planned=len(groups[0]),
        contents=contents_in(table, groups[0].ids, path),
        spec=spec if isinstance(spec, dict) else None,
        spec_toml=_again(from_dict(spec)) if isinstance(spec, dict) else None,
        origins={key: str(owner[key]) for key in ("classifier", "data", "spec") if isinstance(owner.get(key), str)},
        environment=drawn.environment,
        caution=drawn.caution,
        commands=_commands(path, origin) if isinstance(spec, dict) else (),
        asked=_asked(origin),
        votes=votes,
    )


def _table(origin: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return found if isinstance(found := origin.get(name), dict) else {}


def _votes_of(decisions: Sequence[Decided]) -> TopVotes:
    rows = [sorted(decided.votes, key=lambda pair: (-pair[1], pair[0]))[:SHOWN_CLASSES] for decided in decisions]
    table = np.array([[*row, *[(0, 0)] * (SHOWN_CLASSES - len(row))] for row in rows], dtype=np.int64)
    return TopVotes(table[..., 0], table[..., 1], np.array([decided.certificate.n for decided in decisions]))


def _again(spec: RunSpec) -> str:
    """Return a specification that repeats the draws: a fresh seed becomes a given one."""
    return replace(spec, fresh_seed=False).to_toml()


def _asked(origin: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the radii that a file's origin says were decided; () if these are not rising numbers."""
    radii = origin.get("radii")
    fit = isinstance(radii, list) and all(type(radius) is float and radius > 0.0 for radius in radii)
    return tuple(radii) if fit and radii == sorted(set(radii)) else ()  # type: ignore[arg-type]


def _commands(path: Path, origin: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commands that make a file of certificates again, from its origin."""
    chosen = {f"--{key}": origin[key] for key in ("alpha", "class") if origin.get(key) is not None}
    if isinstance(radii := origin.get("radii"), list):
        asked = {"--radii": ",".join(map(str, radii))} if radii else {"--precision": origin.get("precision")}
        fixed = {**asked, "--spec": "spec.toml", "--margin": origin.get("margin")}
        return (_command("decide", {**fixed, **chosen, "--out": path}),)
    ways = ("method", "margin", "n", "map", "temperature")
    chosen |= {f"--{key}": origin[key] for key in ways if origin.get(key) is not None}
    return _command("sample", {"run": None, "--spec": "spec.toml"}), _command(
        "certify", {"run": None, **chosen, "--out": path}
    )


def _command(name: str, options: Mapping[str, object]) -> str:
    return shlex.join(["buckler", name, *(str(part) for pair in options.items() for part in pair if part is not None)])


def _grouped(path: Path, groups: Sequence[Certificates], methods: Sequence[str]) -> tuple[Certificates, ...]:
    """Return the groups by these methods, or by all, in the order of the first one's inputs."""
    chosen = [group for group in groups if not methods or group.first.method in methods]
    if not chosen:
        raise InvalidInput(f"{str(path)!r} holds no certificate{' by the methods asked for' if methods else ''}")
    made = []
    for group in chosen:
        if (twice := first_repeated(group.ids)) is not None:
            raise InvalidInput(
                f"{str(path)!r} holds more than one certificate of {twice!r} by method {group.first.method!r}"
            )
        place = {name: i for i, name in enumerate(group.ids)}
        if place.keys() != set(chosen[0].ids):
            raise InvalidInput(f"{str(path)!r} must hold certificates of the same inputs by every method")
        made.append(group[[place[name] for name in chosen[0].ids]])
    return tuple(made)


def with_data(result: Result, data: str) -> Result:
    """Return ``result`` with pictures of its inputs, and labels if it had none, from the data that were certified.

    ``data`` names them as for ``buckler sample``. Inputs with other values than those certified are refused, with
    InvalidInput, when the pictures are loaded.
    """
    spec = result.spec or {}
    dataset = open_dataset(
        data,
        labels=spec.get("labels"),
        resize=spec.get("resize"),
        crop=spec.get("crop"),
        value_range=tuple(spec.get("value_range", (0.0, 1.0))),
    )
    lookup, groups = Lookup(dataset, result.path), result.groups
    places = lookup.places(result.ids)
    if result.labels is None and dataset.labels is not None:
        labels = dataset.labels[places]
        groups = tuple(replace(group, labels=labels) for group in groups)
    pictures = Pictures(dataset.low, dataset.high, lookup.inputs(result.ids, result.contents))
    return replace(result, groups=groups, pictures=pictures)


def with_refutations(result: Result, path: Path) -> Result:
    """Return ``result`` with the refutations in a file of ``buckler refute``.

    InvalidInput if one is of another input, or under another noise.
    """
    made = [bracket.refutation for bracket in read_refutations(path)[0]]
    known, noise = set(result.ids), result.groups[0].first.noise
    for one in made:
        if one.id not in known or one.noise.describe() != noise.describe():
            raise InvalidInput(f"{str(path)!r} holds a refutation that is not of {str(result.path)!r}: {one.id!r}")
    return replace(result, refutations=tuple(made))
