"""``buckler train``: a network trained under noise, or a denoiser, with its card."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import INTERRUPTED, Console, interruptible
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

ATTACK_STEPS = 1
"""Steps of the attack with ``--adversary``: each costs as much as a step of the training."""

TRAINED = ("gaussian", "splitting")
"""Laws of noise that networks are trained under."""


def train(
    data_set: Annotated[str, typer.Argument(help="Name of the data set; 'digits' needs no --data.")],
    sigma: Annotated[
        float | None, option("Standard deviation of Gaussian noise, for images in [0, 1]; 0 for none.", "see --lam")
    ] = None,
    law: Annotated[str | None, option("gaussian, with --sigma, or splitting, with --lam.", "what is given")] = None,
    lam: Annotated[
        float | None, option("Splitting noise with offsets below 2 lam, in the place of --sigma.", "none")
    ] = None,
    data: Annotated[
        Path | None,
        option(
            "Images: .npz file, or folder of .npy files, with x_train, y_train, x_test, y_test.",
            "the bundled digits, for 'digits'",
        ),
    ] = None,
    out: Annotated[Path, option("Folder for the weights, the card and the checkpoint.")] = Path("models"),
    arch: Annotated[
        str | None, option("small_conv, resnet20, resnet20x3, resnet110 (32x32) or resnet50 (224x224).", "resnet110")
    ] = None,
    denoiser: Annotated[
        bool, option("Train a U-Net that takes noise up to --sigma out of images.", name="--denoiser")
    ] = False,
    smallest_sigma: Annotated[float | None, option("Of a denoiser: the smallest deviation it learns.", "none")] = None,
    classifier: Annotated[
        Path | None, option("Of a denoiser: weights of the classifier behind it, which judges it.", "none")
    ] = None,
    recognition: Annotated[
        float | None, option("Of a denoiser: weight of the classifier's loss.", f"{DENOISER['recognition']}")
    ] = None,
    consistency: Annotated[
        float | None,
        option("See two draws of each image; the weight of what the classifier's answers to them differ by.", "none"),
    ] = None,
    adversary: Annotated[
        float | None, option("Of a classifier: move each image by an attack of up to this l2 distance.", "none")
    ] = None,
    attack_steps: Annotated[int | None, option("Of an adversary: steps of its attack.", f"{ATTACK_STEPS}")] = None,
    epochs: Annotated[int, option("Passes over the training images.")] = 30,
    batch_size: Annotated[int, option("Images in one step.")] = 256,
    lr: Annotated[
        float | None, option("Highest learning rate of the cycle.", f"0.2, {DENOISER['learning_rate']} for a denoiser")
    ] = None,
    weight_decay: Annotated[
        float | None,
        option(
            "Decay of the convolutions' and the last layer's weights.",
            f"0.0005, {DENOISER['weight_decay']} for a denoiser",
        ),
    ] = None,
    label_smoothing: Annotated[
        float | None, option("Of a classifier: share of each label spread over all classes.", "0")
    ] = None,
    flip: Annotated[
        bool | None, option("Mirror half of the images.", "but for digits", name="--flip/--no-flip")
    ] = None,
    seed: Annotated[int, option("Decides the first weights, the order, the crops and the noise.")] = 0,
    device: Annotated[str, option("auto, cpu, cuda or cuda:N.")] = "auto",
    compile: Annotated[  # noqa: A002  (the option's name)
        bool | None, option("Compile the network.", "where possible", name="--compile/--no-compile")
    ] = None,
    max_seconds: Annotated[
        float | None, option("Stop before an epoch that would end later; --resume goes on.", "no limit")
    ] = None,
    resume: Annotated[bool, option("Go on from the checkpoint in --out, if there is one.", name="--resume")] = False,
    as_json: Annotated[bool, option("Print the card and the place of the weights as JSON.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network under noise, or a denoiser; write its float16 weights and a card with its accuracy under noise.

    Examples:

      buckler train digits --sigma 0.25 --arch small_conv --epochs 5

      buckler train cifar10 --data cifar10.npz --sigma 0.5 --device cuda --out models/

      buckler train cifar10 --data cifar10.npz --sigma 0.5 --consistency 10 --epochs 120 --max-seconds 540 --resume

      buckler train cifar10 --data cifar10.npz --law splitting --lam 2.5 --epochs 60

      buckler train cifar10 --data cifar10.npz --denoiser --sigma 1 --smallest-sigma 0.1 --classifier clean.safetensors
    """
    if (sigma is None) == (lam is None):
        raise InvalidInput("exactly one of --sigma and --lam must be given")
    if law is not None and law != ("gaussian" if lam is None else "splitting"):
        fits = "does not go with what is given: gaussian has --sigma, splitting has --lam"
        raise InvalidInput(f"--law {law} {fits if law in TRAINED else 'has no training; gaussian and splitting have'}")
    for name, value in (("arch", arch), ("lam", lam), ("label-smoothing", label_smoothing), ("adversary", adversary)):
        if denoiser and value is not None:
            raise InvalidInput(f"--{name} must not be given with --denoiser; got {show(value)}")
    if attack_steps is not None and adversary is None:
        raise InvalidInput(f"--attack-steps belongs to --adversary; got {attack_steps} without it")
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
        "consistency": consistency,
        "adversary": adversary,
        "attack_steps": ATTACK_STEPS if adversary is not None and attack_steps is None else attack_steps,
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
        from buckler.training.descent import checkpoint_path
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
            going: dict[str, Any] = {"resume": resume, "progress": report, "max_seconds": max_seconds}
            if classifier is None:
                trained = gaussian.train(config, images, out, **going)
            else:
                trained = denoising.train_denoiser(config, images, classifier, out, **going)
        except (KeyboardInterrupt, TimeoutError) as stopped:
            bar.stop()
            kept = checkpoint_path(config, images.name, out)
            hint = f"the same command with --resume goes on from {kept}" if kept.exists() else "no epoch was finished"
            console.print(f"{str(stopped) or 'interrupted'}; {hint}", highlight=False, soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None
    card = trained.card
    if as_json:
        print(json.dumps({"weights": str(trained.weights), "card": asdict(card)}))
    if as_json or quiet:
        return
    console.print(card.summary(), highlight=False, soft_wrap=True)
    typer.echo(trained.weights)
