"""Exit codes, and one line for a mistake."""

import pytest
import typer

from buckler.bounds import compiled
from buckler.cli import app
from buckler.cli.app import run
from buckler.cli.terminal import DONE, FAILED, MISTAKE


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["board", ".", "--alpha", "2"], "alpha must be at least 1e-200 and below 1; got 2.0"),
        (["demo", "--sigma", "0"], "sigma must be above 0; got 0.0"),
        (["demo", "--n", "0"], "n must be"),
        (["demo", "--images", "5000"], "test must be"),
        (["demo", "--n", "many"], "--n"),
        (["demo", "--colour", "red"], "--colour"),
        (["dem"], "No such command 'dem'"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == MISTAKE
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
    def broken(**_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(app, "app", broken)
    assert run(["demo"]) == FAILED
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "please report it" in error


@pytest.mark.parametrize("quiet", [False, True])
def test_one_line_when_a_kernel_is_compiled(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def double(x: float) -> float:
        return 2.0 * x

    double.__module__ = "buckler.bounds.example"  # a kernel that is ours
    monkeypatch.setattr(compiled, "KERNELS", None)  # and is new
    monkeypatch.setattr(compiled._COMPILATIONS, "_told", False)
    assert run(["audit", "--help", *["--quiet"] * quiet]) == DONE
    kernel = compiled.compiled(double)
    assert (kernel(1.0), kernel(1)) == (2.0, 2.0)
    assert caplog.text.count("compiling") == (0 if quiet else 1)


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (MemoryError(), MISTAKE, "buckler: error: there is not enough memory for this\n"),
        (MemoryError("20 GB"), MISTAKE, "buckler: error: there is not enough memory for this: 20 GB\n"),
        (OSError(28, "No space left on device"), MISTAKE, "cannot read or write: No space left on device\n"),
        (PermissionError(13, "Permission denied", "x[/red]"), MISTAKE, "write 'x[/red]': Permission denied\n"),
        (OSError("no number"), FAILED, "please report it"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    problem: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise problem

    monkeypatch.setattr(app, "app", broken)
    assert run(["demo"]) == code
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
