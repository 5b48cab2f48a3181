"""Module -> the same function in fewer passes over memory: normalisation folded, narrow layers in one kernel each.

Only rounding changes. Batch normalisation in eval mode is an affine map, and becomes part of the convolution before it;
a 3x3 convolution of few channels takes the addition of a shortcut and the ReLU after it into its own kernel
(``narrow``). The module is traced symbolically; one that cannot be traced (its path depends on values) is left alone.
Tracing is blind to some of Python (a tensor changed under two names, a random number drawn on the way), so the result
is used only where it agrees with the module, in float32, on a batch of noise.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from buckler.sampling.conv_kernel import NarrowConvolution, fits

ROWS = 8
"""Rows of noise on which the fused module must agree with the one given."""

AGREEMENT = 1e-3
"""The largest difference between two logits, relative to the largest: float32 through a hundred layers and no more."""

_RELU = frozenset({torch.relu, functional.relu, "relu", "relu_"})
_ADD = frozenset({operator.add, torch.add, "add"})
_ADD_TO_FIRST = frozenset({operator.iadd, "add_"})


def fuse(module: nn.Module, dtype: torch.dtype, batch: torch.Tensor) -> nn.Module | None:
    """Return the module for eval mode with narrow convolutions in ``dtype``, or None where there is nothing to gain.

    ``batch`` tells the shape of an input, and where the module is. Parts that did not change are shared with the module
    given, which itself stays as it was.
    """
    layers: list[NarrowConvolution] = []

    def narrowed(traced: fx.GraphModule) -> bool:
        _fold(traced)
        layers.extend(_replace(traced))
        return bool(layers)

    traced = _rewritten(module, batch, narrowed)
    if traced is not None:
        for layer in layers:
            layer.lower(dtype)
    return traced


def fold(module: nn.Module, batch: torch.Tensor) -> nn.Module | None:
    """Return the module for eval mode with normalisations folded, or None as ``fuse``; it has gradients."""
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
    # Written so that a NaN is a disagreement.
    if not (found - expected).abs().max() <= AGREEMENT * expected.abs().max():
        return None
    return traced


_EVALUATED: dict[int, tuple[nn.Module, bool, int]] = {}
"""Parts in eval mode now, by identity, each with its own mode and how many need it so; one module may serve threads."""

_MODES = Lock()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every part of the module in eval mode, and give each back its own mode when nobody needs it so any more."""
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


def _replace(traced: fx.GraphModule) -> list[NarrowConvolution]:
    """Put the kernel in place of each narrow convolution and of what it can take with it; return them."""
    found = []
    for node in _called_once(traced):
        part = traced.get_submodule(str(node.target))
        if not isinstance(part, nn.Conv2d) or not fits(part):
            continue
        taken, shortcut = _finish(traced, node)
        layer = NarrowConvolution(part, relu=len(taken) > 1)
        name = f"{str(node.target).replace('.', '_')}_narrow"
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
