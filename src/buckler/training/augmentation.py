"""Batches for training under noise, made on the device: random crop, random mirror image, noise.

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
