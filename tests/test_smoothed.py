"""Smoothed: from any callable to a certificate."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import buckler
from buckler import many, predicting
from buckler.types import AnyArray


def half_space(batch: AnyArray) -> AnyArray:
    """Return logits of two classes told apart by the sign of the first coordinate: the true radius is |x_0|."""
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


def test_radius_is_below_the_true_distance_and_near_it() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    certificate = smoothed.certify(np.array([0.6, 3.0]), n=20_000, n0=50, alpha=1e-3, seed=1)
    assert certificate.predicted == 0
    assert 0.55 < certificate.radius < 0.6
    assert (certificate.n, certificate.n0) == (20_000, 50)
    assert float(ndtr(0.6 / 0.5)) > 0.88  # the truth the votes estimate


def test_same_call_same_certificate_and_inputs_have_their_own_noise() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    first = smoothed.certify([0.3, 0.0], n=500, seed=3)
    assert first == smoothed.certify([0.3, 0.0], n=500, seed=3)
    assert first.margin != smoothed.certify([0.3, 0.0], n=500, seed=4).margin
    assert first.margin != smoothed.certify([0.3, 0.0], n=500, seed=3, id="other").margin


def test_label_case_and_abstention() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    right = smoothed.certify([0.6], n=1000, n0=0, label=0)
    wrong = smoothed.certify([0.6], n=1000, n0=0, label=1)
    assert (right.predicted, right.n0) == (0, 0)
    assert wrong.predicted is None


@pytest.mark.parametrize(("map_", "temperature"), [("softmax", 0.1), ("softmax", None), ("sparsemax", None)])
def test_scores_are_smoothed_too(map_: Any, temperature: float | None) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    certificate = smoothed.certify([0.6, 3.0], n=2000, seed=1, map=map_, temperature=temperature)
    assert (certificate.predicted, certificate.map, certificate.temperature) == (0, map_, temperature)
    assert (certificate.method, certificate.n0) == ("pairwise/star", 100)
    assert 0.2 < certificate.radius < 0.6 + 1e-9
    other = smoothed.certify(
        [0.6, 3.0], n=2000, seed=1, map=map_, temperature=temperature, method="bonferroni/bernstein"
    )
    assert 0.0 < other.radius < certificate.radius


def test_votes_have_no_temperature_and_scores_no_votes_method() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    with pytest.raises(buckler.InvalidInput, match="temperature is for softmax"):
        smoothed.certify([0.6], n=10, temperature=1.0)
    with pytest.raises(buckler.InvalidInput, match="COMBINE/LIMIT"):
        smoothed.certify([0.6], n=10, map="softmax", method="exact")
    with pytest.raises(buckler.UnsoundMethod):
        smoothed.certify([0.6], n=10, map="softmax", method="published/sequence")


def test_a_target_radius_is_decided_with_few_draws() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    near = smoothed.certify([1.0, 0.0], target_radius=0.5, max_n=100_000, alpha=1e-3)
    far = smoothed.certify([0.1, 0.0], target_radius=0.5, max_n=100_000, alpha=1e-3)
    assert (near.predicted, near.radius, near.method) == (0, 0.5, "anytime")
    assert near.n < 1000
    assert far.predicted is None
    assert far.n < 1000
    assert near == smoothed.certify([1.0, 0.0], target_radius=0.5, max_n=100_000, alpha=1e-3)
    given = smoothed.certify([1.0, 0.0], target_radius=0.5, label=0, n0=0)
    assert (given.predicted, given.n0) == (0, 0)


def test_a_ladder_of_radii_is_climbed_until_each_is_decided() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    radii = [0.25, 0.5, 0.75, 1.0]
    certificate = smoothed.certify([0.85, 0.0], radii=radii, max_n=20_000)
    decided = smoothed.decide([0.85, 0.0], radii=radii, max_n=20_000)
    assert decided.certificate == certificate
    assert smoothed.certify([0.85, 0.0], radii=np.array(radii), max_n=20_000) == certificate
    assert smoothed.certify([0.85, 0.0], radii=torch.tensor(radii), max_n=20_000) == certificate
    assert (certificate.radius, decided.decision) == (0.75, "hopeless")
    assert list(decided.certified_at) == sorted(decided.certified_at)
    assert len(decided.certified_at) == 3
    assert decided.certified_at[0] < decided.certified_at[2] <= certificate.n
    by_probability = smoothed.certify([0.85, 0.0], radii=radii, max_n=20_000, margin="probability")
    assert (by_probability.radius, by_probability.margin_kind) == (0.75, "probability")


def test_a_precision_ends_the_drawing_where_it_is_reached() -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    rough = smoothed.decide([0.85, 0.0], precision=0.2)
    fine = smoothed.decide([0.85, 0.0], precision=0.05)
    assert rough.decision == fine.decision == "precise"
    assert 0.6 < rough.certificate.radius < fine.certificate.radius < 0.85
    assert rough.certificate.n < fine.certificate.n / 4
    assert smoothed.certify([0.85, 0.0], precision=0.2) == rough.certificate


class Ends:
    """A model that says when the time is up, and interrupts once."""

    def __init__(self, at: int, problem: bool) -> None:
        self.left, self.problem, self.now = at, problem, 0.0

    def __call__(self, batch: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.now = 1e9
            if self.problem:
                raise KeyboardInterrupt
        return half_space(batch)

    def monotonic(self) -> float:
        return self.now


def test_the_answer_so_far_is_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Ends(9, problem=False)
    monkeypatch.setattr(many, "time", model)
    stopped = buckler.Smoothed(model, sigma=0.5, num_classes=2).decide([0.85, 0.0], radii=[0.25, 0.8], max_seconds=5.0)
    assert (stopped.decision, stopped.by_exam) == ("undecided", 0)
    assert stopped.certificate.radius == 0.25


@pytest.mark.parametrize("asked", [{"precision": 0.05}, {"radii": [0.25, 0.84]}])
def test_an_interrupt_leaves_the_answer_so_far_without_an_exam(asked: Any) -> None:
    smoothed = buckler.Smoothed(Ends(9, problem=True), sigma=0.5, num_classes=2)
    interrupted = smoothed.decide([0.85, 0.0], **asked)
    assert (interrupted.decision, interrupted.by_exam) == ("undecided", 0)
    assert 0.0 < interrupted.certificate.radius < 0.85
    assert interrupted.certificate.n < 100_000
    with pytest.raises(KeyboardInterrupt):  # in the selection draws there is no answer yet
        buckler.Smoothed(Ends(1, problem=True), sigma=0.5, num_classes=2).decide([0.85, 0.0], **asked)
    with pytest.raises(KeyboardInterrupt):  # nor in the first estimation draws
        buckler.Smoothed(Ends(2, problem=True), sigma=0.5, num_classes=2).decide([0.85, 0.0], **asked)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 5}, {"method": "exact"}, {"margin": "wide"}, {"max_n": 0}, {"radii": [0.2]}, {"precision": 0.1},
        {"n0": 0},
        {"temperature": 1.0}, {"map": "softmax", "n": 5},
    ],
)  # fmt: skip
def test_a_target_radius_takes_no_other_plan(change: dict[str, object]) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    good: dict[str, object] = {"x": [1.0], "target_radius": 0.5}
    with pytest.raises(buckler.InvalidInput, match=rf"^{list(change)[-1]} "):
        smoothed.certify(**good | change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n0": 0}, "n0 must be at least 1 when no label"),
        ({"n": 0}, "n must"),
        ({"n": 2.5}, "n must"),
        ({"alpha": 0.0}, "alpha"),
        ({"label": 2}, "label"),
        ({"seed": -1}, "seed"),
        ({"method": "magic"}, "method"),
        ({"x": np.array([np.nan])}, "x must"),
        ({"x": 1.0}, "x must"),
        ({"max_n": 5}, "max_n is for drawing until decided"),
        ({"max_seconds": 5}, "max_seconds is for drawing until decided"),
        ({"n": None, "radii": [0.5, 0.2]}, "radii must rise"),
        ({"n": None, "radii": []}, "radii must be one or more"),
        ({"n": None, "precision": 1.5}, "precision must be below 1"),
        ({"n": None, "radii": [0.2], "max_seconds": -1}, "max_seconds must be above 0"),
        ({"label": 0, "n0": 5}, "n0 is for a class that is selected"),
        ({"n": None, "target_radius": 0.0}, "radii must be above 0"),
    ],
)
def test_bad_input(change: dict[str, object], named: str) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    good: dict[str, object] = {"x": np.array([0.6]), "n": 10}
    with pytest.raises(buckler.InvalidInput, match=named):
        smoothed.certify(**good | change)  # type: ignore[arg-type]
    with pytest.raises(buckler.InvalidInput, match="sigma"):
        buckler.Smoothed(half_space, sigma=-1.0, num_classes=2)


def test_everything_after_the_input_is_named() -> None:
    """A locuslab user's ``certify(x, n0, n, alpha, batch_size)`` must not be taken for something else."""
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    with pytest.raises(TypeError, match="positional"):
        smoothed.certify([0.6], 100, 1000, 0.001, 64)  # type: ignore[call-arg]


