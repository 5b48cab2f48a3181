"""Training under Gaussian noise, from beginning to end: a recipe and images -> weights and their card.

The base classifier of randomized smoothing sees images with noise of standard deviation sigma, so it is trained on
such images (Cohen, Rosenfeld and Kolter, *Certified adversarial robustness via randomized smoothing*, ICML 2019,
section 3.3).
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from buckler import __version__
from buckler.errors import InvalidInput
from buckler.sampling.architectures import Network, build
from buckler.training.accuracy import noisy_accuracy
from buckler.training.averaging import recompute_statistics
from buckler.training.cards import Card, write_card
from buckler.training.checkpoints import load_checkpoint, save_checkpoint
from buckler.training.data import Images
from buckler.training.descent import Descent, TrainingProgress
from buckler.training.devices import STATISTICS, choose_device, describe, may_compile, place, tuned
from buckler.training.recipe import TrainingConfig
from buckler.training.weights import round_to_half, save_network

STATISTICS_BATCHES = 100
"""Batches over which the batch normalisation of the averaged network is measured."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run leaves: three files, and what the card says."""

    weights: Path
    card_json: Path
    card_markdown: Path
    card: Card


def train(
    config: TrainingConfig,
    images: Images,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Trained:
    """Train a network by the recipe, measure it, and write its float16 weights and its card to ``out``.

    A checkpoint is written there after every epoch and removed at the end. With ``resume`` the run goes on from the
    checkpoint if there is one, and on a CPU ends with exactly the weights of an undisturbed run; without it, a
    checkpoint left by an unfinished run is an error rather than lost.
    """
    device = choose_device(config.device)
    compiled = may_compile(device, config.compile)
    descent = Descent(
        config,
        _initial(config, images).to(device).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        x := place(images.x_train, device),
        torch.from_numpy(images.y_train).to(x.device),
    )
    network = descent.network
    checkpoint = checkpoint_path(config, images.name, out)
    choices = config.choices() | {"data": images.sha256}
    if checkpoint.exists():
        if not resume:
            raise InvalidInput(f"out holds an unfinished run, {checkpoint}: resume it or remove that file")
        descent.restore(load_checkpoint(checkpoint, choices))

    out.mkdir(parents=True, exist_ok=True)
    # A step is hundreds of small kernels: recorded once as a graph, they are no longer bound by the time of launching.
    forward = torch.compile(network, mode="reduce-overhead") if compiled else network
    with tuned():
        while descent.epoch < config.epochs:
            descent.run_epoch(forward, progress)  # type: ignore[arg-type]
            save_checkpoint(checkpoint, descent.state(choices))

    # Rounded before the statistics are measured, so that these fit the rounded weights; then they are rounded too.
    descent.average.copy_to(network)
    round_to_half(network)
    recompute_statistics(network, (batch for batch, _ in descent.batches(STATISTICS, STATISTICS_BATCHES)))
    round_to_half(network)
    test = torch.from_numpy(images.x_test), torch.from_numpy(images.y_test)
    accuracy, clean = (
        noisy_accuracy(network, *test, sigma=sigma, seed=config.seed, device=device) for sigma in (config.sigma, 0.0)
    )

    weights = out / f"{config.stem(images.name)}.safetensors"
    sha256 = save_network(
        weights, network, architecture=config.architecture, num_classes=images.num_classes, sigma=config.sigma
    )
    card = Card(
        weights=weights.name,
        sha256=sha256,
        architecture=config.architecture,
        parameters=sum(p.numel() for p in network.parameters()),
        num_classes=images.num_classes,
        height=images.x_train.shape[1],
        width=images.x_train.shape[2],
        sigma=config.sigma,
        accuracy=accuracy,
        clean_accuracy=clean,
        data=images.name,
        data_source=images.source,
        data_sha256=images.sha256,
        train_inputs=len(images.x_train),
        test_inputs=len(images.x_test),
        recipe=config.choices(),
        command=config.command(images.name, None if images.name == "digits" else images.source),
        seconds=round(descent.seconds, 1),
        device=describe(device),
        versions={
            "buckler": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    )
    card_json, card_markdown = write_card(out, card)
    checkpoint.unlink(missing_ok=True)
    return Trained(weights, card_json, card_markdown, card)


def checkpoint_path(config: TrainingConfig, data: str, out: Path) -> Path:
    """Return where a run keeps its checkpoint."""
    return out / f"{config.stem(data)}.checkpoint"


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
