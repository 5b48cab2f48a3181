"""The help of every command: nothing of it is lost on the way to the terminal, and every default is told."""

import re
from typing import Any

import pytest

from buckler.cli.app import run
from tests.cli.test_options import commands

NAMES = sorted(commands())


def squeezed(text: str) -> str:
    """Return a text without spaces and the lines of boxes."""
    return re.sub(r"[\s│╭╮╰╯─]", "", text)


def shown(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int = 300) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    assert run([*([command] if command else []), "--help"]) == 0
    return capsys.readouterr().out


def options(command: str) -> list[Any]:
    found = [parameter for parameter in commands()[command].params if parameter.param_type_name == "option"]
    return [option for option in found if option.name not in {"help", "install_completion", "show_completion"}]


@pytest.mark.parametrize("command", NAMES)
def test_no_word_of_the_help_is_lost(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = squeezed(shown(command, capsys, monkeypatch))
    found = commands()[command]
    for parameter in found.params:
        # A backslash before a bracket says that it is no markup.
        words = (getattr(parameter, "help", None) or "").replace("\\[", "[")
        assert squeezed(words) in text, words
    for paragraph in (found.help or "").split("\n\n"):
        assert squeezed(paragraph) in text, paragraph


@pytest.mark.parametrize("command", NAMES)
def test_no_word_is_cut_on_a_usual_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "…" not in shown(command, capsys, monkeypatch, columns=80)


@pytest.mark.parametrize("command", NAMES)
def test_every_default_is_told(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(command, capsys, monkeypatch).splitlines()
    for option in options(command):
        if option.is_flag and not option.secondary_opts:
            continue  # off unless given
        flag = max(option.opts, key=len)
        row = next(i for i, line in enumerate(lines) if re.match(rf"│.* {flag}\s", line))
        words = " ".join(lines[row : row + 2])
        assert "[default:" in words or "[required]" in words, f"{command} {flag} has a default that is not told"


def test_no_default_is_written_into_a_help_text() -> None:
    for command in NAMES:
        for option in options(command):
            assert "[default" not in (option.help or ""), option.name
