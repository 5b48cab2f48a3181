"""The recipe: schedule, names, refusals, and its losses against formulas written out."""

import dataclasses
from typing import Any

import pytest
import torch

from buckler.errors import InvalidInput
from buckler.sampling.architectures import build
from buckler.training import tasks
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Classify, attack

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
    assert TrainingConfig(sigma=0.0, lam=2.5, consistency=5.0).stem("cifar10") == (
        "cifar10-resnet110-consistency-splitting2.50"
    )


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


torch.set_num_threads(1)

LABELS = torch.arange(20) % 10
TASK = Classify(0.5, label_smoothing=0.1, consistency=20.0)


def images() -> Any:
    return torch.randint(0, 256, (20, 32, 32, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(0)
    made = build("small_conv", 10).eval()
    with torch.no_grad():
        made.classify.weight.mul_(20.0)  # answers that differ from draw to draw
    return made


def written_out(network: Any, x: Any) -> float:
    """Return the loss of ``TASK`` on inputs ``x``, from probabilities in float64."""
    with torch.no_grad():
        p, q = network(x).double().softmax(dim=1).chunk(2)
    target = torch.full((20, 10), 0.1 / 10, dtype=torch.float64)
    target[torch.arange(20), LABELS] += 0.9
    entropy = -(target * (p.log() + q.log()) / 2.0).sum(dim=1)
    mean = (p + q) / 2.0
    divergence = (mean * (mean.log() - (p.log() + q.log()) / 2.0)).sum(dim=1)
    spread = -(mean * mean.log()).sum(dim=1)
    assert min(float(part.mean()) for part in (entropy, divergence, spread)) > 0.01  # no part is too small to be seen
    return float((entropy + 20.0 * divergence + 0.5 * spread).mean())


def found(task: Classify, network: Any) -> tuple[float, float]:
    """Return the task's loss, and the one written out, on the inputs of one seed."""
    inputs = TASK.inputs(images(), torch.Generator().manual_seed(1))
    with torch.no_grad():
        return float(task.loss(network, inputs, images(), LABELS)), written_out(network, *inputs)


def test_loss_is_the_formula(network: Any) -> None:
    loss, expected = found(TASK, network)
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "fault",
    [{"consistency": None}, {"consistency": 10.0}, {"label_smoothing": 0.0}],
    ids=["no divergence", "half the weight", "no label smoothing"],
)
def test_a_fault_in_the_weights_is_seen(network: Any, fault: dict[str, Any]) -> None:
    loss, expected = found(dataclasses.replace(TASK, **fault), network)
    assert loss != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_fault_in_the_entropy_is_seen(network: Any, weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "ENTROPY", weight)
    loss, expected = found(TASK, network)
    assert loss != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("task", [Classify(0.5, consistency=1.0), Classify(0.0, 1.0, consistency=1.0)])
def test_consistency_sees_two_independent_draws_of_each_image(task: Classify) -> None:
    grey = torch.full((50, 32, 32, 3), 128, dtype=torch.uint8)
    (x,) = task.inputs(grey, torch.Generator().manual_seed(0))
    assert x.shape == (100, 3, 32, 32)
    one, other = x.chunk(2)
    assert abs(float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])) < 5.0 / one.numel() ** 0.5


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("draws", [1, 2])
def test_attack_reaches_the_optimum_of_a_linear_classifier(steps: int, draws: int) -> None:
    linear = torch.nn.Linear(3 * 8 * 8, 2, bias=False)
    flat = torch.nn.Sequential(torch.nn.Flatten(), linear)
    x = torch.randn((draws, 4, 3, 8, 8), generator=torch.Generator().manual_seed(1)) * 0.01
    labels = torch.tensor([0, 1, 0, 1])
    moved = attack(flat, x, labels, 0.5, steps)
    away = (linear.weight[1] - linear.weight[0]).detach()
    direction = torch.where(labels == 0, 1.0, -1.0)[:, None] * away / away.norm()
    torch.testing.assert_close(moved.flatten(1), 0.5 * direction, rtol=1e-4, atol=1e-5)
    assert linear.weight.grad is None  # the attack leaves no gradients for the optimiser
    assert not moved.requires_grad
    towards = attack(flat, x, 1 - labels, 0.5, steps)
    torch.testing.assert_close(towards, -moved)  # a sign that is wrong would be seen


def test_attack_without_a_gradient_stays_at_zero() -> None:
    x = torch.zeros((1, 2, 3, 8, 8))
    assert not attack(lambda x: 0.0 * x.flatten(1)[:, :5], x, torch.tensor([0, 1]), 1.0, 2).any()


def test_more_steps_attack_a_network_better_within_the_radius(network: Any) -> None:
    draws = TASK.inputs(images(), torch.Generator().manual_seed(2))[0].reshape(2, 20, 3, 32, 32)

    def chance(moved: Any) -> float:
        with torch.no_grad():
            p = network((draws + moved).flatten(0, 1)).softmax(dim=1).reshape(2, 20, 10).mean(dim=0)
        return float(p[torch.arange(20), LABELS].log().mean())

    one, many = (attack(network, draws, LABELS, 1.0, steps) for steps in (1, 8))
    assert float(many.flatten(1).norm(dim=1).max()) <= 1.0 + 1e-5
    assert chance(many) < chance(one) < chance(torch.zeros_like(one)) - 0.1


def test_an_adversary_moves_both_draws_alike(network: Any) -> None:
    task = dataclasses.replace(TASK, adversary=0.7, attack_steps=2)
    inputs = task.inputs(images(), torch.Generator().manual_seed(1))
    seen: list[Any] = []

    def forward(x: Any) -> Any:
        seen.append(x.detach().clone())
        return network(x)

    loss = float(task.loss(forward, inputs, images(), LABELS).detach())
    assert len(seen) == 3  # two steps of the attack, one of the training
    one, other = (seen[-1] - inputs[0]).chunk(2)
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)
    assert float(one.flatten(1).norm(dim=1).min()) == pytest.approx(0.7, abs=1e-4)
    assert loss == pytest.approx(written_out(network, seen[-1]), rel=1e-5)
    assert loss > found(TASK, network)[0]
