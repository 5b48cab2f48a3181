"""Convert inputs to float32: floats as they are, bytes spread over a declared range.

Sigma and radii are in the units of the values that the model is given: 0.25 is strong noise for pixels in [0, 1] and
almost none for pixels up to 255. So the range of whole numbers must be declared; it is never guessed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, check_float_array, check_real, show
from buckler.noise import Gaussian
from buckler.noise.grid import GridNoise
from buckler.types import AnyArray, ArrayLike, Batches, Float32Array, Noise

ValueRange = tuple[float, float]

LARGEST_BYTE = 255.0


def check_value_range(value_range: ValueRange) -> ValueRange:
    """Return ``value_range`` as two finite numbers, the lower first; anything else raises InvalidInput."""
    try:
        low, high = (check_real("value_range", value) for value in value_range)
    except (TypeError, ValueError):
        raise InvalidInput(f"value_range must be two numbers, the lower first; got {show(value_range)}") from None
    if low >= high:
        raise InvalidInput(f"value_range must be two numbers, the lower first; got {show(value_range)}")
    return low, high


def from_bytes(pixels: AnyArray, value_range: ValueRange) -> Float32Array:
    """Return bytes as float32, spread evenly over ``value_range``: 0 becomes its low end and 255 its high end.

    >>> from_bytes(np.array([0, 51, 255], dtype=np.uint8), (0.0, 1.0)).tolist()
    [0.0, 0.20000000298023224, 1.0]
    >>> from_bytes(np.array([0, 51, 255], dtype=np.uint8), (0.0, 255.0)).tolist()
    [0.0, 51.0, 255.0]
    """
    low, high = value_range
    table = np.arange(LARGEST_BYTE + 1.0) * (high - low) / LARGEST_BYTE + low
    return table.astype(np.float32)[pixels]


def to_float32(name: str, x: ArrayLike, noise: Noise | None = None) -> Float32Array:
    """Return ``x`` as float32; numbers that are beyond its range, or that it moves too far, raise InvalidInput.

    ``check_moved`` says what is too far under a ``noise``; without one nothing is. Errors call ``x`` by ``name``.
    """
    with np.errstate(over="ignore"):
        values = np.asarray(check_float_array(name, x), dtype=np.float32, order="C")
    if not np.isfinite(values).all():
        raise InvalidInput(
            f"{name} must hold numbers within the range of float32; got {np.abs(np.asarray(x)).max():.3g}"
        )
    if noise is not None:
        check_moved(name, np.asarray(x), values, noise)
    return values


MOST_MOVED = 2.0**-10
"""How far the conversion to float32 may move a value, as a part of ``noise.unit`` (such as sigma)."""


def check_moved(name: str, x: AnyArray, values: Float32Array, noise: Noise) -> None:
    """Raise InvalidInput if ``values``, the float32 of ``x``, are farther from ``x`` than 2^-10 of ``noise.unit``.

    ``Gaussian`` checks this itself. In l0 the conversion is a part of the classifier: it commutes with ablation, and
    two inputs that differ in some values differ in no others after it.
    """
    if x.dtype in {np.float32, np.float16} or noise.norm == "l0" or isinstance(noise, Gaussian):
        return
    most, given = MOST_MOVED * noise.unit, np.asarray(x, dtype=np.float64)
    far = np.abs(given - values) > most
    if far.any():
        raise InvalidInput(
            f"{name} must hold numbers that float32 holds to within {most:.3g} (2^-10 of the unit of the noise, "
            f"{noise.unit:g}); got {float(given[far][0])!r}, whose float32 is {float(values[far][0])!r}. Shift or "
            "scale the input, and undo it inside of the model"
        )


def on_host(x: Any) -> Any:
    """Return a torch tensor as a NumPy array, detached and on the host; bfloat16 becomes float32.

    A list or tuple of tensors becomes a list of arrays. Anything else is returned unchanged.
    """
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "detach"):
        return [np.asarray(on_host(one)) for one in x]
    if not hasattr(x, "detach"):
        return x
    tensor = x.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def stacked(name: str, x: Any) -> Any:
    """Return the inputs of a torch DataLoader, of another iterable of batches or of a torch Dataset as one array.

    Of a batch that is a tuple, inputs and labels say, the first item is taken. Any other ``x`` is returned unchanged.
    Errors call it ``name``.
    """
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(x).__mro__]
    single = ("torch", "Dataset") in kinds and ("torch", "IterableDataset") not in kinds
    array_like = hasattr(x, "__array__") or hasattr(x, "detach") or isinstance(x, (list, tuple, str, bytes, Mapping))
    if not single and (array_like or not hasattr(x, "__iter__")):
        return x
    parts = []
    for batch in (x[i] for i in range(len(x))) if single else x:
        if isinstance(batch, Mapping):
            raise InvalidInput(
                f"{name} must hold arrays or (inputs, labels); its batches are dicts with {show(list(batch))}: pass "
                f"(batch[{next(iter(batch))!r}] for batch in {name})"
            )
        array = np.asarray(on_host(batch[0] if isinstance(batch, (list, tuple)) else batch))
        parts.append(array[None] if single else array)
    try:
        return np.concatenate(parts)
    except ValueError:
        shapes = show(sorted({part.shape for part in parts}))
        raise InvalidInput(f"{name} must hold at least one batch, and batches of one shape; got {shapes}") from None


def as_floats(name: str, x: Batches, value_range: ValueRange | None, noise: Noise | None = None) -> Float32Array:
    """Return inputs as float32: floats as they are, whole numbers only where their range is declared.

    ``x`` is an array or an iterable of batches (``stacked``); errors call it ``name``. With ``value_range``, bytes are
    spread over it (``from_bytes``), other numbers are taken as they are, and all must lie in it. Without, whole numbers
    are steps of the grid of a ``noise`` that has one, and raise InvalidInput otherwise.

    Floats of more bits are refused where float32 moves them too far for the ``noise`` (``check_moved``).
    """
    x = stacked(name, x)
    try:
        array: AnyArray = np.asarray(on_host(x))
    except ValueError:
        raise InvalidInput(f"{name} must be a rectangular array of numbers; got {show(x)}") from None
    if array.dtype.kind in "iu" and value_range is None and isinstance(noise, GridNoise):
        return noise.values(array)
    if array.dtype.kind in "iu" and value_range is None:
        raise InvalidInput(
            f"{name} must hold floats, or value_range = (low, high) must be given: the units of sigma and radius are "
            f"not known for whole numbers; got {array.dtype}"
        )
    if array.dtype == np.uint8 and value_range is not None:
        return from_bytes(array, value_range)
    values = to_float32(name, array, noise)
    if value_range is not None and values.size and not value_range[0] <= values.min() <= values.max() <= value_range[1]:
        raise InvalidInput(
            f"{name} must lie in the declared range [{value_range[0]:g}, {value_range[1]:g}]; "
            f"got values from {values.min():g} to {values.max():g}"
        )
    return values
