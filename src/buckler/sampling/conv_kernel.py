"""3x3 convolutions of few channels in one kernel, with bias, shortcut and ReLU. Loads torch.

Networks for small images have 16 or 32 channels, too few for the tiles of the usual convolution kernels: most of each
product is thrown away, and a second pass for bias, shortcut and ReLU costs as much memory traffic as the first. Here a
program takes a run of output pixels with all their channels, adds nine products of ``pixels x channels`` by
``channels x channels`` in float32, finishes the layer in registers and writes it once (``kernels``).

Nothing is tuned by timing and no sum depends on the order in which programs run: the same bytes every time.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

CHANNELS = (16, 32)
"""Widths, in and out, that the usual kernels serve badly; wider layers are left to them."""

TILES = {16: (128, 2), 32: (128, 4)}
"""Output channels -> pixels of a program, and its warps."""


def _launch(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, relu: bool) -> Tensor:
    from buckler.sampling.kernels import convolve

    x = x.contiguous(memory_format=torch.channels_last)
    batch, inputs, height, width = x.shape
    outputs, rows, columns = weight.shape[2], (height - 1) // stride + 1, (width - 1) // stride + 1
    shape = (batch, outputs, rows, columns)
    y = torch.empty(shape, dtype=weight.dtype, device=x.device, memory_format=torch.channels_last)
    other = x if shortcut is None else shortcut.expand(shape).contiguous(memory_format=torch.channels_last)
    tile, warps = TILES[outputs]
    pixels = batch * rows * columns
    torch.library.wrap_triton(convolve)[(-(-pixels // tile),)](
        x, weight, bias, other, y, pixels, height, width, rows, columns, inputs, outputs, stride,
        shortcut is not None, relu, tile, num_warps=warps,
    )  # fmt: skip
    return y


AVAILABLE = find_spec("triton") is not None
narrow_convolution: Any = None
"""The kernel as an operation of torch, so that a compiled program can hold it; None without Triton."""

if AVAILABLE:
    narrow_convolution = torch.library.triton_op("buckler::narrow_convolution", _launch, mutates_args={})


class NarrowConvolution(nn.Module):
    """``relu(convolution(x) + bias + shortcut)``, where ReLU and shortcut are optional.

    By torch in float32 at first; on a CUDA device, once it is lowered to another dtype, by the kernel in that one.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, *, relu: bool) -> None:
        """Take the weights of a convolution that ``fits``."""
        super().__init__()
        self.stride, self.relu = convolution.stride[0], relu
        outputs, inputs = convolution.weight.shape[:2]
        taps = convolution.weight.detach().permute(2, 3, 1, 0).reshape(9, inputs, outputs)
        self.register_buffer("weight", taps.float().contiguous())
        bias = torch.zeros(outputs, device=taps.device) if convolution.bias is None else convolution.bias.detach()
        self.register_buffer("bias", bias.float().contiguous())

    def lower(self, dtype: torch.dtype) -> None:
        """Round the weights to ``dtype``; the bias stays in float32."""
        self.weight = self.weight.to(dtype)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Return the finished layer."""
        inputs, outputs = self.weight.shape[1:]
        # The kernel counts elements in 32 bits.
        low = AVAILABLE and self.weight.dtype is not torch.float32
        if low and x.is_cuda and x.numel() // inputs * max(inputs, outputs) < 2**31:
            y: Tensor = narrow_convolution(x, self.weight, self.bias, shortcut, self.stride, self.relu)
            return y
        weight = self.weight.float().reshape(3, 3, inputs, outputs).permute(3, 2, 0, 1)
        y = functional.conv2d(x.float(), weight, self.bias, self.stride, 1)
        y = y if shortcut is None else y + shortcut
        return functional.relu(y) if self.relu else y


def fits(part: nn.Module) -> bool:
    """Return whether this is a convolution that the kernel can do: 3x3, stride 1 or 2, few channels, no groups."""
    return (
        type(part) is nn.Conv2d
        and part.kernel_size == (3, 3)
        and part.stride in {(1, 1), (2, 2)}
        and part.padding == (1, 1)
        and part.dilation == (1, 1)
        and part.groups == 1
        and part.padding_mode == "zeros"
        and part.in_channels in CHANNELS
        and part.out_channels in CHANNELS
    )
