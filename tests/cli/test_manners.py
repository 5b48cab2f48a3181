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


@pytest.mark.parametrize(("typed", "expected"), [("buckler sw", "sweep"), ("buckler audit --pow", "--power")])
def test_completion(typed: str, expected: str) -> None:
    asked = {"_BUCKLER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    command = [sys.executable, "-m", "buckler"]
    answer = subprocess.run(command, env={**ENVIRONMENT, **asked}, capture_output=True, text=True, check=True)  # noqa: S603
    assert answer.stdout.split() == [expected]


def test_a_place_that_cannot_be_written_is_one_line(
    votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    inside = str(tmp_path / "file" / "x")
    top = ["--method", "top_class"]
    for command in (
        ["certify", str(votes), *top, "--out", inside],
        ["certify", str(votes), *top, "--tsv", inside],
        ["sweep", str(votes), *top, "--out", inside],
        ["sweep", str(votes), *top, "--out", str(tmp_path / "s.parquet"), "--table", inside + ".md"],
        ["sweep", str(votes), *top, "--out", str(tmp_path / "s.parquet"), "--plots", inside],
    ):
        assert run(command) == 2, command
        error = capsys.readouterr().err
        assert "cannot write" in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["certify", "no-such-run"], "--out"),
        (["certify", "no-such-run"], "--tsv"),
        (["decide", "--radii", "1", "--model", "no:model", "--data", "none", "--sigma", "1"], "--out"),
        (["decide", "--radii", "1", "--model", "no:model", "--data", "none", "--sigma", "1"], "--tsv"),
        (["sweep", "no-such-run"], "--out"),
        (["sweep", "no-such-run"], "--table"),
        (["report", "no-such-run"], "--out"),
    ],
)
def test_outputs_are_checked_before_the_work(
    command: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The work itself would fail here, and does not begin."""
    os.mkfifo(tmp_path / "fifo.md")
    assert run([*command, option, str(tmp_path / "fifo.md")]) == 2
    error = capsys.readouterr().err
    assert f"{option}: cannot write" in error
    assert "a FIFO" in error


def test_outputs_are_plain_files(votes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "accuracy_by_method.png").mkdir()
    (tmp_path / "real.parquet").touch()
    top = ["--method", "top_class"]
    table = ["--out", str(tmp_path / "s.parquet")]
    for place, kind in ((tmp_path / "fifo", "FIFO"), (tmp_path, "folder"), (Path(os.devnull), "device")):
        (tmp_path / "link.md").unlink(missing_ok=True)
        (tmp_path / "link.md").symlink_to(place)
        for command in (
            ["certify", str(votes), *top, "--out", str(place)],
            ["certify", str(votes), *top, "--tsv", str(place)],
            ["sweep", str(votes), *top, "--out", str(place)],
            ["sweep", str(votes), *top, *table, "--table", str(tmp_path / "link.md")],
            ["report", str(votes), *top, "--out", str(place)],
        ):
            assert run(command) == 2, command
            error = capsys.readouterr().err
            assert kind in error
            assert error.count("\n") == 1
    assert run(["sweep", str(votes), *top, *table, "--plots", str(tmp_path / "plots")]) == 2
    assert "folder, not a file" in capsys.readouterr().err
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
