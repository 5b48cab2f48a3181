"""docs/reproduction.md says what the code computes from evidence/ today."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from buckler.paper.library import open_library
from buckler.paper.printed import FIGURES, TABLES
from buckler.paper.reproduced import Reproduced, reproduce_table, text_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def rows(table: Reproduced) -> list[str]:
    """Return the lines of a table as they stand on the page, without its header."""
    return [line for line in text_table(table).to_markdown().splitlines()[2:] if line.startswith("|")]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_on_the_page_are_those_of_the_evidence(name: str) -> None:
    # n = 100 and the last rows, to be quick.
    printed = replace(TABLES[name], rows={100: TABLES[name].rows[100]})
    made = reproduce_table(printed, open_library(ROOT / "evidence"), "label")
    assert made is not None
    found = rows(made)
    assert len(found) > 6
    for row in found:
        assert row in PAGE
    # One image more, in one cell, would be noticed.
    line = made.lines[-2]
    other = replace(line, accuracy=(line.accuracy[0] + 1 / 500, *line.accuracy[1:]))
    stale = replace(made, lines=(*made.lines[:-2], other, made.lines[-1]))
    assert not all(row in PAGE for row in rows(stale))


def test_the_folder_beside_the_page_holds_the_figures_that_it_shows() -> None:
    shown = set(re.findall(r"!\[[^]]*\]\(reproduction/([^)]+)\)", PAGE))
    assert len(shown) == len(FIGURES)
    rules = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    made = {path.name for path in (ROOT / "docs" / "reproduction").glob("*.png") if "_selected" not in path.name}
    assert shown == made
    kept = ["/docs/reproduction/*", "!/docs/reproduction/*.png", "/docs/reproduction/*_selected.png"]
    assert [rule for rule in rules if "docs/reproduction" in rule] == kept
