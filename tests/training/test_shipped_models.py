"""The networks in models/: what lies there is what its card says."""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from buckler.files import checksum  # noqa: E402
from buckler.training.cards import read_card  # noqa: E402
from buckler.training.weights import load_network  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
CARDS = sorted(MODELS.glob("*.json"))
REQUIRED = {0.12: 0.85, 0.25: 0.76, 0.5: 0.65, 1.0: 0.42}
IMAGES = os.environ.get("BUCKLER_CIFAR10_TEST")


def test_there_is_one_for_every_sigma() -> None:
    cards = [read_card(path) for path in CARDS]
    assert {card.sigma: card.accuracy >= REQUIRED[card.sigma] for card in cards} == dict.fromkeys(REQUIRED, True)


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_weights_match_their_card(path: Path) -> None:
    card = read_card(path)
    assert checksum(MODELS / card.weights) == card.sha256
    assert card.sha256 in path.with_suffix(".md").read_text(encoding="utf-8")
    torch.set_num_threads(1)
    network = load_network(MODELS / card.weights)
    assert sum(p.numel() for p in network.parameters()) == card.parameters
    with torch.no_grad():
        logits = network(torch.full((1, 3, card.height, card.width), 0.5))
    assert logits.shape == (1, card.num_classes)
    assert torch.isfinite(logits).all()


@pytest.mark.skipif(IMAGES is None, reason="needs BUCKLER_CIFAR10_TEST, an .npz of CIFAR-10 test images (x, y)")
@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_accuracy_is_near_the_card(path: Path) -> None:
    """On 100 real images, one draw each: within five standard errors of what the card says."""
    card = read_card(path)
    data = np.load(str(IMAGES), allow_pickle=False)
    x = torch.from_numpy(data["x"][:100]).permute(0, 3, 1, 2).float() / 255.0
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        noisy = x + card.sigma * torch.randn(x.shape, generator=generator)
        right = load_network(MODELS / card.weights)(noisy).argmax(1).numpy() == data["y"][:100]
    assert abs(float(right.mean()) - card.accuracy) < 5.0 * float(np.sqrt(card.accuracy * (1 - card.accuracy) / 100))
