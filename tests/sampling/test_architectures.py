"""The reference networks: their sizes, their shapes, and that standardisation is inside."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from buckler.errors import InvalidInput  # noqa: E402
from buckler.sampling.architectures import ARCHITECTURES, build, resnet_cifar  # noqa: E402
from buckler.sampling.models import ARCHITECTURE_NAMES as MODEL_NAMES  # noqa: E402

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
