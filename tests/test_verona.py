"""``examples/verona.py`` through VERONA's interfaces, against stand-ins with its names and signatures.

The package itself, ada-verona 1.0.3, asks for Python 3.10 and no later, so it cannot be a part of these tests.
"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

X = np.full((1, 2, 2), 0.5, dtype=np.float32)
ALONG = 0.1
"""The plane between the classes lies so far away along each of the four axes: 0.1 in linf, 0.2 in l2."""


class VerificationResult(str, Enum):  # noqa: UP042  (as theirs)
    UNSAT = "UNSAT"
    SAT = "SAT"
    TIMEOUT = "TIMEOUT"


@dataclass
class CompleteVerificationData:
    result: str
    took: float
    counter_example: str | None = None
    obtained_labels: Any = None
    err: str = ""
    stdout: str = ""


@dataclass
class EpsilonStatus:
    value: float
    result: Any
    time: float | None = None
    verifier: str | None = None
    obtained_labels: Any = None

    def set_values(self, complete_verification_data: CompleteVerificationData) -> None:
        self.result, self.time = complete_verification_data.result, complete_verification_data.took
        self.obtained_labels = complete_verification_data.obtained_labels


@dataclass
class EpsilonValueResult:
    verification_context: Any
    epsilon: float
    smallest_sat_value: Any
    time: float | None = None
    verifier: str | None = None


class VerificationModule:
    pass


class EpsilonValueEstimator:
    def __init__(self, epsilon_value_list: list[float], verifier: Any) -> None:
        self.epsilon_value_list, self.verifier = epsilon_value_list, verifier


class One2AnyPropertyGenerator:
    def __init__(self, number_classes: int = 10, data_lb: int = 0, data_ub: int = 1) -> None:
        self.number_classes, self.data_lb, self.data_ub = number_classes, data_lb, data_ub


class Wrapper(nn.Module):
    """What their networks load: a module that reshapes everything to the shape of one input."""

    def __init__(self, torch_model: nn.Module, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.torch_model, self.input_shape = torch_model, input_shape

    def forward(self, x: Any) -> Any:
        return self.torch_model(x.reshape(*self.input_shape))


@pytest.fixture
def verona(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package: Any = ModuleType("ada_verona")
    results: Any = ModuleType("ada_verona.database.verification_result")
    results.CompleteVerificationData = CompleteVerificationData
    for one in (
        EpsilonStatus, EpsilonValueEstimator, EpsilonValueResult, One2AnyPropertyGenerator, VerificationModule,
        VerificationResult,
    ):  # fmt: skip
        setattr(package, one.__name__, one)
    monkeypatch.setitem(sys.modules, "ada_verona", package)
    monkeypatch.setitem(sys.modules, "ada_verona.database", ModuleType("ada_verona.database"))
    monkeypatch.setitem(sys.modules, results.__name__, results)
    monkeypatch.delitem(sys.modules, "examples.verona", raising=False)
    yield importlib.import_module("examples.verona")
    sys.modules.pop("examples.verona", None)


def context(shape: tuple[int, ...] = (1, 1, 2, 2), label: int = 0, asked: Any = None) -> Any:
    """Return a context whose network has class 0 up to ``ALONG`` along each axis, beside a class without votes."""
    linear = nn.Linear(4, 3)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[-1.0] * 4, [1.0] * 4, [0.0] * 4]))
        linear.bias.copy_(torch.tensor([1.0, -1.0, -1e3]) * 4 * (0.5 + ALONG))
    loaded = Wrapper(nn.Sequential(nn.Flatten(), linear).eval(), shape)
    saved: list[EpsilonStatus] = []
    return SimpleNamespace(
        network=SimpleNamespace(get_input_shape=lambda: np.array(shape), load_pytorch_model=lambda: loaded, name="net"),
        data_point=SimpleNamespace(id="7", label=label, data=torch.from_numpy(X)),
        property_generator=One2AnyPropertyGenerator(3) if asked is None else asked,
        save_result=saved.append,
        saved=saved,
    )


@pytest.mark.parametrize(("norm", "distance"), [("linf", ALONG), ("l2", 2 * ALONG)])
def test_a_module_answers_by_certificate_and_refutation(verona: Any, norm: str, distance: float) -> None:
    module, now = verona.SmoothedModule(0.25, 3, norm=norm, n=20_000), context()
    near, tie, far = (module.verify(now, epsilon) for epsilon in (0.9 * distance, distance, 1.2 * distance))
    assert [one.result.value for one in (near, tie, far)] == ["UNSAT", "TIMEOUT", "SAT"]
    assert far.obtained_labels.flatten().tolist() == [1]
    assert verona.SmoothedModule(0.25, 3, norm=norm, refute=False).verify(now, 9.0).result.value == "TIMEOUT"
    now.network = None  # one certificate and one refutation serve all
    assert module.verify(now, 0.5 * distance).result.value == "UNSAT"


def test_another_context_is_drawn_for(verona: Any) -> None:
    module = verona.SmoothedModule(0.25, 3, n=1000)
    assert module.verify(context(), 0.02).result.value == "UNSAT"
    assert module.verify(context(label=1), 0.02).result.value == "SAT"  # the label is not what is predicted here


def test_the_estimator_returns_what_is_certified_and_what_is_refuted(verona: Any) -> None:
    now = context(shape=(-1, 4))
    epsilons = [0.0, 0.02, 0.05, ALONG, 0.15, 0.3]
    estimator = verona.SmoothedEstimator(epsilons[::-1], verona.SmoothedModule(0.25, 3, n=50_000))
    made = estimator.compute_epsilon_value(now)
    assert (made.epsilon, made.smallest_sat_value) == (0.05, 0.15)
    assert made.verification_context is now
    assert made.verifier == estimator.verifier.name == "Smoothed (sigma=0.25, n=50000, alpha=0.001, linf)"
    assert [(one.value, one.result.value) for one in now.saved] == [
        *((epsilon, "UNSAT") for epsilon in epsilons[:3]), (ALONG, "TIMEOUT"), (0.15, "SAT"), (0.3, "SAT")
    ]  # fmt: skip
    lost = verona.SmoothedEstimator([0.02], verona.SmoothedModule(0.25, 3, n=1000, refute=False))
    nothing = lost.compute_epsilon_value(context(label=1))
    assert (nothing.epsilon, nothing.smallest_sat_value) == (0, "undefined")


def test_what_is_not_verified_is_refused(verona: Any) -> None:
    module = verona.SmoothedModule(0.25, 3)
    with pytest.raises(NotImplementedError, match="against any other class; got SimpleNamespace"):
        module.verify(context(asked=SimpleNamespace()), 0.1)
    with pytest.raises(ValueError, match=r"must begin with a batch of 1 or -1; got \[28, 28\]"):
        module.verify(context(shape=(28, 28)), 0.1)
    with pytest.raises(ValueError, match="norm must be"):
        verona.SmoothedModule(0.25, 3, norm="l1")
