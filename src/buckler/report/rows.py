"""What the page says about each input, packed: columns of numbers, votes, and every certificate's sentence.

Ten thousand inputs by four methods are megabytes of text. Columns compress well; of sentences, which differ in a few
numbers, the page holds patterns and the numbers that are not in its columns already. Radii and margins are rounded down
here and nowhere else.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any
from zlib import compress

from buckler.records import Certificate
from buckler.results import TopVotes
from buckler.rounding import rounded_down
from buckler.types import AnyArray

MARGIN_DIGITS = 4
NUMBER = re.compile(r"(?<!\w)(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")


@dataclass(frozen=True, slots=True, eq=False)
class Refuted:
    """A refutation as a row's details show it: its distance as it is to be read, the class that wins there, a sentence.

    ``tile`` is a small picture of the point, as ``thumbnails.tiles`` makes them.
    """

    radius: str
    rival: int
    sentence: str
    tile: AnyArray | None = None


def pack(value: object) -> str:
    """Return JSON, compressed, in letters; ``unpack`` of the page's script reads it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(compress(text.encode(), 9)).decode("ascii")


def digits_of(largest: float) -> int:
    """Return how many decimals radii up to ``largest`` are shown with: four significant ones, and four at least."""
    return min(12, max(4, 3 - floor(log10(largest)))) if largest > 0.0 else 4


def columns(certificates: Sequence[Certificate], digits: int) -> dict[str, Any]:
    """Return the columns of the table: whole numbers, radii and margins in units of their last digit."""
    draws = [certificate.n for certificate in certificates]
    return {
        "predicted": [certificate.predicted for certificate in certificates],
        "radius": [_units(certificate.radius, digits) for certificate in certificates],
        "margin": [_units(certificate.margin, MARGIN_DIGITS) for certificate in certificates],
        "n": draws[0] if len(set(draws)) == 1 else draws,
        "sentences": sentences(certificates, digits),
    }


def sentences(certificates: Sequence[Certificate], digits: int) -> dict[str, Any]:
    """Return the sentence of every certificate without its id, as patterns.

    ``which[row]`` is the pattern of a row. A part of a pattern is a text, the name of a column whose text stands there,
    or a list of texts, one a row.
    """
    known = {
        "predicted": [str(certificate.predicted) for certificate in certificates],
        "radius": [rounded_down(certificate.radius, digits) for certificate in certificates],
        "margin": [
            rounded_down(certificate.margin, MARGIN_DIGITS) if isfinite(certificate.margin) else ""
            for certificate in certificates
        ],
        "n": [str(certificate.n) for certificate in certificates],
    }
    # Words and numbers take turns; sentences of one pattern are alike but for their numbers.
    cut = [NUMBER.split(str(certificate).removeprefix(f"{certificate.id}: ")) for certificate in certificates]
    kinds: dict[tuple[str, ...], list[int]] = {}
    for row, parts in enumerate(cut):
        kinds.setdefault(tuple(parts[::2]), []).append(row)
    which = [0] * len(cut)
    patterns = []
    for number, rows in enumerate(kinds.values()):
        for row in rows:
            which[row] = number
        patterns.append([_part(place, rows, cut, known) for place in range(len(cut[rows[0]]))])
    return {"which": which, "patterns": [_joined(pattern) for pattern in patterns]}


def _part(
    place: int, rows: Sequence[int], cut: Sequence[Sequence[str]], known: Mapping[str, Sequence[str]]
) -> str | dict[str, Any]:
    texts = {row: cut[row][place] for row in rows}
    if len(set(texts.values())) == 1:
        return texts[rows[0]]
    for name, column in known.items():
        if all(text == column[row] for row, text in texts.items()):
            return {"column": name}
    return {"texts": [texts.get(row, "") for row in range(len(cut))]}


def _joined(pattern: Sequence[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
    found: list[str | dict[str, Any]] = [""]
    for part in pattern:
        if isinstance(part, str) and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def votes_of(votes: TopVotes | None, rows: int) -> dict[str, Any] | None:
    """Return the votes of the first rows, a list for each place among the classes."""
    if votes is None:
        return None
    n = votes.n[:rows].tolist()
    return {
        "classes": votes.classes[:rows].T.tolist(),
        "counts": votes.counts[:rows].T.tolist(),
        "n": n[0] if len(set(n)) == 1 else n,
    }


def _units(value: float, digits: int) -> int | None:
    """Return a number rounded down, in units of its last digit, which are shorter to write; None for -inf."""
    return int(rounded_down(value, digits).replace(".", "")) if isfinite(value) else None
