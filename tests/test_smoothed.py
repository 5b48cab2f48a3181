"""``Smoothed``: from any callable and inputs to predictions and certificates; no option is dropped on its way."""

import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import buckler
from buckler import Smoothed, Softmax, Sparsemax
from buckler.certificates import Certificates
from buckler.certify.budget import winner_share
from buckler.evaluate.attacks import DecoupledAttack
from buckler.types import AnyArray
from tests.test_session import CENTRES, CIRCLE, NEAREST

POINTS = np.linspace(-1.0, 1.0, 41)[:, None]


def half_space(batch: AnyArray) -> AnyArray:
    """Return logits of two classes told apart by the sign of the first coordinate: the true radius is |x_0|."""
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


def smoothed(model: Any = half_space, **options: Any) -> Smoothed:
    return Smoothed(model, 0.5, 2, **options)


class Recorded:
    """A half-space that keeps the batches it was given."""

    def __init__(self) -> None:
        self.batches: list[AnyArray] = []

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.batches.append(batch.copy())
        return half_space(batch)

    @property
    def rows(self) -> list[int]:
        return [len(batch) for batch in self.batches]


def test_radius_is_below_the_true_distance_and_near_it() -> None:
    made = smoothed().certify(np.array([[0.6, 3.0], [-0.6, 3.0]]), n=20_000, alpha=1e-3, seed=1)
    assert isinstance(made, Certificates)
    assert made.predicted.tolist() == [0, 1]
    assert (made.radii > 0.55).all()
    assert (made.radii < 0.6).all()
    assert {(c.n, c.n0, c.winner_alpha) for c in made} == {(20_000, 0, winner_share(1e-3))}
    assert float(ndtr(0.6 / 0.5)) > 0.88  # the truth the votes estimate


def test_inputs_that_are_alike_do_not_share_noise() -> None:
    made = smoothed().certify([[0.3], [0.3], [0.3]], n=500)
    assert len(set(made.ids)) == 3
    assert len(set(made.radii)) == 3


def test_a_class_is_the_winner_the_label_or_selected_on_other_draws() -> None:
    labels = (POINTS[:, 0] < 0).astype(int)
    winner, right, wrong, selected = (
        smoothed().certify(POINTS, n=300, **how) for how in ({}, {"labels": labels}, {"labels": 1 - labels}, {"n0": 50})
    )
    assert [{(c.n0, c.winner_alpha) for c in made} for made in (winner, right, selected)] == [
        {(0, winner_share(1e-3))},
        {(0, 0.0)},
        {(50, 0.0)},
    ]
    for made in (winner, right, selected):
        assert made.accuracy(labels)[0] > 0.6
    assert wrong.accuracy(1 - labels)[0] < 0.1
    # The same votes at a smaller level: the winner's radius is a little smaller, never larger.
    both = ~winner.abstained & ~right.abstained
    assert (winner.radii[both] < right.radii[both]).all()
    assert (winner.radii[both] > 0.9 * right.radii[both]).sum() > 20


def test_as_many_selection_draws_as_others_may_agree_with_them() -> None:
    for scores in (None, Softmax(1e-3)):
        assert smoothed(scores=scores).certify([[50.0]], n=100, n0=100).predicted == [0], scores
    assert buckler.certify_votes([[100, 0]], sigma=0.5, selection=[[100, 0]]).predicted.tolist() == [0]


@pytest.mark.parametrize("options", [{"n": 200}, {"max_n": 200}])
def test_what_is_predicted_may_be_certified_on_other_draws(options: Any) -> None:
    model = Recorded()
    labels = smoothed(model).predict([[0.8]], **options)
    for_prediction = np.concatenate(model.batches)[:, 0]
    model.batches.clear()
    smoothed(model).certify([[0.8]], n=200, labels=labels)
    assert not set(for_prediction.tolist()) & set(np.concatenate(model.batches)[:, 0].tolist())


