"""Rows run again elsewhere: a classifier that is one function passes, others are found and warned of."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import buckler
from buckler.errors import BucklerWarning
from buckler.noise import DerandomizedSplitting, Gaussian, GridGaussian
from buckler.runs.certify import certify_evidence
from buckler.runs.decide import Target, decide
from buckler.runs.results import read_result
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.cpu import EVERY
from buckler.sampling.datasets import from_arrays
from buckler.sampling.device import repeatable
from buckler.sampling.engine import Engine

LAW = GridGaussian(0.25)
UNSTABLE = "not one function of its input"
X = LAW.values(np.array([[200, 210], [60, 50]]))


def mean(batch: Any) -> Any:
    over = np.asarray(batch).mean(axis=1) - np.float32(0.5)
    return np.stack([0 * over, over], axis=1)


def of_companions(batch: Any) -> Any:
    """The last bit depends on the row before it."""
    return mean(batch) + np.float32(1e-7) * (np.roll(np.asarray(batch), 1, axis=0).sum(axis=1, keepdims=True) > 1)


def of_place(batch: Any) -> Any:
    return mean(batch) + np.float32(1e-6) * np.arange(len(batch), dtype=np.float32)[:, None]


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        over = x.mean(dim=1) - 0.5
        return torch.stack([0 * over, over], dim=1)


class NetOfPlace(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1e-6 * torch.arange(len(x))[:, None]


def replayed(model: Any, n: int = 200, rows: int = 32, **how: Any) -> tuple[int, int]:
    engine = Engine(as_classifier(model, num_classes=2), batch_size=rows, **({"noise": LAW} | how))
    with engine.session():
        engine.votes(X, ["a", "b"], "estimation", n)
        return engine.replayed()


@pytest.mark.parametrize("model", [mean, Net()])
def test_one_function_gives_the_same_bits(model: Any) -> None:
    assert replayed(model) == (32, 0)
    assert replayed(model, n=8) == (32, 0)  # one batch alone, half of it filled up
    assert replayed(model, n=16 * (EVERY + 2)) == (64, 0)
    assert replayed(model, noise=Gaussian(0.25)) == (0, 0)


@pytest.mark.parametrize("model", [of_companions, of_place, NetOfPlace()])
def test_another_function_is_found(model: Any) -> None:
    for n in (8, 200):
        with pytest.warns(BucklerWarning, match=UNSTABLE):
            compared, differed = replayed(model, n=n)
        assert compared == 32
        assert 0 < differed <= 32


class InPlace(Net):
    """Answers in one place every time, as engines with bound outputs do."""

    def __init__(self) -> None:
        super().__init__()
        self.place = torch.empty((32, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.place.copy_(super().forward(x))


NET = InPlace()


def works_in_place(batch: Any) -> Any:
    """Overwrites the batch that it is given."""
    batch -= 0.5
    over = np.asarray(batch).mean(axis=1)
    return np.stack([0 * over, over], axis=1)


class WorksInPlace(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        over = x.sub_(0.5).mean(dim=1)
        return torch.stack([0 * over, over], dim=1)


@pytest.mark.parametrize("model", [works_in_place, WorksInPlace()])
def test_a_model_that_overwrites_its_batch_is_one_function(model: Any) -> None:
    assert replayed(model) == (32, 0)
    assert replayed(model, n=16 * (EVERY + 2)) == (64, 0)


@pytest.mark.parametrize("model", [NET, lambda batch: NET(torch.from_numpy(batch)).numpy()])
def test_votes_are_those_of_the_batch_and_not_of_its_replay(model: Any) -> None:
    """Rows that are run again come in another order and among others: their answers must not take the votes' place."""
    engine, plain = (Engine(as_classifier(each, num_classes=2), noise=LAW, batch_size=32) for each in (model, Net()))
    found, expected = (each.votes(X, ["a", "b"], "estimation", 48) for each in (engine, plain))
    assert engine.replayed() == (32, 0)
    assert (found == expected).all()


def test_a_model_that_is_not_one_function_is_warned_of_once() -> None:
    points = LAW.values(np.arange(200).reshape(100, 2))
    bad = buckler.Smoothed(of_place, noise=LAW, num_classes=2)
    with pytest.warns(BucklerWarning, match=UNSTABLE) as found:
        buckler.Smoothed(of_place, noise=LAW, num_classes=2, batch_size=8).certify(points, n=100)
    assert len(found) == 1
    with pytest.warns(BucklerWarning, match=UNSTABLE):
        bad.certify_until(X[:1], radii=[0.05])
    with pytest.warns(BucklerWarning, match=UNSTABLE):
        buckler.Smoothed(of_place, noise=LAW, num_classes=2, scores=buckler.Softmax()).certify_until(
            X[:1], radii=[0.05], max_n=500
        )
    with pytest.warns(BucklerWarning, match=UNSTABLE):
        bad.predict(X[:1], n=100)


