"""Training tasks: noisy inputs from a batch of images, losses of classifiers and denoisers, accuracy under noise.

Images stay uint8 and are cropped, mirrored and made noisy a batch at a time on their device, so that no worker process
feeds it and no step waits for another. Every draw comes from the generator passed in.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Forward = Callable[..., Tensor]

STATISTICS, EVALUATION = 2**32, 2**32 + 1
"""Numbers of the random streams for batch statistics and for evaluation; that of an epoch has the epoch's, 0, 1, ..."""

TEST_BATCH = 500
"""Test images that are run at once."""

ENTROPY = 0.5
"""Weight of the entropy in ``disagreement``, as in Jeong and Shin's experiments on CIFAR-10."""

LEAST_NORM = 1e-30
"""Lower clamp of a norm that is divided by, since a gradient may vanish."""


def draws_for(device: torch.device, *numbers: int) -> torch.Generator:
    """Return a fresh torch generator whose draws depend on ``numbers`` alone: the seed, then what they are for."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0]))


def crop_and_flip(images: Tensor, generator: torch.Generator, *, flip: bool) -> Tensor:
    """Return ``images``, uint8 ``[batch, height, width, 3]``, each moved at random by up to an eighth of its size.

    Of 32 pixels that is 4; pixels from outside repeat the edge. With ``flip`` each image is mirrored with probability
    one half.
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
    """Return ``images``, uint8 ``[batch, height, width, 3]``, as floats in [0, 1] plus Gaussian noise, not clipped.

    The noise has deviation ``sigma``. The result has shape ``[batch, 3, height, width]`` and keeps the order in memory,
    which suits convolutions.
    """
    x = images.float() / 255.0
    if sigma > 0.0:
        x = x + sigma * torch.randn(x.shape, generator=generator, device=x.device)
    return x.permute(0, 3, 1, 2)


def noisy_by_splitting(images: Tensor, lam: float, generator: torch.Generator) -> Tensor:
    """Return ``images``, uint8 ``[batch, height, width, 3]``, under splitting noise, as ``[batch, 3, height, width]``.

    Each value x, divided by 255, gets an offset s, uniform on the ``510 lam`` numbers ``(j + 1/2)/255`` below
    ``2 lam``, and becomes ``(min(s, 1) + 1[x > s]) / 2``, the middle of its part of [0, 1], which the offset splits
    (Levine and Feizi, *Improved, deterministic smoothing for l1 certified robustness*, ICML 2021), for ``lam >= 1/2``.
    """
    steps = round(2.0 * lam * 255.0)
    j = torch.randint(steps, images.shape, generator=generator, device=images.device)
    s = ((j.float() + 0.5) / 255.0).clamp(max=1.0)
    return (0.5 * (s + (images.to(torch.int64) > j))).permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Classify:
    """Training task: classify images under Gaussian noise (``sigma``) or, with ``lam``, under splitting noise.

    With a ``consistency``, the network sees each image under two draws of noise, and the loss has ``disagreement`` of
    this weight. With an ``adversary``, ``attack`` first moves each image by up to that l2 distance, in ``attack_steps``
    steps; all draws of an image are moved alike.
    """

    sigma: float
    lam: float | None = None
    label_smoothing: float = 0.0
    consistency: float | None = None
    adversary: float | None = None
    attack_steps: int = 1

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the noisy images; with a ``consistency``, one noisy copy of every image, then a second of each."""
        if self.consistency is not None:
            images = torch.cat([images, images])
        if self.lam is not None:
            return (noisy_by_splitting(images, self.lam, generator),)
        return (noisy(images, self.sigma, generator),)

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return ``answer_loss`` of the network's logits for ``inputs``, which the adversary moves if there is one."""
        draws = inputs[0].reshape(-1, len(images), *inputs[0].shape[1:])
        if self.adversary is not None:
            draws = draws + attack(forward, draws, labels, self.adversary, self.attack_steps)
        return answer_loss(forward(draws.flatten(0, 1)), labels, self.consistency, self.label_smoothing)