@pytest.mark.parametrize(
    ("scores", "map_", "temperature"),
    [(Softmax(0.1), "softmax", 0.1), (Softmax(), "softmax", 1.0), (Sparsemax(), "sparsemax", None)],
)
def test_scores_are_smoothed_too(scores: Any, map_: str, temperature: float | None) -> None:
    by_scores = smoothed(scores=scores)
    certificate = by_scores.certify([[0.6, 3.0]], n=2000, seed=1)[0]
    assert (certificate.predicted, certificate.map, certificate.temperature) == (0, map_, temperature)
    assert (certificate.method, certificate.n0) == ("pairwise/randomised_star", 0)
    assert 0.2 < certificate.radius < 0.6 + 1e-9
    assert by_scores.certify([[0.6, 3.0]], n=2000, n0=100, seed=1)[0].n0 == 100
    other = by_scores.certify([[0.6, 3.0]], n=2000, seed=1, method="pairwise/bernstein")[0]
    assert 0.0 < other.radius < certificate.radius


def test_votes_and_scores_have_their_own_methods() -> None:
    with pytest.raises(buckler.InvalidInput, match="method must be one of 'exact'"):
        smoothed().certify([[0.6]], n=10, method="pairwise/star")
    with pytest.raises(buckler.InvalidInput, match="method must be one of 'pairwise/star'"):
        smoothed(scores=Softmax()).certify([[0.6]], n=10, method="exact")
    with pytest.raises(buckler.InvalidInput, match="predict counts votes"):
        smoothed(scores=Softmax()).predict([[0.6]])
    with pytest.raises(buckler.InvalidInput, match="temperature must be above 0"):
        Softmax(0.0)


def test_radii_are_decided_with_few_draws() -> None:
    made = smoothed().certify_until([[1.0, 0.0], [0.1, 0.0]], radii=[0.5], alpha=1e-3)
    near, far = made
    assert (near.predicted, near.radius, near.method, near.n0) == (0, 0.5, "anytime", 0)
    assert far.predicted is None
    assert max(near.n, far.n) < 1000
    assert made.decided is not None
    assert [d.decision for d in made.decided] == ["certified", "given up"]
    given = smoothed().certify_until([[1.0, 0.0]], radii=[0.5], labels=[0])[0]
    assert (given.predicted, given.n0, given.winner_alpha) == (0, 0, 0.0)
    chosen = smoothed().certify_until([[1.0, 0.0]], radii=[0.5], n0=20)[0]
    assert (chosen.predicted, chosen.n0, chosen.winner_alpha) == (0, 20, 0.0)
    assert smoothed().certify_until([[1.0, 0.0]], radii=[0.5], labels=[1]).abstained.all()


def test_a_ladder_of_radii_is_climbed_until_each_is_decided() -> None:
    import torch

    radii, x = [0.25, 0.5, 0.75, 1.0], [[0.85, 0.0]]
    made = smoothed().certify_until(x, radii=radii, max_n=20_000)
    assert made.decided is not None
    decided = made.decided[0]
    assert decided.certificate == made[0]
    assert smoothed().certify_until(x, radii=np.array(radii), max_n=20_000) == made
    assert smoothed().certify_until(x, radii=torch.tensor(radii), max_n=20_000) == made
    assert (made[0].radius, decided.decision) == (0.75, "given up")
    assert len(decided.certified_at) == 3
    assert decided.certified_at[0] < decided.certified_at[2] <= made[0].n
    assert made.table([0]).rows[0][2:] == ("1.000", "1.000", "1.000", "0.000")
    by_probability = smoothed().certify_until(x, radii=radii, max_n=20_000, margin="probability")[0]
    assert (by_probability.radius, by_probability.margin_kind) == (0.75, "probability")


def test_a_precision_ends_the_drawing_where_it_is_reached() -> None:
    rough, fine = (smoothed().certify_until([[0.85, 0.0]], precision=share) for share in (0.2, 0.05))
    assert rough.decided is not None
    assert fine.decided is not None
    assert rough.decided[0].decision == fine.decided[0].decision == "precise"
    assert 0.6 < rough[0].radius < fine[0].radius < 0.85
    assert rough[0].n < fine[0].n / 4


