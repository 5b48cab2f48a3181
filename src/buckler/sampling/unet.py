"""A small U-Net that takes Gaussian noise of a known deviation out of 32x32 colour images.

Three resolutions with residual blocks, skip connections across, and the deviation as a scale and shift of every block.
What it returns is ``c_skip x + c_out F(c_in x, ln sigma)``, with the factors of Karras, Aittala, Aila and Laine,
*Elucidating the design space of diffusion-based generative models* (NeurIPS 2022, table 1), for images of mean 1/2 and
deviation 1/4: with F = 0 it is the best linear estimate, so the network learns only what that misses.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

MEAN, DEVIATION = 0.5, 0.25
"""What images in [0, 1] have, roughly; only the starting point depends on it."""

FREQUENCIES = 16
"""Waves in which the logarithm of the deviation is told to the network."""


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut; the deviation scales and shifts what lies between them."""

    def __init__(self, width_in: int, width: int, told: int) -> None:
        """Build the block; it starts as its shortcut."""
        super().__init__()
        self.norm1 = nn.GroupNorm(8, width_in)
        self.conv1 = nn.Conv2d(width_in, width, 3, padding=1)
        self.told = nn.Linear(told, 2 * width)
        self.norm2 = nn.GroupNorm(8, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]
        self.shortcut = nn.Conv2d(width_in, width, 1) if width_in != width else nn.Identity()

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        """Return the block's output."""
        scale, shift = self.told(told)[:, :, None, None].chunk(2, dim=1)
        y = self.conv1(functional.silu(self.norm1(x)))
        y = self.conv2(functional.silu(self.norm2(y) * (1.0 + scale) + shift))
        return y + self.shortcut(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """The denoiser: ``unet(x, sigma)`` is an estimate of the clean images, ``sigma`` one number or one for each.

    ``sigmas`` are the smallest and the largest that it was trained for, where that is known.
    """

    sigmas: tuple[float, float] = (0.0, math.inf)

    def __init__(self, widths: tuple[int, int, int] = (64, 112, 112), blocks: int = 2) -> None:
        """Build the network with ``blocks`` residual blocks at each resolution on the way down and up."""
        super().__init__()
        told = 4 * FREQUENCIES
        self.listen = nn.Sequential(nn.Linear(2 * FREQUENCIES, told), nn.SiLU(), nn.Linear(told, told), nn.SiLU())
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, width = [widths[0]], widths[0]
        for following in widths:
            stage = nn.ModuleList()
            for _ in range(blocks):
                stage.append(Block(width, following, told))
                width = following
                skips.append(width)
            self.down.append(stage)
        self.middle = Block(width, width, told)
        for following in reversed(widths):
            stage = nn.ModuleList()
            for _ in range(blocks):
                stage.append(Block(width + skips.pop(), following, told))
                width = following
            self.up.append(stage)
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))
        nn.init.zeros_(self.last[-1].weight)  # type: ignore[arg-type]
        self.register_buffer("waves", torch.exp(torch.linspace(math.log(0.25), math.log(16.0), FREQUENCIES)))
        self.waves: Tensor

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        """Return the estimate of the images without noise, in their own units; not clipped to their range."""
        deviation = torch.as_tensor(sigma, dtype=torch.float32, device=x.device).expand(len(x))
        angles = deviation.log()[:, None] * self.waves
        told = self.listen(torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype))
        s = deviation[:, None, None, None]
        total = s * s + DEVIATION**2
        centred = x - MEAN
        y = self.first((centred / total.sqrt()).to(x.dtype))
        kept = [y]
        for level, stage in enumerate(self.down):
            if level > 0:
                y = functional.avg_pool2d(y, 2)
            for block in stage:  # type: ignore[attr-defined]
                y = block(y, told)
                kept.append(y)
        y = self.middle(y, told)
        for level, stage in enumerate(self.up):
            if level > 0:
                y = functional.interpolate(y, scale_factor=2.0, mode="nearest")
            for block in stage:  # type: ignore[attr-defined]
                y = block(torch.cat([y, kept.pop()], dim=1), told)
        change: Tensor = self.last(y)
        return MEAN + centred * (DEVIATION**2 / total) + change.float() * (s * DEVIATION / total.sqrt())
