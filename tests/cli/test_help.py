"""The help of every command at 80 columns: grouped, complete and quick."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from buckler.cli.app import COMMANDS, load, run
from tests.cli.test_options import commands

FLAGS = 28
"""Columns that flags take at most, two of them in front."""


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
                flag = rf"  (-\w, )?{_typed(parameter)}( |$)"
                line = next(line for line in text.splitlines() if re.match(flag, line))
                fits = len(line) <= FLAGS or line[FLAGS - 2 : FLAGS].isspace() or "  " in line.strip()
                assert fits, (command, line)
        if command:
            assert (found.help or "").splitlines()[0] == COMMANDS[command]
            assert f"    buckler {command} " in re.split("Examples?:", text)[1]
            assert "--json" in text or command == "reproduce"
            # Four commands do nothing but print.
            assert "--quiet" in text or command in {"accuracy", "conformal", "models", "plan"}, command


def _typed(parameter: Any) -> str:
    name = max(parameter.opts, key=len)
    return re.escape(f"--[no-]{name[2:]}" if parameter.secondary_opts else name)


def test_without_docstrings_a_command_is_described_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load("sample")
    monkeypatch.setattr(
        sys.modules["buckler.cli.drawing_commands"].sample_command, "__doc__", None
    )  # as python -OO does
    text = shown("sample", capsys, monkeypatch)
    assert COMMANDS["sample"] in text
    assert text.index(COMMANDS["sample"]) < text.index("Defaults are in [brackets].")


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
    assert "[0]" in noise
    plan = shown("plan", capsys, monkeypatch)
    assert "Cluster (Ray)" not in plan
    assert "--gpus" in plan.split("\nDevice:\n")[1].split("\n\n")[0]
    assert "[required]" in shown("conformal", capsys, monkeypatch)
    assert "[0.001]" in shown("certify", capsys, monkeypatch)


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
