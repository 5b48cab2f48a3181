"""Figures: the formats, the same bytes each time, and text that stays text."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.evaluate.curves import Curve
from buckler.report.plots import LINE_STYLES, PALETTE, _looks, accuracy_plot

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
