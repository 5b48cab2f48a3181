"""Reads and writes the usual log of certified radii: a line for each input, ``idx label predict radius correct time``.

Abstentions have class -1 and radius 0. Other tools print a radius with three significant digits, rounded to nearest, so
half of what they print is more than was certified; ``write_log`` rounds down. It adds six columns, ``method margin
alpha n sigma noise``, which tools that read columns by name skip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from buckler.certificate import ABSTAINED, Certificate, rounded_down
from buckler.errors import InvalidInput, first_repeated, show
from buckler.files import atomic_write, read_text
from buckler.noise import text_of
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
SETTINGS = ("method", "margin", "alpha", "n", "sigma", "noise")
"""Further columns of the logs that ``write_log`` writes."""

DECIMALS = 6
"""Digits after the point of the radii we write."""

LARGEST_LOG = 64 << 20
"""Bytes of a log, at most: a million lines."""

LARGEST_RADIUS, LARGEST_CLASS = Decimal(10) ** 300, 10**6
"""A line beyond these is damaged: the ends of a rounded radius must still be finite numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The lines of a log; ``low`` and ``high`` are the ends of the interval that a printed radius stands for.

    ``settings`` are the different values of the columns SETTINGS, none for logs of other tools.
    """

    ids: tuple[str, ...]
    labels: IntArray
    predicted: IntArray
    low: FloatArray
    high: FloatArray
    settings: tuple[tuple[str, ...], ...] = ()

    @property
    def certified(self) -> BoolArray:
        """Which lines are not abstentions."""
        return np.asarray(self.predicted != ABSTAINED)


def read_log(path: Path) -> Log:
    """Return the lines of a log; radii are taken as rounded down if it states buckler's settings, else to nearest.

    Reading truncated radii as rounded to nearest gives fewer votes, never more.
    """
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
    settings: tuple[tuple[str, ...], ...] = ()
    if set(SETTINGS) <= set(header):
        at = [header.index(name) for name in SETTINGS]
        cells = [(*line.split("\t"), *[""] * len(header)) for line in lines[1:] if line.strip()]
        settings = tuple(dict.fromkeys(tuple(row[i].strip() for i in at) for row in cells))
    low, high = _ends([row[3] for row in rows], down=bool(settings))
    return Log(ids, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), low, high, settings)


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


def _ends(radii: Sequence[Decimal], *, down: bool) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the interval that each printed radius stands for.

    Trailing zeros may have been dropped, so the number of digits is that of the longest radius; they may be significant
    digits or decimals, so the coarser of the two is taken for each radius.
    """
    shown = [radius.normalize() for radius in radii if radius > 0]
    significant = max((len(radius.as_tuple().digits) for radius in shown), default=3)
    decimals = max((-int(radius.as_tuple().exponent) for radius in shown), default=3)
    finest = 10.0**-decimals
    unit = [max(10.0 ** (r.adjusted() - max(significant, 3) + 1), finest) if r > 0 else finest for r in radii]
    value, step = np.array([float(radius) for radius in radii]), np.array(unit)
    below, above = (0.0, 1.0) if down else (0.5, 0.5)
    # A little more on each side: the digits are decimal, the ends binary.
    return np.maximum(0.0, (value - below * step) * (1.0 - 1e-9)), (value + above * step) * (1.0 + 1e-9)


def write_log(path: Path, certificates: Sequence[Certificate], labels: ArrayLike) -> None:
    """Write certificates as the usual log with their settings, whole or not at all; radii are rounded down."""
    numbered = all(c.id.isascii() and c.id.isdigit() for c in certificates)
    lines = ["\t".join((*COLUMNS, *SETTINGS))]
    for i, (certificate, label) in enumerate(zip(certificates, np.asarray(labels).tolist(), strict=True)):
        predicted = ABSTAINED if certificate.predicted is None else certificate.predicted
        name = certificate.id if numbered else str(i)
        if certificate.noise.norm != "l2":
            raise InvalidInput(
                f"a log is of l2 radii; got {certificate.noise.norm} ones under {certificate.noise.describe()}"
            )
        if certificate.radius >= LARGEST_RADIUS:
            raise InvalidInput(f"the radii of a log must be below {LARGEST_RADIUS:.0e}; got {certificate.radius:g}")
        radius = rounded_down(certificate.radius, DECIMALS)
        made = (certificate.method, certificate.margin_kind, certificate.alpha, certificate.n)
        noise = (certificate.noise.parameters.get("sigma", "-"), text_of(certificate.noise, sigma=False))
        cells = (name, label, predicted, radius, int(predicted == label), 0.0, *made, *noise)
        lines.append("\t".join(map(str, cells)))
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
