"""Votes and scores of one or several inputs, by an engine made for one call."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, exhaust
from buckler.sampling.simplex import score_map
from buckler.sampling.streams import Stream
from buckler.types import ArrayLike, FloatArray, IntArray, SimplexMap


def draw_counts(
    model: Any, x: ArrayLike, *, input_id: str | Sequence[str], n: int, stream: Stream, start: int = 0, **how: Any
) -> IntArray:
    """Return votes ``[m]`` for one input with one id, else ``[inputs, m]``."""
    engine, inputs, ids = _opened(model, x, input_id, how)
    with engine.session():
        counts = engine.votes(inputs, ids, stream, n, start)
    return np.asarray(counts[0] if isinstance(input_id, str) else counts)


def draw_scores(
    model: Any,
    x: ArrayLike,
    *,
    input_id: str | Sequence[str],
    n: int,
    stream: Stream,
    map: SimplexMap = "softmax",  # noqa: A002
    **how: Any,
) -> FloatArray:
    """Return scores ``[n, m]`` for one input with one id, else ``[inputs, n, m]``."""
    engine, inputs, ids = _opened(model, x, input_id, how)
    with engine.session():
        scores = exhaust(engine.score_steps(inputs, ids, stream, n, score_map(map, None)))
    return np.asarray(scores[0] if isinstance(input_id, str) else scores)


def _opened(
    model: Any, x: ArrayLike, input_id: str | Sequence[str], how: dict[str, Any]
) -> tuple[Engine, ArrayLike, Sequence[str]]:
    engine = Engine(as_classifier(model, num_classes=how.get("num_classes")), **how)
    if isinstance(input_id, str):
        return engine, np.asarray(x)[None], [input_id]
    return engine, x, list(input_id)
