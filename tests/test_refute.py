"""``Smoothed.refute``: from certificates or labels to refutations, and what it refuses."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from buckler import Smoothed, Softmax
from buckler.errors import InvalidInput
from buckler.evaluate.attacks import DecoupledAttack
from buckler.noise import GridGaussian

QUICK = DecoupledAttack(searches=2, steps=30, draws=16)


def plane(slope: float = 1.0, values: int = 4) -> nn.Module:
    """Return a linear module of two classes that tie where the mean is 0."""
    module = nn.Linear(values, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-slope] * values, [slope] * values]))
        module.bias.zero_()
    return module


X = np.full((1, 4), 0.4)  # at distance 0.8


def test_the_bracket_holds_the_true_radius() -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    certificates = smoothed.certify(X, n=2000)
    made = smoothed.refute(X, certificates, attack=QUICK, alpha=1e-6, max_n=20_000)[0]
    assert made.radius is not None
    assert certificates[0].radius <= 0.8 <= made.radius * (1 + 1e-6) <= 0.9
    assert (made.id, made.label, made.rival) == (certificates[0].id, 1, 0)
    again = smoothed.refute(X, labels=[1], attack=QUICK, alpha=1e-6, max_n=20_000)[0]
    assert again.radius == pytest.approx(made.radius, rel=0.1)


def test_a_claimed_radius_is_refuted_by_the_first_point_inside() -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    options: Any = {"labels": [1], "attack": QUICK, "alpha": 1e-6}
    nearest = smoothed.refute(X, max_radius=1.5, **options)[0]
    found = smoothed.refute(X, within=1.5, **options)[0]
    assert found.radius is not None
    assert nearest.radius is not None
    assert 0.8 <= nearest.radius < found.radius < 1.5
    assert len(found.tried) == 1
    assert found.n < nearest.n / 10
    assert found.contradicts(1.5)
    assert smoothed.refute(X, within=0.79, **options)[0].radius is None
    with pytest.raises(InvalidInput, match="max_radius must be left out with within"):
        smoothed.refute(X, within=1.0, max_radius=1.0, **options)


def test_points_stay_in_the_range_that_was_declared() -> None:
    options: Any = {"labels": [1], "attack": QUICK, "max_n": 2000}
    found = Smoothed(plane(), sigma=0.5, value_range=(-0.5, 0.5)).refute(X, **options)[0]
    assert found.point is not None
    assert np.abs(found.point).max() <= 0.5
    assert Smoothed(plane(), sigma=0.5, value_range=(0.0, 1.0)).refute(X, **options)[0].point is None


def test_what_is_out_of_reach_is_not_refuted() -> None:
    x = np.concatenate([X, -X, 0.2 + X])
    made = Smoothed(plane(), sigma=0.5).refute(x, labels=[1, 0, 1], attack=QUICK, max_radius=1.0, max_n=4000)
    assert [r.radius is None for r in made] == [False, False, True]


def test_an_interrupt_leaves_the_refutations_of_the_first_inputs() -> None:
    x = np.repeat(X, 6, axis=0)
    seen: list[float] = []

    def stop(done: float, _total: int) -> None:
        seen.append(done)
        if done > 3.0:
            raise KeyboardInterrupt

    options: Any = {"labels": [1] * 6, "attack": QUICK, "max_n": 400}
    part = Smoothed(plane(), sigma=0.5, batch_size=16).refute(x, progress=stop, **options)
    assert 0 < len(part) < 6
    whole = Smoothed(plane(), sigma=0.5, batch_size=16).refute(x, **options)
    assert [r.id for r in part] == [r.id for r in whole[: len(part)]]


def test_on_a_grid_the_point_lies_on_it_and_drawing_takes_its_part() -> None:
    noise = GridGaussian(0.5)
    x = noise.values(np.full((1, 64), 26))
    made = Smoothed(plane(values=64), noise=noise).refute(x, labels=[1], attack=QUICK, max_n=20_000)[0]
    assert made.point is not None
    assert made.radius is not None
    steps = noise.indices(made.point) - 26
    truth = 8 * 26 / 255  # the distance to the hyperplane
    assert truth <= np.sqrt((steps**2).sum()) / 255 <= made.radius <= 1.1 * truth
    with pytest.raises(InvalidInput, match="alpha must be at least 1e-10"):
        Smoothed(plane(values=64), noise=noise).refute(x, labels=[1], attack=QUICK, alpha=1e-11)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "exactly one of certificates and labels"),
        ({"labels": [1], "certificates": "other"}, "exactly one of certificates and labels"),
        ({"certificates": "other"}, "another input"),
        ({"certificates": "two"}, "one for each of 1 inputs"),
        ({"certificates": "sigma"}, "sigma 0.25"),
        ({"certificates": "abstained"}, "abstention"),
        ({"certificates": "scores"}, "softmax"),
        ({"labels": [2]}, "labels"),
        ({"labels": [1], "max_radius": 0.0}, "max_radius"),
        ({"labels": [1], "alpha": 0.0}, "alpha"),
        ({"labels": [1], "max_n": 0}, "max_n"),
        ({"labels": [1], "max_n": 1_000_001}, "max_n"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], problem: str) -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    kinds = {
        "other": lambda: smoothed.certify(X + 0.1, n=100),
        "two": lambda: smoothed.certify(np.concatenate([X, X]), n=100),
        "sigma": lambda: Smoothed(plane(), sigma=0.25).certify(X, n=100),
        "abstained": lambda: smoothed.certify(0 * X, n=100, ids=["a"]),
        "scores": lambda: Smoothed(plane(9.0), sigma=0.5, scores=Softmax()).certify(X, n=500),
    }
    if "certificates" in given:
        given = {**given, "certificates": kinds[given["certificates"]]()}
    with pytest.raises(InvalidInput, match=problem):
        smoothed.refute(X, **given)


def test_an_input_that_comes_again_is_refuted_by_its_own_certificate() -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    twice = np.concatenate([X, X])
    made = smoothed.certify(twice, n=100)
    assert made[1].id == f"{made[0].id}-2"
    assert len(smoothed.refute(twice, made, attack=QUICK, max_n=200)) == 2


def test_a_model_without_gradients_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "buckler.evaluate.attacks")
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    smoothed = Smoothed(lambda batch: np.stack([-batch.sum(1), batch.sum(1)], axis=1), 0.5, num_classes=2)
    with pytest.raises(InvalidInput, match="torch module"):
        smoothed.refute(X, labels=[1])
