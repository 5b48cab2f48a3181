"""Bytes, whole numbers and floats mean the same to a program and to a command."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.errors import InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.runs.open_run import open_run
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.sampling.engine import Engine
from buckler.sampling.preprocess import as_floats, check_value_range, from_bytes
from buckler.types import AnyArray, Noise

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


FAR = [
    (GridGaussian(1.0, step=1.0), 1000000.01),  # float32 is 1000000.0, a point of the grid
    (GridGaussian(1.0, step=1.0), -1000000.001),
    (Uniform(2.5, step=1.0), 1000000.01),
    (Uniform(2.5, step=1.0), 4194304.2),
]


@pytest.mark.parametrize(("noise", "value"), FAR)
def test_a_float64_that_float32_moves_far_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: Noise, value: float
) -> None:
    """The certificate would be of the point of the grid, and at another distance from its neighbours."""
    text = rf"float32 holds to within .* got {value!r}, whose float32 is .* Shift or scale"
    smoothed, x = buckler.Smoothed(columns, noise=noise, num_classes=2), np.array([[0.0, value]])
    for call in (
        lambda: smoothed.certify(x, n=50),
        lambda: smoothed.certify(x.tolist(), n=50),
        lambda: smoothed.certify_until(x, radii=[1.0], max_n=50),
        lambda: smoothed.predict(x, n=50),
        lambda: Engine(as_classifier(columns, num_classes=2), noise=noise).votes(x, ["a"], "estimation", 50),
    ):
        with pytest.raises(InvalidInput, match=text):
            call()
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "two_columns.py").write_text(
        "def make():\n    return lambda batch: batch.reshape(len(batch), -1)[:, :2]\n"
    )
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {"model": "two_columns:make", "num_classes": 2, "data": "x.npy", "n": 50}
    settings |= {"value_range": (-5e6, 5e6), "noise": noise.name, "noise_parameters": noise.parameters}
    settings |= {"batch_size": 50}  # or the model's speed is measured, on the input
    with open_run(settings) as run, pytest.raises(InvalidInput, match=text):
        run.dataset.load(0, 1)
    assert smoothed.certify(np.rint(x), n=50, ids=["a"]) == smoothed.certify(
        np.rint(x).astype(np.float32), n=50, ids=["a"]
    )


@pytest.mark.parametrize(
    "noise",
    [
        GridGaussian(0.25),
        GridGaussian(1e-3),
        Uniform(0.5 / 255),
        Uniform(0.5),
        Splitting(1 / 510),
        DerandomizedSplitting(0.5),
        Gaussian(0.01),
        Ablation(keep=1, pixels=6),
    ],
)
def test_images_as_float64_are_those_of_float32(noise: Noise) -> None:
    smoothed, x = buckler.Smoothed(columns, noise=noise, num_classes=2), PIXELS / 255.0
    n = 50 if noise.total is None else noise.total
    assert smoothed.certify(x, n=n) == smoothed.certify(x.astype(np.float32), n=n)


def test_ablation_takes_the_conversion_for_a_part_of_the_classifier() -> None:
    """In l0, inputs that differ in one value before it differ in one value at most after it."""
    x, noise = np.array([[1000000.01, 16777217.0, 0.1]]), Ablation(keep=1, pixels=3)
    smoothed = buckler.Smoothed(columns, noise=noise, num_classes=2)
    assert smoothed.certify(x, n=50, ids=["a"]) == smoothed.certify(x.astype(np.float32), n=50, ids=["a"])
    shown = np.eye(3, dtype=bool)
    assert (noise.copy(x[0], shown) == np.where(shown, x[0], -1.0).astype(np.float32)).all()


def test_a_range_for_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="value_range is for arrays"):
        open_dataset("digits", value_range=(0.0, 255.0))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match="value_range is for arrays"):
        open_dataset(tmp_path / "folder", value_range=(0.0, 255.0))
