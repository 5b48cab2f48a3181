"""``Certificates``: arrays, frames, accuracy, pictures and words of many certificates."""

import re
import sys

import numpy as np
import pyarrow as pa
import pytest

import buckler
from buckler.certificates import Certificates
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
        made.accuracy(None)  # type: ignore[arg-type]
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
