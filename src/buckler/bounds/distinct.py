"""Rows of whole numbers that repeat: each is solved once."""

import numpy as np

from buckler.types import IntArray


def distinct(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the different rows of nonnegative columns of one shape, and where each entry's row lies among them.

    >>> rows, where = distinct(np.array([3, 1, 3]), np.array([5, 5, 5]))
    >>> rows.tolist(), where.tolist()
    ([[1, 5], [3, 5]], [1, 0, 1])
    """
    rows = np.stack([column.ravel() for column in columns], axis=1)
    base = int(rows.max(initial=0)) + 1
    if base ** len(columns) < 2**63:  # one number for each row: a million are sorted in a tenth of a second
        keys = rows @ base ** np.arange(len(columns) - 1, -1, -1)
        _, first, where = np.unique(keys, return_index=True, return_inverse=True)
        return rows[first], where.reshape(columns[0].shape)
    found, where = np.unique(rows, axis=0, return_inverse=True)
    return found, where.reshape(columns[0].shape)
