"""``Certificates``: many certificates as one object, which gives arrays, tables, frames, curves and figures of them.

They are held as arrays, a million in some tens of megabytes; a single record is built when it is asked for. Rooms that
count, draw or write certificates are loaded when a method asks for them.
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, cast, overload

import numpy as np

from buckler.certificate import ABSTAINED, Certificate, Claim, rounded_down
from buckler.errors import InvalidInput, MissingExtra, show
from buckler.types import AnyArray, ArrayLike, BoolArray, FloatArray, IntArray, Label

if TYPE_CHECKING:
    from buckler.certify.sequential import Decided
    from buckler.evaluate.curves import Curve
    from buckler.report.text import TextTable

SHOWN = 10
"""Number of certificates that a notebook shows as rows; it says how many more there are."""

WIDEST_TABLE = 10
"""Largest number of decided radii that are the columns of a table; with more it has multiples of sigma instead."""

CURVE_RADII = 200
"""Number of radii in a curve of certified accuracy for which the caller names none."""

SHOWN_STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Radii in a table of certified accuracy for which the caller names none, in units of ``noise.unit`` (sigma)."""

KIND_FIELDS = tuple(
    field.name
    for field in fields(Claim)
    if field.compare and field.name not in {"id", "predicted", "radius", "margin", "n", "n0"}
)
"""Fields of ``Certificate`` that all certificates of one kind share; ``Certificates`` keeps the others as arrays."""


