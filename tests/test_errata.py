"""docs/errata.md says what benchmarks/errata.py computes, figure by figure."""

import re
from pathlib import Path

import pytest

from benchmarks.errata import ERRATA, Figures, main

PAGE = (Path(__file__).parents[1] / "docs" / "errata.md").read_text(encoding="utf-8")


def figures_on_the_page() -> dict[str, Figures]:
    sections = re.split(r"^## (?:(E\d+)\. )?.*$", PAGE, flags=re.MULTILINE)[1:]
    return {
        name: {m[1]: m[2] for m in re.finditer(r"^\| (?!figure )(.+) \| (.+) \|$", body, flags=re.MULTILINE)}
        for name, body in zip(sections[::2], sections[1::2], strict=True)
        if name
    }


def test_every_erratum_has_a_section() -> None:
    assert list(figures_on_the_page()) == list(ERRATA) == [f"E{i}" for i in range(1, 11)]


@pytest.mark.parametrize("name", list(ERRATA))
def test_the_page_says_what_is_computed(name: str) -> None:
    assert figures_on_the_page()[name] == ERRATA[name]()


def test_the_command_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["E8"])
    assert "| true radius | 0.100 |" in capsys.readouterr().out


def test_the_figures_make_the_case() -> None:
    """What the prose concludes from the figures, so that a change of both would be seen."""
    page = figures_on_the_page()
    e1, e2, e7, e8 = page["E1"], page["E2"], page["E7"], page["E8"]
    assert e1["miss probability at p = (.995, .005, 0), M = 25"] == "0.606"
    assert e1["smallest M whose bound at (100, 0) exceeds that"] == "25"
    assert float(e1["published bound at (100, 0), M = 10"]) > float(
        e1["largest valid bound at (100, 0), second margin"]
    )
    assert float(e2["mean of Z, M = 10"]) > float(e2["near-one-hot scores: true second margin"])
    assert float(e7["Algorithm 5"]) > float(e7["Algorithm 4"]) == 0.0
    assert float(e7["FastSolveSignomial at L = .07"]) > 0.999 > float(e7["the infimum at L = .07"])
    assert float(e8["R1 with the constant of the logits"]) > float(e8["true radius"])
    assert float(e8["R1 with the constant of the soft classifier"]) <= float(e8["true radius"])
