"""``buckler plan`` as a user types it."""

import json
import re
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.certify.votes import certify_votes
from buckler.cli.app import run
from buckler.runs.identity import Identity
from buckler.runs.plan import duration, evidence_size, typical_shares
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import open_writer
from buckler.runs.store.shard import Shard
from buckler.runs.store.tables import Drawing, write_certificates, write_decisions

EVIDENCE = Path(__file__).parents[2] / "evidence"
PLAN = ["plan", "--inputs", "50000", "--classes", "1000", "--n", "100000", "--rate", "24000"]


def test_the_costs_of_a_large_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["samples"] == 50_000 * 100_000
    assert made["gpu_hours"] == pytest.approx(50_000 * 100_000 / 24_000 / 3600)
    assert made["anytime_hours"] == pytest.approx(made["anytime_samples"] / 24_000 / 3600)
    assert 5e7 < made["evidence_bytes"] < 2e9
    assert 10 < made["times_fewer"] < 200
    assert run([*PLAN, "--gpus", "64"]) == 0
    told = {row[0]: row[1:] for line in capsys.readouterr().out.splitlines() if (row := re.split(r"\s{2,}", line))}
    hours = made["gpu_hours"], made["anytime_hours"]
    assert told["time on 64 devices"] == [duration(3600.0 * time / 64) for time in hours]
    assert run([*PLAN, "--rate", "0"]) == 2
    assert run(["plan", "--inputs", "3", "--rate", "10"]) == 2
    assert "--model and --data must be given, to be measured; or --inputs, --classes and --rate" in (
        capsys.readouterr().err
    )


def test_an_input_has_one_shard_at_most_however_slow_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = []
    for rate in ("3", "41", "100000"):
        assert run(["plan", "--inputs", "500", "--classes", "10", "--n", "100000", "--rate", rate, "--json"]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["evidence_bytes"])
    assert sizes[0] == sizes[1]
    assert 1e6 < sizes[0] < 3e6
    assert sizes[2] < sizes[0] / 5


def decided(like: Path, *options: str) -> dict[str, Any]:
    captured = StringIO()
    with redirect_stdout(captured):
        assert run([*PLAN, "--like", str(like), *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(captured.getvalue())
    return found


SLOW = [pytest.param(f"cifar10-sigma{sigma}", marks=pytest.mark.slow) for sigma in ("0.25", "1.00")]


@pytest.mark.parametrize("name", ["cifar10-sigma0.50", *SLOW])
def test_recorded_votes_foretell_the_draws_within_a_factor(name: str, tmp_path: Path) -> None:
    """Votes of 1,000 draws, and of a file of decisions, foretell what decide takes on votes drawn anew."""
    truth = open_evidence(EVIDENCE / f"{name}-counts")
    votes, sigma = truth.counts().values, float(truth.spec.sigma or 0.0)
    shares, rng = votes / votes.sum(axis=1, keepdims=True), np.random.default_rng(0)
    radii = tuple(0.5 * sigma * step for step in range(1, 5))
    test = AnytimeTest(Ladder(radii, truth.spec.noise, 1e-3, 100_000, winner=True), len(votes), 10)
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), shares[rows]))
    made = [test.decided(row, str(row)) for row in range(len(votes))]
    origin = {"drawn_by": [{"answers": "a", "weights": {}, "environment": {}}], "replayed": [0, 0]}
    origin |= {"radii": list(radii), "alpha": 1e-3, "final_n": 100_000}
    write_decisions(tmp_path / "decided.parquet", made, [Drawing("", 0)] * len(made), origin)
    options = ["--sigma", str(sigma), "--radii", ",".join(map(str, radii))]
    certified = [np.mean([len(d.certified_at) > step for d in made]) for step in range(4)]
    for like in (EVIDENCE / name, tmp_path / "decided.parquet"):
        told = decided(like, *options)
        assert 1 / 1.5 < told["anytime_samples"] / 50_000 / test.n.mean() < 1.5
        assert told["anytime_shares_certified"] == pytest.approx(certified, abs=0.05)


def test_what_has_no_votes_of_its_own_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_certificates(tmp_path / "c.parquet", certify_votes([[990, 10]], sigma=0.5, labels=[0], ids=["a"]))
    for path in (tmp_path / "c.parquet", tmp_path / "nowhere.parquet"):
        assert run([*PLAN, "--like", str(path)]) == 2
    (tmp_path / "log.tsv").write_text("idx\tlabel\tpredict\tradius\n0\t1\t1\t0.25\n")
    words = ["import", "log.tsv", "--alpha", "0.001", "--n", "1000", "--sigma", "0.5", "--out", "run", "--quiet"]
    with chdir(tmp_path):
        assert run(words) == 0
        assert run([*PLAN, "--like", "run"]) == 2
    assert "recovered from a log" in capsys.readouterr().err


def test_a_plan_under_another_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--noise", "splitting:lam=2.5"]) == 0
    told = capsys.readouterr().out
    assert "until radius 0.625 is decided" in told
    assert "under splitting noise with lambda 2.5" in told
    assert run([*PLAN, "--noise", "splitting:lam=2.5", "--sigma", "0.5"]) == 2
    assert run([*PLAN, "--noise", "derandomized-splitting:lam=0.5"]) == 2


def test_radii_that_n_draws_cannot_certify_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--n", "100", "--sigma", "0.5", "--radii", "0.25,1.5"]) == 0
    assert "max_n = 100 draws cannot certify radius 1.5" in capsys.readouterr().err
    assert run([*PLAN, "--n", "10", "--sigma", "0.1"]) == 0
    assert capsys.readouterr().err == ""  # nobody asked for the default radius


