"""The board: entries of strangers, certified again from their evidence at one alpha by one method, as a static site.

An entry is a folder with ``card.toml`` and, beside it or where the card says, evidence: a run of ``buckler sample``, or
a log of radii whose votes are recovered. What the card claims is compared with what its evidence gives here; a card
without evidence is shown and never called checked. Files are strangers': evidence is read by the bounded readers of
``runs.store``, cards are small texts of known fields, and all text is escaped.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from buckler.certificate import rounded_down, rounded_up
from buckler.errors import BucklerError, InvalidInput, check_real, show
from buckler.evaluate.curves import Curve, certified_curve, round_grid
from buckler.evaluate.population import PopulationAccuracy
from buckler.evaluate.refutations import bracket_curve
from buckler.files import atomic_write, read_text
from buckler.noise import as_noise
from buckler.report.charts import accuracy_chart, looks
from buckler.report.html import render, script_json
from buckler.report.pages import CELLS, build_page, population_of
from buckler.runs.logs import import_log
from buckler.runs.results import Result, read_result, with_refutations
from buckler.runs.spec import read_toml
from buckler.types import FloatArray, Noise

CARD = "card.toml"
LARGEST_ENTRY_CARD = 20_000
MOST_ENTRIES = 500
MOST_CLAIMS = 50
LONGEST_TEXT = 300
"""Bytes of a card, entries of a board, claims of a card, and characters of one of its texts, at most."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
"""Allowed names of an entry's folder, which become names of files of the site."""

CLAIMED_TO = 5e-4
"""A claim may exceed its evidence by half a unit of the third digit, as figures printed with three digits do."""

HOLDS, FAILS, REFUTED, UNCHECKED = "holds", "does not hold", "refuted", "not checked"
PopulationLimits = Mapping[str, PopulationAccuracy | None]
"""Limits of the population's certified accuracy, by the names of entries."""

