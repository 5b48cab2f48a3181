"""The frozen records that cross rooms: Counts and Scores (evidence), MarginBound, Certificate, Certified, Result.

Evidence says what was seen; a MarginBound says what follows about the margin with error probability alpha; a
Certificate says it in terms of the input: *this prediction does not change within this radius*. Certified are the
certificates of many inputs with their labels, and a Result is what one run has come to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, isnan
from pathlib import Path
from typing import Any, get_args

import numpy as np

from buckler.errors import (
    InvalidInput,
    UnsoundMethod,
    check_alpha,
    check_choice,
    check_counts,
    check_float_array,
    check_positive,
    check_real,
    check_whole,
    check_whole_array,
    show,
)
from buckler.types import AnyArray, FloatArray, IntArray, MarginKind, RadiusKind, SimplexMap

MAPS, MARGINS, RADII = get_args(SimplexMap), get_args(MarginKind), get_args(RadiusKind)

REST = -1
"""The class index of the column that holds, draw by draw, the maximum over all classes that were not kept."""

ROW_SUM_TOLERANCE = 5e-3
"""How far a full row of scores may be from summing to one: float16 storage of ten scores stays well inside."""


def _check_ids(ids: Sequence[str], inputs: int) -> None:
    if len(ids) != inputs or len(set(ids)) != len(ids):
        raise InvalidInput(f"ids must be {inputs} different names, one for each input; got {show(list(ids))}")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Class votes of noisy copies: ``values[input, class]``, one row for each id."""

    ids: tuple[str, ...]
    values: IntArray

    def __post_init__(self) -> None:
        """Refuse anything that is not a table of votes."""
        values = check_counts("counts", self.values)
        if values.ndim != 2:
            raise InvalidInput(f"counts must have shape [inputs, m]; got shape {values.shape}")
        _check_ids(self.ids, values.shape[0])
        object.__setattr__(self, "values", values)

    @property
    def n(self) -> IntArray:
        """Draws behind each input."""
        return np.asarray(self.values.sum(axis=1), dtype=np.int64)

    @property
    def num_classes(self) -> int:
        """Classes, the length of a row."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Simplex scores of noisy copies in draw order: ``values[input, draw, column]``.

    ``columns[input, column]`` names the class of each column; ``REST`` marks the one column that holds the maximum
    over the classes not kept. Which columns are kept must be fixed beforehand or come from the selection stream.
    """

    ids: tuple[str, ...]
    values: FloatArray
    columns: IntArray
    num_classes: int
    map: SimplexMap
    temperature: float | None = None

    def __post_init__(self) -> None:
        """Refuse scores outside of the simplex, naming the row."""
        values = check_float_array("scores", self.values)
        columns = check_whole_array("columns", self.columns, low=REST)
        num_classes = check_whole("num_classes", self.num_classes, 2)
        if values.ndim != 3 or 0 in values.shape or columns.shape != (values.shape[0], values.shape[2]):
            raise InvalidInput(
                f"scores must have shape [inputs, draws, columns] and columns [inputs, columns]; "
                f"got {values.shape} and {columns.shape}"
            )
        check_choice("map", self.map, MAPS)
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if (columns >= num_classes).any() or any(len(set(row.tolist())) != row.size for row in columns):
            raise InvalidInput(f"columns must be different classes from 0 to {num_classes - 1}, or {REST}")
        _check_ids(self.ids, values.shape[0])
        sums = values.sum(axis=2)
        full = ~(columns == REST).any(axis=1) & (columns.shape[1] == num_classes)
        wrong = (values < 0.0).any(axis=2) | (values > 1.0 + ROW_SUM_TOLERANCE).any(axis=2)
        wrong |= np.where(full[:, None], np.abs(sums - 1.0) > ROW_SUM_TOLERANCE, sums > 1.0 + ROW_SUM_TOLERANCE)
        if wrong.any():
            i, draw = (int(k) for k in np.argwhere(wrong)[0])
            raise InvalidInput(
                f"scores must be nonnegative and sum to one within {ROW_SUM_TOLERANCE}; "
                f"got {show(values[i, draw].tolist())} at input {i} ({self.ids[i]}), draw {draw}"
            )
        object.__setattr__(self, "values", np.minimum(values, 1.0))
        object.__setattr__(self, "columns", columns)

    @property
    def n(self) -> int:
        """Draws behind each input."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True)
class MarginBound:
    """A lower limit of a margin: ``P(low > margin) <= alpha`` when ``sound``; may be negative or -inf."""

    kind: MarginKind
    low: float
    alpha: float
    method: str
    sound: bool = True

    def __post_init__(self) -> None:
        """Refuse NaN, +inf and impossible levels."""
        check_choice("kind", self.kind, MARGINS)
        check_alpha(self.alpha)
        if isnan(self.low) or self.low == inf:
            raise InvalidInput(f"low must be a number below +inf; got {self.low}")


def _down(value: float, digits: int) -> str:
    scaled = floor(value * 10**digits)
    return f"{scaled / 10**digits:.{digits}f}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One input's certificate: the smoothed prediction does not change within ``radius``, or an abstention.

    **Guarantee.** Over the noise draws, ``P(predicted is not None and the smoothed classifier is not constantly
    ``predicted`` on the open l2 ball of ``radius``) <= alpha``. ``n0 = 0`` means that the class was fixed beforehand
    (a given label); otherwise it was selected on ``n0`` separate draws.
    """

    id: str
    predicted: int | None
    radius: float
    radius_kind: RadiusKind
    margin_kind: MarginKind
    margin: float
    alpha: float
    n: int
    n0: int
    sigma: float
    map: SimplexMap
    temperature: float | None
    method: str
    sound: bool = True
    uniform: float | None = None

    def __post_init__(self) -> None:
        """Refuse an unsound method, and fields that contradict one another."""
        if not self.sound or self.method.startswith("published"):
            raise UnsoundMethod(f"method {self.method!r} has no guarantee and cannot issue a certificate")
        check_alpha(self.alpha)
        check_positive("sigma", self.sigma)
        check_whole("n", self.n, 1)
        check_whole("n0", self.n0, 0)
        check_choice("map", self.map, MAPS)
        check_choice("margin_kind", self.margin_kind, MARGINS)
        check_choice("radius_kind", self.radius_kind, RADII)
        if (self.margin_kind == "quantile") != (self.radius_kind == "R2"):
            raise InvalidInput(f"radius_kind {self.radius_kind} does not follow from a {self.margin_kind} margin")
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        if self.uniform is not None and not 0.0 <= check_real("uniform", self.uniform) < 1.0:
            raise InvalidInput(f"uniform must be in [0, 1); got {self.uniform}")
        if isnan(self.margin) or not isfinite(self.radius) or self.radius < 0.0:
            raise InvalidInput(f"radius must be finite and at least 0, and margin not NaN; got {self.radius}")
        if (self.predicted is None) != (self.radius == 0.0):
            raise InvalidInput("an abstention has no prediction and radius 0; nothing else has either")
        if self.predicted is not None and not self.margin > 0.0:
            raise InvalidInput(f"a prediction needs a margin above 0; got {self.margin}")
        if self.predicted is not None:
            check_whole("predicted", self.predicted, 0)

    @property
    def abstained(self) -> bool:
        """Whether nothing could be certified."""
        return self.predicted is None

    def __str__(self) -> str:
        """Return the certificate in one sentence, the radius rounded down."""
        scores = self.map if self.temperature is None else f"{self.map} at temperature {self.temperature:g}"
        chosen = "for a class fixed beforehand" if self.n0 == 0 else f"for a class selected on {self.n0} other draws"
        basis = (
            f"{chosen}, from {self.n} draws of Gaussian noise with sigma {self.sigma:g} ({scores}, "
            f"method {self.method}, {self.margin_kind} margin"
        )
        if self.predicted is None:
            return f"{self.id}: abstained at error probability {self.alpha:g} {basis} not shown to be positive)"
        return (
            f"{self.id}: the smoothed classifier predicts class {self.predicted} everywhere within l2 distance "
            f"{_down(self.radius, 4)}, with error probability at most {self.alpha:g} {basis} at least "
            f"{_down(self.margin, 4)}, radius {self.radius_kind})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """The certificates of one run by one method, in the order of its inputs, and the true classes where known."""

    run: str
    certificates: tuple[Certificate, ...]
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

    ``contents`` are hashes of the inputs' values where known, ``spec_toml`` the specification, ``fingerprints`` and
    ``environment`` what the run says about its model, its data and its libraries; ``planned`` is its number of
    inputs, and ``commands`` what makes it again from a file spec.toml with the specification.
    """

    path: Path
    groups: tuple[Certified, ...]
    planned: int
    contents: tuple[str, ...] | None
    spec: Mapping[str, Any] | None
    spec_toml: str | None
    fingerprints: Mapping[str, str]
    environment: Mapping[str, str]
    commands: tuple[str, ...]
    pictures: Pictures | None = None

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
