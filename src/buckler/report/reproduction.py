"""The paper's tables beside ours, and the page that holds them: lines in, Markdown, LaTeX and CSV out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckler.errors import MissingExtra
from buckler.report.tables import TextTable, gain, to_markdown
from buckler.rounding import rounded_down

PRINTED = "printed in the paper"
VALID = "valid limit"
INVALID = "not a certificate"
ESTIMATE = "estimate, no guarantee"
FORECAST = "expected"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table: a method at n draws, what its numbers are, and an accuracy for each margin."""

    n: int
    name: str
    standing: str
    accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A table as it is shown; ``baseline`` names the line whose accuracies the gains of ``ours`` are measured from."""

    name: str
    caption: str
    margins: tuple[float, ...]
    lines: tuple[Line, ...]
    baseline: str
    ours: str


def text_table(table: Reproduced) -> TextTable:
    """Return the table as text; accuracies are rounded down."""
    header = ("n", "row", "standing", *(f"{margin:g}" for margin in table.margins))
    rows: list[tuple[str, ...]] = []
    for line in table.lines:
        rows.append((str(line.n), line.name, line.standing, *map(rounded_down, line.accuracy)))
        if line.name == table.ours:
            base = next(other for other in table.lines if other.n == line.n and other.name == table.baseline)
            gains = (gain(a, b) for a, b in zip(base.accuracy, line.accuracy, strict=True))
            rows.append((str(line.n), f"gain over {table.baseline}", "", *gains))
    return TextTable(header, tuple(rows), table.caption, names=3)


def summary_table(tables: Mapping[str, Reproduced], n: int, rows: Sequence[str], caption: str) -> TextTable:
    """Return the lines of several tables at n draws in one, tables by what their lines are about.

    Only the ``rows`` named; those of one table that show the same numbers share a line.
    """
    margins = next(iter(tables.values())).margins
    shown: list[tuple[str, ...]] = []
    for name, table in tables.items():
        lines = {line.name: line for line in table.lines if line.n == n}
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            if row in lines:
                cells = (lines[row].standing, *map(rounded_down, lines[row].accuracy))
                alike.setdefault(cells, []).append(row)
        shown += [(name, ", ".join(names), *cells) for cells, names in alike.items()]
    return TextTable(("network", "row", "standing", *(f"{m:g}" for m in margins)), tuple(shown), caption, names=3)


def same_cells(one: Reproduced, other: Reproduced) -> bool:
    """Whether two tables show the same, leaving aside what the paper prints."""
    first, second = (
        [(line.n, line.name, *map(rounded_down, line.accuracy)) for line in table.lines if line.standing != PRINTED]
        for table in (one, other)
    )
    return first == second


def reproduction_page(
    tables: Sequence[Reproduced],
    figures: Mapping[str, str],
    facts: Mapping[str, Any],
    *,
    folder: str,
    command: str,
) -> str:
    """Return the page in Markdown: ``figures`` are captions by the names of files, ``facts`` what the prose refers to.

    ``folder`` holds tables and figures, seen from the page. A figure of the selected class is a link below its twin.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    environment = Environment(  # noqa: S701  (Markdown, made of our own words and numbers)
        loader=PackageLoader("buckler.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("reproduction.md")
    shown = {table.name: to_markdown(text_table(table)) for table in tables}
    text = template.render(tables=shown, figures=figures, facts=facts, folder=folder, command=command)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
