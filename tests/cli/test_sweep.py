"""``buckler sweep`` as a user types it."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import buckler
from buckler import certificate
from buckler.certify import methods
from buckler.cli.app import run
from buckler.runs import sweep as sweeping
from buckler.runs.certify import claim_by_each
from buckler.runs.store.tables import read_certificates
from tests.runs.victim import run as sample
from tests.runs.victim import spec

BASE = {"scores": "logits", "runner_ups": None, "limit": 10, "n": 100, "n0": 20}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs")
    for sigma in (0.1, 0.25):
        sample(str(folder / f"s{sigma}"), spec=spec(**BASE, sigma=sigma))
    return folder


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in runs.iterdir():
        (tmp_path / folder.name).symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_grid_for_people(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "sweep", "s0.1", "s0.25", "--n", "50,100", "--method", "top_class,bonferroni,pairwise/star",
        "--temperature", "0.5,1", "--baseline", "bonferroni", "--table", "t.md", "--plots", "figures",
    ]  # fmt: skip
    assert run(command) == 0
    shown = capsys.readouterr()
    assert "gain over bonferroni" in shown.out
    assert "…" not in shown.out
    assert "16 cells holds alone" in shown.err
    assert "6.25e-05" in shown.err
    assert (here / "t.md").read_text().startswith("| sigma | n | temperature | method |")
    names = {path.name for path in (here / "figures").iterdir()}
    axes = ("sigma", "n", "temperature", "method")
    assert names == {f"accuracy_by_{axis}.{kind}" for axis in axes for kind in ("png", "pdf")}
    before = (here / "figures" / "accuracy_by_n.pdf").read_bytes()
    assert run([*command, "--quiet"]) == 0
    assert (here / "figures" / "accuracy_by_n.pdf").read_bytes() == before
    silent = capsys.readouterr()
    assert silent.out == silent.err == ""


def test_the_caption_names_every_way_in_which_a_class_was_chosen(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(str(here / "winner"), spec=spec(**BASE | {"n0": 0}, sigma=0.25))
    assert run(["sweep", "s0.1", "winner", "--method", "exact"]) == 0
    assert "class by selection or winner" in capsys.readouterr().out
    assert run(["sweep", "s0.1", "s0.25", "--method", "exact"]) == 0
    assert "class by selection\n" in capsys.readouterr().out


def test_a_name_for_a_figure_is_no_folder_for_figures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "s0.1", "s0.25", "--plots", "curve.pdf"]) == 2
    assert "--plots must be a folder; got 'curve.pdf'" in capsys.readouterr().err
    assert not (here / "curve.pdf").exists()


def test_settings_from_a_file_with_options_on_top(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sweep.toml").write_text(
        'runs = ["s0.1", "s0.25"]\nn = [50, 100]\nalpha = 0.01\nmethod = "top_class"\nradii = [0, 0.1]\n'
    )
    assert run(["sweep", "--spec", "sweep.toml", "--n", "all", "--margin", "probability", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["sigma"], line["n"]) for line in lines] == [(s, n) for s in (0.1, 0.25) for n in (10, 20, 50, 100)]
    assert {(line["alpha"], line["margin"], line["method"]) for line in lines} == {(0.01, "probability", "top_class")}
    assert set(lines[0]["accuracy"]) == {"0", "0.1"}
    assert pq.read_table(here / "sweep.parquet").num_rows == 8 * 10
    assert run(["sweep", "s0.1", "--radii", "0.05:0.1", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["accuracy"]) == {"0.05", "0.1"}


def test_a_sweep_without_runs_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "odd.toml").write_text('runs = ["s0.1"]\ncolour = "red"\n')
    for arguments, text in (
        ([], "at least one run"), (["s0.1", "s0.1"], "twice; got ['s0.1', 's0.1']"),
        (["nowhere"], "not a run"), (["--spec", "odd.toml"], "no setting 'colour'"),
    ):  # fmt: skip
        assert run(["sweep", *arguments]) == 2
        assert text in capsys.readouterr().err


OWN = """
import numpy as np

