"""Other tools' names: a script of theirs runs on them, and radii are those of their formula.

``examples/verona.py`` is driven through stand-ins with VERONA's names and signatures: the package itself, ada-verona
1.0.3, asks for Python 3.10 and no later.
"""

import importlib
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import betaincinv, ndtri
from torch import nn

import buckler
from buckler import compat
from buckler.certify.budget import rest, winner_share
from buckler.certify.predictions import predicted_class
from buckler.types import AnyArray, IntArray


class Scripted:
    """A model whose votes are those of two given rows of counts, one after the other."""

    def __init__(self, selection: IntArray, estimation: IntArray) -> None:
        m = len(selection)
        self.votes = np.concatenate([np.repeat(np.arange(m), selection), np.repeat(np.arange(m), estimation)])
        self.m = m
        self.answers: dict[bytes, int] = {}  # some rows are asked for again

    def __call__(self, batch: AnyArray) -> AnyArray:
        new = [row.tobytes() for row in batch if row.tobytes() not in self.answers]
        now, self.votes = self.votes[: len(new)], self.votes[len(new) :]
        self.answers.update(zip(new, now.tolist(), strict=True))
        return np.asarray(np.eye(self.m)[[self.answers[row.tobytes()] for row in batch]])


def public_formula(selection: IntArray, counts: IntArray, sigma: float, alpha: float) -> tuple[int, float]:
    """Return what the published algorithm CERTIFY gives (Cohen et al. 2019, section 3.2), in plain floating point."""
    top = int(selection.argmax())
    k, n = int(counts[top]), int(counts.sum())
    low = float(betaincinv(k, n - k + 1, alpha)) if k else 0.0
    return (-1, 0.0) if low < 0.5 else (top, sigma * float(ndtri(low)))


def random_counts(rng: np.random.Generator) -> tuple[IntArray, IntArray, float, float]:
    m = int(rng.integers(2, 11))
    p = rng.dirichlet(np.full(m, rng.choice([0.05, 0.3, 1.0])))
    n0, n = int(rng.integers(1, 60)), int(rng.integers(1, 400))
    sigma, alpha = float(rng.uniform(0.05, 2.0)), float(10 ** rng.uniform(-6, -1))
    return rng.multinomial(n0, p), rng.multinomial(n, p), sigma, alpha


@pytest.mark.filterwarnings("ignore:n = ")
def test_a_thousand_random_counts_against_the_public_formula() -> None:
    """The radius is that of their formula for all draws at nine tenths of alpha, but for rounding, never larger.

    The class is the one with the most votes, and an abstention where it may have them by chance.
    """
    rng = np.random.default_rng(0)
    abstained = 0
    for _ in range(1000):
        selection, counts, sigma, alpha = random_counts(rng)
        votes, share = selection + counts, winner_share(alpha)
        theirs = public_formula(votes, votes, sigma, rest(alpha, share))
        if predicted_class(votes, alpha=share)[0] == -1:
            theirs = (-1, 0.0)
        smooth = compat.Smooth(Scripted(selection, counts), len(counts), sigma, seed=0)
        ours = smooth.certify(np.zeros(1), int(selection.sum()), int(counts.sum()), alpha, 400)
        assert ours[0] == theirs[0]
        # betaincinv lies above the true limit about half the time, by 5e-12 at most; ours never does.
        assert theirs[1] * (1 - 1e-7) - 1e-9 <= ours[1] <= theirs[1] * (1 + 1e-11)
        abstained += ours[0] == -1
    assert 100 < abstained < 900


def test_the_exact_method_gives_more_where_a_third_class_holds_votes() -> None:
    selection, counts = np.array([10, 0, 0]), np.array([70, 10, 20])
    usual, exact = (
        compat.Smooth(Scripted(selection, counts), 3, 0.5, method=method, seed=0).certify([0.0], 10, 100, 0.001, 64)
        for method in ("top_class", "exact")
    )
    assert usual[0] == exact[0] == 0
    assert exact[1] > 1.5 * usual[1]


def test_predict_is_theirs_too() -> None:
    none = np.zeros(3, dtype=np.int64)
    assert compat.Smooth(Scripted(none, np.array([90, 10, 0])), 3, 0.5).predict([0.0], 100, 0.001, 64) == 0
    assert compat.Smooth(Scripted(none, np.array([55, 45, 0])), 3, 0.5).predict([0.0], 100, 0.001, 64) == -1
    assert compat.Smooth.ABSTAIN == -1


def half_space(batch: AnyArray) -> AnyArray:
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


def test_a_seed_is_drawn_and_kept() -> None:
    first = compat.Smooth(half_space, 2, 0.5)
    assert first.seed != compat.Smooth(half_space, 2, 0.5).seed
    again = compat.Smooth(half_space, 2, 0.5, seed=first.seed)
    x = np.array([0.3])
    assert first.certify(x, 10, 200, 0.01, 64) == again.certify(x, 10, 200, 0.01, 64)


