"""Tables as text, rounded down and escaped; figures with the same bytes each time, and text that stays text."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from buckler.certificate import rounded_down
from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput
from buckler.evaluate.curves import Curve
from buckler.report import sweeps
from buckler.report.plots import LINE_STYLES, PALETTE, _looks, accuracy_plot
from buckler.report.sweeps import draw_axes, sweep_table
from buckler.report.text import TextTable, accuracy_table, relative_gain
from buckler.runs.sweep import SweptCell

MARGINS = np.arange(0.5, 5.0, 0.5)


def curve(name: str, accuracy: list[float]) -> Curve:
    values = np.array(accuracy)
    return Curve(name, MARGINS[: len(values)], values, values, 500, 0.1, 1e-3)


def test_gains_of_a_printed_table() -> None:
    """Table 1 of the paper: CIFAR-10, sigma .12, n = 100, the second margin."""
    before = [0.774, 0.744, 0.720, 0.662, 0.582, 0.0, 0.0, 0.0, 0.0]
    after = [0.780, 0.746, 0.726, 0.670, 0.614, 0.538, 0.538, 0.538, 0.538]
    gains = tuple(map(relative_gain, before, after))
    assert gains == ("+0.78%", "+0.27%", "+0.83%", "+1.21%", "+5.50%", "∞", "∞", "∞", "∞")
    table = TextTable(("row", *map(str, MARGINS.tolist())), (("gain", *gains),))
    assert r"+5.50\% & $\infty$ & $\infty$ &" in table.to_latex()
    assert "+5.50%,∞,∞,∞,∞\n" in table.to_csv()


@pytest.mark.parametrize("value", [0.78, 0.1 + 0.2, 1 / 3, 0.9999999, 0.0, 1.0, -0.0004, 1e307])
def test_rounded_down_never_shows_more(value: float) -> None:
    for digits in (1, 3, 6):
        assert float(rounded_down(value, digits)) <= value
        assert value - float(rounded_down(value, digits)) < 1.0001 * 10.0**-digits


def test_a_loss_is_a_loss() -> None:
    assert relative_gain(0.8, 0.6) == "-25.00%"
    assert relative_gain(0.0, 0.0) == "-"


NASTY = TextTable(("a|b", "x_1 & 50%"), (("=cmd()", "+1.00%"), ("-x\\^~{}", "<b>[bold]")), "a_b 5%")


def test_markdown() -> None:
    text = TextTable(("m", "r=0"), (("a|b", "0.5"),), "caption").to_markdown()
    assert text == "| m | r=0 |\n| --- | ---: |\n| a\\|b | 0.5 |\n\ncaption\n"


def test_latex_is_escaped_booktabs() -> None:
    text = NASTY.to_latex()
    assert "\\begin{tabular}{lr}\n\\toprule\n" in text
    assert "a|b & x\\_1 \\& 50\\% \\\\" in text
    assert "-x\\textbackslash{}\\textasciicircum{}\\textasciitilde{}\\{\\}" in text
    assert "\\caption{a\\_b 5\\%}" in text
    assert text.count("\\midrule") == text.count("\\bottomrule") == 1


def test_csv_holds_the_table_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(NASTY.to_csv())))
    assert rows == [["a|b", "x_1 & 50%"], ["'=cmd()", "+1.00%"], ["'-x\\^~{}", "<b>[bold]"]]


def test_text_loses_no_digit_and_stays_one_line_a_row() -> None:
    wide = TextTable(("name", *(f"column {i}" for i in range(20))), (("[bold]x\nx", *["0.123456"] * 20),), "below")
    lines = wide.to_text("above").splitlines()
    assert [lines[0], lines[-1]] == ["above", "below"]
    assert lines[3].count("0.123456") == 20
    assert lines[3].startswith("[bold]x x  ")
    assert len(lines) == 5


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 cells"):
        TextTable(("a", "b"), (("1",),))
    with pytest.raises(InvalidInput, match="share their radii"):
        accuracy_table([curve("a", [0.5, 0.4]), curve("b", [0.5])])


def test_a_sweep_shows_the_radii_of_its_largest_sigma_and_all_curves_in_one_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {sigma: certify_votes([[990, 10], [700, 300]], sigma=sigma, labels=[0, 0]) for sigma in (0.25, 1.0)}
    cells = [SweptCell(str(sigma), one) for sigma, one in made.items()]
    assert sweep_table(cells).header[-3:] == ("r=1", "r=2", "r=3")
    plotted: list[list[str]] = []
    monkeypatch.setattr(sweeps, "accuracy_plot", lambda curves, *_, **__: plotted.append([c.name for c in curves]))
    written = draw_axes(cells, tmp_path)
    assert {path.stem for path in written} == {"accuracy_by_sigma"}
    assert plotted == [["sigma 0.25", "sigma 1"]] * len(written)


RADII = np.linspace(0.0, 1.0, 50)
CURVES = [
    Curve(name, RADII, (1 - RADII) ** p, (1 - RADII) ** p * 0.95, 100, 0.0, 1e-3, "l2")
    for p, name in enumerate("abc", 1)
]
START = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.mark.parametrize("kind", START)
def test_formats_and_the_same_bytes_again(kind: str, tmp_path: Path) -> None:
    drawn = []
    for name in ("first", "second"):
        path = tmp_path / name / f"figure.{kind}"
        accuracy_plot(CURVES, path, "title")
        drawn.append(path.read_bytes())
    assert drawn[0].startswith(START[kind])
    assert drawn[0] == drawn[1]


def test_text_stays_text(tmp_path: Path) -> None:
    accuracy_plot(CURVES, tmp_path / "figure.svg", "Certified <accuracy>")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "Certified &lt;accuracy&gt;" in text
    assert "certified radius r (l2)" in text
    with pytest.raises(InvalidInput, match="one norm to share an axis; got l1 and l2"):
        accuracy_plot([CURVES[0], replace(CURVES[1], norm="l1")], tmp_path / "two.svg", "Two norms")
    assert all(colour.lower() in text for colour in PALETTE[:3])


def test_a_name_looks_the_same_everywhere_and_like_no_other() -> None:
    many = [Curve(str(i), RADII, RADII, RADII, 1, 0.0, 1e-3) for i in range(len(PALETTE) * len(LINE_STYLES))]
    looks = _looks([*many, *many])
    assert len(set(looks.values())) == len(many)


@pytest.mark.parametrize("name", ["figure.gif", "figure"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="png, pdf, svg"):
        accuracy_plot(CURVES, tmp_path / name, "title")