from buckler.certify import Method
from buckler.certify.methods import find


def wald(counts, alpha):
    return (counts[:, 0] - counts[:, 1:].max(axis=1)) / counts.sum(axis=1)


def cautious(votes, alpha, margin):
    limits = find("top_class").limit(votes, alpha, margin)
    return np.where(limits > 0.0, limits / 2.0, limits)


halved = Method("own:halved", "votes", cautious, "half of what is proved", sound=True)
"""


@pytest.fixture
def _own_methods(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "sweptbounds.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))
    monkeypatch.setattr(certificate, "_TIES", dict(certificate._TIES))
    monkeypatch.delitem(sys.modules, "sweptbounds", raising=False)


@pytest.mark.usefixtures("_own_methods")
def test_a_bound_of_ones_own_is_swept_and_certifies_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "s0.25", "--method", "top_class,sweptbounds:wald", "--margin", "probability"]
    assert run(command) == 0
    assert "no guarantee: sweptbounds:wald" in " ".join(capsys.readouterr().out.split())
    assert run([*command, "--json"]) == 0
    cells = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [cell["sound"] for cell in cells] == [True, False]
    # An estimate is above any limit: the function was asked, with the certified class first.
    assert cells[1]["abstained"] < cells[0]["abstained"] or cells[1]["accuracy"] != cells[0]["accuracy"]
    rows = pq.read_table("sweep.parquet").to_pylist()
    assert {row["method"]: row["sound"] for row in rows} == {"top_class": True, "sweptbounds:wald": False}
    # A function that was changed is asked again.
    (here / "sweptbounds.py").write_text(OWN.replace("/ counts.sum(axis=1)", "* 0.0 - 1.0"), encoding="utf-8")
    sys.modules.pop("sweptbounds")
    importlib.invalidate_caches()
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["abstained"] == 1.0
    for name in ("certify", "report"):
        assert run([name, "s0.25", "--method", "sweptbounds:wald"]) == 2
        assert "no guarantee" in capsys.readouterr().err
    with pytest.raises(buckler.UnsoundMethod):
        read_certificates(here / "sweep.parquet")


@pytest.mark.usefixtures("_own_methods")
def test_a_method_declared_sound_certifies_under_its_own_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "s0.25", "--method", "sweptbounds:halved", "--out", "c.parquet", "--quiet"]) == 0
    assert run(["sweep", "s0.25", "--method", "top_class,sweptbounds:halved", "--json"]) == 0
    assert [json.loads(line)["method"] for line in capsys.readouterr().out.splitlines()] == ["top_class", "own:halved"]
    assert {certificate.method for certificate in read_certificates(here / "c.parquet")} == {"own:halved"}
    # Elsewhere nobody knows the name: the file is refused until the method is registered.
    certificate._TIES.pop("own:halved")
    with pytest.raises(buckler.UnsoundMethod, match="own:halved"):
        read_certificates(here / "c.parquet")


@pytest.mark.parametrize(
    "kind",
    [
        None,
        pytest.param(signal.SIGINT, marks=pytest.mark.faults),
        pytest.param(signal.SIGTERM, marks=pytest.mark.faults),
    ],
)
def test_an_interrupt_says_how_to_go_on(
    kind: signal.Signals | None, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", "s0.1", "s0.25", "--method", "top_class", "--n", "10,50,100", "--quiet"]
    made: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        made.append(options["n"])
        if len(made) == 5:
            if kind is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), kind)
        return claim_by_each(*arguments, **options)

    monkeypatch.setattr(sweeping, "claim_by_each", interrupted)
    assert run(command) == 3
    error = capsys.readouterr().err
    assert "interrupted; sweep.parquet was not written. Go on with: buckler sweep" in error
    assert error.count("\n") == 1
    assert not (here / "sweep.parquet").exists()
    assert run(command) == 0
    assert len(made) == 5 + 6
