"""Figures of the docs that recorded votes give again in seconds: the commands beside them print the same."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import networks, routing

DOCS = Path(__file__).parents[2] / "docs"


def numbers(row: str) -> tuple[float, ...]:
    """Return the numbers in the cells of a table's row, without those of its first cell."""
    cells = re.split(r"\|| {2,}", row.strip().strip("|"))[1:]
    return tuple(float(cell) for cell in cells if re.fullmatch(r"\s*\d+(\.\d+)?\s*", cell))


@pytest.mark.parametrize(("program", "page", "rows"), [(networks, "measured.md", 11), (routing, "noise.md", 3)])
def test_a_table_is_what_its_command_prints(
    program: object, page: str, rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.setattr(sys, "argv", ["a benchmark"])
    program.main()  # type: ignore[attr-defined]
    printed = [row for line in capsys.readouterr().out.splitlines() if len(row := numbers(line)) > 3]
    assert len(printed) == rows
    shown = {numbers(line) for line in (DOCS / page).read_text(encoding="utf-8").splitlines()}
    assert set(printed) <= shown
