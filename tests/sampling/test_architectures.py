"""The reference networks: sizes, shapes, standardisation inside; fusing them changes rounding and nothing else."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from buckler.errors import InvalidInput
from buckler.sampling.architectures import ARCHITECTURES, build, resnet_cifar
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.fusion import FusedConvolution, fold, fuse
from buckler.sampling.models import ARCHITECTURE_NAMES as MODEL_NAMES

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "num_classes", "parameters"),
    [
        ("resnet20", 10, 269_722),
        ("resnet20x3", 10, 2_412_730),
        ("resnet110", 10, 1_727_962),
        ("resnet50", 1000, 25_557_032),
    ],
)
def test_number_of_parameters(name: str, num_classes: int, parameters: int) -> None:
    assert sum(p.numel() for p in build(name, num_classes).parameters()) == parameters


def test_every_network_is_a_model_by_name() -> None:
    assert sorted(MODEL_NAMES) == sorted(ARCHITECTURES)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_images_to_logits(name: str) -> None:
    size = 64 if name == "resnet50" else 32
    with torch.no_grad():
        assert build(name, 7).eval()(torch.rand(2, 3, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet110", "resnet50"])
def test_as_many_weighted_layers_as_the_name_says(name: str) -> None:
    network = build(name, 10)
    main = [n for n, m in network.named_modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
    assert len([n for n in main if "shortcut" not in n]) == int(name.removeprefix("resnet"))


def test_standardisation_is_inside_and_saved() -> None:
    network = build("resnet20", 10).eval()
    x = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        before = network(x)
        network.standardise.mean.fill_(0.0)
        network.standardise.std.fill_(1.0)
        after = network((x - 0.5) / 0.25)
    torch.testing.assert_close(before, after)
    assert {"standardise.mean", "standardise.std"} <= network.state_dict().keys()
    assert not any("standardise" in name for name, _ in network.named_parameters())


def test_blocks_start_as_the_identity() -> None:
    features = build("resnet20", 10).features
    x = torch.rand(2, 16, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(features[3](x), x)
        narrow = features[6](x)
    torch.testing.assert_close(narrow[:, 8:24], x[:, :, ::2, ::2])
    assert not narrow[:, :8].any()
    assert not narrow[:, 24:].any()


def test_refuses() -> None:
    with pytest.raises(InvalidInput, match="architecture must be one of 'small_conv'"):
        build("resnet9", 10)
    with pytest.raises(InvalidInput, match="depth must be 6k"):
        resnet_cifar(21, 10)
    with pytest.raises(InvalidInput, match="num_classes must be a whole number of at least 2"):
        build("small_conv", 1)


def test_the_room_and_the_command_load_no_torch() -> None:
    code = "import sys, buckler.training, buckler.training.recipe, buckler.training.data, buckler.sampling.zoo\n"
    code += "import buckler.training.digits; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def shaken(net: nn.Module) -> nn.Module:
    """Give normalisations something to do: statistics and weights that are not the identity."""
    torch.manual_seed(1)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0.0, 0.2)  # type: ignore[union-attr]
            part.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
            part.weight.data.uniform_(0.3, 0.8)
            part.bias.data.normal_(0.0, 0.2)
    return net


def narrow(net: nn.Module) -> int:
    return sum(isinstance(part, FusedConvolution) for part in net.modules())


def same(net: nn.Module, x: Tensor) -> nn.Module:
    """Return the fused network, once it is shown to compute what ``net`` computes in eval mode."""
    fused = fuse(net, torch.float32, x)
    assert fused is not None
    with torch.no_grad():
        expected = net.eval()(x.clone())
        scale = float(expected.abs().max())
        assert float((fused(x.clone()) - expected).abs().max()) < 1e-5 * scale
        assert scale > 0.1
    return fused


def test_a_residual_network_keeps_its_function() -> None:
    net = shaken(build("resnet20", 10))
    fused = same(net, torch.rand(4, 3, 32, 32))
    assert narrow(fused) == 6 + 6  # both stages of few channels; the stage of 64 and its first layer stay as they are
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fused.modules())


def test_the_module_given_stays_as_it_was() -> None:
    net = shaken(build("resnet20", 10)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert fuse(net, torch.bfloat16, torch.empty(1, 3, 32, 32)) is not None
    assert all(part.training for part in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_gradients_are_taken_of_the_module_with_normalisations_folded_where_weights_are_constants() -> None:
    # In float64: in float32 a unit so near to zero that rounding decides its sign would have another gradient.
    net = shaken(build("resnet20", 10)).double().eval()
    folded = fold(net, torch.empty(1, 3, 32, 32, dtype=torch.float64))
    assert folded is not None
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    constant, plain = (as_classifier(net, compile=compiled) for compiled in (True, False))

    def gradient(classifier: Any) -> Tensor:
        torch.manual_seed(0)
        x = torch.rand(4, 3, 32, 32).requires_grad_()
        with classifier.session():
            return torch.autograd.grad(classifier.with_gradients(x)[:, 3].sum(), x)[0]

    before = gradient(constant)
    assert torch.allclose(before, gradient(plain), atol=1e-4 * float(before.abs().max()))
    with torch.no_grad():
        next(part for part in net.modules() if isinstance(part, nn.BatchNorm2d)).weight.mul_(0.5)
    assert torch.allclose(gradient(constant), before)
    assert not torch.allclose(gradient(plain), before, atol=1e-2 * float(before.abs().max()))


def test_where_nothing_can_be_folded_gradients_are_the_modules_own() -> None:
    assert fold(nn.Linear(3, 2), torch.empty(1, 3)) is None
    classifier: Any = as_classifier(nn.Linear(3, 2), compile=True)
    assert torch.equal(classifier.with_gradients(torch.ones(1, 3)), classifier.module(torch.ones(1, 3)))


class Twisted(nn.Module):
    """One layer each of what may and what may not be fused."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.conv = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.way == "shared":
            x = self.norm(self.conv(self.norm(self.conv(x))))
        elif self.way == "read twice":
            y = self.conv(x)
            x = self.norm(y) + y.relu()
        elif self.way == "changes the shortcut":
            kept = x
            x += self.conv(x)
            x = torch.relu(x) + kept
        elif self.way == "in place":
            y = self.norm(self.conv(x))
            y += x
            x = self.act(y)
        elif self.way == "doubled":
            y = self.conv(x)
            x = functional.relu(y + y)
        elif self.way == "constant":
            x = functional.relu(self.conv(x) + 0.5)
        elif self.way == "broadcast":
            x = functional.relu(self.norm(self.conv(x)) + x.mean(dim=(2, 3), keepdim=True))
        elif self.way == "scaled":
            x = functional.relu(torch.add(self.conv(x), x, alpha=2.0))
        elif self.way == "strided":
            x = functional.relu(functional.conv2d(x, self.conv.weight) if self.training else self.conv(x))
        return x.flatten(1)[:, :10]


