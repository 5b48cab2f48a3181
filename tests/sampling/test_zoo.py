"""The networks of models/: found by name, never fetched, and what their cards say."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import buckler
from buckler.errors import ClassifierError, InvalidInput
from buckler.files import checksum
from buckler.runs.certify import certify_evidence
from buckler.runs.store.evidence import open_evidence
from buckler.sampling import zoo
from buckler.sampling.models import resolve_denoiser, resolve_model
from buckler.sampling.weights import load_denoiser, load_network
from buckler.sampling.zoo import ClassifierCard, DenoiserCard, read_card
from buckler.training.recipe import TrainingConfig
from buckler.training.tasks import noisy, noisy_by_splitting

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
NAME = "cifar10-resnet110-sigma0.25"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in MODELS.glob(f"{NAME}.*"):
        shutil.copy(path, tmp_path)
    monkeypatch.setenv(zoo.VARIABLE, str(tmp_path))
    return tmp_path


def test_a_name_is_the_network_of_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(zoo.VARIABLE, raising=False)
    by_name, by_path = resolve_model(f"buckler:{NAME}"), resolve_model(f"resnet110:{MODELS / NAME}.safetensors")
    assert by_name.num_classes == 10
    assert by_name.files == by_path.files == {f"{NAME}.safetensors": checksum(MODELS / f"{NAME}.safetensors")}
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with by_name.session(), by_path.session():
        assert torch.equal(by_name(x), by_path(x))


@pytest.mark.parametrize(("shape", "came"), [((1, 32, 32), "1x32x32"), ((3, 8, 8), "3x8x8"), ((64,), "64")])
def test_images_of_another_shape_than_the_networks_are_refused(shape: tuple[int, ...], came: str) -> None:
    name = "buckler:cifar10-resnet110-sigma0.25"
    with pytest.raises(ClassifierError, match=f"network's shape, 3x32x32 .*; got {came}$"):
        buckler.Smoothed(name, sigma=0.25).certify(np.zeros((1, *shape), dtype=np.float32), n=100)
    if len(shape) == 3 and shape[0] == 1:
        weights = f"resnet110:{MODELS / f'{NAME}.safetensors'}"
        with pytest.raises(ClassifierError, match="3xanyxany"):
            buckler.Smoothed(weights, sigma=0.25).certify(np.zeros((1, *shape), dtype=np.float32), n=100)


def test_the_variable_and_a_path_name_other_folders(folder: Path) -> None:
    assert zoo.models_folder() == folder
    assert list(zoo.cards_in(folder)) == [NAME]
    assert resolve_model(f"buckler:{NAME}").num_classes == 10
    with pytest.raises(InvalidInput, match=f"got 'cifar10-denoiser', and there are {NAME}"):
        resolve_denoiser("buckler:cifar10-denoiser")
    denoiser, files = resolve_denoiser(f"buckler:{MODELS / 'cifar10-denoiser'}")
    assert denoiser.sigmas == (0.1, 1.0)
    assert list(files) == ["cifar10-denoiser.safetensors"]


def test_weights_that_are_not_those_of_the_card_are_refused(folder: Path) -> None:
    path = folder / f"{NAME}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="checksum differs"):
        resolve_model(f"buckler:{NAME}")
    path.unlink()
    with pytest.raises(InvalidInput, match="must lie beside it"):
        resolve_model(f"buckler:{NAME}")
    card = folder / f"{NAME}.json"
    card.write_text(card.read_text().replace(f'"{NAME}.safetensors"', f'"../{folder.name}/{NAME}.safetensors"'))
    shutil.copy(MODELS / f"{NAME}.safetensors", folder)
    with pytest.raises(InvalidInput, match="must lie beside it"):
        resolve_model(f"buckler:{NAME}")


def test_a_name_is_of_the_kind_that_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match="must be a classifier here; it is a denoiser"):
        resolve_model(f"buckler:{MODELS / 'cifar10-denoiser'}")
    with pytest.raises(InvalidInput, match="must be a denoiser here; it is a classifier"):
        resolve_denoiser(f"buckler:{MODELS / NAME}")


def test_without_a_folder_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(zoo.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput, match=r"BUCKLER_MODELS must name a folder.*nowhere"):
        resolve_model(f"buckler:{NAME}")
    monkeypatch.delenv(zoo.VARIABLE)
    monkeypatch.setattr(zoo, "__file__", str(tmp_path / "a" / "b" / "c" / "zoo.py"))
    with pytest.raises(InvalidInput, match="clone of the repository: set BUCKLER_MODELS"):
        resolve_model(f"buckler:{NAME}")


CARDS = sorted(MODELS.glob("*.json"))
REQUIRED = {0.12: 0.85, 0.25: 0.76, 0.5: 0.65, 1.0: 0.42}
IMAGES = os.environ.get("BUCKLER_CIFAR10_TEST")


def test_there_is_one_for_every_sigma() -> None:
    cards = [card for card in map(read_card, CARDS) if isinstance(card, ClassifierCard) and card.sigma > 0.0]
    cards = [card for card in cards if "consistency" not in card.recipe]
    assert {card.sigma: card.accuracy >= REQUIRED[card.sigma] for card in cards} == dict.fromkeys(REQUIRED, True)


def test_there_are_nine_and_no_weights_without_a_card() -> None:
    assert len(CARDS) == 9
    assert sorted(read_card(path).weights for path in CARDS) == sorted(p.name for p in MODELS.glob("*.safetensors"))


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_command_and_name_are_those_of_the_recipe(path: Path) -> None:
    card = read_card(path)
    behind = card.classifier if isinstance(card, DenoiserCard) else None
    config = TrainingConfig(**card.recipe)
    assert card.command == config.command(card.data, card.data_source, behind)
    assert path.stem == config.stem(card.data)


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_weights_match_their_card(path: Path) -> None:
    card = read_card(path)
    assert checksum(MODELS / card.weights) == card.sha256
    torch.set_num_threads(1)
    grey = torch.full((1, 3, card.height, card.width), 0.5)
    network: Any
    told: tuple[float, ...]
    shape: tuple[int, ...]
    if isinstance(card, DenoiserCard):
        assert checksum(MODELS / card.classifier) == card.classifier_sha256
        network, told, shape = load_denoiser(MODELS / card.weights), (card.sigma,), grey.shape
    else:
        network, told, shape = load_network(MODELS / card.weights), (), (1, card.num_classes)
    assert sum(p.numel() for p in network.parameters()) == card.parameters
    with torch.no_grad():
        answer = network(grey, *told)
    assert answer.shape == shape
    assert torch.isfinite(answer).all()


@pytest.mark.slow
def test_certified_tables_are_those_of_the_recorded_evidence() -> None:
    """Each table that names a folder of evidence comes out of it again; the command is one that there is."""
    compared = 0
    for card in map(read_card, CARDS):
        for table in card.certified:
            size = "sigma" if getattr(card, "lam", None) is None else "lam"
            assert set(table) == {size, "alpha", "inputs", "draws", "accuracy", "command"}
            program, action, folder, *options = shlex.split(table["command"])
            if (program, action) != ("buckler", "sweep"):
                continue
            assert options == ["--n", "10000", "--radii", ",".join(table["accuracy"])]
            evidence = open_evidence(ROOT / folder)
            assert evidence.spec.model.endswith(f"/{card.weights}")
            certificates = certify_evidence(evidence, alpha=table["alpha"], n=10_000)
            assert len(certificates) == table["inputs"]
            for radius, share in table["accuracy"].items():
                assert share == certificates.accuracy(radii=float(radius))[0]
            compared += 1
    assert compared == 5


@pytest.mark.skipif(IMAGES is None, reason="needs BUCKLER_CIFAR10_TEST, an .npz of CIFAR-10 test images (x, y)")
@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_accuracy_is_near_the_card(path: Path) -> None:
    """On 100 real images, one draw each under the card's noise: within five standard errors of what it says."""
    card = read_card(path)
    data = np.load(str(IMAGES), allow_pickle=False)
    images, generator = torch.from_numpy(data["x"][:100]), torch.Generator().manual_seed(0)
    with torch.no_grad():
        if isinstance(card, DenoiserCard):
            told = card.accuracy["0.5"]
            x = load_denoiser(MODELS / card.weights)(noisy(images, 0.5, generator), 0.5)
            logits = load_network(MODELS / card.classifier)(x)
        else:
            told, lam = card.accuracy, card.lam
            x = noisy(images, card.sigma, generator) if lam is None else noisy_by_splitting(images, lam, generator)
            logits = load_network(MODELS / card.weights)(x)
    right = logits.argmax(1).numpy() == data["y"][:100]
    assert abs(float(right.mean()) - told) < 5.0 * float(np.sqrt(told * (1 - told) / 100))
