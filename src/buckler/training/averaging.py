"""Exponential moving average of the weights, rounding to float16, and batch statistics for the averaged weights."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from buckler.errors import BucklerError

EVERY = 10
"""Steps between updates: often enough, and the many small copies cost nothing that way."""

DECAY = 0.98
"""With ``EVERY``, a memory of about 500 steps."""


class WeightAverage:
    """An exponential average of a network's parameters; early on a plain one, so that the start is forgotten."""

    def __init__(self, network: nn.Module) -> None:
        self.values = {name: value.detach().clone() for name, value in network.named_parameters()}
        self.updates = 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the network's present weights."""
        decay = min(DECAY, (1 + self.updates) / (10 + self.updates))
        for name, value in network.named_parameters():
            self.values[name].lerp_(value, 1.0 - decay)
        self.updates += 1

    def restore(self, values: Mapping[str, Tensor], updates: int) -> None:
        """Go back to a saved state."""
        for name, value in self.values.items():
            value.copy_(values[name])
        self.updates = updates

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> None:
        """Put the average in place of the network's weights; its batch statistics no longer fit then.

        Where the training was too short for an update, the network keeps its own.
        """
        if self.updates == 0:
            return
        for name, value in network.named_parameters():
            value.copy_(self.values[name])


def round_to_half(network: nn.Module) -> None:
    """Round every float weight and buffer to the nearest float16, in place: what will be saved is what is measured."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.half().to(value.dtype))
                if not torch.isfinite(value).all():
                    raise BucklerError(f"{name} does not fit float16; the training has diverged")


@torch.no_grad()
def recompute_statistics(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the batch normalisation's running mean and variance to their plain averages over ``batches``."""
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    network.train()
    for batch in batches:
        network(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.eval()