@pytest.mark.parametrize(
    ("way", "layers"),
    [
        ("shared", 0), ("read twice", 1), ("changes the shortcut", 0), ("in place", 1), ("doubled", 1),
        ("constant", 1), ("broadcast", 1), ("scaled", 1), ("strided", 1),
    ],
)  # fmt: skip
def test_only_what_may_be_fused_is(way: str, layers: int) -> None:
    torch.manual_seed(0)
    net = shaken(Twisted(way))
    if layers == 0:
        assert fuse(net, torch.float32, torch.empty(1, 3, 8, 8)) is None
    else:
        assert narrow(same(net, torch.randn(2, 3, 8, 8))) == layers


def bright(kind: type[Twisted]) -> Twisted:
    """Return a net whose logits are above 0 whatever its weights are: two nets that return 0 would agree by chance."""
    net = kind("in place")
    with torch.no_grad():
        net.get_parameter("first.bias").fill_(5.0)
    return net


def test_what_cannot_be_traced_is_left_alone() -> None:
    class Depends(Twisted):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    class Makes(Twisted):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.randn(3, 8, 8))

    class Alternates(Twisted):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x * (1 + self.calls % 2))

    class ThreeRows(Twisted):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.zeros(3, 10)

    for kind in (Depends, Makes, Alternates, ThreeRows):
        assert fuse(bright(kind), torch.float32, torch.empty(1, 3, 8, 8)) is None
    assert fuse(bright(Twisted), torch.float32, torch.empty(1, 3, 8, 8)) is not None
    assert fuse(nn.Linear(3, 2), torch.float32, torch.empty(1, 3)) is None


INTERPRETED = """
from types import SimpleNamespace
import torch
from torch import nn
torch.set_num_threads(1)
from buckler.sampling import fusion
from buckler.training import convolution
torch.library.wrap_triton = lambda kernel: kernel
torch.manual_seed(0)
for inputs, outputs, stride, side in ((16, 16, 1, 5), (16, 32, 2, 6)):
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1)
    x = torch.randn(2, inputs, side, side)
    for shortcut, relu in ((False, True), (True, True), (False, False)):
        layer = fusion.FusedConvolution(conv, relu=relu)
        rest = torch.randn_like(conv(x)) if shortcut else None
        expected = layer(x, rest)  # on this device by torch
        got = fusion.launch(x, layer.weight, layer.bias, rest, stride, relu)
        assert (got - expected).abs().max() < 1e-4, (inputs, outputs, stride, shortcut, relu)
bad = torch.full((1, 16, 4, 4), float("nan"))
layer = fusion.FusedConvolution(nn.Conv2d(16, 16, 3, 1, 1), relu=True)
assert fusion.launch(bad, layer.weight, layer.bias, None, 1, True).isnan().all()
for batch, side in ((2, 5), (3, 24)):  # fewer and more pixels than one program of the weights' gradient takes
    conv = nn.Conv2d(16, 16, 3, 1, 1, bias=False)
    x = torch.randn(batch, 16, side, side, requires_grad=True)
    y = conv(x)
    slope = torch.randn_like(y)
    of_input, of_weight = torch.autograd.grad(y, (x, conv.weight), slope)
    taps = conv.weight.detach().permute(2, 3, 1, 0).reshape(9, 16, 16)
    assert (convolution._convolve(x.detach(), taps) - y).abs().max() < 1e-4
    convolution.narrow_convolution = convolution._convolve
    convolution.narrow_weight_gradient = convolution._weight_gradient
    context = SimpleNamespace(saved_tensors=(x.detach(), taps), needs_input_grad=(True, True))
    found = convolution._backward(context, slope)
    assert (found[0] - of_input).abs().max() < 1e-4
    assert (found[1].reshape(3, 3, 16, 16).permute(3, 2, 0, 1) - of_weight).abs().max() < 1e-3
print("agrees")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: it comes with torch for CUDA")
def test_the_kernels_interpreted_agree_with_torch() -> None:
    source = Path(__file__).parents[2] / "src"
    environment: dict[str, Any] = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(source)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "agrees", done.stderr[-2000:]
