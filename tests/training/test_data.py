"""Reading images: the three sources give the same arrays, and what cannot be trained on is refused."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.training.data import ARRAY_NAMES, digest, read_images

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
