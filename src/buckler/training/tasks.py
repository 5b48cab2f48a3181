"""What a network is trained to do: how its inputs are made, what it loses by its answers, how often it is right.

Images stay uint8 and are cut, mirrored and made noisy a batch at a time where they lie, so that no worker process feeds
the device and no step waits for another. Every draw comes from the generator passed in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from buckler.training.devices import EVALUATION, stream

Forward = Callable[..., Tensor]

BATCH = 500
"""Test images that are run at once."""

ENTROPY = 0.5
"""Weight of the entropy in ``disagreement``, as in the paper that it is from."""


def crop_and_flip(images: Tensor, generator: torch.Generator, *, flip: bool) -> Tensor:
    """Return uint8 images ``[batch, height, width, 3]`` shifted by up to an eighth of their size (4 pixels of 32).

    Pixels from outside repeat the edge. With ``flip`` each image is mirrored with probability one half.
    """
    batch, height, width = images.shape[:3]
    device = images.device

    def shift(size: int) -> Tensor:
        reach = size // 8
        return torch.randint(-reach, reach + 1, (batch, 1), generator=generator, device=device)

    rows = torch.arange(height, device=device) + shift(height)
    columns = torch.arange(width, device=device).expand(batch, width)
    if flip:
        mirrored = torch.rand((batch, 1), generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    columns = columns + shift(width)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    index = torch.arange(batch, device=device)
    return images[index[:, None, None], rows[:, :, None], columns[:, None, :]]


def noisy(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Return uint8 ``[batch, height, width, 3]`` as floats in [0, 1] plus noise that is not clipped.

    The result has shape ``[batch, 3, height, width]`` and keeps the order in memory, which suits convolutions.
    """
    x = images.float() / 255.0
    if sigma > 0.0:
        x = x + sigma * torch.randn(x.shape, generator=generator, device=x.device)
    return x.permute(0, 3, 1, 2)


def split(images: Tensor, lam: float, generator: torch.Generator) -> Tensor:
    """Return uint8 ``[batch, height, width, 3]`` under splitting noise, as ``[batch, 3, height, width]`` in [0, 1].

    Each value x in [0, 1] meets an offset s, uniform on the ``510 lam`` numbers ``(j + 1/2)/255`` below ``2 lam``, and
    becomes ``(min(s, 1) + 1[x > s]) / 2``, the middle of the part of [0, 1] that the offset leaves (Levine and Feizi,
    *Improved, deterministic smoothing for l1 certified robustness*, ICML 2021), for ``lam >= 1/2``.
    """
    steps = round(2.0 * lam * 255.0)
    j = torch.randint(steps, images.shape, generator=generator, device=images.device)
    s = ((j.float() + 0.5) / 255.0).clamp(max=1.0)
    return (0.5 * (s + (images.to(torch.int64) > j))).permute(0, 3, 1, 2)


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
    cross entropy on what the network returns: the picture need not be beautiful, it must be recognised. With a
    ``consistency``, each image is seen under two draws of noise of one deviation, and what the two answers disagree by
    counts too, so many times: a vote that goes one way for every draw certifies more than one that is right as often.
    """

    smallest: float
    largest: float
    classifier: Forward | None = None
    weight: float = 0.0
    consistency: float | None = None

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return noisy images and the deviation of each, uniform in its logarithm."""
        draws = torch.rand(len(images), generator=generator, device=images.device)
        if self.consistency is not None:
            images, draws = torch.cat([images, images]), torch.cat([draws, draws])
        sigma = self.smallest * (self.largest / self.smallest) ** draws
        clean = noisy(images, 0.0, generator)
        noise = torch.randn(images.shape, generator=generator, device=images.device).permute(0, 3, 1, 2)
        return clean + sigma[:, None, None, None] * noise, sigma

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted sum of both losses."""
        if self.consistency is not None:
            images, labels = torch.cat([images, images]), torch.cat([labels, labels])
        clean = (images.float() / 255.0).permute(0, 3, 1, 2)
        answer = forward(*inputs)
        error = (answer.float() - clean).square().mean(dim=(1, 2, 3)) / (inputs[1] * inputs[1])
        total = error.mean()
        if self.classifier is not None and self.weight > 0.0:
            logits = self.classifier(answer)
            lost = functional.cross_entropy(logits, labels)
            if self.consistency is not None:
                first, second = logits.chunk(2)
                lost = lost + disagreement(first, second, self.consistency)
            total = total + self.weight * lost
        return total


def disagreement(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Return ``weight`` times the mean divergence of two answers from their mean, plus half the entropy of that mean.

    The answers are logits ``[batch, m]``, the divergence is Kullback and Leibler's, of the mean from each of the two
    (Jeong and Shin, *Consistency regularization for certified robustness of smoothed classifiers*, NeurIPS 2020).
    """
    logs = torch.stack([first, second]).float().log_softmax(dim=2)
    log_mean = logs.logsumexp(dim=0) - math.log(2.0)
    mean = log_mean.exp()
    divergence = (mean * (log_mean - logs.mean(dim=0))).sum(dim=1)
    entropy = -(mean * log_mean).sum(dim=1)
    return (weight * divergence + ENTROPY * entropy).mean()


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
