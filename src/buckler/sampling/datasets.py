"""Named data sets: inputs with stable ids, labels where known, and a declared range that is checked.

``open_dataset`` takes ``digits``, an ``.npy`` or ``.npz`` file, a folder of images by class (which needs Pillow), or
CIFAR-10 in its official binary layout. Inputs are loaded as they are needed. Images become float32 in [0, 1], channels
first. Arrays lie in the declared range, since sigma is in the same units: bytes are spread over it, other numbers taken
as they are. Nothing is unpickled.
"""

import csv
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import (
    BucklerWarning,
    InvalidInput,
    MissingExtra,
    check_whole,
    check_whole_array,
    first_repeated,
    show,
)
from buckler.files import check_plain
from buckler.sampling.preprocess import check_moved, check_value_range, from_bytes
from buckler.types import AnyArray, BoolArray, Float32Array, FloatArray, IntArray, Noise

Loader = Callable[[Sequence[int]], Float32Array]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Inputs with ids and labels (None if unknown), which ``loader`` returns for positions, as float32.

    Their values must lie in [``low``, ``high``]. An input keeps its id in every selection.
    """

    ids: tuple[str, ...]
    labels: IntArray | None
    loader: Loader
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.ids:
            raise InvalidInput("data must hold at least one input; got none")
        if len(set(self.ids)) != len(self.ids):
            seen = sorted(name for name in set(self.ids) if self.ids.count(name) > 1)[:3]
            raise InvalidInput(f"ids must differ, or inputs would share noise; got {show(seen)} more than once")
        if self.labels is not None and (self.labels.shape != (len(self.ids),) or (self.labels < 0).any()):
            raise InvalidInput(
                f"labels must be one class, 0 or above, for each of {len(self.ids)} inputs; got {show(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, start: int, stop: int) -> Float32Array:
        """Return inputs ``start, ..., stop - 1`` as float32; a value outside of [low, high] raises InvalidInput."""
        x = self.loader(range(start, stop))
        with np.errstate(invalid="ignore"):
            outside = ~((x >= self.low) & (x <= self.high))
        if outside.any():
            row = start + int(np.argwhere(outside)[0, 0])
            raise InvalidInput(
                f"input {self.ids[row]!r} must lie in the declared range [{self.low:g}, {self.high:g}]; "
                f"got {x[outside][0]}. value_range declares another (buckler sample --value-range, or --spec)"
            )
        return x

    def select(self, *, every: int = 1, limit: int | None = None, ids: Iterable[str] | None = None) -> "Dataset":
        """Return a data set of some inputs: every ``every``-th, of these only ``ids``, of these the first ``limit``."""
        chosen = list(range(0, len(self.ids), check_whole("every", every, 1)))
        if ids is not None:
            names = list(ids)
            if (twice := first_repeated(names)) is not None:
                raise InvalidInput(f"ids must name each input once; got {twice!r} twice")
            wanted = set(names)
            unknown = sorted(wanted - set(self.ids))
            if unknown:
                raise InvalidInput(f"ids must name inputs of the data ({self.ids[0]!r}, ...); got {unknown[0]!r}")
            chosen = [i for i in chosen if self.ids[i] in wanted]
        if limit is not None:
            chosen = chosen[: check_whole("limit", limit, 1)]
        if not chosen:
            raise InvalidInput(f"every, limit and ids must leave at least one input; got none of {len(self.ids)}")
        return replace(
            self,
            ids=tuple(self.ids[i] for i in chosen),
            labels=None if self.labels is None else self.labels[chosen],
            loader=lambda where: self.loader([chosen[i] for i in where]),
        )


def open_dataset(
    name: str | Path,
    *,
    labels: str | Path | None = None,
    resize: int | None = None,
    crop: int | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
    noise: Noise | None = None,
) -> Dataset:
    """Return the data set ``name``: ``digits``, or the path of an array file, a folder of images or CIFAR-10's folder.

    ``digits`` are 1,797 grey images of 8x8, and ``digits32`` the test images of ``buckler train digits``, in colour.
    ``labels`` is an ``.npy`` file of classes for arrays that come without. ``resize`` scales the shorter side of each
    image of a folder to so many pixels, and ``crop`` cuts a square of so many out of the centre. ``value_range`` is the
    declared range of arrays: bytes are spread over it, other numbers are taken as they are and must lie in it. Arrays
    whose values float32 moves too far for the ``noise`` are refused when they are loaded.
    """
    low, high = check_value_range(value_range)
    path, cifar10 = Path(name), (Path(name) / "test_batch.bin").is_file()
    arrays, images = path.suffix in {".npy", ".npz"}, path.is_dir() and not cifar10
    for option, value, fits, what in (
        ("labels", labels, arrays, "arrays; these data bring their own"),
        ("value_range", None if (low, high) == (0.0, 1.0) else value_range, arrays, "arrays; images lie in [0, 1]"),
        ("resize", resize, images, "folders of images"),
        ("crop", crop, images, "folders of images"),
    ):
        if value is not None and not fits:
            raise InvalidInput(f"{option} is for {what}; got {show(value)}")
    if str(name) == "digits":
        pixels, classes = bundled_digits()
        return from_arrays(np.ascontiguousarray(pixels[:, None] / 16.0, dtype=np.float32), classes)
    if str(name) == "digits32":
        colours, classes, held_out = enlarged_digits()
        x = from_bytes(channels_first(colours[held_out]), (0.0, 1.0))
        return from_arrays(x, classes[held_out], ids=[str(i) for i in np.flatnonzero(held_out).tolist()])
    if not path.exists():
        raise InvalidInput(f"data must be 'digits', 'digits32' or an existing file or folder; got {str(name)!r}")
    if arrays:
        return open_array(path, labels=labels, low=low, high=high, noise=noise)
    if cifar10:
        return open_cifar10(path)
    if not images:
        raise InvalidInput(f"data must be an .npy or .npz file, or a folder; got {str(name)!r}")
    if (path / "test_batch").is_file():
        raise InvalidInput(
            f"data {str(name)!r} is the pickled version of CIFAR-10, and a pickle is a program; "
            "use the binary version (cifar-10-batches-bin) or an .npz file"
        )
    return open_folder(path, resize=resize, crop=crop)


def bundled_digits() -> tuple[FloatArray, IntArray]:
    """Return scikit-learn's 1,797 handwritten digits ``[inputs, 8, 8]``, pixels from 0 to 16, and their classes."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("scikit-learn", "demo") from None
    bunch = load_digits()
    return np.asarray(bunch.images, dtype=np.float64), np.asarray(bunch.target, dtype=np.int64)


