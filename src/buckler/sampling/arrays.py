"""Inputs from array files: ``.npy``, ``.npz`` and the official binary version of CIFAR-10. Nothing is unpickled."""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from buckler.errors import InvalidInput, check_whole_array, show
from buckler.files import check_plain
from buckler.sampling.datasets import Dataset
from buckler.sampling.preprocess import from_bytes
from buckler.types import AnyArray, Float32Array, IntArray

_UNREADABLE = (
    OSError, ValueError, EOFError, MemoryError, OverflowError, KeyError, TypeError, SyntaxError, RecursionError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_LARGE, _UNFOLDS = 1 << 28, 100
"""A file may decompress to this many bytes, or to this many times its own size; more is refused as a zip bomb."""

_CIFAR10_RECORD = 1 + 3 * 32 * 32


def open_array(path: Path, *, labels: str | Path | None, low: float, high: float) -> Dataset:
    """Return the data set in an ``.npy`` file, or under ``x_test, y_test`` or ``x, y, index`` of an ``.npz`` file.

    Bytes are images, spread over [low, high]; a last axis of 1 or 3 holds their channels and is moved to the front.
    Other numbers are taken as they are and must lie in [low, high]. Ids are the rows' numbers, or ``index`` where the
    file has it.
    """
    index: IntArray | None = None
    found: IntArray | None = None
    if path.suffix == ".npy":
        x = _read(path)
    else:
        members = _read_members(path)
        key = "x_test" if "x_test" in members else "x"
        x = members[key]
        y = members.get(key.replace("x", "y"))
        found = None if y is None else check_whole_array("y", y.reshape(-1))
        index = check_whole_array("index", members["index"]) if "index" in members and key == "x" else None
    if labels is not None:
        if found is not None:
            raise InvalidInput(f"labels is for arrays without; {str(path)!r} holds its own")
        found = check_whole_array("labels", _read(Path(labels)))
    if x.dtype.kind not in "iuf" or x.ndim < 2 or x.size == 0:
        raise InvalidInput(f"data {str(path)!r} must hold numbers [inputs, ...]; got {x.dtype} of shape {x.shape}")
    if index is not None and index.shape != (len(x),):
        raise InvalidInput(f"index must be one number for each of {len(x)} inputs; got shape {index.shape}")
    ids = tuple(str(int(i)) for i in (range(len(x)) if index is None else index))
    bytes_ = x.dtype == np.uint8

    def load(where: Sequence[int]) -> Float32Array:
        rows = x[list(where)]
        return from_bytes(channels_first(rows), (low, high)) if bytes_ else np.ascontiguousarray(rows, dtype=np.float32)

    return Dataset(ids, found, load, low, high)


def open_cifar10(folder: Path) -> Dataset:
    """Return the 10,000 test images of ``cifar-10-batches-bin``: records of one label byte and 3 x 32 x 32 pixels."""
    path = folder / "test_batch.bin"
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size == 0 or raw.size % _CIFAR10_RECORD:
        raise InvalidInput(f"data {str(path)!r} must hold records of {_CIFAR10_RECORD} bytes; got {raw.size} bytes")
    records = raw.reshape(-1, _CIFAR10_RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise InvalidInput(f"data {str(path)!r} must hold labels from 0 to 9; got {labels.max()}")

    def load(where: Sequence[int]) -> Float32Array:
        return from_bytes(records[list(where), 1:].reshape(-1, 3, 32, 32), (0.0, 1.0))

    return Dataset(tuple(str(i) for i in range(len(records))), labels, load)


def channels_first(pixels: AnyArray) -> AnyArray:
    """Return images with their channels before height and width."""
    if pixels.ndim == 4 and pixels.shape[-1] in {1, 3} and pixels.shape[1] not in {1, 3}:
        return np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
    return pixels[:, None] if pixels.ndim == 3 else pixels


def _read(path: Path) -> AnyArray:
    try:
        check_plain(path)
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except _UNREADABLE as problem:
        raise InvalidInput(f"data {str(path)!r} is not a readable .npy file: {show(str(problem), 120)}") from None


def _read_members(path: Path) -> dict[str, AnyArray]:
    wanted = {"x_test", "y_test", "x", "y", "index"}
    try:
        check_plain(path)
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InvalidInput(f"data {str(path)!r} is not an .npz file")
            unfolded = sum(member.file_size for member in zipfile.ZipFile(path).infolist())
            if unfolded > max(_LARGE, _UNFOLDS * path.stat().st_size):
                raise InvalidInput(f"data {str(path)!r} is an .npz file that unfolds to {unfolded:,} bytes")
            if not {"x_test", "x"} & set(file.files):
                raise InvalidInput(f"data {str(path)!r} must hold 'x_test' or 'x'; got {show(sorted(file.files))}")
            return {name: np.asarray(file[name]) for name in file.files if name in wanted}
    except InvalidInput:
        raise
    except (*_UNREADABLE, NotImplementedError, RuntimeError) as problem:
        raise InvalidInput(f"data {str(path)!r} is not a readable .npz file: {show(str(problem), 120)}") from None
