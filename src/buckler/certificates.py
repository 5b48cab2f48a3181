"""Certificates of many inputs: a list that people ask for radii, frames, accuracies and pictures.

What counts, draws or writes them stands in rooms that know certificates; they are loaded when a method is called.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, cast, overload

import numpy as np

from buckler.certificate import Certificate, Claim, rounded_down
from buckler.errors import InvalidInput, MissingExtra, show
from buckler.types import AnyArray, ArrayLike, BoolArray, FloatArray, IntArray, Label

if TYPE_CHECKING:
    from buckler.certify.sequential import Decided
    from buckler.evaluate.curves import Curve

SHOWN = 10
"""Rows that a notebook shows."""

STEPS = 200
"""Radii of a curve where none were asked for."""


Said_co = TypeVar("Said_co", bound=Claim, covariant=True)


def as_labels(labels: Sequence[Label | None]) -> AnyArray:
    """Return classes as an array: whole numbers with -1 for None, or texts with None, of dtype object."""
    if any(isinstance(label, str) for label in labels):
        return np.array(labels, dtype=object)
    return np.array([-1 if label is None else label for label in labels], dtype=np.int64)


class Certificates(list[Certificate]):
    """The certificates of many inputs, in their order; each holds by itself, with its own error probability.

    ``asked`` is the number of inputs that were to be certified: more than there are certificates where drawing was
    interrupted, and then these are of the first inputs. ``decided`` tells how each input ended that was drawn until
    decided. ``classes`` are the model's classes, where they are known: ``accuracy`` and ``curve`` refuse a label that
    is none of them.

    >>> from buckler import certify_votes
    >>> made = certify_votes([[99, 1], [60, 40]], sigma=0.5, labels=[0, 0])
    >>> made
    Certificates(2 inputs, 1 abstained, median radius 0.3373)
    >>> made.radii.round(4), made.predicted, made.abstained
    (array([0.6746, 0.    ]), array([ 0, -1]), array([False,  True]))
    >>> made.accuracy([0, 0], [0.0, 0.5, 1.0])
    array([0.5, 0.5, 0. ])
    """

    def __init__(
        self,
        certificates: Iterable[Certificate] = (),
        *,
        asked: int | None = None,
        classes: Iterable[Label] | None = None,
        decided: Iterable["Decided"] | None = None,
    ) -> None:
        super().__init__(certificates)
        self.decided = None if decided is None else tuple(decided)
        self.classes = None if classes is None else tuple(classes)
        self.asked = len(self) if asked is None else asked

    @overload
    def __getitem__(self, where: SupportsIndex) -> Certificate: ...  # type: ignore[overload-overlap]  # of an array too
    @overload
    def __getitem__(self, where: slice | AnyArray | Sequence[int]) -> "Certificates": ...
    def __getitem__(self, where: SupportsIndex | slice | AnyArray | Sequence[int]) -> "Certificate | Certificates":
        # A slice, positions or a mask choose several.
        if isinstance(where, slice):
            return Certificates(super().__getitem__(where), classes=self.classes)
        if np.ndim(cast(Any, where)):
            chosen: AnyArray = np.asarray(where)
            # An empty list is of no type, and chooses nothing.
            rows = np.arange(len(self))[chosen if chosen.size else []]
            return Certificates((self[int(i)] for i in rows), classes=self.classes)
        return super().__getitem__(cast(SupportsIndex, where))

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(c.id for c in self)

    @property
    def radii(self) -> FloatArray:
        """The certified radii, 0 for an abstention."""
        return np.array([c.radius for c in self], dtype=np.float64)

    @property
    def predicted(self) -> AnyArray:
        """The certified classes, -1 for an abstention; where classes are texts, None."""
        return as_labels([c.predicted for c in self])

    @property
    def abstained(self) -> BoolArray:
        """Where nothing is certified."""
        return np.array([c.abstained for c in self], dtype=np.bool_)

    def curve(self, labels: ArrayLike | None = None, radii: ArrayLike | None = None, *, delta: float = 1e-3) -> "Curve":
        """Return certified accuracy against radius with its band, or without labels the share certified (T19)."""
        from buckler.evaluate.curves import certified_accuracy, certified_share

        if not self:
            raise InvalidInput("certificates must hold at least one certificate; got none")
        grid = np.linspace(0.0, 1.02 * max(float(self.radii.max()), 1e-9), STEPS) if radii is None else radii
        if labels is None:
            return certified_share(self, grid, delta=delta)
        if self.classes is not None:
            known = set(self.classes)
            strange = [label for label in np.asarray(labels).ravel().tolist() if label not in known]
            if strange:
                raise InvalidInput(
                    f"labels must be among the model's classes {show(self.classes)}; got {show(strange[0])}"
                )
        return certified_accuracy(self, labels, grid, delta=delta)

    def accuracy(self, labels: ArrayLike, radii: ArrayLike = 0.0) -> FloatArray:
        """Return the share of inputs that are predicted right and certified to at least each radius.

        Abstentions count as wrong. ``curve`` has the limit below which the truth is not, too.
        """
        if labels is None:
            raise InvalidInput("labels must be the true classes; without them, curve() has the share certified")
        return self.curve(labels, radii).accuracy

    def plot(self, labels: ArrayLike | None = None, radii: ArrayLike | None = None, *, title: str = "") -> Any:
        """Return a matplotlib figure of ``curve``; a notebook shows it, ``savefig`` writes it."""
        from buckler.report.plots import accuracy_figure

        what = "share certified" if labels is None else "certified accuracy"
        return accuracy_figure([self.curve(labels, radii)], title, ylabel=what)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``, a row a certificate: the columns of the files that commands write, and seeds."""
        from buckler.runs.store.tables import frame_of

        return frame_of(self)

    def to_pandas(self) -> Any:
        """Return the same as a ``pandas.DataFrame``; an abstention has no ``predicted``."""
        if find_spec("pandas") is None:
            raise MissingExtra("pandas", "frames")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the same as a ``polars.DataFrame``."""
        try:
            from polars import from_arrow
        except ImportError:
            raise MissingExtra("polars", "frames") from None
        return from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        if not self:
            return "Certificates(none)"
        of = "" if self.asked == len(self) else f" of {self.asked}, interrupted"
        median = rounded_down(float(np.median(self.radii)), 4)
        return f"Certificates({len(self)} inputs{of}, {int(self.abstained.sum())} abstained, median radius {median})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(c.id)}</td><td>{'abstained' if c.predicted is None else c.predicted}</td>"
            f"<td>{rounded_down(c.radius, 4)}</td><td>{c.n}</td><td>{escape(c.method)}</td></tr>"
            for c in self[:SHOWN]
        )
        more = f"<p>and {len(self) - SHOWN} more</p>" if len(self) > SHOWN else ""
        names = "".join(f"<th>{name}</th>" for name in ("input", "predicted", "radius", "draws", "method"))
        return f"<p>{escape(repr(self))}</p><table><tr>{names}</tr>{rows}</table>{more}"


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
