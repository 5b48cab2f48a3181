"""A shard: the draws of a block of inputs, in memory and as a Parquet table.

The table has a row for each input, stream and checkpoint: id, label, hash of the input, stream, n, the list of votes,
and the classes of the columns of scores. The bytes of its file depend on its content alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckler.errors import DamagedEvidence, show
from buckler.runs.spec import RunSpec
from buckler.runs.store.tables import open_table
from buckler.types import IntArray

LONGEST_NAME = 8192
"""Bytes of an id, a label, a hash and a stream's name in a row, at most about."""


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The draws of a block of inputs. ``counts[input, checkpoint, class]`` are votes up to each checkpoint.

    ``input_hashes`` are hashes of the inputs' values, ``columns`` the classes of the scores that are kept, ``rows`` the
    rows of the batches used. ``drawn_by`` is the record of the model (``runs.identity``) and ``replayed`` counts rows
    that were run again and those of them that gave other bits; both go into the seal. ``seconds`` of drawing are not
    kept.
    """

    ids: tuple[str, ...]
    labels: IntArray | None
    input_hashes: tuple[str, ...]
    selection: IntArray | None
    counts: IntArray
    columns: IntArray | None
    rows: int
    seconds: float = 0.0
    drawn_by: Mapping[str, Any] = field(default_factory=dict)
    replayed: tuple[int, int] = (0, 0)


def encode(content: Shard, spec: RunSpec) -> pa.Table:
    """Return the table of a shard."""
    inputs, m = len(content.ids), spec.num_classes
    points = ([spec.n0] if content.selection is not None else []) + list(spec.checkpoints)
    streams = (["selection"] if content.selection is not None else []) + ["estimation"] * len(spec.checkpoints)
    step, which = len(points), np.repeat(np.arange(inputs), len(points))
    first = [] if content.selection is None else [content.selection[:, None]]
    votes = np.concatenate([*first, content.counts], axis=1).reshape(-1, m)
    columns = pa.nulls(inputs * step, pa.list_(pa.int64()))
    return pa.table(
        {
            "id": pa.array(content.ids, pa.string()).take(pa.array(which)),
            "label": pa.nulls(inputs * step, pa.int64()) if content.labels is None else pa.array(content.labels[which]),
            "input": pa.array(content.input_hashes, pa.string()).take(pa.array(which)),
            "stream": pa.array(streams * inputs, pa.string()),
            "n": pa.array(np.tile(np.asarray(points, dtype=np.int64), inputs)),
            "counts": _lists(votes),
            "columns": columns if content.columns is None else _lists(content.columns[which]),
        }
    )


def _lists(rows: IntArray) -> pa.Array:
    """Return a list array of the rows, made without Python objects."""
    edges = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(edges), pa.array(np.ascontiguousarray(rows, dtype=np.int64).ravel()))


def decode(path: Path, spec: RunSpec, inputs: int, rows: int) -> Shard:
    """Return the shard of ``inputs`` inputs in a file; DamagedEvidence names a file with anything else."""
    points, m = len(spec.checkpoints), spec.num_classes
    step = points + (spec.n0 > 0)
    try:
        opened = open_table(path, rows=inputs * step, row_bytes=LONGEST_NAME + 32 * m)
        table = opened.read(["id", "label", "input", "counts", "columns"], use_threads=False).combine_chunks()
        # Votes are read as one flat array, without Python objects.
        flat = np.asarray(table["counts"].combine_chunks().flatten(), dtype=np.int64)
        votes = flat.reshape(inputs, step, m)
        sizes = np.array([*([spec.n0] if spec.n0 else []), *spec.checkpoints])
        if (votes < 0).any() or (votes.sum(axis=2) != sizes).any():
            raise ValueError("votes that do not add up to their number of draws")
        firsts = table.take(pa.array(np.arange(0, table.num_rows, step)))
        labels, columns = firsts["label"], firsts["columns"].to_pylist()
        return Shard(
            ids=tuple(firsts["id"].to_pylist()),
            labels=None if labels.null_count else labels.to_numpy().astype(np.int64),
            input_hashes=tuple(firsts["input"].to_pylist()),
            selection=votes[:, 0] if spec.n0 else None,
            counts=votes[:, -points:],
            columns=None if columns[0] is None else np.asarray(columns, dtype=np.int64),
            rows=rows,
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError, AttributeError) as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {show(str(problem), 100)}") from None