def test_it_is_warned_of_after_an_interrupt_too() -> None:
    def stop(done: float, total: float) -> None:
        if done >= total / 2:
            raise KeyboardInterrupt

    points = LAW.values(np.arange(200).reshape(100, 2))
    with pytest.warns(BucklerWarning, match=UNSTABLE):
        made = buckler.Smoothed(of_place, noise=LAW, num_classes=2, batch_size=8).certify(points, n=100, progress=stop)
    assert 0 < len(made) < 100


@pytest.mark.parametrize("model", [of_companions, of_place, NetOfPlace()])
def test_with_all_copies_a_difference_is_an_error(model: Any, tmp_path: Path) -> None:
    """Alpha is 0 there, so a certificate of a model that is not one function would be false without a chance."""
    noise, points = DerandomizedSplitting(0.5), LAW.values(np.arange(100, 140, 2).reshape(10, 2))
    for size in (64, 255, 300, 512):
        smoothed = buckler.Smoothed(model, noise=noise, num_classes=2, batch_size=size)
        with pytest.raises(buckler.BucklerError, match=UNSTABLE):
            smoothed.certify(points)
    spec = RunSpec(
        model="m", data="d", num_classes=2, n=255, n0=0, noise=noise, shard_inputs=1,
        batch_size=64,
    )  # fmt: skip
    with pytest.raises(buckler.BucklerError, match=UNSTABLE):
        sample(spec, as_classifier(model, num_classes=2), from_arrays(points), tmp_path / "run")
    assert not list(tmp_path.rglob("*.parquet"))


def test_evidence_of_all_copies_with_a_difference_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = LAW.values(np.arange(100, 140, 2).reshape(10, 2))
    spec = RunSpec(model="m", data="d", num_classes=2, n=255, n0=0, noise=DerandomizedSplitting(0.5), batch_size=64)
    sample(spec, as_classifier(mean, num_classes=2), from_arrays(points), tmp_path / "run")
    evidence = open_evidence(tmp_path / "run")
    assert evidence.replayed[0] > 0
    assert certify_evidence(evidence)[0].alpha == 0.0
    monkeypatch.setattr(type(evidence), "replayed", property(lambda _: (255, 1)))
    with pytest.raises(buckler.BucklerError, match="not one function"):
        certify_evidence(evidence)


def test_the_sentence_names_the_condition() -> None:
    good = buckler.Smoothed(mean, noise=LAW, num_classes=2).certify(np.array([[200, 210]], dtype=np.uint8), n=500)[0]
    assert "exact in floating point if the model gives an input the same logits every time" in str(good)


@pytest.mark.filterwarnings("ignore:.*not one function:buckler.errors.BucklerWarning")
@pytest.mark.parametrize(("model", "stable"), [(mean, True), (of_place, False)])
def test_runs_keep_what_was_found(model: Any, stable: bool, tmp_path: Path) -> None:
    how: dict[str, Any] = {"noise": LAW, "batch_size": 64, "shard_inputs": 1}
    spec = RunSpec(model="m", data="d", num_classes=2, n=100, **how)
    data = from_arrays(X[:, None, :].reshape(2, 2), np.array([1, 0]))
    with nullcontext() if stable else pytest.warns(BucklerWarning, match=UNSTABLE):
        sample(spec, as_classifier(model, num_classes=2), data, tmp_path / "run")
    evidence = open_evidence(tmp_path / "run")
    compared, differed = evidence.replayed
    assert compared > 0
    assert (differed == 0) == stable
    (tmp_path / "run" / "manifest.json").unlink()  # what was found is in the seals too
    sample(spec, as_classifier(model, num_classes=2), data, tmp_path / "run")
    assert open_evidence(tmp_path / "run").replayed == (compared, differed)
    evidence = open_evidence(tmp_path / "run")
    assert evidence.replayed == (compared, differed)
    assert ("NOT deterministic" in evidence.provenance().caution) != stable
    with nullcontext() if stable else pytest.warns(BucklerWarning, match=UNSTABLE):
        decide(spec, Target((0.05,)), as_classifier(model, num_classes=2), data, tmp_path / "d.parquet")
    assert ("NOT deterministic" in read_result(tmp_path / "d.parquet").caution) != stable


def test_torch_is_asked_to_repeat_itself_and_left_as_it_was() -> None:
    class Spy(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.backends.cudnn.deterministic
            assert not torch.backends.cudnn.benchmark
            return super().forward(x)

    assert replayed(Spy()) == (32, 0)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(buckler.BucklerError):
        replayed(Spy(), noise=Gaussian(0.25))


def test_torch_is_left_as_it_was_also_where_calls_overlap() -> None:
    first, second = repeatable(), repeatable()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.are_deterministic_algorithms_enabled()
    second.__exit__(None, None, None)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
