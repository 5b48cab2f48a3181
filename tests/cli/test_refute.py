"""``buckler refute`` as a user types it: kept, gone on with, and alarmed by certificates in the wrong units."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.certificate import Certificate
from buckler.certify.votes import certify_votes
from buckler.cli.app import run
from buckler.evaluate.refutations import RefutationSettings
from buckler.runs.logs import import_log
from buckler.runs.store.tables import read_refutations, write_certificates
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.sampling.engine import Engine
from tests.runs.victim import rewrite

LOG = Path(__file__).parents[1] / "golden" / "usual_log.tsv"
MODELS = """
import numpy as np
import torch
def linear():
    layer = torch.nn.Linear(64, 10, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor(np.random.default_rng(0).normal(size=(10, 64)).astype("f4")))
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
"""
MODEL = ["--model", "models_to_refute:linear", "--data", "digits", "--num-classes", "10"]
FEW = ["--attack", "decoupled:searches=1,steps=2,draws=16"]
LOOKS = ["--attack", "decoupled:searches=1,steps=3,draws=128"]
QUICK = ["--attack", "decoupled:searches=1,steps=12,draws=16", "--max-n", "1000"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models_to_refute.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sampled() -> None:
    assert run(["sample", "run", *MODEL, "--sigma", "0.25", "--n", "300", "--every", "180", "--quiet"]) == 0


def test_a_run_is_refuted_kept_and_gone_on_with(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled()
    command = ["refute", "run", *QUICK, "--limit", "6", "--out", "r.parquet"]
    starts, whole = dict[str, float](), RefutationSettings.refute

    def spied(self: RefutationSettings, model: Any, ids: Sequence[str], x: Any, labels: Any, start: Any) -> Any:
        starts.update(zip(ids, start.tolist(), strict=True))
        return whole(self, model, ids, x, labels, start)

    with monkeypatch.context() as patch:
        patch.setattr(RefutationSettings, "refute", spied)
        assert run([*command, "--json"]) == 0
    said = capsys.readouterr()
    assert "ALARM" not in said.err
    assert "otherwise" not in said.err
    lines = [json.loads(line) for line in said.out.splitlines()]
    brackets, _ = read_refutations(here / "r.parquet")
    assert starts == {b.refutation.id: b.certified for b in brackets}
    assert len(set(starts.values())) > 3
    assert [line["refuted"] for line in lines] == [b.refutation.radius for b in brackets]
    assert sum(line["refuted"] is not None for line in lines) >= 3
    assert all(line["refuted"] is None or line["refuted"] > line["certified"] for line in lines)
    for b in brackets:
        if b.refutation.point is not None:
            assert b.refutation.point.shape == (1, 8, 8)
            assert 0.0 <= b.refutation.point.min() <= b.refutation.point.max() <= 1.0
    rewrite(here / "r.parquet", pq.read_table(here / "r.parquet").slice(0, 3))
    assert run([*command, "--json"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [line["id"] for line in lines]
    assert run([*command, "--alpha", "0.01"]) == 2
    assert "another alpha" in capsys.readouterr().err


def test_a_run_with_a_seed_that_nobody_knew_is_refuted_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    fresh = ["sample", "run", *MODEL, "--sigma", "0.1", "--n", "300", "--every", "180", "--fresh-seed", "--quiet"]
    assert run(fresh) == 0
    assert run(["refute", "run", *FEW, "--max-n", "100", "--limit", "1"]) == 0
    assert "1 certified inputs attacked" in capsys.readouterr().out


def test_the_forecast_is_of_the_inputs_that_are_attacked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled()
    monkeypatch.setattr("buckler.cli.drawing_commands.measure_rate", lambda *_: 7.0)
    assert run(["refute", "run", *QUICK, "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert "buckler: 2 inputs, 7 draws a second: " in said.err
    assert re.search(r"2 refuted; .* ratio \d\.\d+ \(quartiles \d\.\d+ and \d\.\d+\);", said.out)


def test_an_interrupt_keeps_what_is_done(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled()
    command = ["refute", "run", *LOOKS, "--max-n", "300", "--batch-size", "64", "--limit", "4"]
    command += ["--out", "r.parquet"]
    blocks, whole = [0], RefutationSettings.refute

    def interrupted(self: RefutationSettings, *arguments: Any) -> Any:
        blocks[0] += 1
        if blocks[0] == 2:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RefutationSettings, "refute", interrupted)
        assert run(command) == 3
    done = len(read_refutations(here / "r.parquet")[0])
    assert done == 2
    said = capsys.readouterr()
    assert f"interrupted; {done} inputs are done and kept in r.parquet" in said.err
    assert f"{done} certified inputs attacked" in said.out
    assert run([*command, "--quiet"]) == 0
    assert len(read_refutations(here / "r.parquet")[0]) > done


def test_a_claimed_radius_is_refuted_by_the_first_point_inside(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sampled()
    command = ["refute", "run", *QUICK, "--limit", "2", "--max-n", "20000", "--json"]
    assert run(command) == 0
    nearest = [json.loads(line)["refuted"] for line in capsys.readouterr().out.splitlines()]
    assert run([*command, "--within", "0.4", "--out", "r.parquet"]) == 0
    found = [json.loads(line)["refuted"] for line in capsys.readouterr().out.splitlines()]
    assert all(near < inside < 0.4 for near, inside in zip(nearest, found, strict=True))
    assert {len(bracket.refutation.tried) for bracket in read_refutations(here / "r.parquet")[0]} == {1}
    assert run([*command, "--within", "0.4", "--max-radius", "0.4"]) == 2
    assert "max_radius must be left out with within" in capsys.readouterr().err
    assert run([*command, "--max-radius", "0.4", "--out", "r.parquet"]) == 2
    assert "holds refutations of another call (another max_radius, within)" in capsys.readouterr().err


def certificates(votes: Any, labels: Any, ids: Sequence[str]) -> list[Certificate]:
    made = certify_votes(votes, sigma=0.25, alpha=1e-3, labels=labels, ids=ids)
    assert not isinstance(made, Certificate)
    return list(made)


def test_noise_in_other_units_than_the_certificates_say_raises_the_alarm(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Votes drawn with a noise of 0.25 in 0 .. 255, certified as if it were 0.25 in 0 .. 1."""
    weights = np.random.default_rng(0).normal(size=(10, 64)).astype("f4")
    data = open_dataset("digits").select(every=100)
    engine = Engine(as_classifier(lambda x: x.reshape(len(x), -1) @ weights.T, num_classes=10), sigma=0.25 / 255)
    with engine.session():
        votes = engine.votes(data.load(0, len(data)), data.ids, "estimation", 500)
    write_certificates(here / "c.parquet", certificates(votes, votes.argmax(axis=1), data.ids))
    command = ["refute", "c.parquet", *MODEL, *QUICK]
    assert run(command) == 0
    said = capsys.readouterr().err
    assert "ALARM: " in said
    assert "0 to 255 against 0 to 1" in said
    assert run([*command, "--strict", "--quiet"]) == 1


