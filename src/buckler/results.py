"""What runs have come to, for the rooms that show it: certificates with labels, and all that is known of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from buckler.errors import InvalidInput
from buckler.records import Certificate, Claim
from buckler.types import AnyArray, IntArray

Said_co = TypeVar("Said_co", bound=Claim, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Certified(Generic[Said_co]):
    """The certificates of one run by one method, in the order of its inputs, and the true classes where known.

    By a method without a guarantee they are claims.
    """

    run: str
    certificates: tuple[Said_co, ...]
    labels: IntArray | None = None

    def __post_init__(self) -> None:
        """Refuse labels that are not one for each certificate, and nothing at all."""
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
class Result:
    """One run: ``groups`` holds for each method the certificates of all inputs, the same inputs in the same order.

    ``contents`` are hashes of the inputs' values where known, or ``contents_hash`` one of all of them; ``spec_toml`` is
    the specification, ``origins`` what the run says about its model and its data, ``environment`` about versions and
    devices, and ``caution`` what a reader must know about who drew it; ``planned`` is its number of inputs, and
    ``commands`` what makes it again from a file spec.toml; ``asked`` are radii that were fixed beforehand.
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

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(certificate.id for certificate in self.groups[0].certificates)

    @property
    def labels(self) -> IntArray | None:
        """The true classes, where known."""
        return self.groups[0].labels


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or the whole of it where two end alike.

    >>> short_names([Path("a/evidence"), Path("b/evidence"), Path("c/d.parquet")])
    ['a/evidence', 'b/evidence', 'd.parquet']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput(f"every run must be another one; got {', '.join(map(str, paths))}")
    ends = [path.resolve().name for path in paths]
    return [end if ends.count(end) == 1 else str(path) for end, path in zip(ends, paths, strict=True)]
