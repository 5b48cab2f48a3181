"""What a network is trained to do: how its inputs are made, what it loses by its answers, how often it is right."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from buckler.training.augmentation import noisy, split
from buckler.training.devices import EVALUATION, stream

Forward = Callable[..., Tensor]

BATCH = 500
"""Test images that are run at once."""


class Task(Protocol):
    """A way to train; ``images`` are uint8 ``[batch, height, width, 3]``, cropped and mirrored."""

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what the network sees of these images."""

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the network's answers."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Name the class of images under Gaussian noise (``sigma``) or, with ``lam``, under splitting noise."""

    sigma: float
    lam: float | None = None
    label_smoothing: float = 0.0

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the noisy images."""
        if self.lam is not None:
            return (split(images, self.lam, generator),)
        return (noisy(images, self.sigma, generator),)

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy."""
        del images
        return functional.cross_entropy(forward(*inputs), labels, label_smoothing=self.label_smoothing)


@dataclass(frozen=True, slots=True)
class Denoise:
    """Remove Gaussian noise whose deviation, told to the network, is drawn anew for each image.

    The loss is the squared error relative to that of the noise, and, with a ``classifier`` that is left as it is, its
    cross entropy on what the network returns: the picture need not be beautiful, it must be recognised.
    """

    smallest: float
    largest: float
    classifier: nn.Module | None = None
    weight: float = 0.0

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return noisy images and the deviation of each, uniform in its logarithm."""
        draws = torch.rand(len(images), generator=generator, device=images.device)
        sigma = self.smallest * (self.largest / self.smallest) ** draws
        clean = noisy(images, 0.0, generator)
        noise = torch.randn(images.shape, generator=generator, device=images.device).permute(0, 3, 1, 2)
        return clean + sigma[:, None, None, None] * noise, sigma

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted sum of both losses."""
        clean = (images.float() / 255.0).permute(0, 3, 1, 2)
        answer = forward(*inputs)
        error = (answer.float() - clean).square().mean(dim=(1, 2, 3)) / (inputs[1] * inputs[1])
        total = error.mean()
        if self.classifier is not None and self.weight > 0.0:
            total = total + self.weight * functional.cross_entropy(self.classifier(answer), labels)
        return total


@torch.no_grad()
def accuracy_under(
    inputs: Callable[[Tensor, torch.Generator], tuple[Tensor, ...]],
    network: nn.Module | Forward,
    images: Tensor,
    labels: Tensor,
    *,
    seed: int,
    device: torch.device,
) -> float:
    """Return the share of images classified rightly, one draw each, in float32; the draws depend on the seed alone.

    ``images`` are uint8 ``[inputs, height, width, 3]``, ``inputs`` makes of them what the network sees, and the network
    is on ``device``.
    """
    generator = stream(device, seed, EVALUATION)
    if isinstance(network, nn.Module):
        network.eval()
    hits = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
        predicted = network(*inputs(x.to(device), generator)).argmax(dim=1)
        hits += (predicted == y.to(device)).sum()
    return int(hits) / len(images)
