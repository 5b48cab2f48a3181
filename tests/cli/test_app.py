"""Exit codes, and one line for a mistake."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from numba import config

from buckler.bounds import compiled
from buckler.cli import app
from buckler.cli.app import run
from buckler.cli.terminal import DONE, FAILED, MISTAKE


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for line, named in (
        ("demo --sigma 0", "sigma must be above 0; got 0.0"),
        ("demo --images 5000", "test must be"),
        ("demo --n many", "--n"),
        ("demo --colour red", "--colour"),
        ("dem", "No such command 'dem'"),
        ("certify", "Missing argument"),
    ):
        assert run(line.split()) == MISTAKE
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("buckler: error: ")
        assert named in error


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == DONE
    assert capsys.readouterr().out.startswith("buckler 0.")
    for arguments in (["--help"], ["demo", "--help"]):
        assert run(arguments) == DONE
        assert "demo" in capsys.readouterr().out
    assert run([]) == MISTAKE
    assert "Usage" in capsys.readouterr().out


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(app, "app", Mock(side_effect=ZeroDivisionError("planted")))
    assert run(["demo"]) == FAILED
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "please report it" in error


@pytest.mark.parametrize("quiet", [False, True])
def test_one_line_when_a_kernel_is_compiled(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def double(x: float) -> float:
        return 2.0 * x

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))  # where nothing is kept yet
    compiled._tell.cache_clear()
    assert run(["audit", "--help", *["--quiet"] * quiet]) == DONE
    kernel = compiled.compiled(double)
    assert (kernel(1.0), kernel(1)) == (2.0, 2.0)
    assert caplog.text.count("compiling") == (0 if quiet else 1)


def test_what_the_machine_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for problem, code, said in (
        (MemoryError(), MISTAKE, "buckler: error: there is not enough memory for this\n"),
        (MemoryError("20 GB"), MISTAKE, "buckler: error: there is not enough memory for this: 20 GB\n"),
        (OSError(28, "No space left on device"), MISTAKE, "cannot read or write: No space left on device\n"),
        (PermissionError(13, "Permission denied", "x[/red]"), MISTAKE, "write 'x[/red]': Permission denied\n"),
        (OSError("no number"), FAILED, "please report it"),
    ):
        monkeypatch.setattr(app, "app", Mock(side_effect=problem))
        assert run(["demo"]) == code, problem
        error = capsys.readouterr().err
        assert said in error
        assert (error.count("\n") == 1) == (code == MISTAKE)


def test_the_early_end_of_a_file_is_no_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise EOFError("planted")

    broken_app = typer.Typer()
    broken_app.command()(broken)
    broken_app.callback()(lambda: None)
    monkeypatch.setattr(app, "app", broken_app)
    assert run(["broken"]) == FAILED
    assert "EOFError: planted" in capsys.readouterr().err
