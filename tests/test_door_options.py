"""Every option of every door of ``Smoothed`` changes what comes of the call: none is dropped on its way."""

import inspect
from functools import cache
from typing import Any

import numpy as np
import pytest

import buckler
from tests.test_session import CENTRES, CIRCLE, NEAREST

torch = pytest.importorskip("torch")
from buckler.evaluate.attacks import DecoupledAttack  # noqa: E402

X = np.concatenate([CIRCLE[:3], [[0.05, 0.4]]])  # the last one lies near the boundary of two classes
LABELS = [*NEAREST[:3].tolist(), 1]
IDS = ["a", "b", "c", "d"]
ATTACK = DecoupledAttack(searches=1, steps=6, draws=16)
SOFT = buckler.Softmax(0.5)

USUAL: dict[str, dict[str, Any]] = {
    "predict": {"n": 40},
    "predict within max_n": {"max_n": 300},
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


class Watched(torch.nn.Linear):  # type: ignore[misc, name-defined]
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
