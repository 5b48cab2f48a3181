"""What one shard holds, in memory and as a Parquet table.

The table has one row for each input, stream and checkpoint: id, label, a hash of the input, stream, n, the list of
votes, and the classes of the kept columns of scores. The bytes of its file depend on nothing but its content.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from buckler.errors import DamagedEvidence, show
from buckler.runs.spec import RunSpec
from buckler.runs.store.tables import open_table
from buckler.types import AnyArray, IntArray

LONGEST_NAME = 8192
"""Bytes of an id and its company in a row, at most about."""


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """What was drawn for a block of inputs. ``counts[input, checkpoint, class]`` are votes up to each checkpoint."""

    ids: tuple[str, ...]
    labels: IntArray | None
    inputs: tuple[str, ...]
    selection: IntArray | None
    counts: IntArray
    columns: IntArray | None
    rows: int


def encode(content: Shard, spec: RunSpec) -> pa.Table:
    """Return the table of a shard."""
    rows: list[tuple[str, int | None, str, str, int, AnyArray, AnyArray | None]] = []
    for i, name in enumerate(content.ids):
        label = None if content.labels is None else int(content.labels[i])
        columns = None if content.columns is None else content.columns[i]
        if content.selection is not None:
            rows.append((name, label, content.inputs[i], "selection", spec.n0, content.selection[i], columns))
        for n, votes in zip(spec.checkpoints, content.counts[i], strict=True):
            rows.append((name, label, content.inputs[i], "estimation", n, votes, columns))
    votes_type = pa.list_(pa.int64())
    kinds = [pa.string(), pa.int64(), pa.string(), pa.string(), pa.int64(), votes_type, votes_type]
    names = ["id", "label", "input", "stream", "n", "counts", "columns"]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def decode(path: Path, spec: RunSpec, rows: int) -> Shard:
    """Return the shard in a file, or name the file if it holds anything else."""
    points, m = len(spec.checkpoints), spec.num_classes
    step = points + (spec.n0 > 0)
    try:
        opened = open_table(path, rows=spec.shard_inputs * step, row_bytes=LONGEST_NAME + 32 * m)
        table = opened.read(use_threads=False).combine_chunks()
        # Votes are read as one flat array: a million inputs must not pass through Python numbers.
        flat = np.asarray(table["counts"].combine_chunks().flatten(), dtype=np.int64)
        votes = flat.reshape(table.num_rows // step, step, m)
        sizes = np.array([*([spec.n0] if spec.n0 else []), *spec.checkpoints])
        # Votes that do not add up were not drawn; a certificate must not be made of them.
        if (votes < 0).any() or (votes.sum(axis=2) != sizes).any():
            raise ValueError("votes that do not add up to their number of draws")
        head = table.take(pa.array(np.arange(0, table.num_rows, step)))
        labels, columns = head["label"], head["columns"].to_pylist()
        return Shard(
            ids=tuple(head["id"].to_pylist()),
            labels=None if labels.null_count else labels.to_numpy().astype(np.int64),
            inputs=tuple(head["input"].to_pylist()),
            selection=votes[:, 0] if spec.n0 else None,
            counts=votes[:, -points:],
            columns=None if columns[0] is None else np.asarray(columns, dtype=np.int64),
            rows=rows,
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError, AttributeError) as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {show(str(problem), 100)}") from None
