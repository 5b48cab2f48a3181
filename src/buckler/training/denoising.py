"""Training a denoiser, from beginning to end: a recipe, images and the classifier behind it -> weights and their card.

A classifier that knows no noise can be smoothed behind a denoiser (Salman, Sun, Yang, Kapoor and Kolter, *Denoised
smoothing: a provable defense for pretrained classifiers*, NeurIPS 2020).
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from buckler.errors import InvalidInput
from buckler.files import checksum
from buckler.sampling.cards import DenoiserCard
from buckler.sampling.networks import load_network
from buckler.sampling.unet import UNet
from buckler.training.data import Images
from buckler.training.descent import TrainingProgress, fit
from buckler.training.devices import choose_device, may_compile
from buckler.training.outcome import Trained, save_outcome
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Classify, Denoise, accuracy_under

MEASURED = (0.12, 0.25, 0.5, 1.0)
"""Deviations at which the accuracy behind the denoiser is measured, where it has seen them; and at the largest."""


def train_denoiser(
    config: TrainingConfig,
    images: Images,
    classifier: Path,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    max_seconds: float | None = None,
) -> Trained[DenoiserCard]:
    """Train a U-Net by the recipe, and write its float16 weights and its card to ``out``.

    ``classifier`` is the file of weights with the checksum that the recipe names; it stays as it is. Checkpoints and
    ``max_seconds`` are as in ``gaussian.train``.
    """
    smallest, recognition = config.smallest_sigma, config.recognition
    if smallest is None or recognition is None or config.classifier is None:
        raise InvalidInput(f"architecture must be unet for a denoiser; got {config.architecture}")
    device = choose_device(config.device)
    judge = load_network(classifier).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if checksum(classifier) != config.classifier:
        raise InvalidInput(f"classifier must be the file that the recipe names by its checksum; got {classifier}")
    if judge.classify.out_features != images.num_classes:
        raise InvalidInput(f"classifier must tell {images.num_classes} classes; got {judge.classify.out_features}")
    for parameter in judge.parameters():
        parameter.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        unet = UNet()
    # Compiled as the network is: its layers are many and small, and without a graph each waits to be launched.
    seen = torch.compile(judge, mode="reduce-overhead") if may_compile(device, config.compile) else judge
    task = Denoise(smallest, config.sigma, seen, recognition, config.consistency)
    descent = fit(config, task, unet, images, out, resume=resume, progress=progress, max_seconds=max_seconds)
    network = descent.network.eval()
    test = torch.from_numpy(images.x_test), torch.from_numpy(images.y_test)
    accuracy = {}
    for sigma in sorted({config.sigma, *(s for s in MEASURED if smallest <= s <= config.sigma)}):

        def answer(x: Tensor, told: float = sigma) -> Tensor:
            return judge(network(x, told))  # type: ignore[no-any-return]

        accuracy[f"{sigma:g}"] = accuracy_under(Classify(sigma).inputs, answer, *test, seed=config.seed, device=device)
    return save_outcome(
        descent,
        images,
        out,
        DenoiserCard,
        smallest_sigma=smallest,
        classifier=classifier.name,
        classifier_sha256=config.classifier,
        accuracy=accuracy,
    )
