"""How often a base classifier is right under noise: one draw for each test image."""

import torch
from torch import Tensor, nn

from buckler.training.augmentation import noisy
from buckler.training.devices import EVALUATION, stream

BATCH = 500


@torch.no_grad()
def noisy_accuracy(
    network: nn.Module, images: Tensor, labels: Tensor, *, sigma: float, seed: int, device: torch.device
) -> float:
    """Return the share of images classified rightly, computed in float32; the draws depend on the seed alone.

    ``images`` are uint8 ``[inputs, height, width, 3]``, and the network is on ``device``.
    """
    generator = stream(device, seed, EVALUATION)
    network.eval()
    hits = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
        predicted = network(noisy(x.to(device), sigma, generator)).argmax(dim=1)
        hits += (predicted == y.to(device)).sum()
    return int(hits) / len(images)