@pytest.mark.parametrize("options", [{"n": 500}, {"max_n": 2000}, {}])
def test_predictions_are_right_or_none_and_the_same_alone(options: Any) -> None:
    found = smoothed().predict(POINTS, seed=1, alpha=1e-7, **options)
    clear = np.abs(POINTS[:, 0]) > 0.45
    assert (found[clear] == (POINTS[clear, 0] < 0)).all()
    assert set(found[~clear]) <= {-1, 0, 1}
    for i in (0, 20, 33):
        assert smoothed().predict(POINTS[i : i + 1], seed=1, alpha=1e-7, **options) == found[i : i + 1]


def test_a_prediction_until_decided_takes_few_draws() -> None:
    model = Recorded()
    assert smoothed(model).predict([[0.8]], max_n=100_000) == [0]
    assert sum(model.rows) < 300
    with pytest.raises(buckler.InvalidInput, match=r"at most one of n .* and max_n"):
        smoothed().predict([[0.8]], n=10, max_n=100)
    with pytest.raises(buckler.InvalidInput, match="n must be"):
        smoothed().predict([[0.8]], n=0)
    assert smoothed().predict([[0.8]], n=5) == [-1]  # five draws cannot say anything at 1e-3


def test_drawing_takes_its_part_of_alpha_from_a_prediction_too() -> None:
    grid = Smoothed(half_space, noise=buckler.noise.GridGaussian(0.5), num_classes=2)
    x = np.array([[204 / 255, 0.0]], dtype=np.float32)
    assert grid.predict(x, n=100) == [0]
    for n, max_n in ((100, None), (None, 100)):
        with pytest.raises(buckler.InvalidInput, match="alpha must be at least 1e-10"):
            grid.predict(x, alpha=1e-11, n=n, max_n=max_n)


def test_noise_whose_copies_are_all_run_is_not_drawn_from() -> None:
    derandomized = Smoothed(half_space, noise=buckler.noise.DerandomizedSplitting(9 / 510), num_classes=2)
    for call in (lambda: derandomized.predict([[0.5, 0.5]]), lambda: derandomized.certify_until([[0.5]], radii=[0.1])):
        with pytest.raises(buckler.InvalidInput, match="noise must be drawn here"):
            call()
    with pytest.raises(buckler.InvalidInput, match="scores must be left out"):
        Smoothed(half_space, noise=derandomized.noise, num_classes=2, scores=Softmax())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n": 0}, "n must"),
        ({"n": 2.5}, "n must"),
        ({"n": 1_000_001}, "n must be .*1000001|n must be .*1_000_001"),
        ({"n0": -1}, "n0 must"),
        ({"n0": 1_000_001}, "n0 must"),
        ({"alpha": 0.0}, "alpha"),
        ({"labels": [2] * 41}, "labels must be a class from 0 to 1"),
        ({"labels": [0, 1]}, "labels must be one class for each of the 41 inputs"),
        ({"labels": [0] * 41, "n0": 5}, "n0 is for a class that is selected"),
        ({"seed": -1}, "seed"),
        ({"method": "magic"}, "method"),
        ({"margin": "wide"}, "margin"),
        ({"x": np.array([[np.nan]])}, "x must"),
        ({"x": 1.0}, "x must have shape"),
        ({"x": [1.0, 2.0]}, "x must have shape"),
        ({"x": np.zeros((0, 2))}, "x must have shape"),
        ({"ids": ["a"]}, "ids must be 41 different texts"),
        ({"ids": ["a"] * 41}, "ids must be 41 different texts"),
        ({"ids": range(41)}, "ids must be 41 different texts"),
    ],
)
def test_bad_input(change: dict[str, Any], named: str) -> None:
    model, good = Recorded(), dict[str, Any](x=POINTS, n=10)
    with pytest.raises(buckler.InvalidInput, match=named):
        smoothed(model).certify(**good | change)
    assert model.batches == [], "it is refused before the first draw"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"radii": None}, "exactly one of radii and precision"),
        ({"precision": 0.1}, "exactly one of radii and precision"),
        ({"radii": [0.5, 0.2]}, "radii must rise"),
        ({"radii": []}, "radii must be one or more"),
        ({"radii": [0.0]}, "radii must be above 0"),
        ({"radii": None, "precision": 1.5}, "precision must be below 1"),
        ({"max_seconds": -1}, "max_seconds must be above 0"),
        ({"max_n": 0}, "max_n must"),
        ({"max_n": 1_000_001}, "max_n must"),
        ({"margin": "wide"}, "margin must"),
        ({"labels": [0] * 41, "n0": 5}, "n0 is for a class that is selected"),
    ],
)
@pytest.mark.parametrize("scores", [None, Softmax()])
def test_bad_input_until_decided(change: dict[str, Any], named: str, scores: Any) -> None:
    if scores is not None and "n0" in change:
        return  # a selection sample also tunes the slopes for scores of a given class
    model, good = Recorded(), dict[str, Any](x=POINTS, radii=[0.1])
    with pytest.raises(buckler.InvalidInput, match=named):
        smoothed(model, scores=scores).certify_until(**good | change)
    assert model.batches == []


