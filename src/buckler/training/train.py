"""Training from beginning to end: a recipe and images -> the weights of a classifier or a denoiser, and their card.

The base classifier of randomized smoothing sees images with noise, so it is trained on such images (Cohen, Rosenfeld
and Kolter, *Certified adversarial robustness via randomized smoothing*, ICML 2019, section 3.3). The recipe may add
consistency between two draws of noise and an adversary; ``tasks`` has both. A classifier that knows no noise can be
smoothed behind a denoiser (Salman, Sun, Yang, Kapoor and Kolter, *Denoised smoothing: a provable defense for pretrained
classifiers*, NeurIPS 2020).
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from buckler import __version__
from buckler.errors import InvalidInput
from buckler.files import checksum
from buckler.sampling.architectures import Network, UNet, build
from buckler.sampling.weights import load_network, save_network
from buckler.sampling.zoo import ClassifierCard, DenoiserCard, write_card
from buckler.training.data import Images
from buckler.training.descent import (
    Descent,
    TrainingProgress,
    checkpoint_path,
    choose_device,
    descend,
    may_compile,
    recompute_statistics,
    round_to_half,
)
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import STATISTICS, Classify, Denoise, accuracy_under

AnyCard = TypeVar("AnyCard", ClassifierCard, DenoiserCard)


@dataclass(frozen=True, slots=True)
class Trained(Generic[AnyCard]):
    """Result of a training: the path of the weights, beside which the network's card lies, and the card itself."""

    weights: Path
    card: AnyCard


