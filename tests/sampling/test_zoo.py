"""Networks by name: found where they lie, compared with their cards, never fetched."""

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from buckler.errors import InvalidInput  # noqa: E402
from buckler.files import checksum  # noqa: E402
from buckler.sampling import zoo  # noqa: E402
from buckler.sampling.models import resolve_denoiser, resolve_model  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
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
