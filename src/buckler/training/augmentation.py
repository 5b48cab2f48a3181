"""Batches for training under noise, made on the device: random crop, random mirror image, Gaussian noise.

The images stay uint8 and are cut, mirrored and made noisy a batch at a time where they lie, so that no worker process
feeds the device and no step waits for another. Every draw comes from the generator passed in.
"""

import torch
from torch import Tensor


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