BOARD_COLUMNS = 7
"""Radii of the table: those that most cards claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCard:
    """What an entry says of itself; ``claims`` are pairs of a radius and a certified accuracy.

    ``evidence`` is a folder of ``buckler sample``, ``log`` a text file of radii with its ``alpha``, ``n`` and
    ``sigma``, and ``refutations`` a file of ``buckler refute``, all relative to the card.
    """

    model: str
    data: str
    noise: str
    source: str
    licence: str
    claims: tuple[tuple[float, float], ...] = ()
    evidence: str | None = None
    log: str | None = None
    alpha: float | None = None
    n: int | None = None
    sigma: float | None = None
    refutations: str | None = None

    def __post_init__(self) -> None:
        for name in ("model", "data", "noise", "source", "licence", "evidence", "log", "refutations"):
            text = getattr(self, name)
            needed = name in {"model", "data", "noise", "source", "licence"}
            if text is None and not needed:
                continue
            if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT or not text.isprintable():
                raise InvalidInput(f"{name} must be a line of at most {LONGEST_TEXT} characters; got {show(text)}")
        if self.evidence is not None and self.log is not None:
            raise InvalidInput("evidence and log are two kinds of evidence; give one of them")
        for name in ("evidence", "log", "refutations"):
            if getattr(self, name) is not None and PurePosixPath(getattr(self, name)).is_absolute():
                raise InvalidInput(f"{name} must be a path relative to the card; got {show(getattr(self, name))}")
        pairs = self.claims if isinstance(self.claims, (list, tuple)) else [None]
        if len(pairs) > MOST_CLAIMS or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
            raise InvalidInput(
                f"claims must be at most {MOST_CLAIMS} pairs [radius, accuracy]; got {show(self.claims)}"
            )
        claims = tuple((check_real("claims", r), check_real("claims", accuracy)) for r, accuracy in pairs)
        if not all(isfinite(r) and r >= 0.0 and 0.0 <= accuracy <= 1.0 for r, accuracy in claims):
            raise InvalidInput("claims must have radii of at least 0 and accuracies from 0 to 1")
        object.__setattr__(self, "claims", tuple(sorted(claims)))
        self.noise_drawn()

    def address(self) -> str | None:
        """Return the source if it is an address of the web: other text does not become a link."""
        return self.source if re.fullmatch(r"https://[^\s\"'<>]+", self.source) else None

    def noise_drawn(self) -> Noise:
        """Return the noise that the card names: ``gaussian:sigma=0.25``, ``splitting:lam=2.5``, ..."""
        return as_noise(None, self.noise)


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim beside what the evidence gives: a share certified, and one above which the accuracy is refuted."""

    radius: float
    claimed: float
    certified: float | None = None
    refuted: float | None = None

    @property
    def verdict(self) -> str:
        """Return ``HOLDS``, ``FAILS``, ``REFUTED`` or, without evidence, ``UNCHECKED``."""
        if self.certified is None:
            return UNCHECKED
        if self.refuted is not None and self.claimed > self.refuted + CLAIMED_TO:
            return REFUTED
        return HOLDS if self.claimed <= self.certified + CLAIMED_TO else FAILS


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An entry of the board; ``result`` is its evidence, certified, or None for a card that has none."""

    name: str
    card: EntryCard
    claims: tuple[CheckedClaim, ...]
    result: Result | None = None

    @property
    def verdict(self) -> str:
        """Return the worst verdict on the entry's claims: ``HOLDS`` without claims, ``UNCHECKED`` without evidence."""
        if self.result is None:
            return UNCHECKED
        found = {claim.verdict for claim in self.claims}
        return next((verdict for verdict in (REFUTED, FAILS) if verdict in found), HOLDS)

    def problems(self) -> list[str]:
        """Return a line of text for each claim that the evidence does not bear out."""
        made = []
        for claim in self.claims:
            if claim.verdict in {FAILS, REFUTED} and claim.certified is not None:
                gives = f"its evidence gives {rounded_down(claim.certified, 4)}"
                above = "" if claim.refuted is None else f", and more than {rounded_up(claim.refuted, 4)} is refuted"
                made.append(f"{self.name}: claims {claim.claimed:g} at radius {claim.radius:g}; {gives}{above}")
        return made

    def curve(self, radii: FloatArray) -> Curve:
        """Return the entry's certified accuracy at each of the radii."""
        if self.result is None:
            raise InvalidInput(f"entry {self.name!r} has no evidence")
        return certified_curve(self.result.groups[0], radii, name=self.name)

    def facts(self) -> dict[str, str]:
        """Return what the card says, as texts by name: model, data, noise, licence and evidence."""
        how = "recorded votes" if self.card.evidence else "a log of radii" if self.card.log else "none"
        return {name: getattr(self.card, name) for name in ("model", "data", "noise", "licence")} | {"evidence": how}

    def section(self) -> dict[str, Any]:
        """Return the values that the template of the entry's page shows: of the card, and a row for each claim."""
        rows = [
            (
                f"{claim.radius:g}", f"{claim.claimed:g}",
                "-" if claim.certified is None else rounded_down(claim.certified),
                "-" if claim.refuted is None else rounded_up(claim.refuted), claim.verdict,
            )
            for claim in self.claims
        ]  # fmt: skip
        return {"facts": self.facts(), "source": self.card.source, "address": self.card.address(), "claims": rows}


def entry_folders(folder: Path) -> list[Path]:
    """Return the folders of a board's entries, in the order of their names."""
    found = sorted(path.parent for path in folder.glob(f"*/{CARD}")) if folder.is_dir() else []
    if not 0 < len(found) <= MOST_ENTRIES:
        raise InvalidInput(
            f"FOLDER must hold 1 to {MOST_ENTRIES} folders with a {CARD}; {str(folder)!r} has {len(found)}"
        )
    return found


