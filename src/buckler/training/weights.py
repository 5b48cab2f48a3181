"""Networks to disk: float16 safetensors, with what is needed to rebuild the network in the header."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from buckler.errors import BucklerError, MissingExtra
from buckler.files import atomic_write, checksum
from buckler.sampling.weights import HEADER


def round_to_half(network: nn.Module) -> None:
    """Round every float weight and buffer to the nearest float16, in place: what will be saved is what is measured."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.half().to(value.dtype))
                if not torch.isfinite(value).all():
                    raise BucklerError(f"{name} does not fit float16; the training has diverged")


def save_network(path: Path, network: nn.Module, *, architecture: str, num_classes: int, sigma: float) -> str:
    """Write the weights as float16, whole or not at all, and return the file's sha256."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise MissingExtra("safetensors", "torch") from None
    # One entry, since safetensors writes several in random order: the same weights must give the same checksum.
    header = {HEADER: json.dumps({"architecture": architecture, "num_classes": num_classes, "sigma": sigma})}
    with atomic_write(path) as temporary:
        kept = {name: _half(value) for name, value in network.state_dict().items()}
        temporary.write_bytes(save(kept, metadata=header))
    return checksum(path)


def _half(value: Tensor) -> Tensor:
    kept = value.detach().cpu().contiguous()
    return kept.half() if kept.is_floating_point() else kept