MODEL = """
import numpy as np
ROWS = 0
class Model:
    def __call__(self, batch):
        global ROWS
        ROWS += len(batch)
        return batch[:, :3] * 1.0
def make(): return Model()
"""


def test_a_model_is_measured_its_time_forecast_and_slow_ones_get_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock stands still but for the rows that the model is given: a twentieth of a second for each."""
    (tmp_path / "model_to_plan.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(size=(30, 4)).astype("f4"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.monotonic", lambda: getattr(sys.modules.get("model_to_plan"), "ROWS", 0) / 20)
    from_model = ["--model", "model_to_plan:make", "--num-classes", "3", "--data", "x.npy", "--sigma", "0.5"]
    assert run(["plan", *from_model, "--n", "100", "--radii", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["inputs"], told["samples"], told["rate"]) == (30, 3000, pytest.approx(20.0))
    assert told["gpu_hours"] == pytest.approx(3000 / 20 / 3600)
    assert sys.modules["model_to_plan"].ROWS < 15 * 20
    assert run(["sample", "run", *from_model, "--n", "100", "--max-seconds", "20"]) == 3
    assert "30 inputs, 20 draws a second: 2.5 minutes\n" in capsys.readouterr().err
    kept = open_evidence(tmp_path / "run")
    assert kept.spec.batch_size == 32  # of two seconds at most
    assert kept.counts().ids == ("0", "1", "2")
    assert run(["sample", "run", *from_model, "--n", "100", "--max-seconds", "1e-9"]) == 3
    assert "27 inputs, 20 draws a second: 2.2 minutes\n" in capsys.readouterr().err
    assert run(["sample", "run", *from_model, "--n", "100", "--quiet"]) == 0
    written = sum(path.stat().st_size for path in (tmp_path / "run" / "shards").iterdir())
    assert written / 1.5 < told["evidence_bytes"] < 1.5 * written
    assert run(["decide", "--radii", "0.1", *from_model, "--max-n", "1000", "--out", "d.parquet"]) == 0
    assert re.search(
        r"30 inputs, 20 draws a second: about .* minutes for a typical data set, 25 minutes at most",
        capsys.readouterr().err,
    )


def test_the_measurement_takes_three_seconds_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network of 130 rows a second: 64 of them take half a second, and 8 times as many would take four."""
    (tmp_path / "model_to_measure.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.zeros((3, 4), dtype="f4"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.monotonic", lambda: getattr(sys.modules.get("model_to_measure"), "ROWS", 0) / 130)
    settings = tmp_path / "run.toml"
    settings.write_text('model = "model_to_measure:make"\ndata = "x.npy"\nnum_classes = 3\nbatch_size = 64\n')
    assert run(["plan", "--spec", str(settings), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rate"] == pytest.approx(130.0)
    assert 1.5 * 130 < sys.modules["model_to_measure"].ROWS <= 3.1 * 130


@pytest.mark.parametrize(("classes", "n"), [(2, 10_000), (1000, 100)])
def test_the_size_on_disk_is_about_that_of_a_shard(classes: int, n: int, tmp_path: Path) -> None:
    spec = RunSpec(model="m", data="d", sigma=0.5, num_classes=classes, n=n)
    rng = np.random.default_rng(0)
    inputs = max(1, min(64, 50_000 // n))
    counts = np.zeros((inputs, len(spec.checkpoints), classes), dtype=np.int64)
    selection = np.zeros((inputs, classes), dtype=np.int64)
    for i, p in enumerate(rng.choice(typical_shares()[:, 0], inputs)):
        shares = np.concatenate([[p], rng.dirichlet(np.full(classes - 1, 0.1)) * (1.0 - p)])
        counts[i] = np.cumsum([rng.multinomial(k, shares) for k in np.diff([0, *spec.checkpoints])], axis=0)
        selection[i] = rng.multinomial(spec.n0, shares)
    hashes = tuple(rng.bytes(16).hex() for _ in range(inputs))
    ids, labels = tuple(map(str, range(inputs))), np.zeros(inputs, dtype=np.int64)
    record = {"answers": "c", "weights": {}, "environment": {}}
    with open_writer(tmp_path, spec, Identity(record, "d"), inputs=inputs) as writer:
        writer.append(0, Shard(ids, labels, hashes, selection, counts, None, 1, drawn_by=record))
    written = sum(path.stat().st_size for path in (tmp_path / "shards").iterdir())
    assert written / 2.5 < evidence_size(spec, inputs, files=1) < 2.5 * written


COMPILES = """
SECONDS, SEEN = 0.0, set()
class Model:
    def __call__(self, batch):
        global SECONDS
        SECONDS += len(batch) / 130 + (0 if len(batch) in SEEN else 2)
        SEEN.add(len(batch))
        return batch[:, :3] * 1.0
def make(): return Model()
"""


def test_a_model_that_compiles_for_each_size_of_batch_is_measured_without_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model_that_compiles.py").write_text(COMPILES)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(size=(30, 4)).astype("f4"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.monotonic", lambda: getattr(sys.modules.get("model_that_compiles"), "SECONDS", 0.0))
    model = ["--model", "model_that_compiles:make", "--num-classes", "3", "--data", "x.npy", "--sigma", "0.5"]
    assert run(["plan", *model, "--n", "100", "--radii", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rate"] == pytest.approx(130.0)
