"""``Certificates``: arrays, frames, accuracy, pictures and words of many certificates."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import buckler
from buckler.certificates import Certificates
from buckler.runs.store.tables import read_certificates
from buckler.types import AnyArray

POINTS = np.linspace(-1.0, 1.0, 41)[:, None]


def half_space(batch: AnyArray) -> AnyArray:
    return np.stack([batch[:, 0], -batch[:, 0]], axis=1)


def drawn(points: AnyArray = POINTS, n: int = 300) -> Certificates:
    return buckler.Smoothed(half_space, sigma=0.5, num_classes=2).certify(points, n=n)


def three() -> Certificates:
    return buckler.certify_votes([[99, 1], [60, 40], [1, 99]], sigma=0.5, labels=[0, 0, 1])


def test_frames_hold_what_the_files_hold() -> None:
    made = drawn()
    table = made.to_arrow()
    assert isinstance(table, pa.Table)
    frame, other = made.to_pandas(), made.to_polars()
    assert list(frame["radius"]) == other["radius"].to_list() == made.radii.tolist()
    assert frame["predicted"].isna().tolist() == made.abstained.tolist()
    assert other["id"].to_list() == list(made.ids)
    assert table.num_rows == 41
    assert set(frame["seed"]) == {0}
    assert "seed" not in three().to_arrow().column_names


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_a_frame_that_is_not_installed_is_named(frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, frame, None)
    made = drawn(POINTS[:2], 20)
    with pytest.raises(ImportError, match=rf"{frame} is needed here; in a clone of buckler: pip install '.\[frames\]'"):
        getattr(made, f"to_{frame}")()


def test_accuracy_counts_abstentions_and_wrong_classes() -> None:
    made = three()
    assert made.accuracy([0, 0, 0], [0.0, 0.5, 1.0]).tolist() == [1 / 3, 1 / 3, 0.0]
    assert made.accuracy([0, 0, 1]).tolist() == [2 / 3]
    curve = made.curve([0, 0, 1], [0.0, 0.5])
    assert (curve.low < curve.accuracy).all()
    assert made.curve().accuracy[0] == 2 / 3
    with pytest.raises(buckler.InvalidInput, match="labels must hold one class for each of 3"):
        made.accuracy([0, 1])
    with pytest.raises(buckler.InvalidInput, match="labels must be the true classes"):
        made.accuracy(None)
    with pytest.raises(buckler.InvalidInput, match="at least one certificate"):
        Certificates.of([]).curve()


def test_a_plot_is_a_figure_that_notebooks_show() -> None:
    figure = three().plot([0, 0, 1], title="three")
    assert figure.axes[0].get_ylabel() == "certified accuracy"
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert three().plot().axes[0].get_ylabel() == "share certified"


def test_pictures_in_words() -> None:
    made = buckler.certify_votes(
        [[99, 1]] * 12, sigma=0.5, labels=[0] * 12, ids=["<b>bold</b>", *(str(i) for i in range(11))]
    )
    assert repr(made) == "Certificates(12 inputs, 0 abstained, median radius 0.6746)"
    assert repr(Certificates.of([])) == "Certificates(none)"
    html = made._repr_html_()
    assert "&lt;b&gt;bold" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 11
    assert "and 2 more" in html
    assert re.search(r"<td>0\.6746</td>", html)


def test_some_of_them_are_certificates_too() -> None:
    made = buckler.certify_votes([[99, 1]] * 12, sigma=0.5, labels=[0] * 12, ids=[str(i) for i in range(12)])
    assert isinstance(made[2:4], Certificates)
    assert made[-1].id == "11"
    for where in (np.arange(12) > 9, np.array([10, 11]), [10, -1], [False] * 10 + [True, True]):
        chosen = made[where]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ("10", "11")
    for nothing in (list(range(0)), np.zeros(12, dtype=bool)):
        chosen = made[nothing]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ()
    with pytest.raises(IndexError):
        made[np.array([True])]


def test_a_table_for_papers_and_pages() -> None:
    table = three().table([0, 0, 1], [0.0, 0.5, 1.0])
    assert str(table).splitlines()[2].split() == ["exact", "0.333", "0.666", "0.666", "0.000"]
    assert "exact & 0.333 & 0.666 & 0.666 & 0.000" in table.to_latex()
    assert "| exact | 0.333 | 0.666 | 0.666 | 0.000 |" in table.to_markdown()
    assert "inputs certified to radius r" in str(three().table())


def test_two_curves_share_axes() -> None:
    figure = three().plot([0, 0, 1], label="first")
    axes = figure.axes[0]
    assert three()[:2].plot([0, 0], ax=axes, label="second") is figure
    for wrong in (3, figure, np.array([axes])):
        with pytest.raises(buckler.InvalidInput, match="ax must be axes of matplotlib"):
            three().plot(ax=wrong)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]
    assert len({line.get_color() for line in axes.get_lines()}) == 2
    assert three().curve([0, 0, 1], [0.0, 0.5]).radii.tolist() == [0.0, 0.5]


def test_predicted_is_a_whole_number_in_pandas() -> None:
    frame = three().to_pandas()
    assert str(frame["predicted"].dtype) == "Int64"
    assert frame["predicted"].tolist()[::2] == [0, 1]
    assert frame["predicted"].isna().tolist() == [False, True, False]


def test_saved_as_parquet_or_csv(tmp_path: Path) -> None:
    made = replace(three(), labels=np.array([0, 0, 1]))
    made.save(tmp_path / "c.parquet")
    again = read_certificates(tmp_path / "c.parquet")
    assert again == made
    assert again.labels is not None
    assert again.labels.tolist() == [0, 0, 1]
    made.save(str(tmp_path / "c.csv"))
    head, first, second, _ = (tmp_path / "c.csv").read_text().splitlines()
    assert head.startswith('"id","predicted","radius"')
    assert head.endswith('"label"')
    assert first.startswith(f'"input 0",0,{float(made.radii[0])!r}')
    assert second.startswith('"input 1",,0')
    with pytest.raises(buckler.InvalidInput, match=r"ends in \.parquet or \.csv; got '.*c\.tsv'"):
        made.save(tmp_path / "c.tsv")
