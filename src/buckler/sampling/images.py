"""A folder of images: one subfolder a class, or one folder with ``labels.csv`` (file,label). Needs Pillow."""

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, check_whole, show
from buckler.sampling.datasets import Dataset
from buckler.types import Float32Array

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".ppm": "PPM"}
MAX_PIXELS = 64_000_000
"""A larger image is refused before it is decoded: a small file can unfold to any size."""


def open_folder(folder: Path, *, resize: int | None = None, crop: int | None = None) -> Dataset:
    """Return the images of a folder, classes in the order of the subfolders' names; ids are the relative paths."""
    if resize is not None:
        resize = check_whole("resize", resize, 1, 10_000)
    if crop is not None:
        crop = check_whole("crop", crop, 1, 10_000)
    files, labels = _labelled(folder) if (folder / "labels.csv").is_file() else _by_class(folder)
    ids = tuple(path.relative_to(folder).as_posix() for path in files)

    def load(where: Sequence[int]) -> Float32Array:
        pixels = [read_image(files[i], ids[i], resize=resize, crop=crop) for i in where]
        shapes = {p.shape for p in pixels}
        if len(shapes) > 1:
            raise InvalidInput(f"images must have one size; got {show(sorted(shapes))}: give resize and crop")
        return np.stack(pixels)

    return Dataset(ids, np.asarray(labels, dtype=np.int64), load)


def _by_class(folder: Path) -> tuple[list[Path], list[int]]:
    classes = sorted(p for p in folder.iterdir() if p.is_dir())
    files, labels = [], []
    for label, home in enumerate(classes):
        inside = sorted(p for p in home.iterdir() if p.suffix.lower() in FORMATS and p.is_file())
        files += inside
        labels += [label] * len(inside)
    if not files:
        raise InvalidInput(f"data {str(folder)!r} must hold subfolders of images, one a class, or labels.csv; got none")
    return files, labels


def _labelled(folder: Path) -> tuple[list[Path], list[int]]:
    files, labels = [], []
    table = folder / "labels.csv"
    try:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name, label = row.get("file"), row.get("label")
                if not name or label is None or not label.isascii() or not label.isdigit():
                    raise InvalidInput(f"{str(table)!r} must have the columns file and label, a class; got {show(row)}")
                path = folder / name
                if Path(name).is_absolute() or ".." in Path(name).parts or path.suffix.lower() not in FORMATS:
                    raise InvalidInput(f"{str(table)!r} must name images inside of the folder; got {name!r}")
                if not _is_file(path):
                    raise InvalidInput(f"{str(table)!r} must name existing images; got {name!r}")
                files.append(path)
                labels.append(int(label[:9]))
    except (csv.Error, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{str(table)!r} is not a readable table: {problem}") from None
    if not files:
        raise InvalidInput(f"{str(table)!r} must name at least one image; got none")
    return files, labels


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def read_image(path: Path, name: str, *, resize: int | None = None, crop: int | None = None) -> Float32Array:
    """Return an image as float32 ``[3, height, width]`` in [0, 1]."""
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
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError) as problem:
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
