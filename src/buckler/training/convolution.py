"""3x3 convolutions of 16 channels in training on a GPU, by kernels of our own.

The usual kernels are made for many channels and throw away most of each product of 16 by 16. ``fusion`` has the same
kernel for networks in eval mode; here it has gradients. Only rounding differs from torch's convolution.
"""

from typing import Any

import torch
from torch import Tensor, nn

from buckler.sampling import fusion

CHANNELS = 16

PIXELS = 1024
"""Pixels over which one program of the kernel adds up the gradient of the weights."""


def _convolve(x: Tensor, taps: Tensor) -> Tensor:
    """Return the convolution of ``x`` with weights ``[9, in, out]``, zeros around the image."""
    return fusion.launch(x, taps.contiguous(), torch.zeros(taps.shape[2], device=x.device), None, 1, False)


def _weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the weights ``[9, in, out]`` in float32, given that of the convolution's result."""
    from buckler.sampling.kernels import convolution_weight_gradient

    x, gradient = (part.contiguous(memory_format=torch.channels_last) for part in (x, gradient))
    batch, inputs, height, width = x.shape
    programs = -(-batch * height * width // PIXELS)
    parts = torch.empty((programs, 9, inputs, gradient.shape[1]), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(convolution_weight_gradient)[(programs,)](
        x, gradient, parts, batch * height * width, height, width, inputs, gradient.shape[1], PIXELS, 32, num_warps=1
    )
    return parts.sum(dim=0)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, taps = ctx.saved_tensors
    of_input, of_taps = ctx.needs_input_grad
    return (
        narrow_convolution(gradient, taps.flip(0).transpose(1, 2)) if of_input else None,
        narrow_weight_gradient(x, gradient).to(taps.dtype) if of_taps else None,
    )


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001  (torch gives three)
    ctx.save_for_backward(*inputs)


narrow_convolution: Any = None
narrow_weight_gradient: Any = None

if fusion.AVAILABLE:
    # torch keeps compiled graphs by the names of operations: after a change here, remove its cache of graphs.
    narrow_convolution = torch.library.triton_op("buckler::narrow_convolution", _convolve, mutates_args={})
    narrow_weight_gradient = torch.library.triton_op(
        "buckler::narrow_weight_gradient", _weight_gradient, mutates_args={}
    )
    narrow_convolution.register_autograd(_backward, setup_context=_keep)


class NarrowConvolution(nn.Conv2d):
    """A 3x3 convolution of 16 channels: by our kernels, in bfloat16, on CUDA under autocast; by torch elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of ``x[batch, 16, height, width]``."""
        if not (x.is_cuda and torch.is_autocast_enabled() and x.numel() < 2**31):  # the kernels count in 32 bits
            return super().forward(x)
        taps = self.weight.permute(2, 3, 1, 0).reshape(9, CHANNELS, CHANNELS)
        y: Tensor = narrow_convolution(x.to(torch.bfloat16), taps.to(torch.bfloat16))
        return y


def use_kernels(network: nn.Module) -> None:
    """Turn each convolution of the network that our kernels can do into a ``NarrowConvolution``, in place."""
    wanted = (CHANNELS, CHANNELS, (1, 1), None)
    for part in network.modules():
        if fusion.fits(part) and (part.in_channels, part.out_channels, part.stride, part.bias) == wanted:
            part.__class__ = NarrowConvolution