@dataclass(frozen=True, slots=True)
class Denoise:
    """Training task: remove Gaussian noise whose deviation, told to the network, is drawn anew for each image.

    Deviations lie between ``smallest`` and ``largest``. The loss is the squared error divided by the variance of the
    noise, plus ``weight`` times the mean ``answer_loss`` of frozen ``classifiers`` on the denoised images. With a
    ``consistency``, the network sees each image under two draws of noise of the same deviation, and ``answer_loss``
    has a classifier's ``disagreement`` on them, of this weight.
    """

    smallest: float
    largest: float
    classifiers: Sequence[Forward] = ()
    weight: float = 0.0
    consistency: float | None = None

    def inputs(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return noisy images and the deviation of each, whose logarithm is uniform.

        With a ``consistency`` there is one noisy copy of every image, then a second of each with the same deviation.
        """
        draws = torch.rand(len(images), generator=generator, device=images.device)
        if self.consistency is not None:
            images, draws = torch.cat([images, images]), torch.cat([draws, draws])
        sigma = self.smallest * (self.largest / self.smallest) ** draws
        clean = noisy(images, 0.0, generator)
        noise = torch.randn(images.shape, generator=generator, device=images.device).permute(0, 3, 1, 2)
        return clean + sigma[:, None, None, None] * noise, sigma

    def loss(self, forward: Forward, inputs: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        """Return the squared error divided by the variance, plus ``weight`` times the classifiers' mean loss."""
        if self.consistency is not None:
            images = torch.cat([images, images])
        clean = (images.float() / 255.0).permute(0, 3, 1, 2)
        answer = forward(*inputs)
        error = (answer.float() - clean).square().mean(dim=(1, 2, 3)) / (inputs[1] * inputs[1])
        total = error.mean()
        if self.classifiers and self.weight > 0.0:
            losses = [answer_loss(judge(answer), labels, self.consistency) for judge in self.classifiers]
            total = total + self.weight * torch.stack(losses).mean()
        return total


TrainingTask = Classify | Denoise
"""What a network is trained for: its ``inputs``, and the ``loss`` of what it returns for them.

``images`` are uint8 ``[batch, height, width, 3]``, cropped and mirrored; ``labels`` are their classes."""


def answer_loss(
    logits: Tensor, labels: Tensor, consistency: float | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Return the mean cross entropy of logits ``[draws * batch, classes]``, all images of a draw together.

    With a ``consistency``, ``disagreement`` of this weight is added.
    """
    draws = len(logits) // len(labels)
    loss = functional.cross_entropy(logits, labels.repeat(draws), label_smoothing=label_smoothing)
    return loss if consistency is None else loss + disagreement(logits.reshape(draws, len(labels), -1), consistency)


def disagreement(logits: Tensor, weight: float) -> Tensor:
    """Return ``weight`` times the divergence of an image's probabilities under its draws, plus half an entropy.

    Logits are ``[draws, batch, classes]``. The divergence is the Kullback-Leibler divergence of the draws' mean
    probabilities from those of each draw, averaged over the draws, and the entropy is that of these means (Jeong and
    Shin, *Consistency regularization for certified robustness of smoothed classifiers*, NeurIPS 2020). Both are
    averaged over the images.
    """
    log_mean = log_mean_softmax(logits)
    mean = log_mean.exp()
    divergence = (mean * (log_mean - logits.float().log_softmax(dim=2).mean(dim=0))).sum(dim=1)
    entropy = -(mean * log_mean).sum(dim=1)
    return (weight * divergence + ENTROPY * entropy).mean()


def attack(forward: Forward, draws: Tensor, labels: Tensor, radius: float, steps: int) -> Tensor:
    """Return perturbations ``[batch, 3, height, width]``, of l2 norm at most ``radius``, against the images' labels.

    ``draws`` are noisy images ``[draws, batch, 3, height, width]``, and ``forward`` returns logits. Projected gradient
    ascent, from 0, of the negative logarithm of the label's mean probability over the draws of an image (Salman et al.,
    *Provably robust deep learning via adversarially trained smoothed classifiers*, NeurIPS 2019); each of ``steps``
    steps has length ``2 radius / steps``.
    """
    delta = torch.zeros_like(draws[0])
    for _ in range(steps):
        delta.requires_grad_(True)
        logits = forward((draws + delta).flatten(0, 1)).reshape(len(draws), len(labels), -1)
        loss = functional.nll_loss(log_mean_softmax(logits), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, delta)
        direction = gradient / _norms(gradient).clamp(min=LEAST_NORM)
        delta = delta.detach() + (2.0 * radius / steps) * direction
        delta = delta * (radius / _norms(delta).clamp(min=LEAST_NORM)).clamp(max=1.0)
    return delta


def _norms(images: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(images, dim=(1, 2, 3), keepdim=True)
    return norms


def log_mean_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of mean probabilities, ``[batch, classes]``, for logits ``[draws, batch, classes]``.

    The mean is that of the softmax of the logits, over the draws.
    """
    return logits.float().log_softmax(dim=2).logsumexp(dim=0) - math.log(len(logits))


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
    """Return the share of noisy images that ``network`` classifies as ``labels`` say, with one draw of noise each.

    ``images`` are uint8 ``[inputs, height, width, 3]``. ``inputs(images, generator)`` returns the arguments of the
    network, which is on ``device``; the generator's draws depend on ``seed`` alone. Computed in float32.
    """
    generator = draws_for(device, seed, EVALUATION)
    if isinstance(network, nn.Module):
        network.eval()
    hits = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in zip(torch.split(images, TEST_BATCH), torch.split(labels, TEST_BATCH), strict=True):
        predicted = network(*inputs(x.to(device), generator)).argmax(dim=1)
        hits += (predicted == y.to(device)).sum()
    return int(hits) / len(images)