def read_entry_card(path: Path) -> EntryCard:
    """Return the card in a TOML file; an unknown or a missing field is an error that names it."""
    try:
        given = read_toml(read_text(path, LARGEST_ENTRY_CARD))
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{CARD} must be a small text file ({problem})") from None
    known = [field.name for field in fields(EntryCard)]
    for name in given:
        if name not in known:
            raise InvalidInput(f"{CARD} may have the fields {', '.join(known)}; got {show(name)}")
    for name in known[:5]:
        if name not in given:
            raise InvalidInput(f"{CARD} must have the field {name}")
    return EntryCard(**given)


def read_entry(folder: Path, *, alpha: float = 1e-3, method: str = "exact") -> Entry:
    """Return an entry with its evidence certified at this level by this method.

    **Guarantee.** Each certificate of the result is false with probability at most ``alpha``, provided that the votes
    are those of the model on the data: that no reader of votes can tell.
    """
    if not NAME.fullmatch(folder.name) or folder.name == "index":
        raise InvalidInput(
            f"the folder of an entry must be called by small letters, digits, . _ -, and not index; got {folder.name!r}"
        )
    card = read_entry_card(folder / CARD)
    if card.evidence is None and card.log is None:
        return Entry(folder.name, card, tuple(CheckedClaim(*pair) for pair in card.claims))
    with TemporaryDirectory(prefix="buckler-board-") as temporary:
        place = folder / str(card.evidence)
        if card.log is not None:
            place = Path(temporary) / folder.name
            import_log(folder / card.log, alpha=card.alpha, n=card.n, sigma=card.sigma, out=place)
        elif not place.is_dir():
            raise InvalidInput(f"evidence must be a folder of buckler sample; there is none at {card.evidence!r}")
        result = read_result(place, (method,), alpha=alpha)
    if card.refutations is not None:
        result = with_refutations(result, folder / card.refutations)
    group = result.groups[0]
    drawn, said = group.first.noise.describe(), card.noise_drawn().describe()
    if drawn != said:
        raise InvalidInput(f"noise must be that of the evidence, {drawn}; the card says {said}")
    if result.labels is None:
        raise InvalidInput("the evidence must have labels, since accuracy is claimed; it has none")
    if result.planned > len(result.ids):
        raise InvalidInput(f"the evidence must be finished; it has {len(result.ids)} of {result.planned} inputs")
    radii = np.array([radius for radius, _ in card.claims])
    sides = bracket_curve(group, result.refutations, radii)
    claims = tuple(
        CheckedClaim(*pair, float(sides.certified[i]), float(sides.refuted[i]) if result.refutations else None)
        for i, pair in enumerate(card.claims)
    )
    return Entry(folder.name, card, claims, result)


def check_board(folder: Path, *, alpha: float = 1e-3, method: str = "exact") -> tuple[list[Entry], list[str]]:
    """Return the entries that can be read, and a line for everything that does not hold."""
    entries, problems = [], []
    for path in entry_folders(folder):
        try:
            entries.append(read_entry(path, alpha=alpha, method=method))
            problems += entries[-1].problems()
        except BucklerError as problem:
            problems.append(f"{path.name}: {problem}")
    return entries, problems


def write_board(
    entries: Sequence[Entry], out: Path, *, alpha: float, method: str, problems: Sequence[str] = ()
) -> list[Path]:
    """Write the site, ``index.html`` with the curves and a page for each entry; return the paths of its files."""
    limits = {entry.name: population_of(entry.result, alpha) for entry in entries if entry.result is not None}
    pages = {f"{entry.name}.html": _entry_page(entry, alpha, limits.get(entry.name)) for entry in entries}
    pages["index.html"] = _index(entries, limits, alpha, method, problems)
    for name, page in pages.items():
        with atomic_write(out / name) as temporary:
            temporary.write_text(page, encoding="utf-8", newline="\n")
    return [out / name for name in pages]


def _entry_page(entry: Entry, alpha: float, limits: PopulationAccuracy | None) -> str:
    if entry.result is None:
        return render("entry.html", title=entry.name, card=entry.section())
    # The path on the machine that built the site says nothing to a reader.
    shown = replace(entry.result, path=Path(entry.name), commands=())
    return build_page([shown], title=entry.name, delta=alpha, card=entry.section(), populations=[limits])


