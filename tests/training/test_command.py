"""``buckler train``: files, exit codes, one clear line."""

import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

import typer
from typer.testing import CliRunner

from buckler.errors import InvalidInput
from buckler.files import checksum
from buckler.sampling.zoo import read_card
from buckler.training import descent
from buckler.training.descent import save_checkpoint

QUICK = ["digits", "--sigma", "0.25", "--arch", "small_conv", "--epochs", "1", "--device", "cpu"]


@pytest.fixture
def app() -> typer.Typer:
    from buckler.cli.model_commands import train_command
    from buckler.cli.options import flat

    door = typer.Typer()
    door.command()(flat(train_command))
    return door


def test_weights_and_card_are_written(tmp_path: Path, app: typer.Typer) -> None:
    result = CliRunner().invoke(app, [*QUICK, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    stem = "digits-small_conv-sigma0.25"
    assert result.stdout.strip() == str(tmp_path / f"{stem}.safetensors")
    card = read_card(tmp_path / f"{stem}.json")
    assert card.sha256 == checksum(tmp_path / f"{stem}.safetensors")
    assert card.command.endswith("--no-flip --seed 0")


@pytest.mark.slow
def test_the_example_of_the_help_and_of_the_page_is_useful(tmp_path: Path, app: typer.Typer) -> None:
    example = "train digits --sigma 0.25 --arch small_conv --epochs 20 --batch-size 64"
    assert example in " ".join(inspect.getdoc(app.registered_commands[0].callback).split())  # type: ignore[union-attr]
    assert example in (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, [*example.split()[1:], "--device", "cpu", "--out", str(tmp_path)]).exit_code == 0
    accuracy = read_card(tmp_path / "digits-small_conv-sigma0.25.json").accuracy
    assert isinstance(accuracy, float)
    assert accuracy > 0.93


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits"], "exactly one of --sigma and --lam must be given"),
        (["cifar10", "--sigma", "0.25"], "data must be the path of the cifar10 images"),
        ([*QUICK, "--arch", "vgg"], "architecture must be one of"),
        ([*QUICK, "--sigma", "-1"], "sigma must be at least 0"),
        ([*QUICK, "--attack-steps", "2"], "--attack-steps belongs to --adversary; got 2"),
        ([*QUICK, "--denoiser", "--adversary", "1"], "--arch must not be given with --denoiser"),
        (["digits", "--sigma", "1", "--denoiser", "--adversary", "1"], "--adversary must not be given with --denoiser"),
        ([*QUICK, "--max-seconds", "0"], "max_seconds must be above 0"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, tmp_path: Path, app: typer.Typer) -> None:
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert isinstance(result.exception, InvalidInput)
    assert message in str(result.exception)
    assert len(str(result.exception).splitlines()) == 1


def test_interrupted_run_says_how_to_go_on_and_does(
    tmp_path: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_and_stop(*arguments: Any) -> None:
        save_checkpoint(*arguments)
        raise KeyboardInterrupt

    command = [*QUICK, "--epochs", "2", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(descent, "save_checkpoint", save_and_stop)
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 3
    assert f"--resume goes on from {tmp_path}" in result.stderr
    result = CliRunner().invoke(app, [*command, "--resume"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "digits-small_conv-sigma0.25.safetensors").exists()


def test_run_out_of_time_says_how_to_go_on_and_does(tmp_path: Path, app: typer.Typer) -> None:
    command = [*QUICK, "--epochs", "2", "--consistency", "10", "--adversary", "0.5", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--max-seconds", "0.001"])
    assert result.exit_code == 3
    assert "1 of 2 epochs are done" in result.stderr
    assert f"--resume goes on from {tmp_path}" in result.stderr
    result = CliRunner().invoke(app, [*command, "--max-seconds", "0.001", "--resume"])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("*.json")
    card = read_card(path)
    assert "--consistency 10 --adversary 0.5 --attack-steps 1 " in card.command


def test_interrupted_before_the_first_checkpoint(
    tmp_path: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("buckler.training.train.train_classifier", stop)
    result = CliRunner().invoke(app, [*QUICK, "--out", str(tmp_path)])
    assert result.exit_code == 3
    assert "no epoch was finished" in result.stderr
