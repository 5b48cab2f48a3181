"""What every command has in common: exit codes, completion, help, checked outputs, mistakes in one line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from numba import config

from buckler.bounds import compiled
from buckler.cli import app
from buckler.cli.app import COMMANDS, load, run
from buckler.cli.terminal import DONE, FAILED, MISTAKE
from tests.cli.test_options import commands
from tests.runs.victim import run as sample
from tests.runs.victim import spec


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for line, named in (
        ("demo --sigma 0", "sigma must be above 0; got 0.0"),
        ("demo --images 5000", "images must be"),
        ("demo --n many", "--n"),
        ("demo --n many", "'many'"),
        ("demo --colour red", "--colour"),
        ("dem", "the command must be one of 'demo', "),
        ("dem", "got 'dem'"),
        ("certify", "Missing argument"),
        ("train digits --sigma 1 --smallest-sigma 0.1", "--smallest-sigma belongs to --denoiser; got 0.1 without it"),
        ("train digits --sigma 1 --denoiser", "--smallest-sigma must be given with --denoiser"),
    ):
        assert run(line.split()) == MISTAKE
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("buckler: error: ")
        assert named in error


def test_threads_of_torch_sleep_soon_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert run(["--version"]) == DONE
    assert os.environ["GOMP_SPINCOUNT"] == app.SPINS
    monkeypatch.setenv("GOMP_SPINCOUNT", "77")
    assert run(["--version"]) == DONE
    assert os.environ["GOMP_SPINCOUNT"] == "77"


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


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("votes") / "run"
    sample(str(folder), spec=spec(scores="none", runner_ups=None, limit=6, n=100))
    return folder


def test_completion() -> None:
    for typed, expected in (
        ("buckler sw", ["sweep"]), ("buckler audit --pow", ["--power"]), ("buckler nothing --pow", []),
    ):  # fmt: skip
        asked = {"_BUCKLER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
        command = [sys.executable, "-m", "buckler"]
        answer = subprocess.run(command, env={**ENVIRONMENT, **asked}, capture_output=True, text=True, check=True)  # noqa: S603
        assert (answer.stdout.split(), answer.stderr) == (expected, "")


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
    import matplotlib.backends.backend_agg  # noqa: F401  (the lowest version warns when it is first imported)

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


def shown(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*([command] if command else []), "--help"]) == 0
    return capsys.readouterr().out


def words(text: str) -> str:
    return " ".join(text.split())


def test_help_fits_eighty_columns_and_loses_no_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, found in commands().items():
        text = shown(command, capsys, monkeypatch)
        assert max(map(len, text.splitlines())) <= 80, command
        for paragraph in (found.help or "").split("\n\n"):
            assert words(paragraph) in words(text), command
        for parameter in found.params:
            assert words(getattr(parameter, "help", None) or "") in words(text), (command, parameter.name)
            if parameter.param_type_name == "option":
                flag = rf"  (-\w, )?{re.escape(max(parameter.opts, key=len))}( |,|$)"
                assert any(re.match(flag, line) for line in text.splitlines()), (command, parameter.name)
        if command:
            assert (found.help or "").splitlines()[0] == COMMANDS[command]
            assert f"    buckler {command} " in re.split("Examples?:", text)[1]
            assert "--json" in text or command == "reproduce"
            # Four commands do nothing but print.
            assert "--quiet" in text or command in {"accuracy", "conformal", "models", "plan"}, command


def test_without_docstrings_a_command_is_described_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load("sample")
    monkeypatch.setattr(
        sys.modules["buckler.cli.drawing_commands"].sample_command, "__doc__", None
    )  # as python -OO does
    assert COMMANDS["sample"] in shown("sample", capsys, monkeypatch)


def test_commands_are_listed_in_the_order_of_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = re.findall(r"^  ([a-z]+) ", shown("", capsys, monkeypatch).split("Commands:")[1], re.MULTILINE)
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
    assert list(COMMANDS)[-1] == "reproduce"
    order = [list(COMMANDS).index(name) for name in ("sample", "certify", "decide", "report", "refute", "train")]
    assert order == sorted(order)


def test_options_stand_in_groups_with_their_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown("sample", capsys, monkeypatch)
    noise = text.split("\nNoise:\n")[1].split("\n\n")[0]
    assert set(re.findall(r"--[\w-]+", noise)) >= {"--sigma", "--noise", "--seed"}
    assert "--batch-size" not in noise
    assert "[default: 0]" in noise
    plan = shown("plan", capsys, monkeypatch)
    assert "Cluster (Ray)" not in plan
    assert "--gpus" in plan.split("\nDevice:\n")[1].split("\n\n")[0]
    assert "[required]" in shown("conformal", capsys, monkeypatch)
    assert "[default: 0.001]" in words(shown("certify", capsys, monkeypatch))


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_command(argument: str) -> None:
    code = (
        "import sys, typer; before = set(sys.modules); from buckler.cli.app import run; run(sys.argv[1:]); "
        "print([m for m in ('numpy', 'scipy', 'numba', 'rich', 'pyarrow') if m in set(sys.modules) - before])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, argument], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
