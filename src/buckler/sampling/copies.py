"""The laws of ``buckler.laws`` on a torch device: words to noisy copies, bit for bit what their ``noisy`` returns.

A form takes the law, the inputs ``[rows, values]`` (a row for each copy, so that a batch may mix inputs) and words
``[rows, words]``, int64 with the bits of the unsigned ones, and returns the copies ``[rows, values]``. Laws without a
form are drawn on the host.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from buckler.laws import Ablation, DerandomizedSplitting, Splitting, Uniform
from buckler.laws.exact import LEVELS
from buckler.laws.splitting import MIDDLES

LOW_HALF, SIGN = 0xFFFFFFFF, -(1 << 63)


def uniform_below(words: Tensor, count: int) -> Tensor:
    """Return ``word * count // 2^64`` for unsigned words, in halves that fit signed numbers; ``count`` below 2^31."""
    low = ((words & LOW_HALF) * count) >> 32
    return (((words >> 32) & LOW_HALF) * count + low) >> 32


def whole(x: Tensor, steps: float) -> Tensor:
    """Return inputs that were checked to lie on a grid in whole steps, of which ``steps`` make 1."""
    return torch.round(x.double() * steps).long()


def uniform(law: Uniform, x: Tensor, words: Tensor) -> Tensor:
    """Return copies moved by whole steps."""
    moved = whole(x, 1.0 / law.step) + uniform_below(words, law.count) - law.count // 2
    # The divisor is a tensor: by a number, a device may multiply with its reciprocal instead.
    below = torch.tensor(float(law.grid.denominator), dtype=torch.float64, device=x.device)
    return (moved.double() * float(law.grid.numerator) / below).float()


def split(x: Tensor, offsets: Tensor, count: int) -> Tensor:
    """Return what is seen of 8-bit inputs under offsets."""
    rising = torch.div(whole(x, LEVELS) - offsets - 1, count, rounding_mode="floor") + 1
    above = 2 * offsets + 1 + 2 * count * rising
    seen = above.clamp(max=2 * LEVELS) + (above - 2 * count).clamp(min=0)
    return torch.from_numpy(MIDDLES).to(x.device)[seen]


def splitting(law: Splitting, x: Tensor, words: Tensor) -> Tensor:
    """Return what is seen under offsets drawn for each value."""
    return split(x, uniform_below(words, law.count), law.count)


def derandomized(law: DerandomizedSplitting, x: Tensor, words: Tensor) -> Tensor:
    """Return what is seen under the template shifted by the number of the copy."""
    start = torch.from_numpy(law.start(x.shape[1])).to(x.device)
    return split(x, (start + words) % law.count, law.count)


def ablation(law: Ablation, x: Tensor, words: Tensor) -> Tensor:
    """Return copies that show the pixels of the smallest words."""
    order = words ^ SIGN
    shown = order <= order.kthvalue(law.keep, dim=1, keepdim=True).values
    channels = x.reshape(len(x), -1, law.pixels)
    return torch.where(shown[:, None], channels, law.mark).reshape(x.shape)


FORMS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    Uniform.name: uniform,
    Splitting.name: splitting,
    DerandomizedSplitting.name: derandomized,
    Ablation.name: ablation,
}
