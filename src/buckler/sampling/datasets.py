"""Named data sets: inputs with stable ids, labels where known, and a declared range that is checked.

``open_dataset`` takes ``digits``, an ``.npy`` or ``.npz`` file, a folder of images by class, or CIFAR-10 in its
official binary layout. Inputs are loaded as they are needed. Images become float32 in [0, 1], channels first. Arrays
lie in the declared range, since sigma is in the same units: bytes are spread over it, other numbers taken as they are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, check_whole, show
from buckler.sampling.preprocess import check_value_range
from buckler.types import Float32Array, FloatArray, IntArray

Loader = Callable[[Sequence[int]], Float32Array]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Inputs that are loaded by position; each keeps its id in every selection."""

    ids: tuple[str, ...]
    labels: IntArray | None
    loader: Loader
    low: float = 0.0
    high: float = 1.0
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise InvalidInput("data must hold at least one input; got none")
        if len(set(self.ids)) != len(self.ids):
            seen = sorted(name for name in set(self.ids) if self.ids.count(name) > 1)[:3]
            raise InvalidInput(f"ids must differ, or inputs would share noise; got {show(seen)} more than once")
        if self.labels is not None and (self.labels.shape != (len(self.ids),) or (self.labels < 0).any()):
            raise InvalidInput(f"labels must be one class for each of {len(self.ids)} inputs; got {show(self.labels)}")

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, start: int, stop: int) -> Float32Array:
        """Return inputs ``[start, stop)`` as float32; one outside of the declared range raises InvalidInput."""
        where = range(start, stop) if self.positions is None else self.positions[start:stop]
        x = self.loader(where)
        flat = x.reshape(len(x), -1)
        with np.errstate(invalid="ignore"):
            bad = ~((flat >= self.low) & (flat <= self.high)).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            worst = flat[row][~((flat[row] >= self.low) & (flat[row] <= self.high))][0]
            raise InvalidInput(
                f"input {self.ids[start + row]!r} must lie in the declared range [{self.low:g}, {self.high:g}]; "
                f"got {worst}"
            )
        return x

    def select(self, *, every: int = 1, limit: int | None = None, ids: Iterable[str] | None = None) -> "Dataset":
        """Return every k-th input, or those with the given ids in the order of the data set; then at most ``limit``."""
        chosen = list(range(0, len(self.ids), check_whole("every", every, 1)))
        if ids is not None:
            wanted = set(ids)
            unknown = sorted(wanted - set(self.ids))
            if unknown:
                raise InvalidInput(f"ids must name inputs of the data ({self.ids[0]!r}, ...); got {unknown[0]!r}")
            chosen = [i for i in chosen if self.ids[i] in wanted]
        if limit is not None:
            chosen = chosen[: check_whole("limit", limit, 1)]
        if not chosen:
            raise InvalidInput(f"every, limit and ids must leave at least one input; got none of {len(self.ids)}")
        positions = chosen if self.positions is None else [self.positions[i] for i in chosen]
        return replace(
            self,
            ids=tuple(self.ids[i] for i in chosen),
            labels=None if self.labels is None else self.labels[chosen],
            positions=tuple(positions),
        )


def open_dataset(
    name: str | Path,
    *,
    labels: str | Path | None = None,
    resize: int | None = None,
    crop: int | None = None,
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Dataset:
    """Return the data set behind a name or path.

    ``labels`` is an ``.npy`` file of classes for arrays that come without. ``resize`` scales the shorter side of each
    image of a folder and ``crop`` cuts the centre. ``value_range`` is the declared range of arrays: bytes are spread
    over it, other numbers are taken as they are and must lie in it.
    """
    from buckler.sampling import arrays, images

    low, high = check_value_range(value_range)
    path = Path(name)
    if path.suffix not in {".npy", ".npz"}:
        _refuse("labels", labels, "arrays; these data bring their own")
        if (low, high) != (0.0, 1.0):
            raise InvalidInput(f"value_range is for arrays, and images lie in [0, 1]; got {low:g}, {high:g}")
    if not path.is_dir() or (path / "test_batch.bin").is_file():
        _refuse("resize", resize, "folders of images")
        _refuse("crop", crop, "folders of images")
    if str(name) == "digits":
        return digits()
    if not path.exists():
        raise InvalidInput(f"data must be 'digits' or an existing file or folder; got {str(name)!r}")
    if path.suffix in {".npy", ".npz"}:
        return arrays.open_array(path, labels=labels, low=low, high=high)
    if not path.is_dir():
        raise InvalidInput(f"data must be an .npy or .npz file, or a folder; got {str(name)!r}")
    if (path / "test_batch.bin").is_file():
        return arrays.open_cifar10(path)
    if (path / "test_batch").is_file():
        raise InvalidInput(
            f"data {str(name)!r} is the pickled version of CIFAR-10, and a pickle is a program; "
            "use the binary version (cifar-10-batches-bin) or an .npz file"
        )
    return images.open_folder(path, resize=resize, crop=crop)


def _refuse(name: str, value: object, what: str) -> None:
    """Raise InvalidInput for an argument that does not apply to these data."""
    if value is not None:
        raise InvalidInput(f"{name} is for {what}; got {show(value)}")


def bundled_digits() -> tuple[FloatArray, IntArray]:
    """Return scikit-learn's 1,797 handwritten digits ``[inputs, 8, 8]``, from 0 to 16, and their classes."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("scikit-learn", "demo") from None
    bunch = load_digits()
    return np.asarray(bunch.images, dtype=np.float64), np.asarray(bunch.target, dtype=np.int64)


def digits() -> Dataset:
    """Return the bundled digits, 1 x 8 x 8, scaled to [0, 1]."""
    images, labels = bundled_digits()
    return from_arrays(np.ascontiguousarray(images[:, None] / 16.0, dtype=np.float32), labels)


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
