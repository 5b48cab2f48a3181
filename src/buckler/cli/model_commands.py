"""``buckler demo``, ``models`` and ``train``: networks that come with the package, and networks to train."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from buckler.certificate import Certificate
from buckler.certify.methods import sound_methods
from buckler.cli import options
from buckler.cli.options import argument, option
from buckler.cli.terminal import INTERRUPTED, interruptible, say
from buckler.errors import InvalidInput, MissingExtra, check_positive, check_whole, show
from buckler.evaluate.curves import certified_accuracy
from buckler.files import checksum
from buckler.progress import bar
from buckler.report.plots import accuracy_plot
from buckler.report.text import accuracy_table
from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import write_certificates
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.sampling.zoo import cards_in, certified_at, models_folder, weights_of
from buckler.training.data import read_images
from buckler.training.digits import digits_split, train_digits
from buckler.training.recipe import TrainingConfig

if TYPE_CHECKING:
    from buckler.sampling.zoo import ClassifierCard, DenoiserCard
    from buckler.training.descent import TrainingProgress
    from buckler.training.train import Trained

DEMO_ALPHA = 1e-3
DIGITS = 1797
"""Images of the bundled digits: at least one of them is for training."""

SHOWN_RADII = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def demo_command(
    *,
    out: Path = option("Folder for what is written.", Path("demo"), group=options.OUTPUT_GROUP),
    output: options.OutputOptions,
    sigma: float = option("Standard deviation of the noise; pixels go from 0 to 1.", 0.4),
    n: int = option("Draws for each image.", 1000),
    images: int = option(f"Test images, of {DIGITS:,}.", 500),
    epochs: int = option("Training epochs.", 40),
) -> None:
    """Train a small network on bundled digits and certify it, in a minute.

    Prints certified accuracy against radius for every method, and writes curves.png, certificates.parquet and the
    folder evidence/, as buckler sample does. Needs scikit-learn, no download and no GPU.

    Example:

      buckler demo --sigma 0.25 --n 10000
    """
    check_positive("sigma", sigma)
    check_whole("n", n, 1)
    check_whole("images", images, 1, DIGITS - 1)
    options.check_folder(out)
    training, test = digits_split(images)
    with bar("training", quiet=output.bare) as advance:
        model = train_digits(
            training.inputs,
            training.labels,
            sigma=sigma,
            seed=0,
            epochs=epochs,
            progress=lambda epoch, *_: advance(epoch, epochs),
        )
    spec = RunSpec(model="perceptron of buckler demo", data="digits", sigma=sigma, num_classes=10, n=n)
    with bar("sampling", quiet=output.bare, unit="draws") as advance:
        sample(
            spec,
            as_classifier(model),
            from_arrays(test.inputs.astype(np.float32), test.labels, ids=test.ids),
            out / "evidence",
            progress=advance,
        )
    evidence = open_evidence(out / "evidence")
    methods = sound_methods()
    certificates: list[Certificate] = []
    curves, fine = [], []
    with bar("certifying", quiet=output.bare) as advance:
        for method in methods:
            made = certify_evidence(evidence, alpha=DEMO_ALPHA, method=method.name)
            certificates += made
            curves.append(certified_accuracy(made, test.labels, SHOWN_RADII))
            fine.append(certified_accuracy(made, test.labels, np.linspace(0.0, 4.0 * sigma, 400)))
            advance(len(curves), len(methods))

    title = f"digits, sigma {sigma:g}, n {n}, alpha {DEMO_ALPHA:g}"
    write_certificates(out / "certificates.parquet", certificates)
    accuracy_plot(fine, out / "curves.png", f"Certified accuracy on {title}")
    if output.as_json:
        for curve in curves:
            accuracy = {f"{r:g}": a for r, a in zip(curve.radii.tolist(), curve.accuracy.tolist(), strict=True)}
            say(json.dumps({"method": curve.name, "abstained": curve.abstained, "accuracy": accuracy}))
    if output.bare:
        return
    say(accuracy_table(curves).to_text(title))
    say(f"One of them: {certificates[0]}")
    say(f"Written: {out}/curves.png, {out}/certificates.parquet and the run, {out}/evidence")
    say(f"Certify the run in another way: buckler certify {out}/evidence --alpha 0.01")


def models_command(
    *,
    folder: Path | None = option("Folder of weights and cards.", None, "BUCKLER_MODELS, or the repository's"),
    as_json: bool = options.JSON_OPTION,
) -> None:
    """List the bundled networks.

    The weights of each are compared with the checksum on its card; nothing is downloaded. Use them by --model
    buckler:NAME, or a denoiser by --denoiser buckler:NAME.

    Examples:

      buckler models
      buckler models --folder weights --json
    """
    home = models_folder() if folder is None else folder
    cards = cards_in(home)
    for card in cards.values():
        weights_of(card, home)
    if as_json:
        for name, card in cards.items():
            say(json.dumps({"name": name, **asdict(card)}))
        return
    if not cards:
        say(f"no networks in {home}")
    for name, card in cards.items():
        say(f"{name}\n    {card.kind}, {card.architecture}, {card.data}; noise: {card.noise()}\n    {card.summary()}")
        for table in card.certified:
            shares = ", ".join(f"{share:.1%} at {radius}" for radius, share in table["accuracy"].items())
            say(f"    certified at {certified_at(table)}: {shares}")


DENOISER_RECIPE: dict[str, Any] = {
    "architecture": "unet",
    "learning_rate": 0.002,
    "weight_decay": 0.01,
    "recognition": 0.1,
}
"""Defaults of a denoiser's training recipe: AdamW wants smaller steps and a larger decay than SGD."""

