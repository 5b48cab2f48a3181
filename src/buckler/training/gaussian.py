"""Training a classifier under noise, from beginning to end: a recipe and images -> weights and their card.

The base classifier of randomized smoothing sees images with noise, so it is trained on such images (Cohen, Rosenfeld
and Kolter, *Certified adversarial robustness via randomized smoothing*, ICML 2019, section 3.3). The recipe may add
consistency between two draws of noise and an adversary; ``tasks`` has both.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from buckler.sampling.architectures import Network, build
from buckler.sampling.cards import ClassifierCard
from buckler.training.averaging import recompute_statistics, round_to_half
from buckler.training.data import Images
from buckler.training.descent import TrainingProgress, fit
from buckler.training.devices import STATISTICS
from buckler.training.outcome import Trained, save_outcome
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Classify, accuracy_under

STATISTICS_BATCHES = 100
"""Batches over which the batch normalisation of the averaged network is measured."""


def train(
    config: TrainingConfig,
    images: Images,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    max_seconds: float | None = None,
) -> Trained[ClassifierCard]:
    """Train a network by the recipe, measure it, and write its float16 weights and its card to ``out``.

    A checkpoint is written there after every epoch and removed at the end. With ``resume`` the run goes on from the
    checkpoint if there is one, and on a CPU ends with exactly the weights of an undisturbed run; without it, a
    checkpoint left by an unfinished run is an error rather than lost. A ``TimeoutError`` says that no further epoch
    ends within ``max_seconds``; the measurements after the last one are not counted.
    """
    task = Classify(
        config.sigma, config.lam, config.label_smoothing, config.consistency, config.adversary, config.attack_steps or 1
    )
    initial = _initial(config, images)
    descent = fit(config, task, initial, images, out, resume=resume, progress=progress, max_seconds=max_seconds)
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
