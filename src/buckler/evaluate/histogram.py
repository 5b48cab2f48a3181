"""How certified radii are spread: a grid of round numbers, and a histogram over it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

from buckler.errors import InvalidInput, check_float_array, check_positive, check_whole, check_whole_array
from buckler.records import Certificate
from buckler.types import ArrayLike, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Certified inputs by radius, ``[edges[i], edges[i+1])``: predicted right, wrong, or without a known label."""

    edges: FloatArray
    right: IntArray
    wrong: IntArray
    unlabelled: IntArray
    abstained: int


def round_grid(top: float, cells: int) -> FloatArray:
    """Return 0, step, 2 step, ... beyond ``top``, in at most ``cells + 1`` steps of 1, 2 or 5 times a power of ten.

    >>> round_grid(1.37, 4)
    array([0. , 0.5, 1. , 1.5])
    """
    rough = check_positive("top", top) / check_whole("cells", cells, 1)
    power = floor(log10(rough))
    # The quotient may round to just above a whole step, which is no reason to take a step five times as long.
    digit = next(d for d in (1, 2, 5, 10) if d >= rough / 10.0**power * (1.0 - 1e-9))
    count = floor(top / (digit * 10.0**power)) + 1
    # Rounding makes the grid the decimal numbers that are shown, not their neighbours.
    return np.array([round(i * digit * 10.0**power, max(0, ceil(-power))) for i in range(count + 1)])


def radius_histogram(certificates: Sequence[Certificate], labels: ArrayLike | None, edges: ArrayLike) -> Histogram:
    """Return how many certificates have their radius in each cell; abstentions are counted apart.

    The last cell holds everything from its lower edge on.
    """
    grid = check_float_array("edges", edges)
    if grid.ndim != 1 or grid.size < 2 or grid[0] != 0.0 or (np.diff(grid) <= 0.0).any():
        raise InvalidInput(f"edges must rise from 0; got {grid.tolist()}")
    truth = None if labels is None else check_whole_array("labels", labels)
    if truth is not None and truth.shape != (len(certificates),):
        raise InvalidInput(f"labels must hold one class for each of {len(certificates)} inputs; got {truth.shape}")
    counts = {kind: np.zeros(grid.size - 1, dtype=np.int64) for kind in ("right", "wrong", "unlabelled")}
    for i, certificate in enumerate(certificates):
        if certificate.predicted is None:
            continue
        cell = min(int(np.searchsorted(grid, certificate.radius, side="right")) - 1, grid.size - 2)
        kind = "unlabelled" if truth is None else "right" if certificate.predicted == truth[i] else "wrong"
        counts[kind][cell] += 1
    abstained = sum(certificate.abstained for certificate in certificates)
    return Histogram(grid, counts["right"], counts["wrong"], counts["unlabelled"], abstained)
