"""Data sets: stable ids, labels, a range that is checked, and nothing unpickled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from buckler.errors import BucklerError, InvalidInput
from buckler.sampling import datasets
from buckler.sampling.datasets import from_arrays, open_dataset

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


def test_floats_are_taken_as_they_are_within_the_declared_range(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 12).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InvalidInput, match=r"'0' must lie in the declared range \[0, 1\]; got -1"):
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
    for bad in ({"ids": ["a", "b", "a"]}, {"labels": np.array([1, 2])}, {"labels": np.array([0, -1, 2])}):
        arguments: Any = bad
        with pytest.raises(InvalidInput):
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
