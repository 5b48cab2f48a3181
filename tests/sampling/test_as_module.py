"""``Smoothed.as_module``: mean scores over noise, with gradients, taken by tools for attacks and explanations."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import buckler

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from buckler.training.digits import digits_split  # noqa: E402

SIGMA = 0.25
LABELS = torch.tensor([0, 1])


def line() -> nn.Module:
    """Return a model whose second logit is ``4 (x_1 + x_2)``."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [4.0, 4.0]]))
    return nn.Sequential(model, nn.Dropout(0.5))


def smoothed(**how: Any) -> buckler.Smoothed:
    return buckler.Smoothed(line(), SIGMA, 2, **how)


def test_the_output_is_the_mean_of_the_scores() -> None:
    torch.manual_seed(0)
    x = torch.tensor([[0.0, 0.0], [0.1, 0.05], [-0.5, 0.2]])
    found = smoothed().as_module(draws=20_000)(x).detach().numpy()
    z = np.random.default_rng(0).standard_normal(200_000)
    # The second logit is Gaussian: 4 (x_1 + x_2) + 4 sqrt(2) sigma z.
    expected = [np.mean(1 / (1 + np.exp(-(4 * sum(p) + 4 * np.sqrt(2) * SIGMA * z)))) for p in x.tolist()]
    assert found[:, 1] == pytest.approx(expected, abs=0.02)
    assert found.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    sharp = smoothed(scores=buckler.Softmax(1e-3)).as_module(20_000)(x).detach().numpy()
    assert sharp[:, 1] == pytest.approx(ndtr(x.numpy().sum(axis=1) / (np.sqrt(2) * SIGMA)), abs=0.02)


def test_it_has_gradients() -> None:
    module = smoothed().as_module(draws=64)
    x = torch.tensor([[0.1, 0.0]], requires_grad=True)

    def score(at: Any) -> Any:
        torch.manual_seed(1)  # the same noise
        return module(at)[0, 1]

    (gradient,) = torch.autograd.grad(score(x), x)
    step = 1e-2
    for axis in range(2):
        move = torch.zeros(1, 2)
        move[0, axis] = step
        slope = (score(x + move) - score(x - move)).item() / (2 * step)
        assert gradient[0, axis].item() == pytest.approx(slope, rel=0.02)


def test_the_mode_of_the_model_is_left_as_it_is() -> None:
    model = line()
    model.train()
    module = buckler.Smoothed(model, SIGMA, 2).as_module(draws=4)
    torch.manual_seed(0)
    first = module(torch.zeros(1, 2))
    torch.manual_seed(0)
    assert torch.equal(first, module(torch.zeros(1, 2)))  # dropout is off
    assert model.training


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: buckler.Smoothed(lambda b: b, SIGMA, 2).as_module(), "model must be a torch module"),
        (
            lambda: buckler.Smoothed(line(), noise=buckler.noise.Uniform(0.5), num_classes=2).as_module(),
            "noise must be",
        ),
        (lambda: smoothed().as_module(draws=0), "draws must be"),
    ],
)
def test_what_has_no_gradients_is_refused(make: Any, named: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=named):
        make()


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Any, Any]:
    """Return a model of the digits, trained for a second under noise, and 20 test images with labels."""
    pytest.importorskip("sklearn")
    training, test = digits_split(test=20)
    x, y = torch.tensor(training.inputs, dtype=torch.float32), torch.tensor(training.labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer, noise = torch.optim.Adam(model.parameters(), lr=1e-2), buckler.noise.Gaussian(SIGMA)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(noise.sample(x)), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    images = torch.tensor(test.inputs, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return model, images, torch.tensor(test.labels)


@pytest.mark.skipif(find_spec("captum") is None, reason="captum is not installed")
def test_captum_takes_it(digits: tuple[nn.Module, Any, Any]) -> None:
    attr = import_module("captum.attr")
    model, x, y = digits
    module = buckler.Smoothed(model, SIGMA, 10).as_module(draws=16)
    found = attr.IntegratedGradients(module).attribute(x, target=y, n_steps=8)
    # What is attributed adds up to the change of the score from a black image, up to the noise and the few steps.
    change = (module(x) - module(torch.zeros_like(x))).gather(1, y[:, None])[:, 0]
    assert found.flatten(1).sum(dim=1).detach().numpy() == pytest.approx(change.detach().numpy(), abs=0.25)
