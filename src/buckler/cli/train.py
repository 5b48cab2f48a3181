"""``buckler train``: a network trained under noise, or a denoiser, with its card."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from buckler.cli import options
from buckler.cli.interrupts import interruptible
from buckler.cli.terminal import Console
from buckler.errors import InvalidInput, MissingExtra, show
from buckler.files import checksum
from buckler.training.data import read_images
from buckler.training.recipe import TrainingConfig

if TYPE_CHECKING:
    from buckler.sampling.cards import ClassifierCard, DenoiserCard
    from buckler.training.descent import TrainingProgress
    from buckler.training.outcome import Trained

DENOISER: dict[str, Any] = {"architecture": "unet", "learning_rate": 0.002, "weight_decay": 0.01, "recognition": 0.1}
"""What a denoiser's recipe has where nothing is given: AdamW wants smaller steps and a larger decay than SGD."""

TRAINED = ("gaussian", "splitting")
"""Laws of noise that networks are trained under."""


def train(
    data_set: Annotated[str, typer.Argument(help="Name of the data set; 'digits' needs no --data.")],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of Gaussian noise, for images in [0, 1]; 0 for none.", show_default="see --lam"
        ),
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(help="gaussian, with --sigma, or splitting, with --lam.", show_default="what is given"),
    ] = None,
    lam: Annotated[
        float | None,
        typer.Option(help="Splitting noise with offsets below 2 lam, in the place of --sigma.", show_default="none"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Images: .npz file, or folder of .npy files, with x_train, y_train, x_test, y_test.",
            show_default="the bundled digits, for 'digits'",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the weights, the card and the checkpoint.")] = Path("models"),
    arch: Annotated[
        str | None,
        typer.Option(
            help="small_conv, resnet20, resnet20x3, resnet110 (32x32) or resnet50 (224x224).", show_default="resnet110"
        ),
    ] = None,
    denoiser: Annotated[
        bool, typer.Option("--denoiser", help="Train a U-Net that takes noise up to --sigma out of images.")
    ] = False,
    smallest_sigma: Annotated[
        float | None, typer.Option(help="Of a denoiser: the smallest deviation it learns.", show_default="none")
    ] = None,
    classifier: Annotated[
        Path | None,
        typer.Option(help="Of a denoiser: weights of the classifier behind it, which judges it.", show_default="none"),
    ] = None,
    recognition: Annotated[
        float | None,
        typer.Option(help="Of a denoiser: weight of the classifier's loss.", show_default=f"{DENOISER['recognition']}"),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Images in one step.")] = 256,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate of the cycle.",
            show_default=f"0.2, {DENOISER['learning_rate']} for a denoiser",
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            help="Decay of the convolutions' and the last layer's weights.",
            show_default=f"0.0005, {DENOISER['weight_decay']} for a denoiser",
        ),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(help="Of a classifier: share of each label spread over all classes.", show_default="0"),
    ] = None,
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
    """Train a network under noise, or a denoiser; write its float16 weights and a card with its accuracy under noise.

    Examples:

      buckler train digits --sigma 0.25 --arch small_conv --epochs 5

      buckler train cifar10 --data cifar10.npz --sigma 0.5 --device cuda --out models/

      buckler train cifar10 --data cifar10.npz --law splitting --lam 2.5 --epochs 60

      buckler train cifar10 --data cifar10.npz --denoiser --sigma 1 --smallest-sigma 0.1 --classifier clean.safetensors
    """
    if (sigma is None) == (lam is None):
        raise InvalidInput("exactly one of --sigma and --lam must be given")
    if law is not None and law != ("gaussian" if lam is None else "splitting"):
        fits = "does not go with what is given: gaussian has --sigma, splitting has --lam"
        raise InvalidInput(f"--law {law} {fits if law in TRAINED else 'has no training; gaussian and splitting have'}")
    for name, value in (("arch", arch), ("lam", lam), ("label-smoothing", label_smoothing)):
        if denoiser and value is not None:
            raise InvalidInput(f"--{name} must not be given with --denoiser; got {show(value)}")
    if arch == "unet":
        raise InvalidInput("--arch must be a classifier's; a U-Net is trained by --denoiser")
    if classifier is not None and not classifier.is_file():
        raise InvalidInput(f"--classifier must be a .safetensors file; nothing is at {classifier}")
    given = {
        "architecture": arch,
        "lam": lam,
        "smallest_sigma": smallest_sigma,
        "classifier": None if classifier is None else checksum(classifier),
        "recognition": recognition,
        "learning_rate": lr,
        "weight_decay": weight_decay,
        "label_smoothing": label_smoothing,
    }
    choices = {name: value for name, value in given.items() if value is not None}
    config = TrainingConfig(
        **((DENOISER if denoiser else {}) | choices),
        sigma=sigma or 0.0,
        epochs=epochs,
        batch_size=batch_size,
        flip=data_set != "digits" if flip is None else flip,
        seed=seed,
        device=device,
        compile=compile,
    )
    try:
        from buckler.training import denoising, gaussian
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

        def report(at: "TrainingProgress") -> None:
            text = f"loss {at.loss:.3f}  rate {at.rate:.4f}  {at.seconds_left:.0f} s left"
            bar.update(task, completed=at.step, total=at.steps, epoch=f"{at.epoch}/{at.epochs}", at=text)

        try:
            trained: Trained[ClassifierCard] | Trained[DenoiserCard]
            if classifier is None:
                trained = gaussian.train(config, images, out, resume=resume, progress=report)
            else:
                trained = denoising.train_denoiser(config, images, classifier, out, resume=resume, progress=report)
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
    console.print(card.summary(), highlight=False, soft_wrap=True)
    typer.echo(trained.weights)
