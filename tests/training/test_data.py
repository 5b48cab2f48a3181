"""Images for training: three sources give the same arrays; crops, mirrors and noise made on the device."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from buckler.errors import InvalidInput
from buckler.training.data import ARRAY_NAMES, digest, read_images
from buckler.training.descent import WeightAverage, recompute_statistics
from buckler.training.tasks import crop_and_flip, noisy, noisy_by_splitting

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    digits = read_images("digits")
    return {part: getattr(digits, part)[:40] for part in ARRAY_NAMES}


def test_digits_are_colour_images_of_32_pixels() -> None:
    digits = read_images("digits")
    assert digits.x_train.shape == (1438, 32, 32, 3)
    assert digits.x_test.shape == (359, 32, 32, 3)
    assert digits.num_classes == 10
    assert digits.x_train.max() == 255


def test_file_and_folder_give_the_same(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "images.npz", **arrays)
    for part, array in arrays.items():
        np.save(tmp_path / f"{part}.npy", array)
    file, folder = read_images("few", tmp_path / "images.npz"), read_images("few", tmp_path)
    for part in ARRAY_NAMES:
        np.testing.assert_array_equal(getattr(file, part), getattr(folder, part))
    assert file.sha256 == hashlib.sha256((tmp_path / "images.npz").read_bytes()).hexdigest()
    assert folder.sha256 == digest(arrays)
    assert file.source == "images.npz"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((40, 32, 32, 3))}, "x_train must be uint8"),
        ({"x_test": np.zeros((40, 32, 32), dtype=np.uint8)}, "x_test must be uint8 of shape"),
        ({"x_test": np.zeros((0, 32, 32, 3), dtype=np.uint8)}, "no axis of length 0; got uint8"),
        ({"x_test": np.zeros((40, 28, 28, 3), dtype=np.uint8)}, "images of one size"),
        ({"y_train": np.zeros(40, dtype=np.int64)}, "at least 2 different classes"),
        ({"y_train": np.arange(39)}, "y_train must be one class for each of the 40"),
        ({"y_test": np.full(40, 77)}, "y_test must be a class from 0 to 9"),
        ({"y_train": np.full(40, 0.5)}, "y_train must be whole numbers"),
    ],
)
def test_refuses_arrays(tmp_path: Path, arrays: dict[str, Any], change: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "bad.npz", **(arrays | change))
    with pytest.raises(InvalidInput, match=message):
        read_images("bad", tmp_path / "bad.npz")


def test_refuses_paths(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="data must be the path of the cifar10 images"):
        read_images("cifar10")
    with pytest.raises(InvalidInput, match="nothing is at"):
        read_images("cifar10", tmp_path / "none.npz")
    with pytest.raises(InvalidInput, match=r"no x_train\.npy"):
        read_images("cifar10", tmp_path)
    with pytest.raises(InvalidInput, match="the data set's name must be"):
        read_images("../x", tmp_path)
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InvalidInput, match="not readable"):
        read_images("cifar10", tmp_path / "text.npz")
    np.savez(tmp_path / "part.npz", x_train=np.zeros(3))
    with pytest.raises(InvalidInput, match="must hold the arrays x_train, y_train"):
        read_images("cifar10", tmp_path / "part.npz")
    objects: dict[str, Any] = dict.fromkeys(ARRAY_NAMES, np.array([{}]))
    np.savez(tmp_path / "object.npz", **objects)
    with pytest.raises(InvalidInput, match="not readable"):
        read_images("cifar10", tmp_path / "object.npz")


def generator() -> Any:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("flip", [False, True])
def test_every_crop_is_a_window_of_its_own_image(flip: bool) -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (200, 16, 16, 3), dtype=np.uint8))
    seen = set()
    for image, cropped in zip(images.numpy(), crop_and_flip(images, generator(), flip=flip).numpy(), strict=True):
        wide = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="edge")
        windows = {
            (dy, dx, mirrored): window[:, ::-1] if mirrored else window
            for dy in range(5)
            for dx in range(5)
            for mirrored in (False, True)
            for window in [wide[dy : dy + 16, dx : dx + 16]]
        }
        matches = [key for key, window in windows.items() if np.array_equal(window, cropped)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert {key[0] for key in seen} == {key[1] for key in seen} == set(range(5))
    assert {key[2] for key in seen} == ({False, True} if flip else {False})


def test_noise_is_gaussian_of_sigma_and_not_clipped() -> None:
    images = torch.full((100, 8, 8, 3), 255, dtype=torch.uint8)
    x = noisy(images, 0.5, generator())
    assert x.shape == (100, 3, 8, 8)
    assert float(x.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(x.std()) == pytest.approx(0.5, abs=0.02)
    assert float(x.max()) > 2.0
    torch.testing.assert_close(noisy(images, 0.0, generator()), torch.ones(100, 3, 8, 8))


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.5])
def test_splitting_noise_is_its_formula_at_every_offset(lam: float) -> None:
    """Each pixel value meets each offset: what is drawn is among the formula's answers, all of them, evenly."""
    steps, repeats = round(510 * lam), 400
    offsets = (np.arange(steps) + 0.5) / 255.0
    for value in (0, 1, 100, 254, 255):
        images = torch.full((repeats, steps, 1, 3), value, dtype=torch.uint8)
        drawn = noisy_by_splitting(images, lam, generator())
        assert drawn.shape == (repeats, 3, steps, 1)
        formula = (np.minimum(offsets, 1.0) + (value / 255.0 > offsets)) / 2.0
        expected, each = np.unique(np.round(formula, 6), return_counts=True)
        found, counts = np.unique(np.round(drawn.double().numpy(), 6), return_counts=True)
        np.testing.assert_allclose(found, expected, atol=2e-6)
        wanted = each * 3 * repeats  # of each offset 1200 draws, deviation 35
        assert (np.abs(counts - wanted) < 8 * np.sqrt(wanted)).all()


def test_average_follows_constant_weights_and_statistics_are_plain_means() -> None:
    normalisation = torch.nn.BatchNorm2d(3)
    network = torch.nn.Sequential(normalisation)
    average = WeightAverage(network)
    with torch.no_grad():
        normalisation.weight.fill_(5.0)
    for _ in range(300):
        average.update(network)
    torch.testing.assert_close(average.values["0.weight"], torch.full((3,), 5.0), rtol=1e-2, atol=0.0)
    batches = [torch.rand(4, 3, 8, 8, generator=generator()) + k for k in range(3)]
    recompute_statistics(network, batches)
    torch.testing.assert_close(network[0].running_mean, torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0))
    assert network[0].momentum == 0.1
    assert not network.training
