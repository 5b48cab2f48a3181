"""Images to train on: four arrays, from one ``.npz`` file, from a folder of ``.npy`` files, or the bundled digits.

The folder form is read by memory mapping, for data sets larger than memory.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from buckler.errors import InvalidInput, check_label, show
from buckler.files import checksum
from buckler.sampling.datasets import enlarged_digits
from buckler.types import AnyArray, IntArray

ARRAY_NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """A training and a test set: images ``uint8 [inputs, height, width, 3]``, labels 0, 1, ...

    ``name`` names the data, ``source`` the file or folder they came from. ``sha256`` is that of the file, or of the
    arrays one after another where there is no single file.
    """

    name: str
    source: str
    x_train: AnyArray
    y_train: IntArray
    x_test: AnyArray
    y_test: IntArray
    num_classes: int
    sha256: str

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if x.dtype != np.uint8 or x.ndim != 4 or x.shape[-1] != 3 or 0 in x.shape:
                raise InvalidInput(
                    f"x_{part} must be uint8 of shape [inputs, height, width, 3], no axis of length 0; "
                    f"got {x.dtype} {x.shape}"
                )
            object.__setattr__(self, f"y_{part}", check_label(y, self.num_classes, len(x), name=f"y_{part}"))
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise InvalidInput(
                f"x_train and x_test must hold images of one size; got {self.x_train.shape} and {self.x_test.shape}"
            )


def read_images(name: str, path: Path | None = None) -> Images:
    """Return the training and test images at ``path``, an ``.npz`` file or a folder of ``.npy`` files, as ``Images``.

    ``name`` names the data in cards and files; ``digits`` without a path is scikit-learn's digits, enlarged.
    """
    if not name or not set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-"):
        raise InvalidInput(f"the data set's name must be lower-case letters, digits, '_' and '-'; got {show(name)}")
    if path is None:
        if name == "digits":
            return _digits()
        raise InvalidInput(f"data must be the path of the {name} images (.npz file or folder of .npy); got none")
    if path.is_dir():
        arrays = {part: _load(path / f"{part}.npy") for part in ARRAY_NAMES}
        return _images(name, path.name, arrays, digest(arrays))
    if not path.is_file():
        raise InvalidInput(f"data must be a .npz file or a folder of .npy files; nothing is at {path}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {part: archive[part] for part in ARRAY_NAMES}
    except KeyError as missing:
        raise InvalidInput(f"{path.name} must hold the arrays {', '.join(ARRAY_NAMES)}; {missing.args[0]}") from None
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, TypeError, AttributeError):
        raise InvalidInput(
            f"data must be a .npz file with {', '.join(ARRAY_NAMES)}; {path} is not readable as one"
        ) from None
    return _images(name, path.name, arrays, checksum(path))


def digest(arrays: Mapping[str, AnyArray]) -> str:
    """Return the SHA-256 of the bytes of the four ``arrays``, in the order of ``ARRAY_NAMES``, read in pieces."""
    total = hashlib.sha256()
    for part in ARRAY_NAMES:
        for start in range(0, len(arrays[part]), 1024):
            total.update(np.ascontiguousarray(arrays[part][start : start + 1024]).tobytes())
    return total.hexdigest()


def _load(path: Path) -> AnyArray:
    try:
        # Copy-on-write: never written, but torch warns of arrays that it could not write to.
        array: AnyArray = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise InvalidInput(
            f"the data folder must hold {', '.join(p + '.npy' for p in ARRAY_NAMES)}; no {path.name}"
        ) from None
    except (ValueError, OSError, EOFError):
        raise InvalidInput(f"{path} is not readable as a .npy array") from None
    return array


def _images(name: str, source: str, arrays: Mapping[str, AnyArray], sha256: str) -> Images:
    labels = arrays["y_train"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.size == 0:
        raise InvalidInput(f"y_train must be whole numbers of shape [inputs]; got {labels.dtype} {labels.shape}")
    num_classes = int(labels.max()) + 1
    if num_classes < 2:
        raise InvalidInput("y_train must hold at least 2 different classes; got one")
    return Images(name, source, **arrays, num_classes=num_classes, sha256=sha256)


def _digits() -> Images:
    colours, labels, test = enlarged_digits()
    arrays = {"x_train": colours[~test], "y_train": labels[~test], "x_test": colours[test], "y_test": labels[test]}
    return _images("digits", "scikit-learn load_digits, enlarged to 32x32", arrays, digest(arrays))
