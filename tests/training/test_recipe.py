"""The recipe: its schedule, its names, and what it refuses."""

from typing import Any

import pytest

from buckler.errors import InvalidInput
from buckler.training.recipe import TrainingConfig


@pytest.mark.parametrize("warmup", [0.0, 0.2, 0.5])
def test_rate_rises_to_its_highest_and_falls_towards_zero(warmup: float) -> None:
    config = TrainingConfig(sigma=0.25, learning_rate=0.4, warmup=warmup)
    rates = [config.rate(step, 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert top == round(1000 * warmup)
    assert max(rates) == pytest.approx(0.4)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0.0 < rates[-1] < 1e-5


def test_names_and_command() -> None:
    assert TrainingConfig(sigma=1.0).stem("cifar10") == "cifar10-resnet110-sigma1.00"
    assert TrainingConfig(sigma=0.125).stem("cifar10") == "cifar10-resnet110-sigma0.125"
    command = TrainingConfig(sigma=0.25, label_smoothing=0.1).command("cifar10", "cifar10.npz")
    assert command == (
        "buckler train cifar10 --data cifar10.npz --sigma 0.25 --arch resnet110 --epochs 30 --batch-size 256 --lr 0.2 "
        "--weight-decay 0.0005 --label-smoothing 0.1 --flip --seed 0"
    )


def test_choices_leave_out_where_it_is_computed() -> None:
    assert TrainingConfig(sigma=0.25, device="cpu").choices() == TrainingConfig(sigma=0.25, compile=True).choices()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": -1.0}, "sigma must be at least 0"),
        ({"sigma": float("nan")}, "sigma must be a finite number"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"weight_decay": -1e-4}, "weight_decay must be at least 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in"),
        ({"momentum": 0.0}, "momentum must be above 0"),
        ({"seed": -1}, "seed must be a whole number from 0"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingConfig(**({"sigma": 0.25} | change))