def _index(
    entries: Sequence[Entry], limits: PopulationLimits, alpha: float, method: str, problems: Sequence[str]
) -> str:
    """Return the page with all entries: a chart and a table for each norm, since radii of two norms do not compare."""
    norms = sorted({entry.card.noise_drawn().norm for entry in entries}, key=lambda norm: (norm != "l2", norm))
    groups = [
        _group(norm, [entry for entry in entries if entry.card.noise_drawn().norm == norm], limits) for norm in norms
    ]
    data = sorted({entry.card.data for entry in entries})
    charts = [group.pop("chart") for group in groups]
    return render(
        "board.html", "board.js", title="Certified robustness: the board", groups=groups, data=data, alpha=f"{alpha:g}",
        method=method, verdicts=(HOLDS, FAILS, REFUTED, UNCHECKED), problems=problems, payload=script_json(charts),
    )  # fmt: skip


def _group(norm: str, entries: Sequence[Entry], limits: PopulationLimits) -> dict[str, Any]:
    """Return the table and the chart of the entries of one norm."""
    drawn = [entry for entry in entries if entry.result is not None]
    reach = [float(entry.result.groups[0].radii.max()) for entry in drawn if entry.result is not None]
    reach += [radius for entry in entries for radius, _ in entry.card.claims]
    top = max(reach, default=0.0) or 1.0
    claimed = Counter(radius for entry in entries for radius, _ in entry.card.claims)
    usual = sorted(radius for radius, _ in claimed.most_common(BOARD_COLUMNS))
    columns = np.array(usual) if usual else round_grid(top, BOARD_COLUMNS)
    radii = round_grid(top, CELLS)
    curves = {entry.name: entry.curve(radii) for entry in drawn}
    look = dict(zip(curves, looks(range(len(curves))), strict=True))
    rows = [
        {
            "name": entry.name,
            **entry.facts(),
            "source": entry.card.source,
            "address": entry.card.address(),
            "inputs": "-" if entry.result is None else f"{len(entry.result.ids):,}",
            "series": list(curves).index(entry.name) if entry.name in curves else None,
            "look": look.get(entry.name),
            "shares": _shares(entry, columns),
            "verdict": entry.verdict,
        }
        for entry in entries
    ]
    points: list[dict[str, object]] = []
    diamonds: list[dict[str, object]] = []
    for i, (entry, curve) in enumerate(zip(drawn, curves.values(), strict=True)):
        for r, share, low in zip(radii.tolist(), curve.accuracy.tolist(), curve.low.tolist(), strict=True):
            points.append({"series": f"s{i}", "radius": r, "accuracy": _down(share), "low": _down(low)})
        if (found := limits[entry.name]) is not None:
            pairs = zip(found.radii.tolist(), found.low.tolist(), strict=True)
            reached = [(r, low) for r, low in pairs if low > 0.0 and r <= top]
            diamonds += [{"series": f"s{i}", "radius": r, "accuracy": _down(low)} for r, low in reached]
    axis = f"certified radius r ({norm})"
    chart = {
        "spec": accuracy_chart(list(look.values()), "certified accuracy", axis, float(radii[-1])),
        "curves": points, "population": diamonds,
    }  # fmt: skip
    return {"norm": norm, "columns": [f"{r:g}" for r in columns], "rows": rows, "chart": chart if curves else None}


def _shares(entry: Entry, radii: FloatArray) -> list[str]:
    """Return certified accuracies at some radii: of the evidence, or in parentheses as claimed without any."""
    if entry.result is not None:
        return [rounded_down(float(share)) for share in entry.curve(radii).accuracy]
    claimed = dict(entry.card.claims)
    return [f"({claimed[r]:g})" if r in claimed else "" for r in radii.tolist()]


def _down(share: float) -> float:
    return float(rounded_down(share))
