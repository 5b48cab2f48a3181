"""How often a base classifier is right under noise: one draw for each test image."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from buckler.training.devices import EVALUATION, stream

BATCH = 500


@torch.no_grad()
def accuracy_under(
    inputs: Callable[[Tensor, torch.Generator], tuple[Tensor, ...]],
    network: nn.Module | Callable[..., Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    seed: int,
    device: torch.device,
) -> float:
    """Return the share of images classified rightly, computed in float32; the draws depend on the seed alone.

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
