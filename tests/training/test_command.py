"""The two doors, ``buckler train`` and ``python -m buckler.training``: files, exit codes, one clear line."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

import typer
from typer.testing import CliRunner

from buckler.errors import InvalidInput
from buckler.training import gaussian
from buckler.training.__main__ import main
from buckler.training.cards import read_card
from buckler.training.checkpoints import save_checkpoint

QUICK = ["digits", "--sigma", "0.25", "--arch", "small_conv", "--epochs", "1", "--device", "cpu"]


@pytest.fixture
def app() -> typer.Typer:
    # Loaded by its own name: the command must work without the rest of the command line.
    from buckler.cli.train import train

    door = typer.Typer()
    door.command()(train)
    return door


def test_both_doors_train_the_same_weights(
    tmp_path: Path, app: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, "--out", str(tmp_path / "a")]) == 0
    assert "accuracy" in capsys.readouterr().out
    result = CliRunner().invoke(app, [*QUICK, "--out", str(tmp_path / "b")])
    assert result.exit_code == 0, result.output
    stem = "digits-small_conv-sigma0.25"
    assert result.stdout.strip() == str(tmp_path / "b" / f"{stem}.safetensors")
    cards = [read_card(tmp_path / door / f"{stem}.json") for door in "ab"]
    assert cards[0].sha256 == cards[1].sha256
    assert cards[0].command.endswith("--no-flip --seed 0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cifar10", "--sigma", "0.25"], "data must be the path of the cifar10 images"),
        ([*QUICK, "--arch", "vgg"], "architecture must be one of"),
        ([*QUICK, "--sigma", "-1"], "sigma must be at least 0"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, app: typer.Typer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert isinstance(result.exception, InvalidInput)
    assert message in str(result.exception)


def test_interrupted_run_says_how_to_go_on_and_does(
    tmp_path: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def save_and_stop(*arguments: Any) -> None:
        save_checkpoint(*arguments)
        raise KeyboardInterrupt

    command = [*QUICK, "--epochs", "2", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(gaussian, "save_checkpoint", save_and_stop)
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 3
    assert f"--resume goes on from {tmp_path}" in result.stderr
    with monkeypatch.context() as patch:
        patch.setattr(gaussian, "save_checkpoint", save_and_stop)
        assert main([*command, "--resume"]) == 3
    assert "--resume" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert "epoch" not in capsys.readouterr().out


def test_interrupted_before_the_first_checkpoint(
    tmp_path: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gaussian, "train", stop)
    result = CliRunner().invoke(app, [*QUICK, "--out", str(tmp_path)])
    assert result.exit_code == 3
    assert "no epoch was finished" in result.stderr
