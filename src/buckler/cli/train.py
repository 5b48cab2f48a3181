"""``buckler train``: train a network under noise, or a denoiser."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import INTERRUPTED, interruptible, say
from buckler.errors import InvalidInput, MissingExtra, show
from buckler.files import checksum
from buckler.progress import bar
from buckler.training.data import read_images
from buckler.training.recipe import TrainingConfig

if TYPE_CHECKING:
    from buckler.sampling.zoo import ClassifierCard, DenoiserCard
    from buckler.training.descent import TrainingProgress
    from buckler.training.train import Trained

DENOISER_RECIPE: dict[str, Any] = {
    "architecture": "unet",
    "learning_rate": 0.002,
    "weight_decay": 0.01,
    "recognition": 0.1,
}
"""What a denoiser's recipe has where nothing is given: AdamW wants smaller steps and a larger decay than SGD."""

ATTACK_STEPS = 1
"""Steps of the attack with ``--adversary``: each costs as much as a step of the training."""

NETWORK_GROUP, CLASSIFIER_GROUP, DENOISING_GROUP, TRAINING_GROUP = (
    "Network and noise",
    "Recipes",
    "Denoiser",
    "Training",
)


def train_command(
    data_set: Annotated[str, typer.Argument(help="Name of the data set; digits needs no --data.")],
    data: Annotated[
        Path | None,
        option(
            "Images: an .npz file, or a folder of .npy files, with x_train, y_train, x_test, y_test.",
            "bundled digits",
            group=NETWORK_GROUP,
        ),
    ] = None,
    sigma: Annotated[
        float | None,
        option("Standard deviation of Gaussian noise, for images in [0, 1]; 0 for none.", group=NETWORK_GROUP),
    ] = None,
    lam: Annotated[
        float | None, option("Instead of --sigma: splitting noise with offsets below 2 lam.", group=NETWORK_GROUP)
    ] = None,
    arch: Annotated[
        str | None,
        option(
            "small_conv, resnet20, resnet20x3, resnet110 (32x32) or resnet50 (224x224).",
            "resnet110",
            group=NETWORK_GROUP,
        ),
    ] = None,
    consistency: Annotated[
        float | None,
        option(
            "Draw noise twice for each image, and weigh the difference of the two answers by this.",
            group=CLASSIFIER_GROUP,
        ),
    ] = None,
    adversary: Annotated[
        float | None, option("Move each image by an attack, up to this l2 distance.", group=CLASSIFIER_GROUP)
    ] = None,
    attack_steps: Annotated[
        int | None, option("Steps of the attack of --adversary.", f"{ATTACK_STEPS}", group=CLASSIFIER_GROUP)
    ] = None,
    label_smoothing: Annotated[
        float | None, option("Share of each label that is spread over all classes.", "0", group=CLASSIFIER_GROUP)
    ] = None,
    denoiser: Annotated[
        bool,
        option("Train a U-Net that removes noise up to --sigma from images.", name="--denoiser", group=DENOISING_GROUP),
    ] = False,
    smallest_sigma: Annotated[float | None, option("Smallest deviation that it learns.", group=DENOISING_GROUP)] = None,
    classifier: Annotated[
        list[Path] | None,
        option("Weights of a classifier that is put behind it; once more for each further one.", group=DENOISING_GROUP),
    ] = None,
    recognition: Annotated[
        float | None,
        option("Weight of the classifiers' mean loss.", f"{DENOISER_RECIPE['recognition']}", group=DENOISING_GROUP),
    ] = None,
    epochs: Annotated[int, option("Passes over the training images.", group=TRAINING_GROUP)] = 30,
    batch_size: Annotated[int, option("Images in one step.", group=TRAINING_GROUP)] = 256,
    lr: Annotated[
        float | None,
        option(
            "Highest learning rate.", f"0.2, {DENOISER_RECIPE['learning_rate']} for a denoiser", group=TRAINING_GROUP
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        option("Weight decay.", f"0.0005, {DENOISER_RECIPE['weight_decay']} for a denoiser", group=TRAINING_GROUP),
    ] = None,
    flip: Annotated[
        bool | None,
        option("Mirror half of the images.", "yes, no for digits", name="--flip/--no-flip", group=TRAINING_GROUP),
    ] = None,
    seed: Annotated[
        int, option("Seed of the first weights, the order, the crops and the noise.", group=TRAINING_GROUP)
    ] = 0,
    device: Annotated[str, option("auto, cpu, cuda or cuda:N.", group=options.DEVICE_GROUP)] = "auto",
    compile: Annotated[  # noqa: A002  (the option's name)
        bool | None,
        option("Compile the network.", "where possible", name="--compile/--no-compile", group=options.DEVICE_GROUP),
    ] = None,
    max_seconds: Annotated[
        float | None,
        option("Stop before an epoch that would end later; --resume goes on.", "no limit", group=options.RESUME_GROUP),
    ] = None,
    resume: Annotated[
        bool,
        option("Go on from the checkpoint in --out, if there is one.", name="--resume", group=options.RESUME_GROUP),
    ] = False,
    out: Annotated[
        Path, option("Folder for the weights, the card and the checkpoint.", group=options.OUTPUT_GROUP)
    ] = Path("models"),
    as_json: Annotated[bool, options.as_json_option("Print the card and the path of the weights as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network, or a denoiser, under noise.

    Writes float16 weights and a card with the accuracy under noise.

    Examples:

      buckler train digits --sigma 0.25 --arch small_conv --epochs 20
        --batch-size 64
      buckler train cifar10 --data cifar10.npz --sigma 0.5 --device cuda
      buckler train cifar10 --data cifar10.npz --sigma 0.5 --consistency 10
        --epochs 120 --max-seconds 540 --resume
      buckler train cifar10 --data cifar10.npz --lam 2.5 --epochs 60
      buckler train cifar10 --data cifar10.npz --denoiser --sigma 1
        --smallest-sigma 0.1 --classifier clean.safetensors
    """
    if (sigma is None) == (lam is None):
        raise InvalidInput("exactly one of --sigma and --lam must be given")
    for name, value in (("arch", arch), ("lam", lam), ("label-smoothing", label_smoothing), ("adversary", adversary)):
        if denoiser and value is not None:
            raise InvalidInput(f"--{name} must not be given with --denoiser; got {show(value)}")
    if attack_steps is not None and adversary is None:
        raise InvalidInput(f"--attack-steps belongs to --adversary; got {attack_steps} without it")
    if arch == "unet":
        raise InvalidInput("--arch must be a classifier's; a U-Net is trained by --denoiser")
    for path in classifier or ():
        if not path.is_file():
            raise InvalidInput(f"--classifier must be a .safetensors file; nothing is at {path}")
    given = {
        "architecture": arch,
        "lam": lam,
        "smallest_sigma": smallest_sigma,
        "classifier": ", ".join(map(checksum, classifier)) if classifier else None,
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
        **((DENOISER_RECIPE if denoiser else {}) | choices),
        sigma=sigma or 0.0,
        epochs=epochs,
        batch_size=batch_size,
        flip=data_set != "digits" if flip is None else flip,
        seed=seed,
        device=device,
        compile=compile,
    )
    try:
        from buckler.training.descent import checkpoint_path
        from buckler.training.train import train_classifier, train_denoiser
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch") from None
    images = read_images(data_set, data)
    with interruptible(), bar("training", quiet=quiet or as_json, transient=False) as advance:

        def report(at: "TrainingProgress") -> None:
            advance(at.step, at.steps, None, f"epoch {at.epoch}/{at.epochs}, loss {at.loss:.3f}, rate {at.rate:.4f}")

        try:
            trained: Trained[ClassifierCard] | Trained[DenoiserCard]
            going: dict[str, Any] = {"resume": resume, "progress": report, "max_seconds": max_seconds}
            if not classifier:
                trained = train_classifier(config, images, out, **going)
            else:
                trained = train_denoiser(config, images, classifier, out, **going)
        except (KeyboardInterrupt, TimeoutError) as stopped:
            kept = checkpoint_path(config, images.name, out)
            hint = f"the same command with --resume goes on from {kept}" if kept.exists() else "no epoch was finished"
            say(f"buckler: {str(stopped) or 'interrupted'}; {hint}", error=True)
            raise typer.Exit(INTERRUPTED) from None
    card = trained.card
    if as_json:
        say(json.dumps({"weights": str(trained.weights), "card": asdict(card)}))
    if as_json or quiet:
        return
    say(card.summary(), error=True)
    say(trained.weights)