def enlarged_digits() -> tuple[AnyArray, IntArray, BoolArray]:
    """Return the digits as colour images, uint8 ``[inputs, 32, 32, 3]``, their classes, and which are for testing.

    ``buckler train digits`` learns from the others; each fifth is for testing.
    """
    pixels, classes = bundled_digits()
    grey = np.rint(pixels * (255.0 / 16.0)).astype(np.uint8)
    colours = np.repeat(np.kron(grey, np.ones((1, 4, 4), dtype=np.uint8))[..., None], 3, axis=3)
    return colours, classes, np.arange(len(classes)) % 5 == 4


def from_arrays(
    x: Float32Array,
    labels: IntArray | None = None,
    *,
    ids: Sequence[str] | None = None,
    low: float = 0.0,
    high: float = 1.0,
) -> Dataset:
    """Return the data set of inputs in memory, ``x[inputs, ...]`` in [low, high]; ids are row numbers unless given."""
    if x.ndim < 2 or 0 in x.shape:
        raise InvalidInput(f"x must have shape [inputs, ...] with at least one value each; got {x.shape}")
    names = tuple(str(i) for i in range(len(x))) if ids is None else tuple(ids)

    def load(where: Sequence[int]) -> Float32Array:
        return np.ascontiguousarray(x[list(where)], dtype=np.float32)

    return Dataset(names, labels, load, low, high)


_LARGE, _UNFOLDS = 1 << 28, 100
"""A file may decompress to this many bytes, or to this many times its own size; more is refused as a zip bomb."""

_MEMBERS = ("x_test", "y_test", "x", "y", "index")
_CIFAR10_RECORD = 1 + 3 * 32 * 32


