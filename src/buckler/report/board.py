"""The board: strangers' models, certified again from their recorded votes at one alpha by one method, as a static site.

A board is a folder of TOML files. Each table in them is an entry: texts about a model, claims of certified accuracy,
and as evidence a run of ``buckler sample``. Claims are compared with what the evidence gives; an entry without evidence
is shown and never called checked. The files are strangers': evidence is read by the bounded readers of ``runs.store``,
entries are small texts of known fields (cards), and all text is escaped.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from buckler.certificate import rounded_down
from buckler.errors import BucklerError, InvalidInput, check_real, show
from buckler.evaluate.curves import Curve, certified_accuracy, round_grid
from buckler.files import atomic_write, read_text
from buckler.noise import as_noise
from buckler.report.charts import accuracy_chart, looks
from buckler.report.html import render, script_json
from buckler.report.pages import CELLS, build_page
from buckler.runs.results import Result, read_result, with_refutations
from buckler.runs.spec import read_toml
from buckler.types import FloatArray, Noise

LARGEST_ENTRIES = 100_000
MOST_ENTRIES = 500
MOST_CLAIMS = 50
LONGEST_TEXT = 300
"""Largest numbers allowed: bytes of a file of entries, entries of a board, claims of an entry, characters of one of
its texts."""

NAME = re.compile(r"(?!index$)[a-z0-9][a-z0-9._-]{0,79}")
"""Pattern of the names that entries may have, since they become names of files of the site."""

CLAIMED_TO = 5e-4
"""How much a claimed accuracy may exceed that of the evidence: half a unit of the third digit, as rounding does."""

HOLDS, FAILS, UNCHECKED = "holds", "does not hold", "not checked"

BOARD_COLUMNS = 7
"""Number of radii in the table of a board: those that most entries claim."""


@dataclass(frozen=True, slots=True)
class ClaimedAccuracy:
    """An entry's claim: certified accuracy ``claimed`` at ``radius``; ``certified`` is what the evidence gives there.

    Without evidence ``certified`` is None.
    """

    radius: float
    claimed: float
    certified: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the claim ``HOLDS`` or ``FAILS``; ``UNCHECKED`` without evidence."""
        if self.certified is None:
            return UNCHECKED
        return HOLDS if self.claimed <= self.certified + CLAIMED_TO else FAILS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """An entry of the board: texts of its authors, its claims, and ``result``, its certified evidence or None."""

    name: str
    model: str
    data: str
    noise: str
    source: str
    licence: str
    claims: tuple[ClaimedAccuracy, ...] = ()
    result: Result | None = None

    @property
    def verdict(self) -> str:
        """``FAILS`` if a claim does, else ``HOLDS``; ``UNCHECKED`` without evidence."""
        if self.result is None:
            return UNCHECKED
        return FAILS if any(claim.verdict == FAILS for claim in self.claims) else HOLDS

    @property
    def address(self) -> str | None:
        """The text ``source`` if it is a web address, which becomes a link, else None."""
        return self.source if re.fullmatch(r"https://[^\s\"'<>]+", self.source) else None

    @property
    def facts(self) -> dict[str, str]:
        """The texts of the entry by name, without the source."""
        return {name: getattr(self, name) for name in ("model", "data", "noise", "licence")}

    def drawn_noise(self) -> Noise:
        """Return the noise that the text ``noise`` names, as ``gaussian:sigma=0.25`` or ``splitting:lam=2.5``."""
        return as_noise(None, self.noise)

    def problems(self) -> list[str]:
        """Return one line of text for each claim that exceeds what the evidence gives."""
        return [
            f"{self.name}: claims {claim.claimed:g} at radius {claim.radius:g}; "
            f"its evidence gives {rounded_down(claim.certified, 4)}"
            for claim in self.claims
            if claim.certified is not None and claim.verdict == FAILS
        ]

    def curve(self, radii: FloatArray) -> Curve | None:
        """Return the certified accuracy of the entry at each of ``radii``; None without evidence."""
        if self.result is None:
            return None
        group = self.result.groups[0]
        return certified_accuracy(group, group.labels, radii, name=self.name)


CARD_TEXTS = ("model", "data", "noise", "source", "licence")
CARD_FIELDS = (*CARD_TEXTS, "evidence", "refutations", "claims")


