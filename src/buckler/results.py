"""Records of results that are shown: certificates as arrays, with labels, and what is known of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from buckler.certificate import Certificate, Claim, Refutation
from buckler.errors import InvalidInput
from buckler.types import AnyArray, FloatArray, IntArray

SHOWN_CLASSES = 4
"""Classes whose votes are shown beside a certificate."""

Said_co = TypeVar("Said_co", bound=Claim, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class CertificateArrays(Sequence[Certificate]):
    """Certificates of many inputs made in one way, as arrays: a million of them take some tens of megabytes.

    ``first`` has the settings that all share. ``predicted`` is -1 for an abstention. A single certificate is built, and
    validated, when it is asked for by its position.
    """

    first: Certificate
    ids: Sequence[str]
    predicted: IntArray
    radii: FloatArray
    margins: FloatArray
    n: IntArray
    n0: IntArray

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Certificate: ...
    @overload
    def __getitem__(self, place: slice) -> list[Certificate]: ...
    def __getitem__(self, place: int | slice) -> Certificate | list[Certificate]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        predicted = int(self.predicted[place])
        return replace(
            self.first,
            id=self.ids[place],
            predicted=None if predicted < 0 else predicted,
            radius=float(self.radii[place]),
            margin=float(self.margins[place]),
            n=int(self.n[place]),
            n0=int(self.n0[place]),
        )


def arrays_of(certificates: Sequence[Certificate]) -> CertificateArrays:
    """Return certificates that share their method, alpha, margin and noise as arrays."""
    if isinstance(certificates, CertificateArrays):
        return certificates
    return CertificateArrays(
        certificates[0],
        [c.id for c in certificates],
        np.array([-1 if c.predicted is None else c.predicted for c in certificates], dtype=np.int64),
        np.array([c.radius for c in certificates]),
        np.array([c.margin for c in certificates]),
        np.array([c.n for c in certificates], dtype=np.int64),
        np.array([c.n0 for c in certificates], dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Certified(Generic[Said_co]):
    """The certificates of one run by one method, in the order of its inputs, and the true classes where known.

    By a method without a guarantee they are claims.
    """

    run: str
    certificates: Sequence[Said_co]
    labels: IntArray | None = None

    def __post_init__(self) -> None:
        if not self.certificates:
            raise InvalidInput(f"{self.run} must have at least one certificate; got none")
        if self.labels is not None and self.labels.shape != (len(self.certificates),):
            raise InvalidInput(f"labels must be one for each of {len(self.certificates)} certificates")


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """The inputs of a result, in its order, with values in [low, high]; they are looked at once."""

    low: float
    high: float
    inputs: Iterable[AnyArray]


@dataclass(frozen=True, slots=True, eq=False)
class TopVotes:
    """The classes with the most votes, most first: ``classes[input, k]`` has ``counts[input, k]`` of ``n[input]``.

    Where an input has votes for fewer classes, counts end in zeros.
    """

    classes: IntArray
    counts: IntArray
    n: IntArray


def top_votes(shards: Iterable[IntArray], classes: int = SHOWN_CLASSES) -> TopVotes:
    """Return the classes with the most votes from tables ``[inputs, m]``, one after the other.

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
    """One run: ``groups`` holds for each method the certificates of all inputs, the same inputs in the same order.

    ``contents`` are hashes of the inputs' values where known, or ``contents_hash`` one of all of them; ``spec_toml`` is
    the specification, ``origins`` what the run says about its model and its data, ``environment`` about versions and
    devices, and ``caution`` what a reader must know about who drew it; ``planned`` is its number of inputs, and
    ``commands`` what makes it again from a file spec.toml; ``asked`` are radii that were fixed beforehand; ``votes``
    are those of the draws that were certified, where known, and ``refutations`` what was found beyond certified radii;
    ``true_votes``, ``[inputs, 2]``, are the votes for the true class and all other draws, of the first draws of each.
    """

    path: Path
    groups: tuple[Certified[Certificate], ...]
    planned: int
    contents: tuple[str, ...] | None
    contents_hash: str | None
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
        """The names of the inputs."""
        return tuple(arrays_of(self.groups[0].certificates).ids)

    @property
    def labels(self) -> IntArray | None:
        """The true classes, where known."""
        return self.groups[0].labels


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, as many as tell it from the others.

    >>> short_names([Path("/home/me/a/evidence"), Path("/home/me/b/evidence"), Path("c/d.parquet")])
    ['a/evidence', 'b/evidence', 'd.parquet']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput(f"every run must be another one; got {', '.join(map(str, paths))}")
    whole = [path.resolve().parts for path in paths]
    return ["/".join(parts[-_needed(parts, whole) :]) for parts in whole]


def _needed(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> int:
    """Return how many last parts of a path no other path ends in."""
    return next(k for k in range(1, len(parts) + 1) if sum(other[-k:] == parts[-k:] for other in others) == 1)