def save_outcome(
    descent: Descent, images: Images, out: Path, card_of: Callable[..., AnyCard], **own: Any
) -> Trained[AnyCard]:
    """Write the network of a finished training run and its card to the folder ``out``; return the path and the card.

    ``card_of`` is the class of the card and ``own`` the fields that only this class has. The checkpoint is removed.
    """
    config, network = descent.config, descent.network
    weights = out / f"{config.stem(images.name)}.safetensors"
    sha256 = save_network(
        weights, network, architecture=config.architecture, num_classes=images.num_classes, sigma=config.sigma
    )
    card = card_of(
        weights=weights.name,
        sha256=sha256,
        architecture=config.architecture,
        parameters=sum(p.numel() for p in network.parameters()),
        height=images.x_train.shape[1],
        width=images.x_train.shape[2],
        sigma=config.sigma,
        data=images.name,
        data_source=images.source,
        data_sha256=images.sha256,
        train_inputs=len(images.x_train),
        test_inputs=len(images.x_test),
        recipe=config.choices(),
        command=config.command(images.name, None if images.name == "digits" else images.source, own.get("classifier")),
        seconds=round(descent.seconds, 1),
        device=torch.cuda.get_device_name(descent.device) if descent.device.type == "cuda" else "a CPU",
        versions={
            "buckler": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        **own,
    )
    write_card(out, card)
    checkpoint_path(config, images.name, out).unlink(missing_ok=True)
    return Trained(weights, card)


STATISTICS_BATCHES = 100
"""Batches over which the statistics of the batch normalisation are measured once weights are averaged."""


def train_classifier(
    config: TrainingConfig,
    images: Images,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    max_seconds: float | None = None,
) -> Trained[ClassifierCard]:
    """Train a classifier by the recipe ``config`` on ``images``, and write its float16 weights and card to ``out``.

    The card holds its accuracy on the test images, with noise and without. A checkpoint is written to ``out`` after
    every epoch and removed at the end. With ``resume`` the run goes on from the checkpoint if there is one, and on a
    CPU ends with exactly the weights of an undisturbed run; without it, a checkpoint left by an unfinished run raises
    InvalidInput. A ``TimeoutError`` says that no further epoch ends within ``max_seconds``; measuring the accuracy
    after the last epoch is not counted. ``progress`` is called every fifty steps.
    """
    task = Classify(
        config.sigma, config.lam, config.label_smoothing, config.consistency, config.adversary, config.attack_steps or 1
    )
    initial = _initial(config, images)
    descent = descend(config, task, initial, images, out, resume=resume, progress=progress, max_seconds=max_seconds)
    network, device = descent.network, descent.device
    recompute_statistics(network, (batch[0] for batch, _, _ in descent.batches(STATISTICS, STATISTICS_BATCHES)))
    round_to_half(network)
    test = torch.from_numpy(images.x_test), torch.from_numpy(images.y_test)
    accuracy, clean = (
        accuracy_under(tried.inputs, network, *test, seed=config.seed, device=device)
        for tried in (Classify(config.sigma, config.lam), Classify(0.0))
    )
    own = {"num_classes": images.num_classes, "lam": config.lam, "accuracy": accuracy, "clean_accuracy": clean}
    return save_outcome(descent, images, out, ClassifierCard, **own)


def _initial(config: TrainingConfig, images: Images) -> Network:
    """Return the untrained network of the seed, standardising by the colours of its training images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = build(config.architecture, images.num_classes)
    step = max(1, images.x_train.size // 15_000_000)  # five million pixels tell a mean to three digits
    sample = images.x_train[::step].reshape(-1, 3) / 255.0
    for buffer, values in (
        (network.standardise.mean, sample.mean(axis=0)),
        (network.standardise.std, sample.std(axis=0)),
    ):
        buffer.copy_(torch.from_numpy(np.maximum(values, 1e-3)).reshape(1, 3, 1, 1))
    return network


MEASURED = (0.12, 0.25, 0.5, 1.0)
"""Deviations of noise at which a classifier's accuracy behind the denoiser is measured, if it was trained for them; it
is measured at the largest of its training too."""


def train_denoiser(
    config: TrainingConfig,
    images: Images,
    classifiers: Sequence[Path],
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    max_seconds: float | None = None,
) -> Trained[DenoiserCard]:
    """Train a denoiser, a U-Net, by the recipe ``config``, and write its float16 weights and its card to ``out``.

    ``classifiers`` are the files of weights with the checksums that the recipe names. They are not trained; their mean
    loss on denoised images is a part of the denoiser's. The other arguments are as in ``train_classifier``.
    """
    smallest, recognition = config.smallest_sigma, config.recognition
    if smallest is None or recognition is None or config.classifier is None:
        raise InvalidInput(f"architecture must be unet for a denoiser; got {config.architecture}")
    device = choose_device(config.device)
    if ", ".join(checksum(path) for path in classifiers) != config.classifier:
        given = ", ".join(map(str, classifiers))
        raise InvalidInput(f"classifiers must be the files that the recipe names by their checksums; got {given}")
    judges = [load_network(path).to(device).to(memory_format=torch.channels_last) for path in classifiers]  # type: ignore[call-overload]
    for judge in judges:
        if judge.classify.out_features != images.num_classes:
            raise InvalidInput(f"classifier must tell {images.num_classes} classes; got {judge.classify.out_features}")
        judge.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        unet = UNet()
    # Compiled as the network is: its layers are many and small, and without a graph each waits to be launched.
    compiled = may_compile(device, config.compile)
    seen = [torch.compile(judge, mode="reduce-overhead") if compiled else judge for judge in judges]
    task = Denoise(smallest, config.sigma, seen, recognition, config.consistency)
    descent = descend(config, task, unet, images, out, resume=resume, progress=progress, max_seconds=max_seconds)
    network = descent.network.eval()
    test = torch.from_numpy(images.x_test), torch.from_numpy(images.y_test)
    accuracy = {}
    for sigma in sorted({config.sigma, *(s for s in MEASURED if smallest <= s <= config.sigma)}):
        shares = []
        for judge in judges:

            def answer(x: Tensor, told: float = sigma, judge: Network = judge) -> Tensor:
                return judge(network(x, told))  # type: ignore[no-any-return]

            shares.append(accuracy_under(Classify(sigma).inputs, answer, *test, seed=config.seed, device=device))
        accuracy[f"{sigma:g}"] = sum(shares) / len(shares)
    return save_outcome(
        descent,
        images,
        out,
        DenoiserCard,
        smallest_sigma=smallest,
        classifier=", ".join(path.name for path in classifiers),
        classifier_sha256=config.classifier,
        accuracy=accuracy,
    )
