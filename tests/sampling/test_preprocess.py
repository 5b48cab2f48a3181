"""Bytes, whole numbers and floats mean the same to a program and to a command."""

from pathlib import Path

import numpy as np
import pytest

import buckler
from buckler.errors import InvalidInput
from buckler.sampling.datasets import open_dataset
from buckler.sampling.preprocess import as_floats, check_value_range, from_bytes
from buckler.types import AnyArray

PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 6), dtype=np.uint8)


def columns(batch: AnyArray) -> AnyArray:
    return np.asarray(batch.reshape(len(batch), -1)[:, :2])


def test_bytes_on_the_unit_interval_are_what_they_were() -> None:
    every = np.arange(256, dtype=np.uint8)
    assert (from_bytes(every, (0.0, 1.0)) == every.astype(np.float32) / np.float32(255.0)).all()
    assert (from_bytes(every, (0.0, 255.0)) == every).all()
    assert from_bytes(every, (-1.0, 1.0))[[0, 255]].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("value_range", [(0.0, 1.0), (0.0, 255.0), (-1.0, 1.0)])
def test_a_program_and_a_command_mean_the_same_by_bytes(tmp_path: Path, value_range: tuple[float, float]) -> None:
    np.save(tmp_path / "x.npy", PIXELS)
    loaded = open_dataset(tmp_path / "x.npy", value_range=value_range)
    assert (loaded.low, loaded.high) == value_range
    for row in range(len(PIXELS)):
        assert (loaded.load(row, row + 1)[0] == as_floats("x", PIXELS[row], value_range)).all()
    smoothed = buckler.Smoothed(columns, sigma=0.5, num_classes=2, value_range=value_range)
    floats = buckler.Smoothed(columns, sigma=0.5, num_classes=2)
    # The default id is made from the values that the model is given, as in the hashes that a run keeps.
    assert smoothed.certify(PIXELS[:1], n=50) == floats.certify(loaded.load(0, 1), n=50)


@pytest.mark.parametrize("x", [PIXELS[:1], PIXELS[:1].astype(np.int64), [[1, 0]]])
def test_whole_numbers_need_a_range(x: object) -> None:
    smoothed = buckler.Smoothed(columns, sigma=0.5, num_classes=2)
    with pytest.raises(InvalidInput, match=r"x must hold floats, or value_range = \(low, high\) must be given"):
        smoothed.certify(x, n=10)  # type: ignore[arg-type]


def test_a_range_is_kept_to() -> None:
    smoothed = buckler.Smoothed(columns, sigma=0.5, num_classes=2, value_range=(0, 9))
    assert smoothed.certify([[9, 0]], n=50, ids=["a"]) == smoothed.certify([[9.0, 0.0]], n=50, ids=["a"])
    for x in ([[10, 0]], [[-0.1, 3.0]]):
        with pytest.raises(InvalidInput, match=r"x must lie in the declared range \[0, 9\]"):
            smoothed.certify(x, n=10)
    for bad in ((1.0, 1.0), (1.0,), "ab", (0.0, np.inf), 3.0):
        with pytest.raises(InvalidInput, match="value_range"):
            check_value_range(bad)  # type: ignore[arg-type]


def test_a_range_for_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="value_range is for arrays"):
        open_dataset("digits", value_range=(0.0, 255.0))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match="value_range is for arrays"):
        open_dataset(tmp_path / "folder", value_range=(0.0, 255.0))