def read_entry(
    name: str, card: Mapping[str, Any], folder: Path, *, alpha: float = 1e-3, method: str = "exact"
) -> Entry:
    """Return the entry of a ``card`` (a table of TOML), its evidence certified at level ``alpha`` by ``method``.

    **Guarantee.** Each certificate of the result is false with probability at most ``alpha``, provided that the votes
    are those of the model on the data: that no reader of votes can tell.

    Paths in the card begin at ``folder``. InvalidInput names the field that is missing or wrong.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"the name of an entry must be of small letters, digits, . _ -, and not index; got {show(name)}"
        )
    _check_card(card)
    made = Entry(name=name, claims=_claims(card.get("claims", ())), **{field: card[field] for field in CARD_TEXTS})
    said = made.drawn_noise().describe()
    if "evidence" not in card:
        if "refutations" in card:
            raise InvalidInput("an entry with refutations must have the field evidence, whose inputs they refute")
        return made
    place = folder / card["evidence"]
    if not place.is_dir():
        raise InvalidInput(f"evidence must be a folder of buckler sample; there is none at {card['evidence']!r}")
    result = read_result(place, (method,), alpha=alpha)
    if "refutations" in card:
        result = with_refutations(result, folder / card["refutations"])
    drawn = result.groups[0].first.noise.describe()
    if drawn != said:
        raise InvalidInput(f"noise must be that of the evidence, {drawn}; the card says {said}")
    if result.labels is None:
        raise InvalidInput("the evidence must have labels, since accuracy is claimed; it has none")
    if result.planned > len(result.ids):
        raise InvalidInput(f"the evidence must be finished; it has {len(result.ids)} of {result.planned} inputs")
    claims = made.claims
    if claims:
        group, radii = result.groups[0], [claim.radius for claim in claims]
        shares = certified_accuracy(group, group.labels, radii).accuracy.tolist()
        claims = tuple(replace(claim, certified=share) for claim, share in zip(claims, shares, strict=True))
    return replace(made, claims=claims, result=result)


def _check_card(card: Any) -> None:
    """Raise InvalidInput, naming the field, for a card with other fields or values than it may have."""
    if not isinstance(card, Mapping):
        raise InvalidInput(f"an entry must be a table with the fields {', '.join(CARD_FIELDS)}; got {show(card)}")
    for field in card:
        if field not in CARD_FIELDS:
            raise InvalidInput(f"an entry may have the fields {', '.join(CARD_FIELDS)}; got {show(field)}")
    if missing := [field for field in CARD_TEXTS if field not in card]:
        raise InvalidInput(f"an entry must have the fields {', '.join(CARD_TEXTS)}; it lacks {', '.join(missing)}")
    for field in CARD_FIELDS[:-1]:
        if field not in card:
            continue
        text = card[field]
        if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT or not text.isprintable():
            raise InvalidInput(f"{field} must be a line of at most {LONGEST_TEXT} characters; got {show(text)}")
        if field not in CARD_TEXTS and PurePosixPath(text).is_absolute():
            raise InvalidInput(f"{field} must be a path relative to the card; got {show(text)}")


def _claims(given: Any) -> tuple[ClaimedAccuracy, ...]:
    """Return claims, by rising radius, from pairs of a radius and a certified accuracy."""
    pairs: Sequence[Any] = given if isinstance(given, (list, tuple)) else [None]
    if len(pairs) > MOST_CLAIMS or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise InvalidInput(f"claims must be at most {MOST_CLAIMS} pairs [radius, accuracy]; got {show(given)}")
    found = sorted((check_real("claims", radius), check_real("claims", accuracy)) for radius, accuracy in pairs)
    if not all(isfinite(radius) and radius >= 0.0 and 0.0 <= accuracy <= 1.0 for radius, accuracy in found):
        raise InvalidInput(f"claims must have radii of at least 0 and accuracies from 0 to 1; got {show(given)}")
    return tuple(ClaimedAccuracy(*pair) for pair in found)


def check_board(folder: Path, *, alpha: float = 1e-3, method: str = "exact") -> tuple[list[Entry], list[str]]:
    """Return the entries of a board that can be read, by name, and a line of text for each thing that is wrong.

    That is a claim that fails, or an entry or file that cannot be read. Evidence is certified at level ``alpha`` by
    ``method``.
    """
    cards: list[tuple[str, Any]] = []
    problems: list[str] = []
    if not folder.is_dir():
        raise InvalidInput(f"FOLDER must be a folder of TOML files; got {str(folder)!r}")
    for path in sorted(folder.glob("*.toml")):
        try:
            cards += read_toml(read_text(path, LARGEST_ENTRIES)).items()
        except (OSError, ValueError) as problem:
            problems.append(f"{path.name}: it must be a small file of TOML ({problem})")
    if not 0 < len(cards) + len(problems) <= MOST_ENTRIES:
        raise InvalidInput(
            f"FOLDER must hold 1 to {MOST_ENTRIES} entries in files of TOML; {str(folder)!r} has {len(cards)}"
        )
    entries: dict[str, Entry] = {}
    for name, card in sorted(cards, key=lambda pair: pair[0]):
        try:
            if name in entries:
                raise InvalidInput("another file has an entry of this name")
            entries[name] = read_entry(name, card, folder, alpha=alpha, method=method)
            problems += entries[name].problems()
        except BucklerError as problem:
            problems.append(f"{name}: {problem}")
    return list(entries.values()), problems


def write_board(
    entries: Sequence[Entry], out: Path, *, alpha: float, method: str, problems: Sequence[str] = ()
) -> list[Path]:
    """Write the site of a board, ``index.html`` and a page for each entry with evidence, to the folder ``out``.

    Return the paths of its files. ``alpha``, ``method`` and ``problems`` are what ``check_board`` was given and found.
    """
    pages = {}
    for entry in entries:
        if entry.result is not None:
            # The path on the machine that built the site says nothing to a reader.
            shown = replace(entry.result, path=Path(entry.name), commands=())
            pages[f"{entry.name}.html"] = build_page([shown], title=entry.name, delta=alpha, card=entry)
    pages["index.html"] = _index(entries, alpha, method, problems)
    for name, page in pages.items():
        with atomic_write(out / name) as temporary:
            temporary.write_text(page, encoding="utf-8", newline="\n")
    return [out / name for name in pages]


def _index(entries: Sequence[Entry], alpha: float, method: str, problems: Sequence[str]) -> str:
    """Return the page with all entries: a chart and a table for each norm, since radii of two norms do not compare."""
    by_norm: dict[str, list[Entry]] = {}
    for entry in entries:
        by_norm.setdefault(entry.drawn_noise().norm, []).append(entry)
    groups = [_group(norm, by_norm[norm]) for norm in sorted(by_norm, key=lambda norm: (norm != "l2", norm))]
    return render(
        "board.html", "board.js", title="Certified robustness: the board", groups=groups,
        data=sorted({entry.data for entry in entries}), alpha=f"{alpha:g}", method=method,
        verdicts=(HOLDS, FAILS, UNCHECKED), problems=problems,
        payload=script_json([group["chart"] for group in groups]),
    )  # fmt: skip


def _group(norm: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the table and the chart of the entries of one norm."""
    claimed = Counter(claim.radius for entry in entries for claim in entry.claims)
    reach = [float(entry.result.groups[0].radii.max()) for entry in entries if entry.result is not None]
    top = max([*reach, *claimed], default=0.0) or 1.0
    usual = sorted(radius for radius, _ in claimed.most_common(BOARD_COLUMNS))
    columns = np.array(usual) if usual else round_grid(top, BOARD_COLUMNS)
    radii = round_grid(top, CELLS)
    curves = {entry.name: curve for entry in entries if (curve := entry.curve(radii)) is not None}
    look = dict(zip(curves, looks(range(len(curves))), strict=True))
    rows = [
        {
            "entry": entry,
            "inputs": "-" if entry.result is None else f"{len(entry.result.ids):,}",
            "series": list(curves).index(entry.name) if entry.name in curves else None,
            "look": look.get(entry.name),
            "shares": _shares(entry, columns),
        }
        for entry in entries
    ]
    points = [
        {"series": f"s{i}", "radius": r, "accuracy": float(rounded_down(share)), "low": float(rounded_down(low))}
        for i, curve in enumerate(curves.values())
        for r, share, low in zip(radii.tolist(), curve.accuracy.tolist(), curve.low.tolist(), strict=True)
    ]
    axis = f"certified radius r ({norm})"
    spec = accuracy_chart(list(look.values()), "certified accuracy", axis, float(radii[-1]))
    chart = {"spec": spec, "curves": points} if curves else None
    return {"norm": norm, "columns": [f"{r:g}" for r in columns], "rows": rows, "chart": chart}


def _shares(entry: Entry, radii: FloatArray) -> list[str]:
    """Return certified accuracies at some radii: of the evidence, or in parentheses as claimed without any."""
    if (curve := entry.curve(radii)) is not None:
        return [rounded_down(float(share)) for share in curve.accuracy]
    claimed = {claim.radius: claim.claimed for claim in entry.claims}
    return [f"({claimed[r]:g})" if r in claimed else "" for r in radii.tolist()]