def as_labels(labels: Sequence[Label | None]) -> AnyArray:
    """Return classes as int64 with -1 for None (an abstention); if any is a text, as objects that keep None."""
    if any(isinstance(label, str) for label in labels):
        return np.array(labels, dtype=object)
    return np.array([ABSTAINED if label is None else label for label in labels], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Certificates(Sequence[Certificate]):
    """The certificates of many inputs, in their order: a sequence of ``Certificate``, kept as arrays, one entry each.

    Each certificate holds alone. ``predicted`` is -1 for an abstention (None where classes are texts), and its entry of
    ``radii`` is 0. ``labels`` are the true classes, and ``classes`` those that the model knows, or None. ``asked`` is
    the number of inputs that were to be certified: if drawing was interrupted, there are certificates of the first
    ones alone. ``decided`` holds a ``Decided`` record for each input of ``certify_until``, else None. ``kinds`` holds
    one template for each combination of noise, method, margin and alpha, and ``kinds[kind[i]]`` is that of certificate
    i; ``kind`` is None where all have the first.

    >>> from buckler import certify_votes
    >>> made = certify_votes([[99, 1], [60, 40]], sigma=0.5, labels=[0, 0])
    >>> made
    Certificates(2 inputs, 1 abstained, median radius 0.3373)
    >>> made.radii.round(4), made.predicted, made.abstained
    (array([0.6746, 0.    ]), array([ 0, -1]), array([False,  True]))
    >>> made.accuracy([0, 0], [0.0, 0.5, 1.0])
    array([0.5, 0.5, 0. ])
    """

    kinds: tuple[Claim, ...]
    ids: Sequence[str]
    predicted: AnyArray
    radii: FloatArray
    margins: FloatArray
    n: IntArray
    n0: IntArray
    kind: IntArray | None = None
    labels: IntArray | None = None
    classes: Sequence[Label] | None = None
    asked: int = -1
    decided: Sequence[Decided] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(self.ids))
        if self.labels is not None and len(self.labels) != len(self):
            raise InvalidInput(f"labels must be one for each of {len(self)} certificates; got {len(self.labels)}")
        if self.asked < 0:
            object.__setattr__(self, "asked", len(self))

    def checked(self) -> Certificates:
        """Return self after checking all certificates; InvalidInput names one whose fields contradict each other."""
        columns = (self.abstained, self.radii, self.margins, self.n, self.n0)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for place in {row: place for place, row in enumerate(rows)}.values():
            try:
                self[place]
            except InvalidInput as problem:
                raise type(problem)(f"{self.ids[place]}: {problem}") from None
        return self

    @classmethod
    def of(
        cls,
        certificates: Iterable[Claim],
        *,
        labels: IntArray | None = None,
        classes: Sequence[Label] | None = None,
        asked: int = -1,
        decided: Sequence[Decided] | None = None,
    ) -> Certificates:
        """Return the ``Certificates`` that hold these single records in their order, with the other fields as given."""
        made = list(certificates)
        kinds: dict[tuple[Any, ...], tuple[int, Claim]] = {}
        kind = [
            kinds.setdefault(tuple(getattr(one, name) for name in KIND_FIELDS), (len(kinds), one))[0] for one in made
        ]
        return cls(
            tuple(one for _, one in kinds.values()),
            [c.id for c in made],
            as_labels([c.predicted for c in made]),
            np.array([c.radius for c in made], dtype=np.float64),
            np.array([c.margin for c in made], dtype=np.float64),
            np.array([c.n for c in made], dtype=np.int64),
            np.array([c.n0 for c in made], dtype=np.int64),
            np.array(kind, dtype=np.int64) if len(kinds) > 1 else None,
            labels,
            classes,
            asked,
            decided,
        )

    def by_kind(self) -> list[Certificates]:
        """Return one ``Certificates`` for each kind (noise, method, margin and alpha), in the order of first use."""
        if self.kind is None:
            return [self]
        rows: dict[int, AnyArray] = {k: np.flatnonzero(self.kind == k) for k in dict.fromkeys(self.kind.tolist())}
        return [replace(cast(Certificates, self[at]), kinds=(self.kinds[k],), kind=None) for k, at in rows.items()]

    @property
    def first(self) -> Claim:
        """A record with the noise, method, margin and alpha of the first certificate.

        All certificates share them, except those of ``Routed`` and of several methods.
        """
        if not self.kinds:
            raise InvalidInput("certificates must hold at least one certificate; got none")
        return self.kinds[0]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, where: SupportsIndex) -> Certificate: ...  # type: ignore[overload-overlap]  # of an array too
    @overload
    def __getitem__(self, where: slice | AnyArray | Sequence[int]) -> Certificates: ...
    def __getitem__(self, where: SupportsIndex | slice | AnyArray | Sequence[int]) -> Certificate | Certificates:
        if isinstance(where, slice) or np.ndim(cast(Any, where)):
            # A slice, positions or a mask choose several; an empty list is of no type, and chooses nothing.
            every = np.arange(len(self))
            rows = every[where] if isinstance(where, slice) else every[np.asarray(where) if len(where) else []]  # type: ignore[arg-type]
            names = ("predicted", "radii", "margins", "n", "n0", "kind", "labels")
            parts: dict[str, Any] = {
                name: None if (all_ := getattr(self, name)) is None else all_[rows] for name in names
            }
            ids = [self.ids[i] for i in rows.tolist()]
            return replace(self, ids=ids, **parts, asked=-1, decided=None)
        place = range(len(self))[cast(SupportsIndex, where)]
        label = self.predicted[place]
        made = replace(
            self.kinds[0 if self.kind is None else self.kind[place]],
            id=self.ids[place],
            predicted=label if label is None or isinstance(label, str) else None if label < 0 else int(label),
            radius=float(self.radii[place]),
            margin=float(self.margins[place]),
            n=int(self.n[place]),
            n0=int(self.n0[place]),
        )
        return cast(Certificate, made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def abstained(self) -> BoolArray:
        """Boolean mask, True for each input that has an abstention: no class is certified there."""
        if self.predicted.dtype == object:
            return np.array([label is None for label in self.predicted], dtype=np.bool_)
        return np.asarray(self.predicted == ABSTAINED)

    def curve(
        self,
        labels: ArrayLike | None = None,
        radii: ArrayLike | None = None,
        *,
        delta: float = 1e-3,
        label: str | None = None,
    ) -> Curve:
        """Return certified accuracy at each of ``radii``, or without labels the share certified, with its band (T19).

        The band's lower end ``low`` holds at all radii at once with probability ``1 - delta``. ``labels`` are the true
        classes, by default the field ``labels``; ``radii`` are 200 from 0 to the largest certified one by default, and
        ``label`` the name of the curve, by default that of the method.
        """
        from buckler.evaluate.curves import certified_accuracy

        if not self:
            raise InvalidInput("certificates must hold at least one certificate; got none")
        grid = np.linspace(0.0, 1.02 * max(float(self.radii.max()), 1e-9), CURVE_RADII) if radii is None else radii
        truth = self.labels if labels is None else labels
        if truth is not None and self.classes is not None:
            given, known = np.asarray(truth).ravel().tolist(), set(self.classes)
            if strange := [one for one in given if one not in known]:
                shifted = "; these begin at 1: subtract 1" if set(given) <= {k + 1 for k in range(len(known))} else ""
                raise InvalidInput(
                    f"labels must be among the model's classes {show(list(self.classes))}; "
                    f"got {show(strange[0])}{shifted}"
                )
        return certified_accuracy(self, truth, grid, delta=delta, name=label)

    def accuracy(self, labels: ArrayLike | None = None, radii: ArrayLike = 0.0) -> FloatArray:
        """Return the share of inputs that are predicted right and certified to at least each radius.

        ``labels`` are the true classes, by default the field ``labels``. Abstentions count as wrong. This is the share
        as observed; ``curve`` also has its lower confidence limit.
        """
        if labels is None and self.labels is None:
            raise InvalidInput(
                "labels must be the true classes; got none: without them, curve() has the share certified"
            )
        return self.curve(labels, radii).accuracy

    def table(self, labels: ArrayLike | None = None, radii: ArrayLike | None = None) -> TextTable:
        """Return a table of certified accuracy at ``radii``, or without labels of the share certified, rounded down.

        ``labels`` are the true classes, by default the field ``labels``. Radii are by default those that were decided
        (up to ten), else multiples of sigma.
        ``print`` shows the table; ``to_latex()`` and ``to_markdown()`` return it for papers and pages.

        >>> from buckler import certify_votes
        >>> print(certify_votes([[99, 1], [1, 99]], sigma=0.5, labels=[0, 1]).table([0, 0], [0.0, 0.5, 1.0]))
        method  abstained    r=0  r=0.5    r=1
        ------  ---------  -----  -----  -----
        exact       0.000  0.500  0.500  0.000
        share of 2 inputs predicted right and certified to radius r
        """
        from buckler.report.text import accuracy_table

        labelled = labels is not None or self.labels is not None
        grid = radii
        if radii is None and self.kinds:
            asked = self.decided[0].radii if self.decided else ()
            grid = asked if 0 < len(asked) <= WIDEST_TABLE else self.kinds[0].noise.unit * np.array(SHOWN_STEPS)
        return accuracy_table([self.curve(labels, grid)], labelled=labelled)

    def plot(
        self,
        labels: ArrayLike | None = None,
        radii: ArrayLike | None = None,
        *,
        ax: Any = None,
        label: str | None = None,
        title: str = "",
    ) -> Any:
        """Return a matplotlib figure of ``curve(labels, radii)``; a notebook shows it, its ``savefig`` writes it.

        With ``ax``, axes of matplotlib, the curve is added to what these axes show, under the name ``label``.
        """
        from buckler.report.plots import accuracy_figure

        what = "share certified" if labels is None and self.labels is None else "certified accuracy"
        return accuracy_figure([self.curve(labels, radii, label=label)], title, ylabel=what, ax=ax)

    def save(self, path: str | Path) -> None:
        """Write a table with one row for each certificate to a .parquet or .csv file.

        Commands (``buckler report``, ``refute``) read the Parquet file. Certificates whose classes are texts, and those
        of ``Routed``, can be written as .csv alone.
        """
        from buckler.runs.store.tables import refuse_drawn, write_certificates

        refuse_drawn(Path(path))
        write_certificates(Path(path), self, labels=self.labels)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row for each certificate: the columns of ``save``, and the seeds."""
        from buckler.runs.store.tables import frame_of

        return frame_of(self)

    def to_pandas(self) -> Any:
        """Return the columns of ``to_arrow`` as a ``pandas.DataFrame``; ``predicted`` is missing for an abstention."""
        if find_spec("pandas") is None:
            raise MissingExtra("pandas", "frames")
        frame = self.to_arrow().to_pandas()
        if frame["predicted"].dtype.kind in "if":  # pandas makes floats of whole numbers where some are missing
            frame["predicted"] = frame["predicted"].astype("Int64")
        return frame

    def to_polars(self) -> Any:
        """Return the columns of ``to_arrow`` as a ``polars.DataFrame``."""
        try:
            from polars import from_arrow
        except ImportError:
            raise MissingExtra("polars", "frames") from None
        return from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        if not self:
            return "Certificates(none)"
        of = "" if self.asked == len(self) else f" of {self.asked}, interrupted"
        undecided = sum(one.decision == "undecided" for one in self.decided or ())
        of += f", {undecided} undecided" if undecided else ""
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
