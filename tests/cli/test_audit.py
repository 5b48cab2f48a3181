"""``buckler audit`` as a user types it: our methods, a bound of one's own, and the optimum."""

import json
from pathlib import Path
from typing import Any

import pytest

from buckler import certificate
from buckler.certify import methods as registered
from buckler.cli.app import run

BOUNDS = """
import numpy as np
from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
def honest(counts, alpha):
    low = clopper_pearson_lower(counts[:, 0], counts.sum(axis=1), alpha)
    return 2.0 * low - 1.0
def estimate(counts, alpha):
    return (counts[:, 0] - counts[:, 1:].max(axis=1)) / counts.sum(axis=1)
def favourite(counts, alpha):
    # Sound against class 1, blind to class 2.
    low = clopper_pearson_lower(counts[:, 0], counts.sum(axis=1), alpha / 2)
    high = clopper_pearson_upper(counts[:, 1], counts.sum(axis=1), alpha / 2)
    return low - high
def meddler(counts, alpha):
    counts[:] = 0
    return np.full(len(counts), -1.0)
def broken(counts, alpha):
    return 1 / 0
def short(counts, alpha):
    return np.zeros(3)
def nan(counts, alpha):
    return np.full(len(counts), np.nan)
number = 3
from buckler.certify import Method, own_method
vouched = own_method("own:vouched", estimate, margins=("probability",), sound=True)
scored = Method("own:scored", "scores", len)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_METHODS", dict(registered._METHODS))
    monkeypatch.setattr(certificate, "_TIES", dict(certificate._TIES))
    (tmp_path / "bounds_for_audit.py").write_text(BOUNDS)
    monkeypatch.chdir(tmp_path)


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["audit", *arguments, "--json", "--points", "8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_method_of_ours_passes_and_is_tight(capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(capsys, "top_class", "--m", "3", "--n", "20", "--alpha", "0.01")
    assert found["passed"]
    assert 0.009 < found["miss"] <= 0.01


def test_a_bound_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--n", "15", "--alpha", "0.05", "--margin", "probability"]
    assert audited(capsys, "bounds_for_audit:honest", *own)["passed"]
    found = audited(capsys, "bounds_for_audit:estimate", *own)
    assert not found["passed"]
    assert found["miss"] > 0.4
    assert audited(capsys, "bounds_for_audit:meddler", *own)["miss"] == 0.0
    # Whoever says that a bound is sound is audited like anybody else.
    assert not audited(capsys, "bounds_for_audit:vouched", *own)["passed"]


def test_a_bound_that_favours_a_rival_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(capsys, "bounds_for_audit:favourite", "--n", "20", "--alpha", "0.05", "--margin", "probability")
    assert not found["passed"]
    assert found["miss"] > 0.5
    assert found["truth"][2] > found["truth"][1], "the tight rival is the one it does not look at"


def test_fail_turns_the_verdict_into_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--n", "10", "--margin", "probability", "--fail", "--quiet", "--points", "4"]
    assert run(["audit", "bounds_for_audit:estimate", *own]) == 1
    assert run(["audit", "bounds_for_audit:honest", *own]) == 0
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


def test_power_is_below_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(capsys, "bonferroni", "--n", "20", "--alpha", "0.05", "--power", "--truth", "0.7,0.2,0.1")
    (row,) = found["power"]
    assert row["truth"] == [0.7, 0.2, 0.1]
    assert row["powers"]["bonferroni"] < row["powers"]["exact"] <= row["optimum"] * (1 + 1e-6) < 1.0
    assert row["powers"]["exact"] > 0.85 * row["optimum"]
    assert run(["audit", "exact", "--n", "12", "--power", "--points", "4"]) == 0
    shown = capsys.readouterr().out
    assert "passed" in shown
    assert "optimum" in shown


def test_a_bound_that_cannot_be_audited_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        ([], "METHOD must be given"),
        (["nothing"], "method must be one of"),
        (["no.such.module:f"], "cannot be imported"),
        (["bounds_for_audit:absent"], "has no function 'absent'"),
        (["bounds_for_audit.py:absent"], "must name a module, bounds_for_audit:absent, not its file"),
        (["bounds_for_audit:number"], "has no function 'number'"),
        (["bounds_for_audit:broken"], "failed: ZeroDivisionError"),
        (["bounds_for_audit:short"], "one an outcome"),
        (["pairwise/star"], "method must be one of"),
        (["bounds_for_audit:scored"], "method must be one of"),
        (["bounds_for_audit:vouched", "--margin", "quantile"], "margin must be 'probability'"),
        (["bounds_for_audit:nan"], "NaN"),
        (["__import__('os'):system"], "package.module:function"),
        (["--noise", "splitt"], "--noise must be one of 'gaussian', "),
        (["exact", "--m", "10", "--n", "40"], "outcomes to enumerate"),
        (["exact", "--n", "5", "--power", "--truth", "0.5,0.6,0"], "sum 1"),
    ):
        assert run(["audit", *arguments]) == 2, arguments
        error = capsys.readouterr().err
        assert text in error
        assert len(error.strip().splitlines()) == 1


def test_a_failed_bound_of_ones_own_names_the_margin_that_it_was_read_as(capsys: pytest.CaptureFixture[str]) -> None:
    audit = ["audit", "bounds_for_audit:honest", "--n", "10", "--alpha", "0.05", "--points", "8"]
    assert run([*audit, "--margin", "probability"]) == 0
    assert "quantile margin" not in capsys.readouterr().out
    assert run(audit) == 0
    assert "read as a limit of the quantile margin; --margin probability is for" in capsys.readouterr().out


def test_an_unsound_method_is_audited_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "published", "--n", "10", "--alpha", "0.05", "--points", "4", "--fail"]) == 1
    shown = capsys.readouterr().out
    assert "known to be unsound" in shown
    assert "FAILED" in shown
