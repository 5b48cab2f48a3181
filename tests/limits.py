"""Limits of scores of many inputs at once, as arrays."""

import numpy as np

from buckler.certify.scores import Scores, as_scores, draws_of, limit_of
from buckler.types import ArrayLike, FloatArray, Limit, MarginKind


def score_margin_lower(
    scores: ArrayLike | Scores,
    label: ArrayLike,
    alpha: float = 1e-3,
    margin: MarginKind = "probability",
    limit: Limit = "star",
    selection: ArrayLike | Scores | None = None,
    *,
    uniform: ArrayLike = 1.0,
) -> FloatArray:
    """Return the lower limit of the margin of class ``label``: of one input's rows one number, else one an input.

    ``scores`` are ``[draws, classes]``, ``[inputs, draws, classes]`` or a ``Scores``, ``selection`` likewise.
    """
    single = not isinstance(scores, Scores) and np.ndim(scores) == 2

    def record(name: str, given: ArrayLike | Scores) -> Scores:
        return as_scores(name, np.asarray(given)[None] if single else given)

    rows, earlier = record("scores", scores), None if selection is None else record("selection", selection)
    labels = np.broadcast_to(np.asarray(label), len(rows.values)).tolist()
    numbers = np.broadcast_to(np.asarray(uniform, dtype=np.float64), len(labels)).tolist()
    found = [
        limit_of(limit, draws_of(rows, i, k, earlier, u), alpha, margin)
        for i, (k, u) in enumerate(zip(labels, numbers, strict=True))
    ]
    return np.asarray(found[0] if single else found)