SCRIPT = """
import argparse, datetime
from time import time
from core import Smooth
import torch

parser = argparse.ArgumentParser()
parser.add_argument("sigma", type=float)
parser.add_argument("outfile")
parser.add_argument("--batch", type=int, default=1000)
parser.add_argument("--N0", type=int, default=100)
parser.add_argument("--N", type=int, default=1000)
parser.add_argument("--alpha", type=float, default=0.001)
args = parser.parse_args()

torch.manual_seed(0)
base_classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
base_classifier[1].weight.data.mul_(8.0)
smoothed = Smooth(base_classifier, 3, args.sigma)
with open(args.outfile, "w") as f:
    print("idx\\tlabel\\tpredict\\tradius\\tcorrect\\ttime", file=f, flush=True)
    for i in range(4):
        x, label = torch.rand(3, 2, 2), i % 3
        before = time()
        prediction, radius = smoothed.certify(x, args.N0, args.N, args.alpha, args.batch)
        correct = int(prediction == label)
        took = datetime.timedelta(seconds=time() - before)
        print(f"{i}\\t{label}\\t{prediction}\\t{radius:.3}\\t{correct}\\t{took}", file=f, flush=True)
    assert smoothed.predict(x, args.N, args.alpha, args.batch) in (-1, 0, 1, 2)
"""


def test_a_script_of_that_shape_runs_with_one_import_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positional arguments, a tensor in, (class or -1, radius) out, a log of tab-separated values."""
    pytest.importorskip("torch")
    (tmp_path / "core.py").write_text("from buckler.compat import Smooth\n")
    (tmp_path / "certify.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["certify.py", "0.25", str(tmp_path / "out.tsv"), "--N", "500"])
    try:
        runpy.run_path(str(tmp_path / "certify.py"), run_name="__main__")
    finally:
        sys.modules.pop("core", None)
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert rows[0][:4] == ["idx", "label", "predict", "radius"]
    assert len(rows) == 5
    assert any(float(row[3]) > 0 for row in rows[1:])


def toolbox(**options: Any) -> compat.PyTorchRandomizedSmoothing:
    return compat.PyTorchRandomizedSmoothing(
        model=half_space, loss=None, input_shape=(2,), nb_classes=2, scale=0.5, sample_size=64, seed=0, **options
    )


def test_the_toolbox_form_certifies_and_predicts_many() -> None:
    x = np.array([[0.9, 0.0], [-0.9, 0.5], [0.0, 0.0]])
    predictions, radii = toolbox().certify(x, n=500, batch_size=128)
    assert predictions.tolist()[:2] == [0, 1]
    assert (radii[:2] > 0.3).all()
    assert (predictions[2] == -1) == (radii[2] == 0.0)
    rows = toolbox().predict(x)
    assert rows[:2].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert rows.shape == (3, 2)
    assert toolbox(alpha=1e-9).predict(x[2:]).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"channels_first": False}, "channels_first must be True"),
        ({"device_type": "tpu"}, "device_type must be"),
        ({"method": "magic"}, "method must be"),
        ({"preprocessing_defences": [1]}, "preprocessing_defences must be None"),
        ({"clip_values": (0, 1)}, "declared range"),
    ],
)
def test_what_does_not_apply_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=named):
        toolbox(**options).certify(np.array([[2.0, 0.0]]), n=10)


def test_inputs_of_another_shape_are_refused() -> None:
    with pytest.raises(buckler.InvalidInput, match=r"x must have shape \[inputs, \*\(2,\)\]"):
        toolbox().certify(np.zeros((3, 4)), n=10)


def test_positional_arguments_stand_as_in_the_toolbox() -> None:
    x = np.array([[0.9, 0.0], [-0.9, 0.5]])
    placed = compat.PyTorchRandomizedSmoothing(
        half_space, None, (2,), 2, None, True, None, None, None, (0.0, 1.0), "gpu", 64, 0.5, 0.001, seed=0
    )
    assert placed.certify(x, 500, 128)[1].tolist() == toolbox().certify(x, n=500)[1].tolist()
    assert placed.predict(x, 128, False).tolist() == toolbox().predict(x, verbose=True).tolist()


def test_noise_is_added_before_the_preprocessing() -> None:
    x = np.array([[0.9, 0.0]])
    shifted = toolbox(preprocessing=(0.5, 2.0)).certify(x, n=5000)
    assert shifted[0].tolist() == [0]
    assert 0.3 < shifted[1][0] < 0.4  # at distance 0.4 of where the class changes, in the units of x


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("fit fit_generator clone_for_refitting reset", "train with noise beforehand"),
        (
            "loss_gradient class_gradient custom_loss_gradient compute_loss compute_losses get_activations",
            r"as_module\(\)",
        ),
        ("set_params get_params set_learning_phase", "arguments are those of the constructor"),
        ("save", r"torch\.save"),
    ],
)
def test_what_is_elsewhere_says_where(names: str, said: str) -> None:
    for name in names.split():
        with pytest.raises(buckler.InvalidInput, match=said):
            getattr(toolbox(), name)(np.zeros((1, 2)), 0, batch_size=1)


def test_predictions_without_abstentions_are_refused() -> None:
    assert toolbox().channels_first
    with pytest.raises(buckler.InvalidInput, match="is_abstain must be True"):
        toolbox().predict(np.zeros((1, 2)), is_abstain=False)


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
