"""``buckler plan`` as a user types it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from buckler.certify.votes import certify_votes
from buckler.cli.app import run
from buckler.noise import as_noise
from buckler.runs.identity import Identity
from buckler.runs.plan import evidence_size, typical_top
from buckler.runs.spec import RunSpec
from buckler.runs.store.shard import Shard
from buckler.runs.store.tables import write_certificates
from buckler.runs.store.writer import open_writer

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
    rows = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    hours = {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in rows if "hours" in row[0]}
    for row, devices in (("device-hours", 1), ("hours on 64 devices", 64)):
        expected = [made["gpu_hours"] / devices, made["anytime_hours"] / devices]
        assert hours[row] == pytest.approx(expected, rel=0.05), row


def test_a_pilot_takes_the_place_of_the_typical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = [[990 - 90 * i, 10 + 90 * i] for i in range(5)]
    pilot = certify_votes(counts, sigma=0.5, labels=[0] * 5, ids=[str(i) for i in range(5)])
    write_certificates(tmp_path / "pilot.parquet", pilot)
    assert run([*PLAN, "--like", str(tmp_path / "pilot.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["anytime_shares_certified"] == [0.4]
    assert run([*PLAN, "--like", str(tmp_path / "nowhere.parquet")]) == 2
    assert run([*PLAN, "--rate", "0"]) == 2


def test_a_plan_under_another_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = [[990 - 90 * i, 10 + 90 * i] for i in range(5)]
    for law, radius in (("splitting:lam=2.5", 1.0), ("ablation:keep=4,pixels=64", 1.0), ("grid:sigma=0.5", 0.5)):
        pilot = certify_votes(counts, noise=as_noise(None, law), labels=[0] * 5, ids=list("abcde"))
        write_certificates(tmp_path / "pilot.parquet", pilot)
        given = [*PLAN, "--noise", law, "--radii", str(radius), "--like", str(tmp_path / "pilot.parquet")]
        assert run([*given, "--json"]) == 0
        share = (pilot.radii >= radius).mean()
        assert json.loads(capsys.readouterr().out)["anytime_shares_certified"] == [share]
        assert 0.0 < share <= 1.0
    assert run([*PLAN, "--noise", "splitting:lam=2.5"]) == 0
    told = capsys.readouterr().out
    assert "until radius 0.625 is decided" in told
    assert "under splitting noise with lambda 2.5" in told
    assert run([*PLAN, "--noise", "splitting:lam=2.5", "--sigma", "0.5"]) == 2
    assert run([*PLAN, "--noise", "derandomized-splitting:lam=0.5"]) == 2


def test_small_costs_are_told_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--inputs", "100", "--classes", "10", "--n", "1000", "--rate", "1000"]) == 0
    assert capsys.readouterr().out.count(" 0.028 ") == 2  # hours in all, and on the one device


@pytest.mark.parametrize("classes", [2, 1000])
@pytest.mark.parametrize("n", [100, 10_000])
def test_the_size_on_disk_is_about_that_of_a_shard(classes: int, n: int, tmp_path: Path) -> None:
    spec = RunSpec(model="m", data="d", sigma=0.5, num_classes=classes, n=n)
    rng = np.random.default_rng(0)
    inputs = max(1, min(64, 50_000 // n))
    counts = np.zeros((inputs, len(spec.checkpoints), classes), dtype=np.int64)
    selection = np.zeros((inputs, classes), dtype=np.int64)
    for i, p in enumerate(rng.choice(typical_top(), inputs)):
        shares = np.concatenate([[p], rng.dirichlet(np.full(classes - 1, 0.1)) * (1.0 - p)])
        counts[i] = np.cumsum([rng.multinomial(k, shares) for k in np.diff([0, *spec.checkpoints])], axis=0)
        selection[i] = rng.multinomial(spec.n0, shares)
    hashes = tuple(rng.bytes(16).hex() for _ in range(inputs))
    shard = Shard(tuple(map(str, range(inputs))), np.zeros(inputs, dtype=np.int64), hashes, selection, counts, None, 1)
    identity = Identity("c", "d")
    with open_writer(tmp_path, spec, identity, inputs=inputs) as writer:
        writer.append(0, replace(shard, drawn_by=identity.as_dict()))
    written = sum(path.stat().st_size for path in (tmp_path / "shards").iterdir())
    assert written / 2.5 < evidence_size(spec, inputs, files=1) < 2.5 * written
