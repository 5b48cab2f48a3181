"""The reference networks: ResNet-110 for 32x32 images and ResNet-50 for 224x224, two shallow ones, and a denoiser.

Every classifier takes colour images in [0, 1] of shape ``[batch, 3, height, width]`` and standardises them itself, as
its first layer: the noise of randomized smoothing is added to the image, before standardisation, so that sigma and the
certified radius are in the units of the image.

The 32x32 form is section 4.2 of He, Zhang, Ren and Sun, *Deep residual learning for image recognition* (CVPR 2016):
three stages of basic blocks of widths 16, 32 and 64, shortcuts without parameters (their option A). The 224x224 form
is their section 4.1 with bottleneck blocks, the stride in the 3x3 convolution. Blocks start as the identity (the last
scale of each is zero at the beginning), which makes 110 layers trainable without a special warm-up.

The denoiser is a small U-Net that takes Gaussian noise of a known deviation out of 32x32 colour images. It has three
resolutions with residual blocks, skip connections across, and the deviation as a scale and shift of every block. What
it returns is ``c_skip x + c_out F(c_in x, ln sigma)``, with the factors of Karras, Aittala, Aila and Laine,
*Elucidating the design space of diffusion-based generative models* (NeurIPS 2022, table 1), for images of mean 1/2 and
deviation 1/4: with F = 0 it is the best linear estimate, so the network learns only what that misses.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from buckler.errors import InvalidInput, check_choice, check_whole


class Standardise(nn.Module):
    """``(x - mean) / std`` for each colour; both are buffers, so they are saved with the weights."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        """Start with mean 1/2 and deviation 1/4; training sets the values of its own data."""
        super().__init__()
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.5))
        self.register_buffer("std", torch.full((1, 3, 1, 1), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        """Return the standardised images, of the shape of ``x``."""
        return (x - self.mean) / self.std


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut that skips pixels and pads channels with zeros (option A)."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        """Build a block from ``width_in`` to ``width`` channels; its first convolution and shortcut have ``stride``."""
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        nn.init.zeros_(self.norm2.weight)
        self.stride, self.padding = stride, width - width_in

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, ``[batch, channels, height, width]``."""
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.padding:
            x = functional.pad(x, (0, 0, 0, 0, self.padding // 2, self.padding - self.padding // 2))
        return functional.relu(x + y)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, projected where the shape changes (option B)."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        """Build a block of ``width_in`` channels, ``width`` inside of it, and ``4 * width`` in its output.

        ``stride`` is that of the 3x3 convolution and of the shortcut.
        """
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        nn.init.zeros_(self.norm3.weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or width_in != 4 * width:
            projection = nn.Conv2d(width_in, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, ``[batch, channels, height, width]``."""
        y = functional.relu(self.norm1(self.conv1(x)))
        y = functional.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return functional.relu(self.shortcut(x) + y)


class Network(nn.Module):
    """Standardise, extract features, average over the image, and one linear layer: images -> logits.

    ``buckler_image_shape`` are the channels, height and width of its images, None where they are not known.
    """

    buckler_image_shape: tuple[int, int | None, int | None] = (3, None, None)

    def __init__(self, features: nn.Sequential, width: int, num_classes: int) -> None:
        """Join ``features``, with ``width`` channels at the end, and the other parts; initialise convolutions as He."""
        super().__init__()
        self.standardise = Standardise()
        self.features = features
        self.classify = nn.Linear(width, check_whole("num_classes", num_classes, 2))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[batch, num_classes]`` of images ``[batch, 3, height, width]`` in [0, 1]."""
        logits: Tensor = self.classify(self.features(self.standardise(x)).mean(dim=(2, 3)))
        return logits


def resnet_cifar(depth: int, num_classes: int, widen: int = 1) -> Network:
    """Return a fresh residual network for 32x32 images with ``depth`` layers, 6k + 2 for a whole k.

    At depth 110 it has 1.73 million parameters; ``widen`` multiplies the numbers of channels.
    """
    depth = check_whole("depth", depth, 8)
    if depth % 6 != 2:
        raise InvalidInput(f"depth must be 6k + 2, such as 20, 56 or 110; got {depth}")
    width_in = 16 * widen
    layers: list[nn.Module] = [nn.Conv2d(3, width_in, 3, padding=1, bias=False), nn.BatchNorm2d(width_in), nn.ReLU()]
    for width in (16 * widen, 32 * widen, 64 * widen):
        for block in range(depth // 6):
            layers.append(BasicBlock(width_in, width, stride=2 if block == 0 and width > 16 * widen else 1))
            width_in = width
    return Network(nn.Sequential(*layers), width_in, num_classes)


def resnet50(num_classes: int) -> Network:
    """Return a fresh residual network for 224x224 images with 50 layers; 25.6 million parameters at 1000 classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    width_in = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(width_in, width, stride=2 if block == 0 and width > 64 else 1))
            width_in = 4 * width
    return Network(nn.Sequential(*layers), width_in, num_classes)


def small_conv(num_classes: int) -> Network:
    """Return a fresh network of three strided convolutions, 24 thousand parameters: for tests, or a try on a laptop."""
    layers: list[nn.Module] = []
    for width_in, width in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(width_in, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return Network(nn.Sequential(*layers), 64, num_classes)


ARCHITECTURES: Mapping[str, Callable[[int], Network]] = MappingProxyType(
    {
        "small_conv": small_conv,
        "resnet20": partial(resnet_cifar, 20),
        "resnet20x3": partial(resnet_cifar, 20, widen=3),
        "resnet110": partial(resnet_cifar, 110),
        "resnet50": resnet50,
    }
)
"""Name of an architecture -> function from a number of classes to a network with random weights."""


def build(architecture: str, num_classes: int) -> Network:
    """Return a network with random weights of one of the ``ARCHITECTURES``."""
    return ARCHITECTURES[check_choice("architecture", architecture, tuple(ARCHITECTURES))](num_classes)


MEAN, DEVIATION = 0.5, 0.25
"""Mean and standard deviation of images in [0, 1], roughly; only the start of the training depends on them."""

FREQUENCIES = 16
"""How many frequencies the cosines and sines have that tell the denoiser the logarithm of the deviation."""


class UNetBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; the noise's deviation, embedded, scales and shifts what lies between."""

    def __init__(self, width_in: int, width: int, embedding: int) -> None:
        """Build a block from ``width_in`` to ``width`` channels, told the deviation as ``embedding`` numbers.

        Its last convolution starts at zero, so that untrained it returns its shortcut.
        """
        super().__init__()
        self.norm1 = nn.GroupNorm(8, width_in)
        self.conv1 = nn.Conv2d(width_in, width, 3, padding=1)
        self.told = nn.Linear(embedding, 2 * width)
        self.norm2 = nn.GroupNorm(8, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]
        self.shortcut = nn.Conv2d(width_in, width, 1) if width_in != width else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Return the block's output, ``[batch, channels, height, width]``."""
        scale, shift = self.told(embedding)[:, :, None, None].chunk(2, dim=1)
        y = self.conv1(functional.silu(self.norm1(x)))
        y = self.conv2(functional.silu(self.norm2(y) * (1.0 + scale) + shift))
        return y + self.shortcut(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """The denoiser: ``unet(x, sigma)`` is an estimate of the clean images, from noisy images ``x``.

    ``sigma`` is the noise's standard deviation: one number, or one for each image. ``sigmas`` are the smallest and the
    largest that the network was trained for, and ``classifiers`` the checksums of the classifiers that it was trained
    through, where that is known.
    """

    sigmas: tuple[float, float] = (0.0, math.inf)
    classifiers: frozenset[str] = frozenset()

    def __init__(self, widths: tuple[int, int, int] = (64, 112, 112), blocks: int = 2) -> None:
        """Build the network: ``widths`` channels at its three resolutions, and ``blocks`` blocks each, down and up."""
        super().__init__()
        embedding = 4 * FREQUENCIES
        self.listen = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, embedding), nn.SiLU(), nn.Linear(embedding, embedding), nn.SiLU()
        )
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, width = [widths[0]], widths[0]
        for following in widths:
            stage = nn.ModuleList()
            for _ in range(blocks):
                stage.append(UNetBlock(width, following, embedding))
                width = following
                skips.append(width)
            self.down.append(stage)
        self.middle = UNetBlock(width, width, embedding)
        for following in reversed(widths):
            stage = nn.ModuleList()
            for _ in range(blocks):
                stage.append(UNetBlock(width + skips.pop(), following, embedding))
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
        embedding = self.listen(torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype))
        s = deviation[:, None, None, None]
        total = s * s + DEVIATION**2
        centred = x - MEAN
        y = self.first((centred / total.sqrt()).to(x.dtype))
        kept = [y]
        for level, stage in enumerate(self.down):
            if level > 0:
                y = functional.avg_pool2d(y, 2)
            for block in stage:  # type: ignore[attr-defined]
                y = block(y, embedding)
                kept.append(y)
        y = self.middle(y, embedding)
        for level, stage in enumerate(self.up):
            if level > 0:
                y = functional.interpolate(y, scale_factor=2.0, mode="nearest")
            for block in stage:  # type: ignore[attr-defined]
                y = block(torch.cat([y, kept.pop()], dim=1), embedding)
        change: Tensor = self.last(y)
        return MEAN + centred * (DEVIATION**2 / total) + change.float() * (s * DEVIATION / total.sqrt())
