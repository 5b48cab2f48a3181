"""The field's usual log, read and written: one line an input, ``idx label predict radius correct time``.

Abstentions have class -1 and radius 0. The tools of the field print a radius with three significant digits, rounded to
nearest, so half of what they print is more than was certified; what is written here is rounded down. Six more columns,
``method margin alpha n sigma law``, say how each radius was made; tools that read columns by name pass them over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from buckler.errors import InvalidInput, check_choice, first_repeated, show
from buckler.files import atomic_write, read_text
from buckler.noise import Gaussian, text_of
from buckler.records import Certificate
from buckler.rounding import rounded_down
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
ORIGIN_COLUMNS = ("method", "margin", "alpha", "n", "sigma")
LAW_COLUMN = "law"
"""Left out by an earlier version, whose logs are of Gaussian noise, or of the grid's."""

NO_SIGMA = "-"
ABSTAINED = -1
DECIMALS = 6
"""Digits after the point of the radii we write."""

LARGEST_LOG = 64 << 20
"""Bytes of a log, at most: a million lines."""

LARGEST_RADIUS, LARGEST_CLASS = Decimal(10) ** 300, 10**6
"""A line beyond these is damaged: the ends of a rounded radius must still be finite numbers."""

Rounding = Literal["nearest", "down"]


@dataclass(frozen=True, slots=True)
class Origin:
    """How a radius was made, where its log says so: under a law as commands take it, with its sigma if it has one."""

    method: str
    margin: str
    alpha: float
    n: int
    sigma: float | None
    law: str = Gaussian.name


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The lines of a log; ``low`` and ``high`` are the ends of what each printed radius can stand for.

    ``origins`` are the ways in which its radii were made, one for most logs of ours and none for those of other tools.
    """

    ids: tuple[str, ...]
    labels: IntArray
    predicted: IntArray
    low: FloatArray
    high: FloatArray
    origins: tuple[Origin, ...] = ()

    @property
    def certified(self) -> BoolArray:
        """Which lines are not abstentions."""
        return np.asarray(self.predicted != ABSTAINED)


def read_log(path: Path, rounding: Rounding | None = None) -> Log:
    """Return the lines of a log whose radii were rounded in the given way, to digits that are read off the file.

    By default, radii were rounded down in a log that says how they were made, which is one of ours, else to nearest.
    """
    if rounding is not None:
        check_choice("rounding", rounding, get_args(Rounding))
    try:
        lines = read_text(path, LARGEST_LOG).splitlines()
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"the log must be a readable text file; got {str(path)!r} ({problem})") from None
    header = tuple(lines[0].split("\t")) if lines else ()
    if not set(COLUMNS[:4]) <= set(header):
        raise InvalidInput(f"the log must begin with the line {' '.join(COLUMNS)}; got {show(' '.join(header))}")
    place = [header.index(name) for name in COLUMNS[:4]]
    rows = [_parse(line, place, number) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise InvalidInput(f"the log must hold at least one line; {str(path)!r} has none")
    ids = tuple(row[0] for row in rows)
    twice = first_repeated(ids)
    if twice is not None:
        raise InvalidInput(f"each input must have one line in the log; {show(twice)} has several")
    origins = _origins(header, [line for line in lines[1:] if line.strip()])
    low, high = _ends([row[3] for row in rows], rounding or ("down" if origins else "nearest"))
    return Log(ids, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), low, high, origins)


def _origins(header: Sequence[str], lines: Sequence[str]) -> tuple[Origin, ...]:
    if not set(ORIGIN_COLUMNS) <= set(header):
        return ()
    place = [header.index(name) for name in (*ORIGIN_COLUMNS, LAW_COLUMN) if name in header]
    try:
        told = dict.fromkeys(tuple(line.split("\t")[i].strip() for i in place) for line in lines)
        return tuple(
            Origin(method, margin, float(a), int(n), None if s == NO_SIGMA else float(s), *law)
            for method, margin, a, n, s, *law in told
        )
    except (ValueError, IndexError):
        raise InvalidInput(f"every line of the log must say {', '.join(ORIGIN_COLUMNS)}, as its header does") from None


def _parse(line: str, place: Sequence[int], number: int) -> tuple[str, int, int, Decimal]:
    cells = line.split("\t")
    try:
        name, label, predicted, radius = (cells[i].strip() for i in place)
        row = name, int(label), int(predicted), Decimal(radius)
        classes_fit = 0 <= row[1] < LARGEST_CLASS and ABSTAINED <= row[2] < LARGEST_CLASS
        if not (name and classes_fit and row[3].is_finite() and 0 <= row[3] < LARGEST_RADIUS):
            raise ValueError
    except (ValueError, ArithmeticError, IndexError):
        raise InvalidInput(
            f"line {number} of the log must hold a name, a label and a class or -1, below {LARGEST_CLASS:,}, and a "
            f"radius from 0 to below {LARGEST_RADIUS:.0e}; got {show(line)}"
        ) from None
    return row


def _ends(radii: Sequence[Decimal], rounding: Rounding) -> tuple[FloatArray, FloatArray]:
    """Return what each printed radius can stand for.

    Trailing zeros may have been dropped, so the number of digits is that of the longest; whether they were significant
    digits or decimals is left open by taking the coarser of the two for each radius.
    """
    shown = [radius.normalize() for radius in radii if radius > 0]
    significant = max((len(radius.as_tuple().digits) for radius in shown), default=3)
    decimals = max((-int(radius.as_tuple().exponent) for radius in shown), default=3)
    finest = 10.0**-decimals
    unit = [max(10.0 ** (r.adjusted() - max(significant, 3) + 1), finest) if r > 0 else finest for r in radii]
    value, step = np.array([float(radius) for radius in radii]), np.array(unit)
    below, above = (0.5, 0.5) if rounding == "nearest" else (0.0, 1.0)
    # A hair more on each side: the digits are decimal, the ends are not.
    return np.maximum(0.0, (value - below * step) * (1.0 - 1e-9)), (value + above * step) * (1.0 + 1e-9)


def write_log(path: Path, certificates: Sequence[Certificate], labels: ArrayLike) -> None:
    """Write certificates as the field's usual log, with how they were made, whole or not at all; radii rounded down."""
    numbered = all(c.id.isascii() and c.id.isdigit() for c in certificates)
    lines = ["\t".join((*COLUMNS, *ORIGIN_COLUMNS, LAW_COLUMN))]
    for i, (certificate, label) in enumerate(zip(certificates, np.asarray(labels).tolist(), strict=True)):
        predicted = ABSTAINED if certificate.predicted is None else certificate.predicted
        name = certificate.id if numbered else str(i)
        if certificate.law.norm != "l2":
            raise InvalidInput(
                f"a log is of l2 radii; got {certificate.law.norm} ones under {certificate.law.describe()}"
            )
        if certificate.radius >= LARGEST_RADIUS:
            raise InvalidInput(f"the radii of a log must be below {LARGEST_RADIUS:.0e}; got {certificate.radius:g}")
        radius = rounded_down(certificate.radius, DECIMALS)
        made = (certificate.method, certificate.margin_kind, certificate.alpha, certificate.n)
        noise = (certificate.law.parameters.get("sigma", NO_SIGMA), text_of(certificate.law, sigma=False))
        cells = (name, label, predicted, radius, int(predicted == label), 0.0, *made, *noise)
        lines.append("\t".join(map(str, cells)))
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