ATTACK_STEPS = 1
"""Default steps of the attack with ``--adversary``: each costs as much as a step of the training."""

NETWORK_GROUP, CLASSIFIER_GROUP, DENOISING_GROUP, TRAINING_GROUP = (
    "Network and noise",
    "Recipes",
    "Denoiser",
    "Training",
)


@dataclass(frozen=True)
class TrainOptions:
    """Options of ``train`` that are fields of the ``TrainingConfig``; None takes its default."""

    sigma: float | None = option(
        "Standard deviation of Gaussian noise, for images in [0, 1]; 0 for none.", group=NETWORK_GROUP
    )
    lam: float | None = option("Instead of --sigma: splitting noise with offsets below 2 lam.", group=NETWORK_GROUP)
    architecture: str | None = option(
        "small_conv, resnet20, resnet20x3, resnet110 (32x32) or resnet50 (224x224).",
        None,
        "resnet110",
        name="--arch",
        group=NETWORK_GROUP,
    )
    consistency: float | None = option(
        "Draw noise twice for each image, and weigh the difference of the two answers by this.", group=CLASSIFIER_GROUP
    )
    adversary: float | None = option("Move each image by an attack, up to this l2 distance.", group=CLASSIFIER_GROUP)
    attack_steps: int | None = option(
        "Steps of the attack of --adversary.", None, f"{ATTACK_STEPS}", group=CLASSIFIER_GROUP
    )
    label_smoothing: float | None = option(
        "Share of each label that is spread over all classes.", None, "0", group=CLASSIFIER_GROUP
    )
    smallest_sigma: float | None = option("Smallest deviation that it learns.", group=DENOISING_GROUP)
    recognition: float | None = option(
        "Weight of the classifiers' mean loss.", None, f"{DENOISER_RECIPE['recognition']}", group=DENOISING_GROUP
    )
    epochs: int = option("Passes over the training images.", 30, group=TRAINING_GROUP)
    batch_size: int = option("Images in one step.", 256, group=TRAINING_GROUP)
    learning_rate: float | None = option(
        "Highest learning rate.",
        None,
        f"0.2, {DENOISER_RECIPE['learning_rate']} for a denoiser",
        name="--lr",
        group=TRAINING_GROUP,
    )
    weight_decay: float | None = option(
        "Weight decay.", None, f"0.0005, {DENOISER_RECIPE['weight_decay']} for a denoiser", group=TRAINING_GROUP
    )
    flip: bool | None = option("Mirror half of the images.", None, "yes, no for digits", group=TRAINING_GROUP)
    seed: int = option("Seed of the first weights, the order, the crops and the noise.", 0, group=TRAINING_GROUP)
    device: str = option("auto, cpu, cuda or cuda:N.", "auto", group=options.DEVICE_GROUP)
    compile: bool | None = option("Compile the network.", None, "where possible", group=options.DEVICE_GROUP)


