"""Many inputs at once: the same certificates as one by one, in full batches; frames, pictures and interrupts."""

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import buckler
from buckler.certificates import Certificates
from buckler.types import AnyArray


class Counting:
    """A half-space, which counts its calls and the rows of each; it can interrupt at a call."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.rows: list[int] = []
        self.interrupt_at = interrupt_at

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.rows.append(len(batch))
        if len(self.rows) == self.interrupt_at:
            raise KeyboardInterrupt
        return np.stack([batch[:, 0], -batch[:, 0]], axis=1)


POINTS = np.linspace(-1.0, 1.0, 41)[:, None]


def smoothed(model: Any = None) -> buckler.Smoothed:
    return buckler.Smoothed(model or Counting(), sigma=0.5, num_classes=2)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 300},
        {"n": 200, "map": "softmax", "temperature": 0.5, "method": "pairwise/hoeffding"},
        {"n": 200, "margin": "probability", "method": "bonferroni", "alpha": 0.05},
        {"target_radius": 0.25, "max_n": 500},
        {"radii": [0.25, 0.5], "max_n": 500},
        {"precision": 0.3, "max_n": 500},
    ],
)
def test_many_are_what_each_is_alone(options: Any) -> None:
    points, made = POINTS[::5], smoothed().certify_many(POINTS[::5], seed=3, **options)
    assert isinstance(made, Certificates)
    assert made == [smoothed().certify(point, seed=3, **options) for point in points]
    named = smoothed().certify_many(points, seed=3, ids=[str(i) for i in range(len(points))], **options)
    assert named[2] == smoothed().certify(points[2], seed=3, id="2", **options)


def test_labels_are_certified_in_the_place_of_selected_classes() -> None:
    labels = (POINTS[:, 0] < 0).astype(int)
    made = smoothed().certify_many(POINTS, n=300, labels=labels)
    assert {c.n0 for c in made} == {0}
    assert made.accuracy(labels)[0] > 0.6
    assert smoothed().certify_many(POINTS, n=300, labels=1 - labels).accuracy(1 - labels)[0] < 0.1


def test_batches_are_full_across_inputs() -> None:
    model = Counting()
    smoothed(model).certify_many(POINTS, n=90, n0=10, batch_size=64)
    draws = len(POINTS) * 100
    assert sum(model.rows) == draws
    assert set(model.rows[:-1]) <= {64, len(POINTS) * 10 % 64}
    assert len(model.rows) <= draws / 64 + 2
    alone = Counting()
    for point in POINTS:
        smoothed(alone).certify(point, n=90, n0=10)
    assert len(alone.rows) == 2 * len(POINTS)
    until, each = Counting(), Counting()
    smoothed(until).certify_many(POINTS, target_radius=0.25, max_n=1000, batch_size=64)
    for point in POINTS:
        smoothed(each).certify(point, target_radius=0.25, max_n=1000)
    assert sum(until.rows) == sum(each.rows)
    assert len(until.rows) < len(each.rows) / 2


def test_inputs_that_are_alike_do_not_share_noise() -> None:
    made = smoothed().certify_many([[0.3], [0.3], [0.3]], n=500)
    assert len(set(made.ids)) == 3
    assert len(set(made.radii)) == 3
    with pytest.raises(buckler.InvalidInput, match="ids must be 2 different names"):
        smoothed().certify_many([[0.3], [0.4]], n=10, ids=["a", "a"])


def test_progress_is_told_and_ends_at_all() -> None:
    seen: list[tuple[float, int]] = []
    smoothed().certify_many(POINTS, n=1000, batch_size=100, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (41, 41)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 10
    seen.clear()
    smoothed().certify_many(POINTS, target_radius=0.25, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (41, 41)


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    smoothed().certify_many(POINTS[:3], n=100)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_shown_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a file for a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    smoothed().certify_many(POINTS, n=100)
    assert "certifying" in capsys.readouterr().err
    smoothed().certify_many(POINTS, n=100, progress=False)
    assert capsys.readouterr().err == ""


def test_a_bar_is_shown_in_a_notebook_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    handle = SimpleNamespace(update=pages.append)

    def display(page: str, *, display_id: bool) -> Any:
        assert display_id
        pages.append(page)
        return handle

    fake: Any = ModuleType("IPython.display")
    fake.HTML, fake.display = str, display
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    smoothed().certify_many(POINTS, n=100)
    assert pages[0] == "certifying"
    assert "<progress value='41' max='41'>" in pages[-2]
    assert pages[-1] == ""


def test_an_interrupt_leaves_the_certificates_of_the_first_inputs() -> None:
    whole = smoothed().certify_many(POINTS, n=1000, batch_size=16)
    part = smoothed(Counting(interrupt_at=150)).certify_many(POINTS, n=1000, batch_size=16)
    assert 0 < len(part) < len(whole) == part.asked
    assert part == whole[: len(part)]
    assert "of 41, interrupted" in repr(part)
    until = smoothed(Counting(interrupt_at=12)).certify_many(POINTS, radii=[0.1, 0.4], n0=1, batch_size=16)
    assert 0 < len(until) <= until.asked == 41
    with pytest.raises(KeyboardInterrupt):
        smoothed(Counting(interrupt_at=1)).certify_many(POINTS, n=1000)


def image_model(batch: AnyArray) -> AnyArray:
    """Takes images [rows, 1, 2, 2] and nothing else."""
    if batch.shape[1:] != (1, 2, 2):
        raise ValueError(f"expected 4D input (got {batch.ndim}D input)")
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


def test_an_axis_too_many_or_too_few_is_named() -> None:
    images = np.ones((5, 1, 2, 2))
    with pytest.raises(buckler.InvalidInput, match=r"shape \(5, 1, 2, 2\), which the model takes for a batch of 5"):
        smoothed(image_model).certify(images, n=10)
    with pytest.raises(buckler.InvalidInput, match="certify_many, decide_many and predict_many take all of them"):
        smoothed(image_model).certify(images[:1], target_radius=0.1)
    with pytest.raises(buckler.InvalidInput, match=r"shape \(2, 2\), where it takes one of shape \(1, 2, 2\)"):
        smoothed(image_model).certify_many(images[0], n=10)
    with pytest.raises(buckler.BucklerError, match="expected 4D"):
        smoothed(image_model).certify(np.ones((1, 3, 3)), n=10)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": [1.0, 2.0]}, "x must have shape"),
        ({"labels": [0, 1]}, "label must be one class for each of the 41 inputs"),
        ({"labels": [2] * 41}, "label must be a class from 0 to 1"),
        ({"ids": ["a"]}, "ids must be 41 different names"),
        ({"ids": range(41)}, "ids must be 41 different names, each a text"),
        ({"batch_size": 0}, "batch_size must"),
        ({"max_n": 5}, "max_n is for drawing until decided"),
    ],
)
def test_bad_input(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"x": POINTS, "n": 10}
    with pytest.raises(buckler.InvalidInput, match=named):
        smoothed().certify_many(**good | change)


def test_a_keyword_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="'draws' is not a keyword here"):
        smoothed().certify_many(POINTS, draws=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'method' is not a keyword here"):
        smoothed().decide_many(POINTS, radii=[0.1], method="exact")  # type: ignore[call-arg]


def test_a_seed_of_none_is_drawn_and_recorded() -> None:
    first, second = (smoothed().certify([0.3], n=500, seed=None) for _ in range(2))
    assert first.seed != second.seed  # alike once in 2**53
    assert first == smoothed().certify([0.3], n=500, seed=first.seed)
    assert first.as_dict()["seed"] == first.seed
    many = smoothed().certify_many(POINTS[:3], n=50, seed=None)
    assert len({c.seed for c in many}) == 1
    decided = smoothed().certify([0.3], target_radius=0.1, seed=None)
    assert decided == smoothed().certify([0.3], target_radius=0.1, seed=decided.seed)
    assert smoothed().certify([0.3], n=50).seed == 0


def test_frames_hold_what_the_files_hold() -> None:
    made = smoothed().certify_many(POINTS, n=300)
    table = made.to_arrow()
    assert isinstance(table, pa.Table)
    frame, other = made.to_pandas(), made.to_polars()
    assert list(frame["radius"]) == other["radius"].to_list() == made.radii.tolist()
    assert frame["predicted"].isna().tolist() == made.abstained.tolist()
    assert other["id"].to_list() == list(made.ids)
    assert table.num_rows == 41
    assert set(frame["seed"]) == {0}
    given = buckler.certify_counts([[9, 1], [8, 2]], sigma=0.5, label=[0, 0])
    assert isinstance(given, Certificates)
    assert "seed" not in given.to_arrow().column_names


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_a_frame_that_is_not_installed_is_named(frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, frame, None)
    made = smoothed().certify_many(POINTS[:2], n=10)
    with pytest.raises(ImportError, match=rf"{frame} is needed here; install it with: pip install 'buckler\[frames\]'"):
        getattr(made, f"to_{frame}")()


def test_accuracy_counts_abstentions_and_wrong_classes() -> None:
    made = buckler.certify_counts([[99, 1], [60, 40], [1, 99]], sigma=0.5, label=[0, 0, 1])
    assert isinstance(made, Certificates)
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
        Certificates().curve()


def test_a_plot_is_a_figure_that_notebooks_show() -> None:
    made = buckler.certify_counts([[99, 1], [60, 40], [1, 99]], sigma=0.5, label=[0, 0, 1])
    figure = made.plot([0, 0, 1], title="three")
    assert figure.axes[0].get_ylabel() == "certified accuracy"
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert made.plot().axes[0].get_ylabel() == "share certified"


def test_pictures_in_words() -> None:
    made = buckler.certify_counts(
        [[99, 1]] * 12, sigma=0.5, label=[0] * 12, ids=["<b>bold</b>", *(str(i) for i in range(11))]
    )
    assert repr(made) == "Certificates(12 inputs, 0 abstained, median radius 0.6746)"
    assert repr(Certificates()) == "Certificates(none)"
    html = made._repr_html_()
    assert "&lt;b&gt;bold" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 11
    assert "and 2 more" in html
    assert re.search(r"<td>0\.6746</td>", html)
    assert isinstance(made[2:4], Certificates)
    assert made[-1].id == "10"
    for where in (np.arange(12) > 9, np.array([10, 11]), [10, -1], [False] * 10 + [True, True]):
        chosen = made[where]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ("9", "10")
    for nothing in (list(range(0)), np.zeros(12, dtype=bool)):
        chosen = made[nothing]
        assert isinstance(chosen, Certificates)
        assert chosen.ids == ()
    with pytest.raises(IndexError):
        made[np.array([True])]


def test_scores_of_many_are_certificates_too() -> None:
    scores = np.tile([[[0.9, 0.1], [0.8, 0.2]]], (3, 50, 1))
    assert isinstance(buckler.certify_scores(scores, sigma=0.5, label=[0, 0, 0]), Certificates)
    assert isinstance(buckler.certify_scores(scores[0], sigma=0.5, label=0), buckler.Certificate)


@pytest.mark.parametrize("options", [{"n": 500}, {"max_n": 2000}, {}])
def test_predictions_are_right_or_none_and_the_same_alone(options: Any) -> None:
    found = smoothed().predict_many(POINTS, seed=1, alpha=1e-7, **options)
    clear = np.abs(POINTS[:, 0]) > 0.45
    assert (found[clear] == (POINTS[clear, 0] < 0)).all()
    assert set(found[~clear]) <= {-1, 0, 1}
    for i in (0, 20, 33):
        alone = smoothed().predict(POINTS[i], seed=1, alpha=1e-7, **options)
        assert (-1 if alone is None else alone) == found[i]


def test_a_prediction_until_decided_takes_few_draws() -> None:
    model = Counting()
    assert smoothed(model).predict([0.8], max_n=100_000) == 0
    assert sum(model.rows) < 300
    with pytest.raises(buckler.InvalidInput, match="max_n is for drawing until decided"):
        smoothed().predict([0.8], n=10, max_n=100)
    with pytest.raises(buckler.InvalidInput, match="n must be"):
        smoothed().predict([0.8], n=0)
    assert smoothed().predict([0.8], n=5) is None  # five draws cannot say anything at 1e-3


def test_drawing_takes_its_part_of_alpha_from_a_prediction_too() -> None:
    law = buckler.noise.GridGaussian(0.5)
    x = np.array([204 / 255, 0.0], dtype=np.float32)
    grid = buckler.Smoothed(Counting(), law=law, num_classes=2)
    assert grid.predict(x, n=100) == 0
    with pytest.raises(buckler.InvalidInput, match="alpha must be at least 1e-10"):
        grid.predict(x, alpha=1e-11, n=100)
    with pytest.raises(buckler.InvalidInput, match="alpha must be at least 1e-10"):
        grid.predict(x, alpha=1e-11, max_n=100)


def test_a_law_whose_copies_are_all_run_is_not_drawn_from() -> None:
    derandomized = buckler.Smoothed(Counting(), law=buckler.noise.DerandomizedSplitting(9 / 510), num_classes=2)
    with pytest.raises(buckler.InvalidInput, match="law must be one that is drawn"):
        derandomized.predict([0.5, 0.5])
    with pytest.raises(buckler.InvalidInput, match="law must be one that is drawn"):
        derandomized.certify([0.5, 0.5], radii=[0.1], map="softmax")


@pytest.mark.parametrize("options", [{"n": 200}, {"max_n": 200}])
def test_what_is_predicted_may_be_certified_on_other_draws(options: Any) -> None:
    """A label must not depend on the draws that certify it: chosen on them, false certificates were 1.5 times alpha."""
    seen: list[AnyArray] = []

    def recorded(batch: AnyArray) -> AnyArray:
        seen.append(batch[:, 0].copy())
        return np.stack([batch[:, 0], -batch[:, 0]], axis=1)

    label = smoothed(recorded).predict([0.8], **options)
    for_prediction = np.concatenate(seen)
    seen.clear()
    smoothed(recorded).certify([0.8], n=200, label=label)
    assert not set(for_prediction.tolist()) & set(np.concatenate(seen).tolist())