def test_a_model_and_noise_that_do_not_fit_are_refused() -> None:
    with pytest.raises(buckler.InvalidInput, match="sigma"):
        Smoothed(half_space, sigma=-1.0, num_classes=2)
    with pytest.raises(buckler.InvalidInput, match="exactly one of sigma and noise"):
        Smoothed(half_space, 0.5, 2, noise=buckler.noise.Gaussian(0.5))
    with pytest.raises(buckler.InvalidInput, match="exactly one of sigma and noise"):
        Smoothed(half_space, num_classes=2)


def test_everything_after_the_input_is_named() -> None:
    """A locuslab user's ``certify(x, n0, n, alpha, batch_size)`` must not be taken for something else."""
    with pytest.raises(TypeError, match="positional"):
        smoothed().certify([[0.6]], 100, 1000, 0.001, 64)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="method"):
        smoothed().certify_until(POINTS, radii=[0.1], method="exact")  # type: ignore[call-arg]


def image_model(batch: AnyArray) -> AnyArray:
    """Takes images [rows, 1, 2, 2] and nothing else."""
    if batch.shape[1:] != (1, 2, 2):
        raise ValueError(f"expected 4D input (got {batch.ndim}D input)")
    return half_space(batch)


def test_an_axis_too_many_or_too_few_is_named() -> None:
    images = np.ones((5, 1, 2, 2))
    with pytest.raises(buckler.InvalidInput, match=r"of shape \(5, 1, 2, 2\), for a batch"):
        smoothed(image_model).certify(images[None], n=20)
    for call in (smoothed(image_model).certify, smoothed(image_model).predict):
        with pytest.raises(buckler.InvalidInput, match=r"got \(1, 2, 2\), and the model takes x for one input"):
            call(images[0], n=20)
    with pytest.raises(buckler.InvalidInput, match=r"pass x\[None\]"):
        smoothed(image_model).certify_until(images[0], radii=[0.1])
    with pytest.raises(buckler.BucklerError, match="expected 4D"):
        smoothed(image_model).certify(np.ones((1, 1, 3, 3)), n=20)


def test_a_seed_of_none_is_drawn_and_recorded() -> None:
    first, second = (smoothed().certify([[0.3]], n=500, seed=None)[0] for _ in range(2))
    assert first.seed != second.seed  # alike once in 2**53
    assert first == smoothed().certify([[0.3]], n=500, seed=first.seed)[0]
    assert first.as_dict()["seed"] == first.seed
    assert len({c.seed for c in smoothed().certify(POINTS[:3], n=50, seed=None)}) == 1
    for model in (smoothed(), smoothed(scores=Softmax(0.1))):
        decided = model.certify_until([[0.3]], radii=[0.1], max_n=500, seed=None)
        assert decided == model.certify_until([[0.3]], radii=[0.1], max_n=500, seed=decided[0].seed)
    assert smoothed().certify([[0.3]], n=50)[0].seed == 0