def train_command(
    *,
    data_set: str = argument("Name of the data set; digits needs no --data."),
    data: Path | None = option(
        "Images: an .npz file, or a folder of .npy files, with x_train, y_train, x_test, y_test.",
        None,
        "bundled digits",
        group=NETWORK_GROUP,
    ),
    given: TrainOptions,
    denoiser: bool = option(
        "Train a U-Net that removes noise up to --sigma from images.", False, group=DENOISING_GROUP
    ),
    classifier: list[Path] | None = option(
        "Weights of a classifier that is put behind it; once more for each further one.", group=DENOISING_GROUP
    ),
    max_seconds: float | None = option(
        "Stop before an epoch that would end later; --resume goes on.", None, "no limit", group=options.RESUME_GROUP
    ),
    resume: bool = option("Go on from the checkpoint in --out, if there is one.", False, group=options.RESUME_GROUP),
    out: Path = option(
        "Folder for the weights, the card and the checkpoint.", Path("models"), group=options.OUTPUT_GROUP
    ),
    output: options.OutputOptions,
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
    if (given.sigma is None) == (given.lam is None):
        raise InvalidInput("exactly one of --sigma and --lam must be given")
    for name, flag in {
        "architecture": "arch",
        "lam": "lam",
        "label_smoothing": "label-smoothing",
        "adversary": "adversary",
    }.items():
        if denoiser and getattr(given, name) is not None:
            raise InvalidInput(f"--{flag} must not be given with --denoiser; got {show(getattr(given, name))}")
    for flag, value, needed in (
        ("smallest-sigma", given.smallest_sigma, True),
        ("classifier", ", ".join(map(str, classifier or ())) or None, True),
        ("recognition", given.recognition, False),
    ):
        if value is not None and not denoiser:
            raise InvalidInput(f"--{flag} belongs to --denoiser; got {show(value)} without it")
        if value is None and denoiser and needed:
            raise InvalidInput(f"--{flag} must be given with --denoiser")
    if given.attack_steps is not None and given.adversary is None:
        raise InvalidInput(f"--attack-steps belongs to --adversary; got {given.attack_steps} without it")
    if given.architecture == "unet":
        raise InvalidInput("--arch must be a classifier's; a U-Net is trained by --denoiser")
    for path in classifier or ():
        if not path.is_file():
            raise InvalidInput(f"--classifier must be a .safetensors file; nothing is at {path}")
    recipe = {"sigma": 0.0, "flip": data_set != "digits", **(DENOISER_RECIPE if denoiser else {})}
    recipe |= {"attack_steps": ATTACK_STEPS} if given.adversary is not None else {}
    recipe |= {"classifier": ", ".join(map(checksum, classifier))} if classifier else {}
    options.check_folder(out)
    config = TrainingConfig(**recipe | {name: value for name, value in vars(given).items() if value is not None})
    try:
        from buckler.training.descent import checkpoint_path
        from buckler.training.train import train_classifier, train_denoiser
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch") from None
    images = read_images(data_set, data)
    with interruptible(), bar("training", quiet=output.bare, transient=False) as advance:

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
    if output.as_json:
        say(json.dumps({"weights": str(trained.weights), "card": asdict(card)}))
    if output.bare:
        return
    say(card.summary(), error=True)
    say(trained.weights)
