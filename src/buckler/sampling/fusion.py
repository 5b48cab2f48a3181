"""Module -> the same function in fewer passes over memory: normalisation folded, small layers in one kernel each.

Only rounding changes. Batch normalisation in eval mode is an affine map, and becomes part of the convolution before it;
a 3x3 convolution of few channels takes the addition of a shortcut and the ReLU after it into its own kernel
(``FusedConvolution``). The module is traced symbolically; one that cannot be traced (its path depends on values) is
left alone. Tracing is blind to some of Python (a tensor changed under two names, a random number drawn on the way), so
the result is used only where it agrees with the module, in float32, on a batch of noise.

Networks for small images have 16 or 32 channels, too few for the tiles of the usual convolution kernels: most of each
product is thrown away, and a second pass for bias, shortcut and ReLU costs as much memory traffic as the first. Here a
program takes a run of output pixels with all their channels, adds nine products of ``pixels x channels`` by
``channels x channels`` in float32, finishes the layer in registers and writes it once (``kernels``). Nothing is tuned
by timing and no sum depends on the order in which programs run: the same bytes every time.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

FUSED_WIDTHS = (16, 32)
"""Numbers of channels, in and out, for which the usual kernels are slow; wider layers are left to them."""

TILES = {16: (128, 2), 32: (128, 4)}
"""Output channels -> pixels that one program of the kernel makes, and its warps."""


def launch(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, relu: bool) -> Tensor:
    """Return ``relu(convolution(x, weight) + bias + shortcut)``, computed by the Triton kernel on a CUDA device.

    ``x`` is ``[batch, in, height, width]`` and ``weight``, of a 3x3 convolution, ``[9, in, out]``; without a
    ``shortcut`` or ``relu`` that part is left out.
    """
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
fused_convolution: Any = None
"""The kernel as an operation of torch, so that a compiled program can hold it; None without Triton."""

if AVAILABLE:
    fused_convolution = torch.library.triton_op("buckler::fused_convolution", launch, mutates_args={})


class FusedConvolution(nn.Module):
    """A layer that returns ``relu(convolution(x) + bias + shortcut)``, where ReLU and shortcut are optional.

    At first torch computes it, in float32. After ``lower(dtype)`` the Triton kernel does, in that dtype, on a CUDA
    device.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, *, relu: bool) -> None:
        """Take the weights of a convolution for which ``fits`` is True."""
        super().__init__()
        self.stride, self.relu = convolution.stride[0], relu
        outputs, inputs = convolution.weight.shape[:2]
        taps = convolution.weight.detach().permute(2, 3, 1, 0).reshape(9, inputs, outputs)
        self.register_buffer("weight", taps.float().contiguous())
        bias = torch.zeros(outputs, device=taps.device) if convolution.bias is None else convolution.bias.detach()
        self.register_buffer("bias", bias.float().contiguous())

    def lower(self, dtype: torch.dtype) -> None:
        """Round the weights to ``dtype``, in place; the bias stays in float32."""
        self.weight = self.weight.to(dtype)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Return the layer's output for ``x[batch, channels, height, width]`` and the ``shortcut`` to add, if any."""
        inputs, outputs = self.weight.shape[1:]
        # The kernel counts elements in 32 bits.
        low = AVAILABLE and self.weight.dtype is not torch.float32
        if low and x.is_cuda and x.numel() // inputs * max(inputs, outputs) < 2**31:
            y: Tensor = fused_convolution(x, self.weight, self.bias, shortcut, self.stride, self.relu)
            return y
        weight = self.weight.float().reshape(3, 3, inputs, outputs).permute(3, 2, 0, 1)
        y = functional.conv2d(x.float(), weight, self.bias, self.stride, 1)
        y = y if shortcut is None else y + shortcut
        return functional.relu(y) if self.relu else y


