"""The recipe: its schedule, its names, and what it refuses."""

from typing import Any

import pytest

from buckler.errors import InvalidInput
from buckler.training.recipe import TrainingConfig

DENOISER: dict[str, Any] = {
    "sigma": 1.0, "smallest_sigma": 0.1, "architecture": "unet", "classifier": "0" * 64, "recognition": 0.1
}  # fmt: skip


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


def test_command_of_consistency_and_an_adversary() -> None:
    config = TrainingConfig(sigma=0.25, consistency=20.0, adversary=0.25, attack_steps=2)
    assert " --arch resnet110 --consistency 20 --adversary 0.25 --attack-steps 2 --epochs 30 " in config.command(
        "c", None
    )
    assert {"consistency": 20.0, "adversary": 0.25, "attack_steps": 2}.items() <= config.choices().items()
    assert config.choices().keys() - TrainingConfig(sigma=0.25).choices().keys() == {
        "consistency", "adversary", "attack_steps"
    }  # fmt: skip
    assert TrainingConfig(sigma=0.0, lam=2.5, consistency=5.0).stem("cifar10") == "cifar10-resnet110-splitting2.50"


def test_command_of_other_noise_and_of_a_denoiser() -> None:
    assert " --sigma 0 --arch " in TrainingConfig(sigma=0.0).command("cifar10", None)
    split = TrainingConfig(sigma=0.0, lam=2.5).command("cifar10", None)
    assert split.startswith("buckler train cifar10 --lam 2.5 --arch resnet110 ")
    assert TrainingConfig(**DENOISER).command("cifar10", "c.npz", "clean.safetensors") == (
        "buckler train cifar10 --data c.npz --sigma 1 --denoiser --smallest-sigma 0.1 --classifier clean.safetensors "
        "--recognition 0.1 --epochs 30 --batch-size 256 --lr 0.2 --weight-decay 0.0005 --flip --seed 0"
    )
    steady = TrainingConfig(**DENOISER, consistency=10.0)
    assert " --recognition 0.1 --consistency 10 --epochs" in steady.command("cifar10", None, "clean.safetensors")
    assert steady.choices() == TrainingConfig(**DENOISER).choices() | {"consistency": 10.0}
    assert TrainingConfig(**DENOISER).choices().keys().isdisjoint({"momentum", "label_smoothing", "lam"})
    assert "recognition" not in TrainingConfig(sigma=0.25).choices()


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
        ({"lam": 2.5}, "sigma must be 0 with splitting noise"),
        ({"sigma": 0.0, "lam": 0.4}, "lam must be at least 1/2"),
        ({"sigma": 0.0, "lam": 0.7001}, "510 lam a whole number"),
        ({"smallest_sigma": 0.1}, "smallest_sigma belongs to a denoiser"),
        ({"classifier": "0"}, "classifier belongs to a denoiser"),
        ({"recognition": 0.0}, "recognition belongs to a denoiser"),
        ({"architecture": "unet"}, "a denoiser, which needs it"),
        (DENOISER | {"smallest_sigma": 1.0}, "smallest_sigma must lie between 0 and sigma"),
        (DENOISER | {"smallest_sigma": 0.0}, "smallest_sigma must lie between 0 and sigma"),
        (DENOISER | {"recognition": -0.1}, "recognition must be at least 0"),
        ({"sigma": 0.0, "consistency": 1.0}, "consistency needs noise"),
        ({"consistency": -1.0}, "consistency must be above 0"),
        ({"adversary": 0.25}, "adversary and attack_steps must be given together"),
        ({"attack_steps": 1}, "adversary and attack_steps must be given together"),
        ({"adversary": 0.0, "attack_steps": 1}, "adversary must be above 0"),
        ({"adversary": 0.25, "attack_steps": 0}, "attack_steps must be a whole number of at least 1"),
        ({"sigma": 0.0, "lam": 2.5, "adversary": 0.25, "attack_steps": 1}, "adversary needs Gaussian noise"),
        (DENOISER | {"adversary": 0.25, "attack_steps": 1}, "adversary belongs to a classifier"),
        (DENOISER | {"recognition": 0.0, "consistency": 1.0}, "consistency needs recognition above 0"),
        (DENOISER | {"consistency": 0.0}, "consistency must be above 0"),
        (DENOISER | {"label_smoothing": 0.1}, "label_smoothing belongs to a classifier"),
        (DENOISER | {"momentum": 0.8}, "momentum belongs to a classifier"),
        (DENOISER | {"lam": 2.5}, "sigma must be 0"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingConfig(**({"sigma": 0.25} | change))