def open_array(
    path: Path, *, labels: str | Path | None, low: float, high: float, noise: Noise | None = None
) -> Dataset:
    """Return the data set in an ``.npy`` file, or under ``x_test, y_test`` or ``x, y, index`` of an ``.npz`` file.

    Bytes are images, spread over [low, high]; a last axis of 1 or 3 holds their channels and is moved to the front.
    Other numbers are taken as they are and must lie in [low, high]. Ids are the rows' numbers, or ``index`` where the
    file has it. ``labels`` and ``noise`` are as in ``open_dataset``.
    """
    held = _read_arrays(path)
    key = "x_test" if "x_test" in held else "x"
    x, y, index = held[key], held.get(key.replace("x", "y")), held.get("index") if key == "x" else None
    found = None if y is None else check_whole_array("y", y.reshape(-1))
    if labels is not None:
        if found is not None:
            raise InvalidInput(f"labels is for arrays without; {str(path)!r} holds its own")
        if Path(labels).suffix != ".npy":
            raise InvalidInput(f"labels must be an .npy file; got {str(labels)!r}")
        found = check_whole_array("labels", _read_arrays(Path(labels))["x"])
    if x.dtype.kind not in "iuf" or x.ndim < 2 or x.size == 0:
        raise InvalidInput(
            f"data {str(path)!r} must hold numbers of shape [inputs, ...] with at least one value each; "
            f"got {x.dtype} of shape {x.shape}"
        )
    names = np.arange(len(x)) if index is None else check_whole_array("index", index)
    if names.shape != (len(x),):
        raise InvalidInput(f"index must be one number for each of {len(x)} inputs; got shape {names.shape}")

    def load(where: Sequence[int]) -> Float32Array:
        rows = x[list(where)]
        if x.dtype == np.uint8:
            return from_bytes(channels_first(rows), (low, high))
        values = np.ascontiguousarray(rows, dtype=np.float32)
        if noise is not None:
            check_moved(f"data {str(path)!r}", rows, values, noise)
        return values

    return Dataset(tuple(map(str, names.tolist())), found, load, low, high)


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
    """Return images ``[inputs, channels, height, width]`` of those with their channels last, or without channels.

    Channels are taken to be last if that axis has a length of 1 or 3 and the second axis does not.
    """
    if pixels.ndim == 4 and pixels.shape[-1] in {1, 3} and pixels.shape[1] not in {1, 3}:
        return np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
    return pixels[:, None] if pixels.ndim == 3 else pixels


def _read_arrays(path: Path) -> dict[str, AnyArray]:
    """Return the arrays of an ``.npz`` file that have a meaning here, by name; the one of an ``.npy`` file is ``x``."""
    try:
        check_plain(path)
        if path.suffix == ".npy":
            return {"x": np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))}
        with zipfile.ZipFile(path) as packed:
            unfolded = sum(member.file_size for member in packed.infolist())
        if unfolded > max(_LARGE, _UNFOLDS * path.stat().st_size):
            raise InvalidInput(f"data {str(path)!r} is an .npz file that unfolds to {unfolded:,} bytes")
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if not {"x_test", "x"} & set(file.files):
                raise InvalidInput(f"data {str(path)!r} must hold 'x_test' or 'x'; got {show(sorted(file.files))}")
            return {name: np.asarray(file[name]) for name in _MEMBERS if name in file.files}
    except InvalidInput:
        raise
    except Exception as problem:  # whatever a broken file raises
        text = show(str(problem), 120)
        raise InvalidInput(f"data {str(path)!r} is not a readable {path.suffix} file: {text}") from None


FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".ppm": "PPM"}
MAX_PIXELS = 64_000_000
"""A larger image is refused before it is decoded: a small file can unfold to any size."""


def open_folder(folder: Path, *, resize: int | None = None, crop: int | None = None) -> Dataset:
    """Return the data set of a folder's images; their ids are their paths inside of it.

    Each subfolder is a class, 0, 1, ... in the order of their names; a table ``labels.csv`` with the columns file and
    label is used in place of subfolders. Images with neither have no labels. ``resize`` and ``crop`` are as in
    ``open_dataset``.
    """
    if resize is not None:
        resize = check_whole("resize", resize, 1, 10_000)
    if crop is not None:
        crop = check_whole("crop", crop, 1, 10_000)
    labels: list[int] | None
    files, labels = _labelled(folder) if (folder / "labels.csv").is_file() else _by_class(folder)
    ids = tuple(path.relative_to(folder).as_posix() for path in files)

    def load(where: Sequence[int]) -> Float32Array:
        pixels = [read_image(files[i], ids[i], resize=resize, crop=crop) for i in where]
        shapes = {p.shape for p in pixels}
        if len(shapes) > 1:
            raise InvalidInput(f"images must have one size; got {show(sorted(shapes))}: give resize and crop")
        return np.stack(pixels)

    return Dataset(ids, None if labels is None else np.asarray(labels, dtype=np.int64), load)


