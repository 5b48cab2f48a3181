"""The exceptions of this package, and functions that check arguments and raise them.

Every message names the argument, what is allowed and what came. The functions return the value in its canonical type,
so that a public function checks and converts in one line.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite, nan
from typing import Any, TypeVar

import numpy as np

from buckler.types import ArrayLike, FloatArray, IntArray

Name = TypeVar("Name", bound=str)


class BucklerError(Exception):
    """Base class of every exception that this package raises on purpose."""


class InvalidInput(BucklerError, ValueError):  # noqa: N818  (named for what the user did, like ValueError)
    """Raised for an argument that is not allowed; the message names it, what is allowed and what came."""


class UnsoundMethod(InvalidInput):
    """Raised where a certificate is asked of a method without a proof, or of one that is known to fail."""


class BucklerWarning(UserWarning):
    """Warning that a result may surprise; commands print it in one line on stderr."""


class MissingExtra(BucklerError, ImportError):  # noqa: N818
    """Raised where a package of an optional extra is not installed: ``MissingExtra(package, extra)``."""

    def __str__(self) -> str:
        package, extra = self.args
        # A clone can be installed before and after the package is published.
        return f"{package} is needed here; in a clone of buckler: pip install '.[{extra}]'"


class ClassifierError(BucklerError, RuntimeError):
    """Raised where a classifier fails, ends its process, or does not return one row of finite logits for each input."""


class StoreError(BucklerError, OSError):
    """Raised where a file or a folder of a run cannot be written, or cannot be read as asked."""


class DamagedEvidence(StoreError):  # noqa: N818
    """Raised for a file of a run that is missing, or has changed since it was written."""


def show(value: object, limit: int = 60) -> str:
    """Return ``repr(value)`` in one line, cut after ``limit`` characters, for an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs a second time, or None if all names are different."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_choice(name: str, value: Name, allowed: Sequence[str]) -> Name:
    """Return ``value`` if it is one of ``allowed``; else raise InvalidInput about the argument ``name``."""
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, allowed))}; got {show(value)}")
    return value


def check_real(name: str, value: object) -> float:
    """Return ``value`` as a float; raise InvalidInput about the argument ``name`` if it is no finite number."""
    if type(value) is float and isfinite(value):  # most of a million certificates' fields come this way
        return value
    try:
        number = nan if isinstance(value, (bool, np.bool_, str, bytes)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not isfinite(number):
        raise InvalidInput(f"{name} must be a finite number; got {show(value)}")
    return number


SMALLEST_ALPHA = 1e-200
"""Smallest error probability that is allowed: below about 1e-230 SciPy's betainc underflows."""


def check_alpha(alpha: object, name: str = "alpha") -> float:
    """Return ``alpha`` as a float; raise InvalidInput about the argument ``name`` unless it is in [1e-200, 1)."""
    if type(alpha) is float and SMALLEST_ALPHA <= alpha < 1.0:
        return alpha
    number = check_real(name, alpha)
    if not SMALLEST_ALPHA <= number < 1.0:
        raise InvalidInput(f"{name} must be at least {SMALLEST_ALPHA:g} and below 1; got {show(alpha)}")
    return number


def check_risk(alpha: object, name: str = "alpha") -> float:
    """Return ``alpha`` as a float; raise InvalidInput about the argument ``name`` unless it is in [1e-200, 0.5].

    A number above 0.5, as 0.999, is taken for a confidence level that was given by mistake.
    """
    number = check_alpha(alpha, name)
    if number > 0.5:
        raise InvalidInput(
            f"{name} must be at most 0.5, since it is the probability of an error; got {number:g}, did you mean "
            f"{1 - number:.3g}?"
        )
    return number


def check_positive(name: str, value: object) -> float:
    """Return ``value`` as a float; raise InvalidInput about the argument ``name`` unless it is finite and above 0."""
    if type(value) is float and 0.0 < value < inf:
        return value
    number = check_real(name, value)
    if number <= 0.0:
        raise InvalidInput(f"{name} must be above 0; got {show(value)}")
    return number


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int; raise InvalidInput about ``name`` unless it is whole and in [low, high].

    None for ``high`` is no upper end. A float such as 3.0 is whole.
    """
    if type(value) is int and low <= value and (high is None or value <= high):
        return value
    # A whole number does not pass through a float, where 2^53 + 1 would be 2^53.
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    number = int(value) if is_whole else check_real(name, value)  # type: ignore[call-overload]
    allowed = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    if number != int(number) or number < low or (high is not None and number > high):
        raise InvalidInput(f"{name} must be {allowed}; got {show(value)}")
    return int(number)


def check_whole_array(name: str, values: ArrayLike, low: int = 0) -> IntArray:
    """Return ``values`` as an int64 array; raise InvalidInput unless all are whole numbers of at least ``low``.

    ``name`` is that of the argument, for the message. Booleans are refused.
    """
    try:
        array: Any = np.asarray(values)
    except ValueError:
        raise InvalidInput(f"{name} must be a rectangular array of whole numbers; got rows of unequal length") from None
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"{name} must hold whole numbers; got dtype {array.dtype} ({show(values)})")
    bad = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = bad | (array != np.floor(array)) | (np.abs(array) > 2.0**53)
    bad = bad | (array < low)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = f" at position {where if len(where) != 1 else where[0]}" if where else ""
        raise InvalidInput(f"{name} must hold whole numbers of at least {low}; got {array[where]}{at}")
    return np.asarray(array, dtype=np.int64)


def check_counts(name: str, counts: ArrayLike) -> IntArray:
    """Return counts of votes, ``[classes]`` or ``[inputs, classes]``, as int64; else raise InvalidInput about ``name``.

    There must be at least two classes, no negative count, and at least one vote in each row.
    """
    array = check_whole_array(name, counts)
    if array.ndim not in {1, 2} or array.shape[-1] < 2 or array.size == 0:
        raise InvalidInput(f"{name} must have shape [m] or [inputs, m] with m >= 2 classes; got shape {array.shape}")
    empty = array.sum(axis=-1) == 0
    if empty.any():
        row = f" in row {int(np.argmax(empty))}" if array.ndim == 2 else ""
        raise InvalidInput(f"{name} must hold at least one draw; got all zeros{row}")
    return array


def check_label(label: ArrayLike, num_classes: int, inputs: int | None, name: str = "label") -> IntArray:
    """Return class indices as int64: a scalar if ``inputs`` is None, else an array of that length.

    InvalidInput about ``name`` if the shape is another, or an index is not in [0, num_classes).
    """
    array = check_whole_array(name, label, low=-(2**62))
    shape: tuple[int, ...] = () if inputs is None else (inputs,)
    if array.shape != shape:
        wanted = "one class" if inputs is None else f"one class for each of the {inputs} inputs"
        raise InvalidInput(f"{name} must be {wanted}; got shape {array.shape}")
    bad = (array < 0) | (array >= num_classes)
    if bad.any():
        raise InvalidInput(f"{name} must be a class from 0 to {num_classes - 1}; got {int(array[bad].flat[0])}")
    return array


def check_float_array(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a float64 array; raise InvalidInput about ``name`` unless all are finite numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iuf":
            raise ValueError
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a rectangular array of numbers; got {show(values)}") from None
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidInput(f"{name} must hold finite numbers; got {array[where]} at position {where}")
    return array
