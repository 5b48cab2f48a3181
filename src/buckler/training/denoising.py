"""Training a denoiser, from beginning to end: a recipe, images and the classifier behind it -> weights and facts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from buckler.sampling.architectures import Network
from buckler.training.accuracy import accuracy_under
from buckler.training.data import Images
from buckler.training.descent import TrainingProgress
from buckler.training.fitting import checkpoint_path, fit
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import Classify, Denoise
from buckler.training.unet import UNet
from buckler.training.weights import round_to_half, save_network

MEASURED = (0.12, 0.25, 0.5, 1.0)
"""Deviations at which the accuracy of the classifier behind the denoiser is measured."""


@dataclass(frozen=True, slots=True)
class TrainedDenoiser:
    """What a finished run leaves: the weights, their checksum, and the classifier's accuracy behind them."""

    weights: Path
    sha256: str
    parameters: int
    accuracy: dict[str, float]
    seconds: float


def train_denoiser(
    config: TrainingConfig,
    images: Images,
    classifier: Network,
    out: Path,
    *,
    resume: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> TrainedDenoiser:
    """Train a U-Net by the recipe and write its float16 weights to ``out``; the classifier stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        unet = UNet()
    classifier = classifier.to("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu").eval()
    for parameter in classifier.parameters():
        parameter.requires_grad_(False)
    smallest = config.smallest_sigma or config.sigma
    task = Denoise(smallest, config.sigma, classifier, config.recognition)
    descent = fit(config, task, unet, images, out, resume=resume, progress=progress)
    network, device = descent.network, descent.device
    round_to_half(network)
    test = torch.from_numpy(images.x_test), torch.from_numpy(images.y_test)
    accuracy = {}
    for sigma in MEASURED:

        def answer(x: Tensor, told: float = sigma) -> Tensor:
            return classifier(network(x, told))  # type: ignore[no-any-return]

        accuracy[f"{sigma:g}"] = accuracy_under(Classify(sigma).inputs, answer, *test, seed=config.seed, device=device)
    weights = out / f"{config.stem(images.name)}.safetensors"
    sha256 = save_network(weights, network, architecture="unet", num_classes=images.num_classes, sigma=config.sigma)
    checkpoint_path(config, images.name, out).unlink(missing_ok=True)
    parameters = sum(p.numel() for p in network.parameters())
    return TrainedDenoiser(weights, sha256, parameters, accuracy, round(descent.seconds, 1))
