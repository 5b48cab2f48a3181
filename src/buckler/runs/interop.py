"""The field's usual log, read and written: one line an input, ``idx label predict radius correct time``.

Abstentions have class -1 and radius 0. The tools of the field print a radius with three significant digits, rounded to
nearest, so half of what they print is more than was certified; what is written here is rounded down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from buckler.errors import InvalidInput, check_choice, show
from buckler.files import atomic_write
from buckler.records import Certificate
from buckler.rounding import rounded_down
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
ABSTAINED = -1
DECIMALS = 6
"""Digits after the point of the radii we write."""

Rounding = Literal["nearest", "down"]


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The lines of a log; ``low`` and ``high`` are the ends of what each printed radius can stand for."""

    ids: tuple[str, ...]
    labels: IntArray
    predicted: IntArray
    low: FloatArray
    high: FloatArray

    @property
    def certified(self) -> BoolArray:
        """Which lines are not abstentions."""
        return np.asarray(self.predicted != ABSTAINED)


def read_log(path: Path, rounding: Rounding = "nearest") -> Log:
    """Return the lines of a log whose radii were rounded in the given way, to digits that are read off the file."""
    check_choice("rounding", rounding, get_args(Rounding))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"the log must be a readable text file; got {str(path)!r} ({problem})") from None
    header = tuple(lines[0].split("\t")) if lines else ()
    if not set(COLUMNS[:4]) <= set(header):
        raise InvalidInput(f"the log must begin with the line {' '.join(COLUMNS)}; got {show(' '.join(header))}")
    place = [header.index(name) for name in COLUMNS[:4]]
    rows = [_parse(line, place, number) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise InvalidInput(f"the log must hold at least one line; {str(path)!r} has none")
    ids = tuple(row[0] for row in rows)
    if len(set(ids)) != len(ids):
        twice = next(name for i, name in enumerate(ids) if name in ids[:i])
        raise InvalidInput(f"each input must have one line in the log; {twice!r} has several")
    low, high = _ends([row[3] for row in rows], rounding)
    return Log(ids, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), low, high)


def _parse(line: str, place: Sequence[int], number: int) -> tuple[str, int, int, Decimal]:
    cells = line.split("\t")
    try:
        name, label, predicted, radius = (cells[i].strip() for i in place)
        row = name, int(label), int(predicted), Decimal(radius)
        if row[1] < 0 or row[2] < ABSTAINED or not row[3].is_finite() or row[3] < 0 or not name:
            raise ValueError
    except (ValueError, ArithmeticError, IndexError):
        raise InvalidInput(
            f"line {number} of the log must hold a name, a label, a class or -1, and a radius of at least 0; "
            f"got {show(line)}"
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
    """Write certificates as the field's usual log, whole or not at all; radii are rounded down."""
    numbered = all(c.id.isascii() and c.id.isdigit() for c in certificates)
    lines = ["\t".join(COLUMNS)]
    for i, (certificate, label) in enumerate(zip(certificates, np.asarray(labels).tolist(), strict=True)):
        predicted = ABSTAINED if certificate.predicted is None else certificate.predicted
        radius = rounded_down(certificate.radius, DECIMALS)
        name = certificate.id if numbered else str(i)
        lines.append(f"{name}\t{label}\t{predicted}\t{radius}\t{int(predicted == label)}\t0.0")
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
