"""docs/paper-map.md: no row is empty, and every name and test it gives is there."""

import re
from pathlib import Path

from buckler.paper.printed import FIGURES
from tests.docs.test_guarantees import missing

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| in the paper")
]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])})
TESTS = sorted({name for row in ROWS for name in re.findall(r"`(tests/[\w/.:]+)`", row[2])})


def test_no_row_is_empty() -> None:
    assert len(ROWS) > 60
    for row in ROWS:
        assert len(row) == 4, row
        assert all(row), row
        assert re.search(r"`[\w.]+`", row[1]), row
        assert re.search(r"`tests/[\w/.]+::test_\w+`", row[2]), row


def test_names_are_there() -> None:
    assert missing(NAMES) == []


def test_tests_are_there() -> None:
    for name in TESTS:
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
        assert re.search(rf"^def {function}\(", text, flags=re.MULTILINE), name


def test_every_numbered_thing_has_a_row() -> None:
    first = " ".join(row[0] for row in ROWS)
    for k in range(1, 7):
        assert f"Algorithm {k}" in first
    for k in range(1, 4):
        assert f"Table {k}" in first
    for label in ("eq:Pi", "eq:metric", "eq:clopper-pearson", "eq:lower-confidence-bound", "eq:pi-theta"):
        assert label in first
    for figure in FIGURES:
        assert figure.label in first
