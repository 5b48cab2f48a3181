"""``buckler train``: a network trained under Gaussian noise, with its card."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from buckler.cli import options
from buckler.cli.interrupts import interruptible
from buckler.cli.terminal import Console
from buckler.errors import MissingExtra
from buckler.training.data import read_images
from buckler.training.recipe import TrainingConfig

if TYPE_CHECKING:
    from buckler.training.descent import TrainingProgress


def train(
    data_set: Annotated[str, typer.Argument(help="Name of the data set; 'digits' needs no --data.")],
    sigma: Annotated[float, typer.Option(help="Standard deviation of the noise, for images in [0, 1].")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Images: .npz file, or folder of .npy files, with x_train, y_train, x_test, y_test.",
            show_default="the bundled digits, for 'digits'",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the weights, the card and the checkpoint.")] = Path("models"),
    arch: Annotated[
        str, typer.Option(help="small_conv, resnet20, resnet110 (32x32) or resnet50 (224x224).")
    ] = "resnet110",
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Images in one step.")] = 256,
    lr: Annotated[float, typer.Option(help="Highest learning rate of the cycle.")] = 0.2,
    weight_decay: Annotated[
        float, typer.Option(help="Decay of the convolutions' and the last layer's weights.")
    ] = 5e-4,
    label_smoothing: Annotated[float, typer.Option(help="Share of each label spread over all classes.")] = 0.0,
    flip: Annotated[
        bool | None,
        typer.Option("--flip/--no-flip", help="Mirror half of the images.", show_default="but for digits"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the first weights, the order, the crops and the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    compile: Annotated[  # noqa: A002  (the option's name)
        bool | None, typer.Option("--compile/--no-compile", help="Compile the network.", show_default="where possible")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in --out, if there is one.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the card and the place of the weights as JSON.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network under Gaussian noise; write its float16 weights and a card with its accuracy under noise.

    Examples:

      buckler train digits --sigma 0.25 --arch small_conv --epochs 5

      buckler train cifar10 --data cifar10.npz --sigma 0.5 --device cuda --out models/
    """
    config = TrainingConfig(
        sigma=sigma,
        architecture=arch,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=lr,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        flip=data_set != "digits" if flip is None else flip,
        seed=seed,
        device=device,
        compile=compile,
    )
    try:
        from buckler.training import gaussian
        from buckler.training.fitting import checkpoint_path
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch") from None
    images = read_images(data_set, data)
    console = Console(stderr=True)
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[at]}"),
    )
    hidden = quiet or as_json or not console.is_terminal
    with interruptible(), Progress(*columns, console=console, disable=hidden) as bar:
        task = bar.add_task("train", total=None, epoch=f"1/{epochs}", at="")

        def show(at: "TrainingProgress") -> None:
            text = f"loss {at.loss:.3f}  rate {at.rate:.4f}  {at.seconds_left:.0f} s left"
            bar.update(task, completed=at.step, total=at.steps, epoch=f"{at.epoch}/{at.epochs}", at=text)

        try:
            trained = gaussian.train(config, images, out, resume=resume, progress=show)
        except KeyboardInterrupt:
            bar.stop()
            kept = checkpoint_path(config, images.name, out)
            hint = f"the same command with --resume goes on from {kept}" if kept.exists() else "no epoch was finished"
            console.print(f"interrupted; {hint}", highlight=False, soft_wrap=True)
            raise typer.Exit(3) from None
    card = trained.card
    if as_json:
        print(json.dumps({"weights": str(trained.weights), "card": asdict(card)}))
    if as_json or quiet:
        return
    console.print(f"accuracy {card.accuracy:.2%} under noise, {card.clean_accuracy:.2%} without", highlight=False)
    typer.echo(trained.weights)