def test_a_tensor_may_want_a_gradient_and_have_any_float_type() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.75, 0.0]], requires_grad=True)
    expected = smoothed().certify([[0.75, 0.0]], n=100)
    assert smoothed().certify(x, n=100) == expected
    assert smoothed().certify(x.bfloat16(), n=100) == expected
    assert smoothed().certify([x[0], x[0] + 1.0], n=100)[0] == expected[0]


def test_a_prediction_draws_its_seed_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knows the seed can look for inputs whose draws mislead; T18a is for inputs chosen without it."""
    asked = list[Any]()

    def observed(seed: Any) -> int:
        asked.append(seed)
        return 0

    monkeypatch.setattr("buckler.smoothed.seed_of", observed)
    smoothed().predict([[0.6]], n=10)
    smoothed().predict([[0.6]], n=10, seed=7)
    assert asked == [None, 7]


def test_a_model_is_known_by_its_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_model_here.py").write_text(
        "import numpy as np\n\n\ndef make():\n    return lambda batch: np.stack([batch[:, 0], -batch[:, 0]], axis=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    named = Smoothed("named_model_here:make", sigma=0.5, num_classes=2)
    monkeypatch.delitem(sys.modules, "named_model_here")
    assert named.certify([[0.6]], n=100) == smoothed().certify([[0.6]], n=100)
    assert repr(named) == "Smoothed(named_model_here:make, noise=Gaussian(sigma=0.5), num_classes=2)"
    assert repr(smoothed()).startswith("Smoothed(half_space, noise=Gaussian(sigma=0.5)")
    scaled = buckler.noise.Gaussian(0.5, scale=np.arange(1, 1001))
    assert len(repr(Smoothed("named_model_here:make", noise=scaled, num_classes=2))) < 200
    with pytest.raises(buckler.InvalidInput, match=r"model must be package\.module:factory, FILE\.onnx"):
        Smoothed("resnet", sigma=0.5)


@pytest.mark.parametrize("kind", ["module", "estimator"])
def test_a_model_may_stand_where_a_factory_is_expected(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch" if kind == "module" else "sklearn")
    made = {
        "module": "from torch import nn\n\nready = nn.Linear(2, 3)\n",
        "estimator": "from sklearn.naive_bayes import GaussianNB\n\n"
        "ready = GaussianNB().fit([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [0, 1, 2])\n",
    }
    (tmp_path / f"ready_{kind}.py").write_text(made[kind])
    monkeypatch.chdir(tmp_path)
    ready = Smoothed(f"ready_{kind}:ready", sigma=0.5)
    monkeypatch.delitem(sys.modules, f"ready_{kind}")
    assert ready.classifier.num_classes == 3
    assert ready.certify([[0.5, 0.5]], n=20)[0].n == 20


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    smoothed().certify(POINTS[:3], n=100)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_shown_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a file for a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    smoothed().certify(POINTS, n=100)
    assert "certifying" in capsys.readouterr().err
    smoothed().certify(POINTS, n=100, progress=False)
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
    smoothed().certify(POINTS, n=100)
    assert pages[0] == "certifying"
    assert "<progress value='41' max='41'>" in pages[-2]
    assert pages[-1] == ""


@pytest.mark.parametrize(("low", "high"), [(-2.1, 2.6), (0.0, 255.0)])
def test_images_in_other_units_are_told_once(low: float, high: float) -> None:
    images = np.linspace(low, high, 2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    model = Smoothed(lambda batch: batch.reshape(len(batch), -1)[:, :2], sigma=0.5, num_classes=2)
    with pytest.warns(buckler.BucklerWarning, match=rf"x has values from {low:g} to {high:g}: sigma and radii are in"):
        model.certify(images, n=20)
    model.predict(images, n=20)
    declared = Smoothed(model.classifier, sigma=0.5, value_range=(low, high))
    declared.certify(images, n=20)
    Smoothed(model.classifier, sigma=0.5).certify((images - low) / (high - low), n=20)


@pytest.mark.parametrize(
    ("shape", "low", "high", "told"),
    [
        ((2, 28, 28), 0.0, 255.0, True),
        ((2, 8, 8), -2.1, 2.6, True),
        ((2, 8, 8), 0.0, 1.0, False),
        ((50, 100, 4), -2.1, 2.6, False),  # a time series of few values
        ((2, 12, 16), -2.1, 2.6, False),  # an embedding of twelve words
        ((2, 64), 0.0, 16.0, True),  # the digits of scikit-learn
        ((2, 784), 0.0, 255.0, True),
        ((2, 64), 0.5, 16.5, False),
        ((2, 64), -3.0, 16.0, False),
        ((2, 64), 0.0, 5.0, False),  # codes of categories
        ((2, 64), 300.0, 4_000.0, False),  # metres
        ((50, 4), 0.0, 99.0, False),  # a table of counts
    ],
)
def test_grey_images_and_flat_ones_in_other_units_are_told_and_tables_are_not(
    shape: tuple[int, ...], low: float, high: float, told: bool
) -> None:
    x = np.full(shape, low, dtype=np.float32)
    x.flat[::3] = high
    model = Smoothed(lambda batch: batch.reshape(len(batch), -1)[:, :2], sigma=0.5, num_classes=2)
    said = rf"x has values from {low:.4g} to {high:.4g}: sigma and radii are in these units"
    with pytest.warns(buckler.BucklerWarning, match=said) if told else nullcontext():
        model.certify(x[:2], n=20)


def test_the_rows_of_a_batch_are_counted() -> None:
    with pytest.raises(buckler.InvalidInput, match="batch_size must be a whole number of at least 1"):
        Smoothed(half_space, 0.5, 2, batch_size=0)


def test_labels_that_are_no_classes_are_refused() -> None:
    model = Smoothed(lambda batch: batch, sigma=0.5, num_classes=3)
    made = model.certify(np.eye(3), n=100)
    with pytest.raises(buckler.InvalidInput, match=r"classes \[0, 1, 2\]; got 3; these begin at 1: subtract 1"):
        made.accuracy([1, 2, 3])
    with pytest.raises(buckler.InvalidInput, match=r"got -1$"):
        made.accuracy([-1, 0, 1])
    with pytest.raises(buckler.InvalidInput, match="got 3"):
        buckler.certify_votes([[90, 10, 0]] * 3, sigma=0.5).accuracy([1, 2, 3])


def test_an_alpha_that_is_a_confidence_is_refused() -> None:
    calls: list[Callable[[float], object]] = [
        lambda alpha: smoothed().certify([[0.3]], n=100, alpha=alpha),
        lambda alpha: smoothed().predict([[0.3]], n=100, alpha=alpha),
        lambda alpha: smoothed().certify_until([[0.3]], radii=[0.1], alpha=alpha),
        lambda alpha: buckler.certify_votes([[90, 10]], sigma=0.5, alpha=alpha),
    ]
    for call in calls:
        with pytest.raises(
            buckler.InvalidInput, match=r"alpha must be at most 0.5, .* got 0.999, did you mean 0.001\?"
        ):
            call(0.999)


@pytest.mark.parametrize(("scores", "labels"), [(None, None), (None, [1]), (buckler.Softmax(), None)])
def test_the_fewest_draws_that_certify_anything_are_named(scores: Any, labels: Any) -> None:
    model = Smoothed(lambda batch: 1e3 * np.eye(2)[[1] * len(batch)], sigma=0.5, num_classes=2, scores=scores)
    with pytest.warns(buckler.BucklerWarning, match="n = 5 draws cannot certify anything at alpha = 0.001") as told:
        assert model.certify([[0.0]], n=5, labels=labels)[0].abstained
    fewest = int(str(told[0].message).rpartition(" ")[2])
    if scores is None:  # of scores fewer cannot, and this many may
        assert not model.certify([[0.0]], n=fewest, labels=labels)[0].abstained
    with pytest.warns(buckler.BucklerWarning, match=f"n must be at least {fewest}"):
        assert model.certify([[0.0]], n=fewest - 1, labels=labels)[0].abstained


@pytest.mark.parametrize("labels", [None, [1]])
def test_the_fewest_draws_that_decide_a_radius_are_named(labels: Any) -> None:
    model = Smoothed(lambda batch: 1e3 * np.eye(2)[[1] * len(batch)], sigma=0.5, num_classes=2)
    with pytest.warns(buckler.BucklerWarning, match="max_n = 20 draws cannot certify radius 0.5 at alpha") as told:
        assert model.certify_until([[0.0]], radii=[0.5], max_n=20, labels=labels)[0].abstained
    fewest = int(str(told[0].message).rpartition(" ")[2])
    assert model.certify_until([[0.0]], radii=[0.5], max_n=fewest, labels=labels)[0].radius == 0.5
    with pytest.warns(buckler.BucklerWarning, match=f"max_n must be at least {fewest}"):
        assert model.certify_until([[0.0]], radii=[0.5], max_n=fewest - 1, labels=labels)[0].abstained
    with pytest.warns(buckler.BucklerWarning, match=r"radius 5 at .*: it takes more than 10\^23$"):
        assert model.certify_until([[0.0]], radii=[0.25, 5.0], max_n=100, labels=labels)[0].radius == 0.25
    with pytest.warns(buckler.BucklerWarning, match=r"max_n = 20000 .* radius 2.4 .* takes more than 10\^6$"):
        model.certify_until([[0.0]], radii=[2.4], max_n=20_000, labels=labels)


def test_a_radius_beyond_the_reach_of_its_noise_is_named() -> None:
    uniform = Smoothed(half_space, noise=buckler.noise.Uniform(0.5), num_classes=2)
    with pytest.warns(buckler.BucklerWarning, match=r"radius 0\.6 at .*: no number of draws is enough$"):
        assert uniform.certify_until([[1.0, 0.0]], radii=[0.1, 0.6], max_n=2000)[0].radius == 0.1


def test_texts_as_classes_go_in_and_out() -> None:
    pytest.importorskip("sklearn")
    from sklearn.naive_bayes import GaussianNB

    model = Smoothed(GaussianNB().fit([[0.0], [0.2], [2.0], [2.2]], ["cat", "cat", "dog", "dog"]), sigma=0.25)
    x = [[0.0], [2.1], [1.1]]
    made = model.certify(x, n=300)
    assert made.predicted.tolist() == ["cat", "dog", None]
    assert model.predict(x, n=300).tolist() == ["cat", "dog", None]
    assert model.certify(x[:2], n=300, labels=["cat", "dog"]).accuracy(["cat", "dog"]).tolist() == [1.0]
    assert made.accuracy(["cat", "cat", "dog"]).tolist() == [1 / 3]
    with pytest.raises(
        buckler.InvalidInput, match=r"labels must be among the model's classes \['cat', 'dog'\]; got 'bird'"
    ):
        made.accuracy(["cat", "bird", "dog"])
    assert made.to_pandas()["predicted"].isna().tolist() == [False, False, True]


X = np.concatenate([CIRCLE[:3], [[0.05, 0.4]]])  # the last one lies near the boundary of two classes
LABELS = [*NEAREST[:3].tolist(), 1]
IDS = ["a", "b", "c", "d"]
ATTACK = DecoupledAttack(searches=1, steps=6, draws=16)
SOFT = buckler.Softmax(0.5)

USUAL: dict[str, dict[str, Any]] = {
    "predict": {"n": 40, "seed": 0},
    "predict within max_n": {"max_n": 300, "seed": 0},
    "certify": {"n": 200},
    "certify scores": {"n": 100},
    "certify_until": {"radii": [0.05, 0.3], "max_n": 300},
    "certify_until precise": {"precision": 0.3, "max_n": 300},
    "certify_until scores": {"radii": [0.05, 0.3], "max_n": 200},
    "refute": {"labels": LABELS, "max_n": 500, "attack": ATTACK},
}
"""A door, and after a space what else it does; with the options that it has anyway."""

EVERYWHERE: dict[str, Any] = {"seed": 1, "ids": IDS}
CERTIFIED = {**EVERYWHERE, "alpha": 0.01, "labels": LABELS, "n0": 20, "margin": "probability"}
CHANGES: dict[str, dict[str, Any]] = {
    "predict": {**EVERYWHERE, "n": 20, "alpha": 0.5},
    "predict within max_n": {**EVERYWHERE, "max_n": 40, "alpha": 0.5},
    "certify": {**CERTIFIED, "n": 100, "method": "bonferroni"},
    "certify scores": {**CERTIFIED, "n": 50, "method": "pairwise/hoeffding"},
    "certify_until": {**CERTIFIED, "radii": [0.1], "max_n": 100, "max_seconds": 1e-9},
    "certify_until precise": {**CERTIFIED, "precision": 0.6, "max_n": 100, "max_seconds": 1e-9},
    "certify_until scores": {**CERTIFIED, "radii": [0.1], "max_n": 100, "max_seconds": 1e-9},
    "refute": {
        **EVERYWHERE, "alpha": 0.2, "labels": [0, 0, 0, 0], "max_radius": 0.05, "within": 0.6, "max_n": 100,
        "attack": DecoupledAttack(searches=1, steps=12, draws=16),
    },
}  # fmt: skip


class Watched(torch.nn.Linear):
    """A linear classifier that takes note of the rows it is given at once, and of the sum of all values."""

    def __init__(self) -> None:
        super().__init__(2, 3, bias=False)
        self.weight = torch.nn.Parameter(torch.tensor(CENTRES))
        self.rows, self.total = 0, 0.0

    def forward(self, x: Any) -> Any:
        self.rows, self.total = max(self.rows, len(x)), self.total + float(x.detach().double().sum())
        return super().forward(x)


def call(door: str, model: Watched, batch_size: int = 512, **options: Any) -> Any:
    scores = SOFT if "scores" in door else None
    smoothed = buckler.Smoothed(model, sigma=0.4, num_classes=3, scores=scores, batch_size=batch_size)
    return getattr(smoothed, door.split(maxsplit=1)[0])(X, **options)


def outcome(door: str, **options: Any) -> str:
    """Return what came of a call: its results with all their fields, and the largest batch.

    Predictions tell little, so the draws that they come from stand beside them.
    """
    model = Watched()
    made = call(door, model, **options)
    results = made.tolist() if isinstance(made, np.ndarray) else [repr(one) for one in made]
    drawn = model.total if door.startswith("predict") else None
    return repr((results, getattr(made, "decided", None), model.rows, drawn))


@cache
def usual(door: str) -> str:
    return outcome(door, **USUAL[door])


@pytest.mark.parametrize(("door", "option"), [(door, name) for door in CHANGES for name in CHANGES[door]])
def test_an_option_changes_something(door: str, option: str) -> None:
    options = {**USUAL[door], option: CHANGES[door][option]}
    assert outcome(door, **options) != usual(door)
    assert usual(door) == outcome(door, **USUAL[door])


@pytest.mark.parametrize("door", CHANGES)
def test_batches_have_their_size_and_progress_rises_to_all_inputs(door: str) -> None:
    told: list[float] = []
    model = Watched()
    call(door, model, **USUAL[door], batch_size=16, progress=lambda done, of: told.append(done / of))
    assert model.rows == 16 or door == "refute"  # whose search takes all draws of a point at once
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert any(0.0 < share < 1.0 for share in told)


@pytest.mark.parametrize("door", ["predict", "certify", "certify_until", "refute"])
def test_every_option_is_tried(door: str) -> None:
    known = {"self", "x", "certificates", "progress"}  # refutations of certificates: tests/test_session.py
    tried = {name for key, changes in CHANGES.items() if key.split()[0] == door for name in changes}
    assert tried == inspect.signature(getattr(buckler.Smoothed, door)).parameters.keys() - known


def test_help_names_types_and_does_not_spell_them_out() -> None:
    doors: list[Any] = [
        buckler.certify_votes, buckler.certify_scores, buckler.population_accuracy, buckler.RobustConformal.calibrate,
    ]  # fmt: skip
    for holder in (Smoothed, buckler.Routed, buckler.Certificates):
        doors += [method for name, method in vars(holder).items() if inspect.isfunction(method) and name[0] != "_"]
    assert [door for door in doors if "numpy._typing" in str(inspect.signature(door))] == []
