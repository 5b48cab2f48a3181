"""The exception family, and the validators that raise it.

Every message names the argument, what is allowed and what came. Validators return the value in its canonical
type, so that a public function validates and converts in one line.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite, nan
from typing import Any, TypeVar

import numpy as np

from buckler.types import ArrayLike, FloatArray, IntArray

Name = TypeVar("Name", bound=str)


class BucklerError(Exception):
    """The root of everything raised on purpose."""


class InvalidInput(BucklerError, ValueError):  # noqa: N818  (named for what the user did, like ValueError)
    """An argument outside of what is allowed."""


class UnsoundMethod(InvalidInput):
    """A method without a guarantee was asked for a certificate."""


class BucklerWarning(UserWarning):
    """A result that may surprise; commands say it in a line on stderr."""


class MissingExtra(BucklerError, ImportError):  # noqa: N818
    """An optional part is needed and not installed: ``MissingExtra(package, extra)``."""

    def __str__(self) -> str:
        package, extra = self.args
        # A clone can be installed before and after the package is published.
        return f"{package} is needed here; in a clone of buckler: pip install '.[{extra}]'"


class ClassifierError(BucklerError, RuntimeError):
    """A classifier raised, ended its process, or returned something else than one finite row of logits an input."""


class StoreError(BucklerError, OSError):
    """A run folder that cannot be written or read as asked."""


class DamagedEvidence(StoreError):  # noqa: N818
    """A file of a run is not the one that was written."""


def show(value: object, limit: int = 60) -> str:
    """Return a short one-line picture of a value for an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that has come before, or None if all are different."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_choice(name: str, value: Name, allowed: Sequence[str]) -> Name:
    """Return ``value`` if it is one of ``allowed``."""
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, allowed))}; got {show(value)}")
    return value


def check_real(name: str, value: object) -> float:
    """Return ``value`` as a finite float."""
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
"""Error probabilities below this are refused: from about 1e-230 on SciPy's betainc underflows."""


def check_alpha(alpha: object, name: str = "alpha") -> float:
    """Return an error probability, at least 1e-200 and below 1."""
    if type(alpha) is float and SMALLEST_ALPHA <= alpha < 1.0:
        return alpha
    number = check_real(name, alpha)
    if not SMALLEST_ALPHA <= number < 1.0:
        raise InvalidInput(f"{name} must be at least {SMALLEST_ALPHA:g} and below 1; got {show(alpha)}")
    return number


def check_risk(alpha: object, name: str = "alpha") -> float:
    """Return the error probability that a caller of a door allows, at least 1e-200 and at most 1/2.

    More than that is a confidence, given by mistake.
    """
    number = check_alpha(alpha, name)
    if number > 0.5:
        raise InvalidInput(
            f"{name} must be at most 0.5, since it is the probability of an error; got {number:g}, did you mean "
            f"{1 - number:.3g}?"
        )
    return number


def check_positive(name: str, value: object) -> float:
    """Return a finite number above zero."""
    if type(value) is float and 0.0 < value < inf:
        return value
    number = check_real(name, value)
    if number <= 0.0:
        raise InvalidInput(f"{name} must be above 0; got {show(value)}")
    return number


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return a whole number in [low, high]; floats are refused unless they are exactly whole."""
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
    """Return an int64 array of whole numbers of at least ``low``; fractions, NaN and booleans are refused."""
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
    """Return class counts as int64 ``[m]`` or ``[inputs, m]``: m >= 2, none negative, no row all zero."""
    array = check_whole_array(name, counts)
    if array.ndim not in {1, 2} or array.shape[-1] < 2 or array.size == 0:
        raise InvalidInput(f"{name} must have shape [m] or [inputs, m] with m >= 2 classes; got shape {array.shape}")
    empty = array.sum(axis=-1) == 0
    if empty.any():
        row = f" in row {int(np.argmax(empty))}" if array.ndim == 2 else ""
        raise InvalidInput(f"{name} must hold at least one draw; got all zeros{row}")
    return array


def check_label(label: ArrayLike, num_classes: int, inputs: int | None, name: str = "label") -> IntArray:
    """Return class indices in [0, num_classes): a scalar for one input, one per input for a batch."""
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
    """Return a float64 array of finite numbers."""
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
