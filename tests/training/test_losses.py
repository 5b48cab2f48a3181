"""The losses of a classifier against formulas written out; the attack against the optimum of a linear classifier."""

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from buckler.sampling.architectures import build  # noqa: E402
from buckler.training import tasks  # noqa: E402
from buckler.training.tasks import Classify, attack  # noqa: E402

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
