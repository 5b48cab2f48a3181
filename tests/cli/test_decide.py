"""``buckler decide`` as a user types it."""

import json
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.cli.app import run
from buckler.errors import InvalidInput
from buckler.runs import decide as runs_decide
from buckler.runs.store.tables import read_certificates, read_origin
from buckler.sampling.datasets import bundled_digits
from tests.runs.victim import rewrite

MODELS = """
import os, signal
import numpy as np
WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype("f4")
left = [int(os.environ.get("INTERRUPT_AFTER", 10**9))]
def linear():
    def call(batch):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), getattr(signal, os.environ["INTERRUPT_BY"]))
        return batch.reshape(len(batch), -1) @ WEIGHTS
    return call
"""
MODEL = ["--model", "models_to_decide:linear", "--data", "digits", "--sigma", "0.25", "--num-classes", "10"]
DECIDE = ["decide", "--radii", "0.05", *MODEL, "--every", "20", "--limit", "25", "--max-n", "2000"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models_to_decide.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_target_radius_is_decided_and_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*DECIDE, "--out", "t.parquet", "--tsv", "t.tsv"]) == 0
    shown = capsys.readouterr().out
    assert "25 inputs" in shown
    assert "Certified accuracy, sigma" in shown
    assert "r=0.05" in shown
    certificates = read_certificates(here / "t.parquet")
    assert len(certificates) == 25
    assert {c.method for c in certificates} == {"anytime"}
    assert {c.radius for c in certificates} == {0.0, 0.05}
    assert len((here / "t.tsv").read_text().splitlines()) == 26
    before = (here / "t.parquet").read_bytes()
    # Half of it lost, as by a kill: the rest is decided again, to the same bytes.
    rewrite(here / "t.parquet", pq.read_table(here / "t.parquet").slice(0, 11))
    assert run([*DECIDE, "--out", "t.parquet", "--quiet"]) == 0
    assert (here / "t.parquet").read_bytes() == before
    assert run([*DECIDE, "--out", "t.parquet", "--quiet", "--alpha", "0.01"]) == 2
    assert "another alpha" in capsys.readouterr().err
    assert run(["sample", "run", *MODEL, "--limit", "2", "--n", "20", "--quiet"]) == 0
    for command in ("certify", "sweep"):
        assert run([command, "run", "--out", "t.parquet"]) == 2
        assert "'t.parquet' keeps what buckler decide drew" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match=r"path must be another file; 't\.parquet' keeps what buckler decide drew"):
        certificates.save("t.parquet")
    assert (here / "t.parquet").read_bytes() == before
    assert run([*DECIDE, "--class", "label", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["n0"] for line in lines] == [0] * 25
    assert {line["decision"] for line in lines} == {"certified", "given up"}


SPEC = 'model = "models_to_decide:linear"\ndata = "digits"\nsigma = 0.25\nnum_classes = 10\nevery = 300\n'


def test_the_file_wins_over_defaults_and_options_over_the_file(here: Path) -> None:
    file = "n = 300\nn0 = 7\n"
    for added, options, expected in (
        (file, [], (300, 7)),
        (file, ["--max-n", "400"], (400, 7)),
        (file, ["--n0", "9"], (300, 9)),
        ("", ["--limit", "1"], (100_000, 0)),
    ):
        (here / "run.toml").write_text(SPEC + added)
        (here / "t.parquet").unlink(missing_ok=True)
        assert run(["decide", "--radii", "0.02", "--spec", "run.toml", "--out", "t.parquet", "--quiet", *options]) == 0
        origin = read_origin(here / "t.parquet")
        assert origin is not None
        assert (origin["spec"]["n"], origin["spec"]["n0"]) == expected, options
        assert {c.n0 for c in read_certificates(here / "t.parquet")} == {expected[1]}


def test_a_setting_for_evidence_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run.toml").write_text(SPEC + 'scores = "softmax"\n')
    assert run(["decide", "--radii", "0.02", "--spec", "run.toml"]) == 2
    assert "scores is for evidence that is kept" in capsys.readouterr().err


def test_a_log_without_labels_is_refused_before_anything_is_drawn(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(here / "x.npy", np.zeros((3, 8, 8), dtype=np.float32))
    assert run([*DECIDE, "--data", "x.npy", "--tsv", "t.tsv", "--every", "1", "--out", "t.parquet"]) == 2
    assert "--tsv needs labels" in capsys.readouterr().err
    assert not (here / "t.parquet").exists()


def test_an_interrupt_shows_what_is_decided(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERRUPT_AFTER", "23")
    monkeypatch.setenv("INTERRUPT_BY", "SIGTERM")
    for form in ([], ["--json"]):
        monkeypatch.delitem(sys.modules, "models_to_decide", raising=False)
        assert run([*DECIDE, *form]) == 3
        said = capsys.readouterr()
        decided = int(said.err.split("interrupted; ")[1].split(" ")[0])
        assert 0 < decided < 25
        assert "inputs are decided and not saved (--out would keep them). Go on with" in said.err
        if form:
            lines = [json.loads(line) for line in said.out.splitlines()]
            assert sum(line["decision"] != "undecided" for line in lines) == decided
        else:
            assert "Certified accuracy, sigma 0.25" in said.out
            assert "certified to radius 0.05" in said.out


def test_the_log_is_written_when_time_is_up(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each look at the clock is a second later, so that time is up after some rounds, at any speed."""
    seconds = count()
    monkeypatch.setattr(runs_decide, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    asked = [*DECIDE, "--radii", "0.01,0.3", "--class", "label", "--out", "t.parquet", "--tsv", "t.tsv"]
    assert run([*asked, "--max-seconds", "3"]) == 3
    assert "time is up" in capsys.readouterr().err
    made = read_certificates(here / "t.parquet")
    rows = [line.split("\t") for line in (here / "t.tsv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == [c.id for c in made]
    assert len(rows) > 0
    labels = bundled_digits()[1]
    assert [int(row[1]) for row in rows] == [int(labels[int(row[0])]) for row in rows]