def _by_class(folder: Path) -> tuple[list[Path], list[int] | None]:
    """Return the images of each subfolder with its number; where there are none, those of the folder, unlabelled."""
    homes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    classes = {home.name: _images_in(home) for home in homes}
    files = [path for inside in classes.values() for path in inside]
    labels = [k for k, inside in enumerate(classes.values()) for _ in inside]
    others = [(k, name) for k, (name, inside) in enumerate(classes.items()) if inside and name != str(k)]
    if others and all(name.isdecimal() for name, inside in classes.items() if inside):
        label, name = others[0]
        warnings.warn(
            f"class folders are numbered in the order of their names: the images in {name!r} have label {label}; a "
            "table labels.csv (file,label) gives other labels",
            BucklerWarning,
            stacklevel=2,
        )
    if files:
        return files, labels
    if unlabelled := _images_in(folder):
        return unlabelled, None
    raise InvalidInput(
        f"data {str(folder)!r} must hold images ({', '.join(FORMATS)}), subfolders of images, one a class, or "
        "labels.csv with the columns file and label; got none"
    )


def _images_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in FORMATS and p.is_file())


def _labelled(folder: Path) -> tuple[list[Path], list[int]]:
    files, labels = [], []
    table = folder / "labels.csv"
    try:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name, label = row.get("file"), row.get("label")
                if not name or label is None:
                    raise InvalidInput(f"{str(table)!r} must have the columns file and label; got {show(row)}")
                if not re.fullmatch(r"[0-9]{1,9}", label):
                    raise InvalidInput(
                        f"{str(table)!r} must give each class as a whole number, from 0 on; got {show(label)} for "
                        f"{name!r}"
                    )
                path = folder / name
                if Path(name).is_absolute() or ".." in Path(name).parts or path.suffix.lower() not in FORMATS:
                    raise InvalidInput(f"{str(table)!r} must name images inside of the folder; got {name!r}")
                if not path.is_file():
                    raise InvalidInput(f"{str(table)!r} must name existing images; got {name!r}")
                files.append(path)
                labels.append(int(label))
    except (csv.Error, UnicodeDecodeError, OSError) as problem:  # OSError: a name that no file can have
        raise InvalidInput(f"{str(table)!r} is not a readable table: {problem}") from None
    if not files:
        raise InvalidInput(f"{str(table)!r} must name at least one image; got none")
    there = {path for path in folder.rglob("*") if path.suffix.lower() in FORMATS}
    if left_out := sorted(path.relative_to(folder).as_posix() for path in there.difference(files)):
        warnings.warn(
            f"{str(table)!r} leaves out {len(left_out):,} of {len(there):,} images, such as {left_out[0]!r}: they are "
            "not taken",
            BucklerWarning,
            stacklevel=2,
        )
    return files, labels


def read_image(path: Path, name: str, *, resize: int | None = None, crop: int | None = None) -> Float32Array:
    """Return the image in a file as float32 ``[3, height, width]`` in [0, 1]; errors call it ``name``.

    ``resize`` and ``crop`` are as in ``open_dataset``.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "report") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=sorted(set(FORMATS.values()))) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise InvalidInput(f"image {name!r} must have at most {MAX_PIXELS:,} pixels; got {image.size}")
                pixels = np.asarray(_shape(image.convert("RGB"), name, resize, crop), dtype=np.float32)
    except InvalidInput:
        raise
    except Exception as problem:  # whatever a broken image raises
        raise InvalidInput(f"image {name!r} cannot be read: {show(str(problem), 120)}") from None
    channels_first: Float32Array = np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
    channels_first /= np.float32(255.0)
    return channels_first


def _shape(image: Any, name: str, resize: int | None, crop: int | None) -> Any:
    if resize is not None:
        from PIL import Image

        scale = resize / min(image.size)
        wide, high = (max(resize, round(side * scale)) for side in image.size)
        if wide * high > MAX_PIXELS:
            raise InvalidInput(f"image {name!r} is too long and thin to be resized; got {image.size}")
        image = image.resize((wide, high), Image.Resampling.BILINEAR)
    if crop is not None:
        if min(image.size) < crop:
            raise InvalidInput(f"image {name!r} must be at least {crop} on each side to be cropped; got {image.size}")
        left, top = (image.width - crop) // 2, (image.height - crop) // 2
        image = image.crop((left, top, left + crop, top + crop))
    return image
