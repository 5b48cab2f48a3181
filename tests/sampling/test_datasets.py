"""Data sets: ids, labels, a checked range, nothing unpickled; bytes and floats mean the same through every door."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import buckler
from buckler.errors import BucklerError, InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.runs.open_run import open_run
from buckler.sampling import datasets
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays, open_dataset
from buckler.sampling.engine import Engine
from buckler.sampling.preprocess import as_floats, check_value_range, from_bytes
from buckler.training.data import read_images
from buckler.types import AnyArray, Noise

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def test_digits() -> None:
    data = open_dataset("digits")
    assert len(data) == 1797
    x = data.load(0, 10)
    assert x.shape == (10, 1, 8, 8)
    assert x.dtype == np.float32
    assert x.min() == 0.0
    assert x.max() == 1.0
    assert data.labels is not None
    assert data.labels[:4].tolist() == [0, 1, 2, 3]


def test_digits32_are_the_test_images_of_train_digits() -> None:
    data, images = open_dataset("digits32"), read_images("digits")
    assert (data.load(0, len(data)) * 255).round().astype(np.uint8).tolist() == images.x_test.transpose(
        0, 3, 1, 2
    ).tolist()
    assert data.labels is not None
    assert data.labels.tolist() == images.y_test.tolist()
    assert data.ids[:2] == ("4", "9")


def test_selections_keep_ids() -> None:
    data = open_dataset("digits").select(every=20)
    assert data.ids[:3] == ("0", "20", "40")
    assert (data.load(1, 2) == open_dataset("digits").load(20, 21)).all()
    again = data.select(limit=5).select(ids=["40", "20"])
    assert again.ids == ("20", "40")
    whole = open_dataset("digits").labels
    assert again.labels is not None
    assert whole is not None
    assert again.labels.tolist() == whole[[20, 40]].tolist()
    assert (again.load(1, 2) == open_dataset("digits").load(40, 41)).all()
    mistakes: list[dict[str, Any]] = [{"every": 0}, {"limit": 0}, {"ids": ["21"]}, {"ids": []}]
    for mistake in mistakes:
        with pytest.raises(InvalidInput):
            data.select(**mistake)


def test_bytes_become_images_in_the_unit_interval(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=PIXELS, y=np.arange(6), index=np.arange(6) * 20)
    np.savez(tmp_path / "b.npz", x_test=PIXELS, y_test=np.arange(6)[:, None], x_train=PIXELS)
    np.save(tmp_path / "c.npy", PIXELS)
    np.save(tmp_path / "y.npy", np.arange(6))
    expected = np.moveaxis(PIXELS, -1, 1).astype(np.float32) / np.float32(255)
    opened = [open_dataset(tmp_path / name) for name in ("a.npz", "b.npz")]
    opened.append(open_dataset(tmp_path / "c.npy", labels=tmp_path / "y.npy"))
    for data in opened:
        assert (data.load(0, 6) == expected).all()
        assert data.labels is not None
        assert data.labels.tolist() == list(range(6))
    assert opened[0].ids == ("0", "20", "40", "60", "80", "100")
    assert opened[1].ids == ("0", "1", "2", "3", "4", "5")
    assert open_dataset(tmp_path / "c.npy").labels is None
    with pytest.raises(InvalidInput, match=r"labels must be an \.npy file; got '.*b\.npz'"):
        open_dataset(tmp_path / "c.npy", labels=tmp_path / "b.npz")


def test_floats_are_taken_as_they_are_within_the_declared_range(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 12).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(
        InvalidInput, match=r"'0' must lie in the declared range \[0, 1\]; got -1.*value_range declares another"
    ):
        open_dataset(tmp_path / "x.npy").load(0, 3)
    wide = open_dataset(tmp_path / "x.npy", value_range=(-1, 1))
    assert (wide.load(0, 3) == x.astype(np.float32)).all()
    x[1, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InvalidInput, match="'1' must lie"):
        open_dataset(tmp_path / "x.npy", value_range=(-1, 1)).load(1, 3)


def test_cifar10_in_its_binary_layout(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (5, 3073), dtype=np.uint8)
    records[:, 0] = [3, 8, 8, 0, 6]
    (tmp_path / "test_batch.bin").write_bytes(records.tobytes())
    data = open_dataset(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [3, 8, 8, 0, 6]
    assert data.load(2, 3)[0, 1, 0, 5] == np.float32(records[2, 1 + 1024 + 5]) / np.float32(255)
    (tmp_path / "test_batch.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(InvalidInput, match="3073"):
        open_dataset(tmp_path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(InvalidInput, match="binary version"):
        open_dataset(folder)
    np.savez(tmp_path / "o.npz", x=np.array([{"a": 1}], dtype=object))
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object))
    for name in ("o.npz", "o.npy"):
        with pytest.raises(InvalidInput, match="not a readable"):
            open_dataset(tmp_path / name)


def picture(path: Path, size: tuple[int, int] = (10, 12), value: int = 51) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255)).save(path)


def test_a_folder_of_images_by_class(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "b.png")
    picture(tmp_path / "cat" / "a.png", value=102)
    picture(tmp_path / "dog" / "c.jpg", size=(20, 24))
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    data = open_dataset(tmp_path, resize=8, crop=6)
    assert data.ids == ("cat/a.png", "cat/b.png", "dog/c.jpg")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1]
    x = data.load(0, 3)
    assert x.shape == (3, 3, 6, 6)
    assert np.allclose(x[0, 0], 0.4)
    assert np.allclose(x[1, 2], 1.0)
    with pytest.raises(InvalidInput, match="resize and crop"):
        open_dataset(tmp_path).load(0, 3)
    with pytest.raises(InvalidInput, match="at least 11"):
        open_dataset(tmp_path, crop=11).load(0, 1)


def test_class_folders_named_by_other_numbers_than_their_labels_warn(tmp_path: Path) -> None:
    for name in ("1", "10", "2"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (2, 2)).save(tmp_path / name / "a.png")
    with pytest.warns(buckler.BucklerWarning, match="the images in '1' have label 0; a table labels.csv"):
        data = open_dataset(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2]
    for name in (".cache", "0", "1", "2"):
        (tmp_path / "right" / name).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / "right" / name / "a.png")
    right = open_dataset(tmp_path / "right").labels
    assert right is not None
    assert right.tolist() == [0, 1, 2]


def test_a_folder_with_a_table_of_labels(tmp_path: Path) -> None:
    picture(tmp_path / "b.png")
    picture(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,label\nb.png,7\na.png,3\n")
    data = open_dataset(tmp_path)
    assert data.ids == ("b.png", "a.png")
    assert data.labels is not None
    assert data.labels.tolist() == [7, 3]
    for row in ("../b.png,1", "/etc/passwd,1", "b.png,-1", "b.png,cat", "c.png,1", "b.png"):
        (tmp_path / "labels.csv").write_text(f"file,label\n{row}\n")
        with pytest.raises(InvalidInput):
            open_dataset(tmp_path)


def test_broken_and_enormous_images_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a" / "good.png")
    (tmp_path / "a" / "bad.png").write_bytes((tmp_path / "a" / "good.png").read_bytes()[:40])
    with pytest.raises(InvalidInput, match=r"a/bad\.png"):
        open_dataset(tmp_path).load(0, 1)
    monkeypatch.setattr(datasets, "MAX_PIXELS", 100)
    with pytest.raises(InvalidInput, match=r"a/good\.png.*at most 100 pixels"):
        open_dataset(tmp_path).load(1, 2)
    assert open_dataset(tmp_path / "a").labels is None  # images without classes
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"must hold images .* got none"):
        open_dataset(tmp_path / "empty")


def test_shared_ids_and_wrong_labels_are_refused() -> None:
    x = np.zeros((3, 2), dtype=np.float32)
    for bad, message in (
        ({"ids": ["a", "b", "a"]}, r"ids must differ.*got \['a'\]"),
        ({"labels": np.array([1, 2])}, "labels must be one class, 0 or above, for each of 3 inputs"),
        ({"labels": np.array([0, -1, 2])}, "0 or above"),
    ):
        arguments: Any = bad
        with pytest.raises(InvalidInput, match=message):
            from_arrays(x, **arguments)


def test_a_file_under_other_names_says_which(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=PIXELS, labels=np.arange(6))
    with pytest.raises(InvalidInput, match=r"must hold 'x_test' or 'x'; got \['images', 'labels'\]"):
        open_dataset(tmp_path / "other.npz")


@pytest.mark.parametrize("name", ["nowhere.npz", "nothing", "digit"])
def test_data_that_is_not_there(name: str) -> None:
    with pytest.raises(InvalidInput, match="data must be"):
        open_dataset(name)


@given(st.binary(max_size=300), st.sampled_from([".npy", ".npz"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_hostile_array_files_give_our_errors(tmp_path_factory: Any, junk: bytes, suffix: str, head: bool) -> None:
    path = tmp_path_factory.mktemp("hostile") / f"x{suffix}"
    magic = b"\x93NUMPY\x01\x00" if suffix == ".npy" else b"PK\x03\x04"
    path.write_bytes((magic if head else b"") + junk)
    with pytest.raises(BucklerError):
        open_dataset(path).load(0, 1)


IMAGES = np.random.default_rng(0).integers(0, 256, size=(5, 6), dtype=np.uint8)


def columns(batch: AnyArray) -> AnyArray:
    return np.asarray(batch.reshape(len(batch), -1)[:, :2])


def test_bytes_on_the_unit_interval_are_what_they_were() -> None:
    every = np.arange(256, dtype=np.uint8)
    assert (from_bytes(every, (0.0, 1.0)) == every.astype(np.float32) / np.float32(255.0)).all()
    assert (from_bytes(every, (0.0, 255.0)) == every).all()
    assert from_bytes(every, (-1.0, 1.0))[[0, 255]].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("value_range", [(0.0, 1.0), (0.0, 255.0), (-1.0, 1.0)])
def test_a_program_and_a_command_mean_the_same_by_bytes(tmp_path: Path, value_range: tuple[float, float]) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    loaded = open_dataset(tmp_path / "x.npy", value_range=value_range)
    assert (loaded.low, loaded.high) == value_range
    for row in range(len(IMAGES)):
        assert (loaded.load(row, row + 1)[0] == as_floats("x", IMAGES[row], value_range)).all()
    smoothed = buckler.Smoothed(columns, sigma=0.5, num_classes=2, value_range=value_range)
    floats = buckler.Smoothed(columns, sigma=0.5, num_classes=2)
    # The default id is made from the values that the model is given, as in the hashes that a run keeps.
    assert smoothed.certify(IMAGES[:1], n=50) == floats.certify(loaded.load(0, 1), n=50)


@pytest.mark.parametrize("x", [IMAGES[:1], IMAGES[:1].astype(np.int64), [[1, 0]]])
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
    smoothed, x = buckler.Smoothed(columns, noise=noise, num_classes=2), IMAGES / 255.0
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