def test_other_inputs_under_the_same_names_are_not_those_that_were_certified(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refutation of another input would count as a contradiction of the certificate."""
    x = open_dataset("digits").select(every=180)
    images = x.load(0, len(x))
    np.save(here / "a.npy", images)
    np.save(here / "b.npy", np.concatenate([images[1:], images[:1]]))
    plain = ["sample", "run", *MODEL[:2], "--num-classes", "10", "--data", "a.npy", "--sigma", "0.1", "--n", "300"]
    assert run([*plain, "--quiet"]) == 0
    assert run(["certify", "run", "--out", "c.parquet", "--quiet"]) == 0
    command = ["refute", "c.parquet", *FEW, "--max-n", "100", "--limit", "1", "--quiet"]
    assert run([*command, "--data", "b.npy"]) == 2
    assert "data is not that of" in capsys.readouterr().err
    assert run(command) == 0


def test_a_log_says_no_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_log(LOG, alpha=0.01, n=100_000, sigma=0.5, out=here / "log")
    assert run(["refute", "log"]) == 2
    assert "--model must be given: 'log' does not name it" in capsys.readouterr().err


def test_a_file_that_does_not_say_its_model_needs_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_certificates(here / "c.parquet", certificates([[0, 100], [100, 0]], [1, 0], ["0", "1"]))
    assert run(["refute", "c.parquet"]) == 2
    assert "--model must be given" in capsys.readouterr().err
    assert run(["refute", "c.parquet", "--model", "models_to_refute:linear"]) == 2
    assert "--data must be given" in capsys.readouterr().err
