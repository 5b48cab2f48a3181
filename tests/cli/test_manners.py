"""What every command has in common: completion, outputs that are checked, and mistakes in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from buckler.cli.app import run
from tests.runs.victim import run as sample
from tests.runs.victim import spec

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("votes") / "run"
    sample(str(folder), spec=spec(scores="none", runner_ups=None, limit=6, n=100))
    return folder


def test_completion() -> None:
    for typed, expected in (("buckler sw", "sweep"), ("buckler audit --pow", "--power")):
        asked = {"_BUCKLER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
        command = [sys.executable, "-m", "buckler"]
        answer = subprocess.run(command, env={**ENVIRONMENT, **asked}, capture_output=True, text=True, check=True)  # noqa: S603
        assert answer.stdout.split() == [expected]


def test_outputs_are_checked_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The work itself would fail here, and does not begin."""
    os.mkfifo(tmp_path / "fifo.md")
    decide = "decide --radii 1 --model no:model --data none --sigma 1"
    for command, outputs in (
        ("certify no-such-run", ["--out", "--tsv"]), (decide, ["--out", "--tsv"]),
        ("sweep no-such-run", ["--out", "--table"]), ("report no-such-run", ["--out"]),
        ("refute no-such-run", ["--out", "--figure"]),
    ):  # fmt: skip
        for option in outputs:
            assert run([*command.split(), option, str(tmp_path / "fifo.md")]) == 2
            error = capsys.readouterr().err
            assert f"{option}: cannot write" in error, (command, error)
            assert "a FIFO" in error


def test_outputs_are_plain_files(votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "accuracy_by_method.png").mkdir()
    (tmp_path / "real.parquet").touch()
    (tmp_path / "link.md").symlink_to(os.devnull)
    top = ["--method", "top_class"]
    sweep = ["sweep", str(votes), *top, "--out", str(tmp_path / "s.parquet")]
    inside = str(tmp_path / "file" / "x.md")
    for command, kind in (
        (["certify", str(votes), *top, "--out", inside], "cannot write"),
        (["certify", str(votes), *top, "--tsv", str(tmp_path)], "folder"),
        ([*sweep, "--out", os.devnull], "device"),
        ([*sweep, "--table", inside], "cannot write"),
        ([*sweep, "--table", str(tmp_path / "link.md")], "device"),
        ([*sweep, "--plots", inside], "cannot write"),
        ([*sweep, "--plots", str(tmp_path / "plots")], "folder, not a file"),
        (["report", str(votes), *top, "--out", os.devnull], "device"),
    ):
        assert run(command) == 2, command
        error = capsys.readouterr().err
        assert kind in error, command
        assert error.count("\n") == 1
    (tmp_path / "link.parquet").symlink_to("real.parquet")
    assert run(["certify", str(votes), *top, "--out", str(tmp_path / "link.parquet")]) == 0
    assert (tmp_path / "link.parquet").is_symlink()
    assert (tmp_path / "real.parquet").stat().st_size > 0


def test_brackets_in_a_path_are_text(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("[bold]", "x[/red]"):
        Path(name).parent.mkdir(exist_ok=True)
        shutil.copytree(votes, name)
        commands = [
            ["certify", name, "--method", "top_class", "--tsv", f"{name}.tsv"],
            ["import", f"{name}.tsv", "--sigma", "0.25", "--n", "100", "--out", f"{name}.run"],
            ["sweep", name, str(votes), "--method", "top_class", "--out", f"{name}.parquet"],
            ["report", name, "--method", "top_class", "--out", f"{name}.html"],
        ]
        for command in commands:
            assert run(command) == 0, capsys.readouterr().err
            shown = capsys.readouterr().out
            assert command[0] == "certify" or command[-1] in shown, shown


@pytest.mark.faults
@pytest.mark.linux("/dev/full")
def test_a_terminal_that_takes_no_more_is_one_line(votes: Path) -> None:
    for command in (["--version"], ["certify", str(votes), "--method", "top_class", "--json"]):
        with Path("/dev/full").open("w") as full:
            answer = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "buckler", *command],
                env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert answer.returncode == 2
        assert answer.stderr == "buckler: error: cannot read or write: No space left on device\n"


@pytest.mark.faults
def test_a_reader_that_has_seen_enough_is_no_bug(votes: Path) -> None:
    command = f"{sys.executable} -m buckler certify {votes} --method top_class --json | head -c 1"
    shell = ["bash", "-o", "pipefail", "-c", command]
    answer = subprocess.run(shell, env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603
    assert answer.stderr == ""