def test_both_streams_come_from_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = buckler.sampling.engine.Engine

    def spy(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(predicting, "Engine", spy)
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    smoothed.certify([0.6], n=10)
    smoothed.certify([0.6], n=10, map="softmax")
    smoothed.certify([0.6], target_radius=0.1)
    assert len(made) == 3


def test_a_tensor_may_want_a_gradient_and_have_any_float_type() -> None:
    torch = pytest.importorskip("torch")
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    x = torch.tensor([0.75, 0.0], requires_grad=True)
    expected = smoothed.certify([0.75, 0.0], n=100)
    assert smoothed.certify(x, n=100) == expected
    assert smoothed.certify(x.bfloat16(), n=100) == expected
    assert smoothed.certify_many(x[None], n=100) == [expected]
    assert smoothed.certify_many([x, x + 1.0], n=100)[0] == expected


def test_a_model_is_known_by_its_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_model_here.py").write_text(
        "import numpy as np\n\n\ndef make():\n    return lambda batch: np.stack([batch[:, 0], -batch[:, 0]], axis=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    smoothed = buckler.Smoothed("named_model_here:make", sigma=0.5, num_classes=2)
    monkeypatch.delitem(sys.modules, "named_model_here")
    assert smoothed.certify([0.6], n=100) == buckler.Smoothed(half_space, 0.5, 2).certify([0.6], n=100)
    assert repr(smoothed) == "Smoothed(named_model_here:make, law=Gaussian(sigma=0.5), num_classes=2)"
    assert repr(buckler.Smoothed(half_space, 0.25, 2)).startswith("Smoothed(half_space, law=Gaussian(sigma=0.25)")
    with pytest.raises(buckler.InvalidInput, match=r"model must be package\.module:factory, FILE\.onnx"):
        buckler.Smoothed("resnet", sigma=0.5)


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
    smoothed = buckler.Smoothed(f"ready_{kind}:ready", sigma=0.5)
    monkeypatch.delitem(sys.modules, f"ready_{kind}")
    assert smoothed.classifier.num_classes == 3
    assert smoothed.certify([0.5, 0.5], n=10).n == 10
