"""Scores -> the draws of each input, cut into the certified class and its rivals."""

from collections.abc import Iterator

import numpy as np

from buckler.bounds.betting import NO_EARLIER, earlier_moments
from buckler.certify.method import Draws
from buckler.errors import InvalidInput, check_float_array, check_label, show
from buckler.records import REST, ROW_SUM_TOLERANCE, Scores
from buckler.types import ArrayLike, FloatArray


def check_scores(name: str, scores: ArrayLike) -> FloatArray:
    """Return scores as float64 ``[n, m]`` or ``[inputs, n, m]``: nonnegative rows that sum to one within 5e-3."""
    array = check_float_array(name, scores)
    if array.ndim not in {2, 3} or 0 in array.shape or array.shape[-1] < 2:
        raise InvalidInput(f"{name} must have shape [n, m] or [inputs, n, m] with m >= 2; got shape {array.shape}")
    sums = array.sum(axis=-1)
    if array.min() < 0.0 or np.abs(sums - 1.0).max() > ROW_SUM_TOLERANCE:
        wrong = (array < 0.0).any(axis=-1) | (np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = f"draw {where[-1]}" if len(where) == 1 else f"input {where[0]}, draw {where[1]}"
        raise InvalidInput(
            f"{name} must be nonnegative and sum to one within {ROW_SUM_TOLERANCE}; "
            f"got {show(array[where].tolist())} at {at}"
        )
    return np.minimum(array, 1.0) if array.max() > 1.0 else array


def _columns(scores: Scores) -> Iterator[tuple[int, list[int]]]:
    for i, row in enumerate(scores.columns):
        if REST not in row and row.size < scores.num_classes:
            raise InvalidInput(
                f"scores must keep every class or hold a column of the rest ({REST}); "
                f"got {row.size} of {scores.num_classes} classes at input {i} ({scores.ids[i]})"
            )
        yield i, row.tolist()


def draws_of(scores: ArrayLike | Scores, label: ArrayLike, selection: ArrayLike | Scores | None) -> list[Draws]:
    """Return the draws of each input split into class A and its rivals, with moments from the selection sample.

    Kept columns may include the maximum of the rest: it is at least each of its members draw by draw, so a limit
    against it is one against each of them. Which columns are kept must not depend on the estimation draws.
    """
    if isinstance(scores, Scores):
        values, classes = scores.values, scores.num_classes
        labels = check_label(label, classes, values.shape[0])
        positions = []
        for i, row in _columns(scores):
            if int(labels[i]) not in row:
                raise InvalidInput(f"label must be a kept column; got {int(labels[i])}, kept {show(row)}, at input {i}")
            positions.append(row.index(int(labels[i])))
    else:
        values = check_scores("scores", scores)
        classes = values.shape[-1]
        labels = check_label(label, classes, values.shape[0] if values.ndim == 3 else None)
        positions = np.atleast_1d(labels).tolist()
    earlier: FloatArray | None = None
    if isinstance(selection, Scores):
        if not isinstance(scores, Scores) or not np.array_equal(selection.columns, scores.columns):
            raise InvalidInput("selection must keep the same columns as scores, or be left out where label is given")
        earlier = selection.values
    elif selection is not None:
        earlier = check_scores("selection", selection)
    if earlier is not None and (
        earlier.ndim != values.ndim
        or earlier.shape[-1] != values.shape[-1]
        or (values.ndim == 3 and earlier.shape[0] != values.shape[0])
    ):
        raise InvalidInput(
            f"selection must match scores in inputs and classes; got shapes {earlier.shape} and {values.shape}"
        )
    found = []
    stacked = values.reshape(-1, *values.shape[-2:])
    for i, position in enumerate(positions):
        by_class = stacked[i].T
        others = np.delete(np.arange(by_class.shape[0]), position)
        rivals = np.empty((others.size, by_class.shape[1]))
        rivals[:position], rivals[position:] = by_class[:position], by_class[position + 1 :]
        moments = np.zeros((others.size, NO_EARLIER.size))
        if earlier is not None:
            before = np.ascontiguousarray(earlier.reshape(-1, *earlier.shape[-2:])[i].T)
            moments = np.stack([earlier_moments(before[position], before[j]) for j in others])
        found.append(Draws(np.ascontiguousarray(by_class[position]), rivals, moments, classes))
    return found
