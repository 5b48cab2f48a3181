"""Inputs that do not fit one group: each gets what it gets alone, with its own class; seeds and ties on the way."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import buckler
from buckler import session
from buckler.types import AnyArray

CENTRES = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]], dtype=np.float32)
ANGLES = np.linspace(0.1, 6.2, 24)
POINTS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) * np.linspace(0.4, 1.5, 24)[:, None]
NEAREST = (POINTS @ CENTRES.T).argmax(axis=1)
SMALL = 16
"""So few rows at once that several hundred draws of each input make a group of one input."""


def linear(batch: AnyArray) -> AnyArray:
    return np.asarray(batch @ CENTRES.T)


def smoothed(model: Any, scores: Any = None) -> buckler.Smoothed:
    return buckler.Smoothed(model, sigma=0.4, num_classes=3, scores=scores, batch_size=SMALL)


SOFT = buckler.Softmax(0.5)
DOORS: dict[str, Callable[..., Any]] = {
    "certify": lambda x, model=linear, **o: list(smoothed(model).certify(x, n=300, **o)),
    "certify_until": lambda x, model=linear, **o: list(
        smoothed(model).certify_until(x, radii=[0.1, 0.3], max_n=400, **o)
    ),
    "scores": lambda x, model=linear, **o: list(smoothed(model, SOFT).certify(x, n=200, n0=20, **o)),
    "scores until": lambda x, model=linear, **o: list(
        smoothed(model, SOFT).certify_until(x, radii=[0.05], max_n=300, n0=20, **o)
    ),
    "certify, selected": lambda x, model=linear, **o: list(smoothed(model).certify(x, n=300, n0=50, **o)),
    "predict": lambda x, model=linear, **o: smoothed(model).predict(x, n=300, **o).tolist(),
    "predict until": lambda x, model=linear, **o: smoothed(model).predict(x, max_n=300, **o).tolist(),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_input_gets_what_it_gets_alone(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_SCORES", 2000)  # groups of a few inputs, for scores as for votes
    together = DOORS[door](POINTS, seed=3)
    assert together == [DOORS[door](point[None], seed=3)[0] for point in POINTS]
    assert len({str(one) for one in together}) > 2


@pytest.mark.parametrize("door", list(DOORS)[:4])
def test_every_input_is_certified_for_its_own_label(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_SCORES", 2000)
    made = DOORS[door](POINTS, labels=NEAREST)
    certified = [(one.predicted, label) for one, label in zip(made, NEAREST.tolist(), strict=True) if one.radius > 0.0]
    assert [predicted for predicted, _ in certified] == [label for _, label in certified]
    assert {predicted for predicted, _ in certified} == {0, 1, 2}


def test_every_refutation_is_of_its_own_input_and_label() -> None:
    torch = pytest.importorskip("torch")
    from buckler import PGDAttack

    layer = torch.nn.Linear(2, 3, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor(CENTRES))
    model = buckler.Smoothed(layer, sigma=0.4, num_classes=3, batch_size=SMALL)
    points, labels = POINTS[::8], NEAREST[::8]
    assert len(set(labels)) == 3
    certificates = model.certify(points, n=300, labels=labels)
    assert len({one.radius for one in certificates}) == 3
    options: dict[str, Any] = {"max_n": 2000, "attack": PGDAttack(steps=16, draws=64)}
    together = model.refute(points, certificates, **options)
    alone = [model.refute(x[None], [one], **options)[0] for x, one in zip(points, certificates, strict=True)]
    assert [str(one) for one in together] == [str(one) for one in alone]
    assert [(one.label, one.tried) for one in together] == [(one.label, one.tried) for one in alone]
    assert [one.label for one in together] == labels.tolist()


@pytest.mark.parametrize("door", DOORS)
def test_the_seed_and_the_ids_decide_the_noise(door: str) -> None:
    seen: list[bytes] = []

    def watched(batch: AnyArray) -> AnyArray:
        seen.append(np.ascontiguousarray(batch).tobytes())
        return linear(batch)

    runs = []
    for options in ({"seed": 3}, {"seed": 3}, {"seed": 4}, {"seed": 3, "ids": ["a", "b", "c"]}):
        seen.clear()
        DOORS[door](POINTS[:3], watched, **options)
        runs.append(set(seen))
    assert runs[0] == runs[1]
    assert not runs[0] & (runs[2] | runs[3])


@pytest.mark.parametrize(("door", "n0"), [("certify", 50), ("certify_until", 50), ("scores", 20), ("scores until", 20)])
def test_selection_draws_are_others_than_those_of_the_limit(door: str, n0: int) -> None:
    seen: list[bytes] = []

    def watched(batch: AnyArray) -> AnyArray:
        seen.extend(np.ascontiguousarray(row).tobytes() for row in batch)
        return linear(batch)

    own = {"n0": n0} if door.startswith("certify") else {}
    made = DOORS[door](POINTS[:3], watched, seed=3, **own)
    assert {one.n0 for one in made} == {n0}
    assert len(set(seen)) >= sum(one.n + one.n0 for one in made)


def test_a_tie_of_logits_is_a_vote_for_the_first_of_the_classes() -> None:
    tied = np.array([0.0, 2.0, 2.0, 1.0], dtype=np.float32)
    models: list[Any] = [lambda batch: np.tile(tied, (len(batch), 1))]
    torch = pytest.importorskip("torch")
    constant = torch.nn.Linear(2, 4)
    torch.nn.init.zeros_(constant.weight)
    constant.bias = torch.nn.Parameter(torch.tensor(tied))
    for model in (*models, constant):
        made = buckler.Smoothed(model, sigma=0.4, num_classes=4).certify(POINTS, n=200)
        assert made.predicted.tolist() == [1] * len(POINTS)


def test_a_tie_of_votes_is_won_by_the_first_of_the_classes() -> None:
    selection = [[3, 40, 40, 17], [25, 25, 25, 25]]
    made = buckler.certify_votes([[0, 990, 5, 5], [990, 0, 5, 5]], sigma=0.5, selection=selection)
    assert made.predicted.tolist() == [1, 0]
