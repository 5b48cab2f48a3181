"""``Smoothed.refute``: from a certificate or a class to a refutation, and what it refuses."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from buckler import Smoothed
from buckler.errors import InvalidInput
from buckler.evaluate.attacks import Attack
from buckler.noise import GridGaussian

QUICK = Attack(searches=2, steps=30, draws=16)


def plane(slope: float = 1.0) -> nn.Module:
    """Return a linear module of two classes that tie where the mean is 0."""
    module = nn.Linear(4, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-slope] * 4, [slope] * 4]))
        module.bias.zero_()
    return module


X = np.full(4, 0.4)  # at distance 0.8


def test_the_bracket_holds_the_true_radius() -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    certificate = smoothed.certify(X, n=2000)
    made = smoothed.refute(X, certificate=certificate, attack=QUICK, alpha=1e-6, max_n=20_000)
    assert made.radius is not None
    assert certificate.radius <= 0.8 <= made.radius * (1 + 1e-6) <= 0.9
    assert (made.id, made.label, made.rival) == (certificate.id, 1, 0)
    again = smoothed.refute(X, label=1, attack=QUICK, alpha=1e-6, max_n=20_000)
    assert again.radius == pytest.approx(made.radius, rel=0.1)


def test_many_are_as_each_and_all_is_told() -> None:
    smoothed, x = Smoothed(plane(), sigma=0.5), np.stack([X, -X, 0.2 + X])
    told: list[float] = []
    made = smoothed.refute_many(
        x, labels=[1, 0, 1], ids=["a", "b", "c"], attack=QUICK, max_radius=1.0, max_n=4000, batch_size=64,
        progress=lambda done, _: told.append(done),
    )  # fmt: skip
    assert [r.radius is None for r in made] == [False, False, True]
    assert told == sorted(told)
    assert told[-1] == 3
    alone = smoothed.refute(-X, label=0, id="b", attack=QUICK, max_radius=1.0, max_n=4000)
    assert alone.radius == pytest.approx(made[1].radius)


def test_on_a_grid_the_point_lies_on_it_and_drawing_takes_its_part() -> None:
    law = GridGaussian(0.5)
    x = law.values(np.full(64, 26))
    module = nn.Linear(64, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-1.0] * 64, [1.0] * 64]))
        module.bias.zero_()
    made = Smoothed(module, law=law).refute(x, label=1, attack=QUICK, max_n=20_000)
    assert made.point is not None
    assert made.radius is not None
    steps = law.indices(made.point) - 26
    truth = 8 * 26 / 255  # the distance to the hyperplane
    assert truth <= np.sqrt((steps**2).sum()) / 255 <= made.radius <= 1.1 * truth
    with pytest.raises(InvalidInput, match="alpha must be at least 1e-10"):
        Smoothed(module, law=law).refute(x, label=1, attack=QUICK, alpha=1e-12)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "not both"),
        ({"label": 1, "certificate": "other"}, "not both"),
        ({"certificate": "other"}, "another input"),
        ({"certificate": "sigma"}, "sigma 0.25"),
        ({"certificate": "abstained"}, "abstention"),
        ({"certificate": "scores"}, "softmax"),
        ({"label": 2}, "label"),
        ({"label": 1, "max_radius": 0.0}, "max_radius"),
        ({"label": 1, "alpha": 0.0}, "alpha"),
        ({"label": 1, "max_n": 0}, "max_n"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], problem: str) -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    kinds = {
        "other": lambda: smoothed.certify(X + 0.1, n=100),
        "sigma": lambda: Smoothed(plane(), sigma=0.25).certify(X, n=100),
        "abstained": lambda: smoothed.certify(0 * X, n=100, id="a"),
        "scores": lambda: Smoothed(plane(9.0), sigma=0.5).certify(X, n=500, map="softmax"),
    }
    if "certificate" in given:
        given = {**given, "certificate": kinds[given["certificate"]]()}
    with pytest.raises(InvalidInput, match=problem):
        smoothed.refute(X, **given)


def test_an_input_that_comes_again_is_refuted_by_its_own_certificate() -> None:
    smoothed = Smoothed(plane(), sigma=0.5)
    twice = np.stack([X, X])
    made = smoothed.certify_many(twice, n=100, progress=False)
    assert made[1].id == f"{made[0].id}-2"
    assert len(smoothed.refute_many(twice, certificates=made, attack=QUICK, max_n=200, progress=False)) == 2


def test_a_model_without_gradients_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "buckler.evaluate.attacks")
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    smoothed = Smoothed(lambda batch: np.stack([-batch.sum(1), batch.sum(1)], axis=1), 0.5, num_classes=2)
    with pytest.raises(InvalidInput, match="torch module"):
        smoothed.refute(X, label=1)
