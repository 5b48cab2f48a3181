"""Votes as one Parquet table: an input a row, its counts on both streams."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import InvalidInput
from buckler.records import Counts
from buckler.runs.store.files import atomic_write


def write_counts(path: Path, selection: Counts, estimation: Counts) -> None:
    """Write both streams' votes of the same inputs to ``path``, whole or not at all."""
    if selection.ids != estimation.ids:
        raise InvalidInput("selection and estimation must be votes of the same inputs in the same order")
    table = pa.table(
        {
            "id": pa.array(selection.ids, pa.string()),
            "selection": pa.array(selection.values.tolist(), pa.list_(pa.int64())),
            "estimation": pa.array(estimation.values.tolist(), pa.list_(pa.int64())),
        }
    )
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_counts(path: Path) -> tuple[Counts, Counts]:
    """Return the votes of the selection and of the estimation stream."""
    try:
        table = pq.read_table(path)
        ids = tuple(table["id"].to_pylist())
        columns = [table[name].to_pylist() for name in ("selection", "estimation")]
    except (OSError, KeyError, pa.ArrowException) as broken:
        raise InvalidInput(f"counts must be a Parquet table of votes; {path} cannot be read: {broken}") from None
    return Counts(ids, np.array(columns[0])), Counts(ids, np.array(columns[1]))
