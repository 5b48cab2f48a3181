"""The maps from logits to the simplex: softmax at a temperature and sparsemax; last axis, NumPy or torch.

Each map is written once, in the operations that both array libraries spell alike, and looks up the library of what
it was given: torch is neither imported here nor needed for NumPy arrays.
"""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from buckler.errors import BucklerWarning, InvalidInput, check_choice, check_positive
from buckler.types import SimplexMap

Array = TypeVar("Array")
ScoreMap = Callable[[Any], Any]

SUM_TO_ONE = 1e-3
"""Distance from 1 below which a row's sum is taken to be that of probabilities. Heuristic: a warning rests on it."""


def _is_tensor(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _floating(logits: Any) -> Any:
    """Return the logits as a floating array of their own library, refusing what has no last axis of classes."""
    if not _is_tensor(logits):
        logits = np.asarray(logits)
        if logits.dtype.kind not in "iuf":
            raise InvalidInput(f"logits must hold numbers; got dtype {logits.dtype}")
        if logits.dtype.kind != "f":
            logits = logits.astype(np.float64)
    if logits.ndim == 0 or logits.shape[-1] < 2:
        raise InvalidInput(f"logits must have at least 2 classes on the last axis; got shape {tuple(logits.shape)}")
    if bool((logits.isnan() if _is_tensor(logits) else np.isnan(logits)).any()):
        raise InvalidInput("logits must not hold NaN")
    return logits


def softmax(logits: Array, temperature: float = 1.0) -> Array:
    """Return the softmax ``exp(z / T) / sum exp(z / T)`` of logits z at temperature T, over the last axis.

    It is computed from ``(z - max z) / T``, so that nothing overflows. Subtracting before dividing keeps the exact gaps
    between logits when T is tiny.

    >>> softmax(np.array([0.0, np.log(3.0)])).round(12)
    array([0.25, 0.75])
    >>> softmax(np.array([1e4, 1e4 - 1e-4]), temperature=1e-4).round(6)
    array([0.731059, 0.268941])
    """
    scale = check_positive("temperature", temperature)
    z: Any = _floating(logits)
    if _is_tensor(z):
        weights = ((z - z.amax(-1, keepdim=True)) / scale).exp()
        return weights / weights.sum(-1, keepdim=True)  # type: ignore[no-any-return]
    weights = np.exp((z - z.max(-1, keepdims=True)) / scale)
    return weights / weights.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def sparsemax(logits: Array) -> Array:
    """Return the Euclidean projection p of logits z onto the simplex, over the last axis (Martins & Astudillo 2016).

    ``p = max(z - tau, 0)``, where ``tau`` is fixed by ``sum p = 1``: with z sorted downwards, p is above 0 at the first
    k entries, for the largest k with ``1 + k z_k > z_1 + ... + z_k``.

    >>> sparsemax(np.array([1.0, 0.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """
    z: Any = _floating(logits)
    if _is_tensor(z):
        z = z - z.amax(-1, keepdim=True)
        ordered = z.sort(-1, descending=True).values
        rank = ordered.new_ones(ordered.shape).cumsum(-1)
    else:
        z = z - z.max(-1, keepdims=True)
        ordered = np.sort(z, axis=-1)[..., ::-1]
        rank = np.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    # Entries one or more below the top are outside of every support; without them the sums lose no digits.
    ordered = ordered.clip(-1.0, None)
    sums = ordered.cumsum(-1)
    size = (1.0 + rank * ordered > sums).sum(-1)[..., None]
    if _is_tensor(z):
        tau = (sums.gather(-1, size - 1) - 1.0) / size
        return (z - tau).clamp(min=0.0)  # type: ignore[no-any-return]
    tau = (np.take_along_axis(sums, size - 1, axis=-1) - 1.0) / size.astype(z.dtype)
    return np.maximum(z - tau, 0.0)  # type: ignore[no-any-return]


def to_simplex(logits: Array, map: SimplexMap = "softmax", temperature: float | None = None) -> Array:  # noqa: A002
    """Return the scores that ``map``, softmax or sparsemax, makes of logits; only softmax has a temperature, 1 if None.

    >>> to_simplex(np.array([0.0, 2.0]), "sparsemax")
    array([0., 1.])
    """
    if check_choice("map", map, ("softmax", "sparsemax")) == "softmax":
        return softmax(logits, 1.0 if temperature is None else temperature)
    if temperature is not None:
        raise InvalidInput(f"temperature must be None for {map}; got {temperature}")
    return sparsemax(logits)


def score_map(name: SimplexMap, temperature: float | None) -> ScoreMap:
    """Return the function ``logits -> to_simplex(logits, name, temperature)``; the arguments are checked at once.

    With softmax it warns, once, if the logits it is first given look like probabilities.
    """
    make: ScoreMap = partial(to_simplex, map=name, temperature=temperature)
    make(np.zeros(2))
    looked = name != "softmax"

    def scores(logits: Any) -> Any:
        nonlocal looked
        if not looked:
            looked = True
            if bool((logits >= 0).all()) and bool((abs(logits.sum(1) - 1.0) < SUM_TO_ONE).all()):
                warnings.warn(
                    "the model's outputs look like probabilities (every row sums to 1), and Softmax takes them for "
                    "logits: give the model without its last softmax, or smooth its votes",
                    BucklerWarning,
                    stacklevel=2,
                )
        return make(logits)

    return scores