def fits(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Return whether ``part`` is a convolution that the kernel can do: 3x3, stride 1 or 2, few channels, no groups."""
    return (
        type(part) is nn.Conv2d
        and part.kernel_size == (3, 3)
        and part.stride in {(1, 1), (2, 2)}
        and part.padding == (1, 1)
        and part.dilation == (1, 1)
        and part.groups == 1
        and part.padding_mode == "zeros"
        and part.in_channels in FUSED_WIDTHS
        and part.out_channels in FUSED_WIDTHS
    )


ROWS = 8
"""Rows of random numbers on which a rewritten module must agree with the one it was made from."""

AGREEMENT = 1e-3
"""Largest difference of logits that counts as agreement, relative to the largest: rounding in a hundred layers."""

_RELU = frozenset({torch.relu, functional.relu, "relu", "relu_"})
_ADD = frozenset({operator.add, torch.add, "add"})
_ADD_TO_FIRST = frozenset({operator.iadd, "add_"})


def fuse(module: nn.Module, dtype: torch.dtype, batch: torch.Tensor) -> nn.Module | None:
    """Return a copy of the module whose convolutions of few channels run in our kernel, in ``dtype``; for eval mode.

    None if it has no such convolution, if torch cannot trace it, or if the copy's outputs differ on random inputs.
    ``batch`` shows the shape ``[rows, ...]``, type and device of inputs. The module given stays as it was; unchanged
    parts are shared with it.
    """
    layers: list[FusedConvolution] = []

    def replaced(traced: fx.GraphModule) -> bool:
        _fold(traced)
        layers.extend(_replace(traced))
        return bool(layers)

    traced = _rewritten(module, batch, replaced)
    if traced is not None:
        for layer in layers:
            layer.lower(dtype)
    return traced


def fold(module: nn.Module, batch: torch.Tensor) -> nn.Module | None:
    """Return a copy of the module, for eval mode, whose convolutions take up the batch normalisations after them.

    Gradients can pass through it. None, and what ``batch`` is for, are as in ``fuse``.
    """
    return _rewritten(module, batch, _fold)


def _rewritten(
    module: nn.Module, batch: torch.Tensor, change: Callable[[fx.GraphModule], bool]
) -> fx.GraphModule | None:
    """Return the module as changed, or None where nothing was, or where it does not agree with the one given."""
    with evaluating(module), torch.no_grad():
        try:
            traced = fx.symbolic_trace(module)
        except Exception:  # whatever a foreign forward raises when it is given symbols
            return None
        if not change(traced):
            return None
        traced.graph.lint()
        traced.recompile()
        traced.delete_all_unused_submodules()
        noise = torch.rand((ROWS, *batch.shape[1:]), generator=torch.Generator().manual_seed(0)).to(batch)
        try:
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                expected, found = module(noise.clone()), traced(noise.clone())
        except Exception:  # the module's own fault will show when it is run as it is
            return None
    if not isinstance(expected, torch.Tensor) or expected.shape != found.shape:
        return None
    # Written so that a comparison with NaN counts as disagreement.
    if not (found - expected).abs().max() <= AGREEMENT * expected.abs().max():
        return None
    return traced


_EVALUATED: dict[int, tuple[nn.Module, bool, int]] = {}
"""Parts of modules that ``evaluating`` holds in eval mode now, by identity: part, its own mode, and how many callers
need it so. Several threads may use one module."""

_MODES = Lock()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every part of the module in eval mode; at the end of the last context that holds it, restore its own mode."""
    parts = list(module.modules())
    with _MODES:
        for part in parts:
            _, mode, users = _EVALUATED.get(id(part), (part, part.training, 0))
            _EVALUATED[id(part)] = part, mode, users + 1
        module.eval()
    try:
        yield
    finally:
        with _MODES:
            for part in parts:
                _, mode, users = _EVALUATED.pop(id(part))
                if users > 1:
                    _EVALUATED[id(part)] = part, mode, users - 1
                else:
                    part.training = mode


def _fold(traced: fx.GraphModule) -> bool:
    """Fold each normalisation into the convolution whose only reader it is; return whether there was one."""
    calls, folded = _called_once(traced), False
    for node in calls:
        norm, before = traced.get_submodule(str(node.target)), node.args[0]
        if type(norm) is not nn.BatchNorm2d or norm.running_var is None or not isinstance(before, fx.Node):
            continue
        if before in calls and _only_reader(before) is node:
            convolution = traced.get_submodule(str(before.target))
            if type(convolution) is nn.Conv2d:
                traced.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, norm))
                node.replace_all_uses_with(before)
                traced.graph.erase_node(node)
                folded = True
    return folded


def _replace(traced: fx.GraphModule) -> list[FusedConvolution]:
    """Put the kernel in place of each convolution of few channels and of what it can take with it; return them."""
    found = []
    for node in _called_once(traced):
        part = traced.get_submodule(str(node.target))
        if not isinstance(part, nn.Conv2d) or not fits(part):
            continue
        taken, shortcut = _finish(traced, node)
        layer = FusedConvolution(part, relu=len(taken) > 1)
        name = f"{str(node.target).replace('.', '_')}_fused"
        traced.add_submodule(name, layer)
        # Before the addition if there is one, where the shortcut is known, and else where the convolution was.
        with traced.graph.inserting_before(node if shortcut is None else taken[1]):
            fused = traced.graph.call_module(name, (node.args[0],) if shortcut is None else (node.args[0], shortcut))
        taken[-1].replace_all_uses_with(fused)
        for old in reversed(taken):
            traced.graph.erase_node(old)
        found.append(layer)
    return found


def _finish(traced: fx.GraphModule, node: fx.Node) -> tuple[list[fx.Node], fx.Node | None]:
    """Return the nodes that one kernel can do, from this convolution to a ReLU if possible, and the shortcut added."""
    reader = _only_reader(node)
    if reader is not None and _is_relu(traced, reader):
        return [node, reader], None
    if reader is None or reader.kwargs or len(reader.args) != 2:
        return [node], None
    first, second = reader.args
    other = second if first is node else first
    # An addition in place changes its first operand, which others may read unless it is the convolution's own result.
    adds = _is(reader, _ADD) or (_is(reader, _ADD_TO_FIRST) and first is node)
    after = _only_reader(reader)
    if adds and isinstance(other, fx.Node) and other is not node and after is not None and _is_relu(traced, after):
        return [node, reader, after], other
    return [node], None


def _called_once(traced: fx.GraphModule) -> list[fx.Node]:
    """Return the calls of submodules that are called nowhere else: only these may be changed."""
    calls = [node for node in traced.graph.nodes if node.op == "call_module" and node.args]
    times = Counter(node.target for node in calls)
    return [node for node in calls if times[node.target] == 1]


def _only_reader(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is(node: fx.Node, targets: frozenset[object]) -> bool:
    return node.op in {"call_function", "call_method"} and node.target in targets


def _is_relu(traced: fx.GraphModule, node: fx.Node) -> bool:
    return _is(node, _RELU) or (node.op == "call_module" and type(traced.get_submodule(str(node.target))) is nn.ReLU)
