"""``buckler plan`` as a user types it."""

import json
from pathlib import Path

import pytest

from buckler.certify.counts import certify_counts
from buckler.cli.app import run
from buckler.runs.store.certificates import write_certificates

PLAN = ["plan", "--inputs", "50000", "--classes", "1000", "--n", "100000", "--rate", "24000"]


def test_the_costs_of_a_large_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["samples"] == 50_000 * 100_100
    assert made["gpu_hours"] == pytest.approx(50_000 * 100_100 / 24_000 / 3600)
    assert 5e7 < made["evidence_bytes"] < 2e9
    assert 10 < made["times_fewer"] < 200
    assert run([*PLAN, "--gpus", "64"]) == 0
    assert "hours on 64 devices" in capsys.readouterr().out


def test_a_pilot_takes_the_place_of_the_typical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = [[990 - 90 * i, 10 + 90 * i] for i in range(5)]
    pilot = certify_counts(counts, sigma=0.5, label=[0] * 5, ids=[str(i) for i in range(5)])
    assert isinstance(pilot, list)
    write_certificates(tmp_path / "pilot.parquet", pilot)
    assert run([*PLAN, "--like", str(tmp_path / "pilot.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["anytime_share_certified"] == 0.4
    assert run([*PLAN, "--like", str(tmp_path / "nowhere.parquet")]) == 2
    assert run([*PLAN, "--rate", "0"]) == 2
