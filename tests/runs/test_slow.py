"""A slow network: inputs are finished in order, and an interruption costs ten seconds of work at most.

Time is counted, not measured: the clock stands still but for the rows that the model is given.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.decide import Target, decide
from buckler.runs.executor import Interrupted
from buckler.runs.sample import Summary, sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import read_decisions
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.types import AnyArray

CLASSES, RATE = 1000, 10.0
WEIGHTS = np.random.default_rng(0).normal(size=(12, CLASSES)).astype("f4")
X = np.random.default_rng(1).uniform(size=(6, 3, 2, 2)).astype("f4")
BEGUN = "begun-000000.json"


class Slow:
    """A network of 1,000 classes that takes a tenth of a second for a row; it is interrupted at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.stop = 0.0, float("inf")
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.now += len(batch) / RATE
        if self.now > self.stop:
            self.stop = float("inf")
            raise KeyboardInterrupt
        return np.asarray(batch.reshape(len(batch), -1) @ WEIGHTS)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


def spec(**changes: Any) -> RunSpec:
    settings: dict[str, Any] = {"model": "m", "data": "d", "sigma": 0.5, "num_classes": CLASSES, "n": 500, "n0": 40}
    return RunSpec(**{**settings, "batch_size": 8, **changes})


def draw(slow: Slow, out: Path, **changes: Any) -> Summary:
    return sample(spec(**changes), as_classifier(slow, num_classes=CLASSES), from_arrays(X), out)


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


def test_an_interruption_loses_ten_seconds_of_work_at_most(slow: Slow, tmp_path: Path) -> None:
    assert draw(slow, tmp_path / "whole").complete
    kept, done = 0, list[int]()
    for after in (30.0, 47.0, 61.0, 50.0, 70.0, 40.0):
        slow.stop = slow.now + after
        with pytest.raises(Interrupted) as caught:
            draw(slow, tmp_path / "run")
        summary = caught.value.done
        assert summary.lost <= 10 * RATE
        kept += summary.samples - summary.lost
        done.append(summary.inputs_done)
    assert kept > 3 * 540
    assert done == sorted(done)
    assert done[-1] >= 3
    assert open_evidence(tmp_path / "run").counts()[0].ids == tuple(map(str, range(done[-1])))
    before = slow.now
    last = draw(slow, tmp_path / "run")
    assert last.complete
    # Beside what is new: the probe, twice and once more, and a few batches of one finished input.
    assert slow.now - before - last.samples / RATE <= (3 * 6 * 4 + 24 + 40) / RATE
    assert kept + last.samples == 6 * 540
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def interrupted(slow: Slow, out: Path) -> Path:
    slow.stop = slow.now + 60.0
    with pytest.raises(Interrupted):
        draw(slow, out)
    assert (out / BEGUN).is_file()
    return out


def test_votes_of_another_model_are_not_gone_on_with(slow: Slow, tmp_path: Path) -> None:
    out = interrupted(slow, tmp_path / "run")
    other = as_classifier(lambda batch: slow(batch) * np.float32(1.5), num_classes=CLASSES)
    with pytest.raises(StoreError, match="another model"):
        sample(spec(), other, from_arrays(X), out)
    with pytest.raises(StoreError, match=r"n: 500 in the folder, 400 asked for; .*; give the settings of the folder"):
        draw(slow, out, n=400)
    made = sample(spec(), other, from_arrays(X), out, allow_other_model=True)
    assert (made.complete, made.samples) == (True, 6 * 540)


@pytest.mark.parametrize("change", ["cut", "more votes", "another input"])
def test_damaged_votes_are_refused_and_set_aside(slow: Slow, tmp_path: Path, change: str) -> None:
    from buckler.runs.store.sealed import read_sealed, write_sealed

    out = interrupted(slow, tmp_path / "run")
    if change == "cut":
        (out / BEGUN).write_bytes((out / BEGUN).read_bytes()[:-5])
    elif change == "more votes":
        values = read_sealed(out / BEGUN)
        values["votes"][0][2] += 1
        write_sealed(out / BEGUN, values)
    else:
        write_sealed(out / BEGUN, {**read_sealed(out / BEGUN), "first": 1})
    with pytest.raises(DamagedEvidence, match=BEGUN):
        draw(slow, out)
    with pytest.warns(UserWarning, match=f"set aside .*{BEGUN}"):
        made = sample(spec(), as_classifier(slow, num_classes=CLASSES), from_arrays(X), out, repair=True)
    assert (made.complete, made.samples) == (True, 6 * 540)


def test_settings_may_change_while_nothing_is_drawn(slow: Slow, tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = as_classifier(slow, num_classes=CLASSES)
    assert sample(spec(), model, from_arrays(X), out, max_samples=1).samples == 0
    assert sample(spec(n=50, sigma=0.25), model, from_arrays(X), out).complete
    with pytest.raises(StoreError, match="n: 50 in the folder, 500 asked for"):
        draw(slow, out)


def test_decisions_are_finished_in_order_and_kept(slow: Slow, tmp_path: Path) -> None:
    out, target = tmp_path / "decided.parquet", Target((0.01,))
    made, model, data = spec(n0=0, n=2000), as_classifier(slow, num_classes=CLASSES), from_arrays(X)
    whole, drawn = decide(made, target, model, data), list[int]()
    slow.stop = slow.now + sum(d.certificate.n for d in whole) / RATE * 0.7
    with pytest.raises(Interrupted) as caught:
        decide(made, target, model, data, out, progress=lambda _, count: drawn.append(count))
    kept = read_decisions(out).decided
    finished = [d.certificate.id for d in kept if d.decision != "undecided"]
    assert caught.value.done == list(kept)
    assert {"0", "1"} <= set(finished)
    again = list[int]()
    assert decide(made, target, model, data, out, progress=lambda _, count: again.append(count)) == whole
    lost = drawn[-1] + again[-1] - sum(d.certificate.n for d in whole)
    largest = max(d.certificate.n for d in whole) / 8  # one look at one input may be larger than ten seconds of work
    assert lost <= max(10 * RATE, largest)
