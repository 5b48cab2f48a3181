"""A sweep as one Parquet table: a row for each run, cell and input, readable by pandas, polars and duckdb."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckler.certificate import Claim
from buckler.errors import InvalidInput
from buckler.runs.store import certificates as store
from buckler.runs.store.tables import read_table, schema, write_table
from buckler.types import IntArray

SCHEMA = pa.schema(
    [
        *schema({"cell": "string", "run": "string", "folder": "string", "class": "string", "label": "int64?"}),
        *store.SCHEMA,
    ]
)


class SweepTable:
    """The cells of a sweep by name, with those of an earlier call in the same file."""

    def __init__(self, path: Path) -> None:
        """Read the file if it exists; ``save`` writes it."""
        self._path = path
        self._cells: dict[str, pa.Table] = _read(path) if path.exists() else {}

    def drawn(self, cell: str) -> str | None:
        """Return the hash of the evidence of a cell, None if there is no such cell."""
        return str(self._cells[cell]["run"][0]) if cell in self._cells else None

    def put(
        self,
        cell: str,
        certificates: Sequence[Claim],
        labels: IntArray | None,
        *,
        run: str,
        folder: str,
        certified_class: str,
    ) -> None:
        """Put the certificates of a cell, replacing earlier ones."""
        known = [None] * len(certificates) if labels is None else labels.tolist()
        origin = {"cell": cell, "run": run, "folder": folder, "class": certified_class}
        rows = [{**origin, "label": label, **c.as_dict()} for c, label in zip(certificates, known, strict=True)]
        self._cells[cell] = pa.Table.from_pylist(rows, schema=SCHEMA)

    def read(self, cell: str) -> tuple[list[Claim], IntArray | None]:
        """Return the certificates of a cell, each validated again, and the labels where they are known."""
        table = self._cells[cell]
        labels = table["label"]
        made = list(store.each_row(table.select(store.SCHEMA.names), self._path, store.claim_of))
        return made, None if labels.null_count else np.asarray(labels.to_numpy(), dtype=np.int64)

    def save(self, settings: Mapping[str, Any]) -> None:
        """Write all cells, whole or not at all, with the settings of the sweep; no file if there are no cells."""
        if not self._cells:
            return
        write_table(self._path, pa.concat_tables(self._cells.values()), settings)


def _read(path: Path) -> dict[str, pa.Table]:
    try:
        table, _ = read_table(path, row_bytes=8192, per_byte=8)
        if set(table.schema.names) != set(SCHEMA.names):
            raise ValueError("it has other columns")
        table = table.select(SCHEMA.names).cast(SCHEMA)
        names = table["cell"].to_numpy(zero_copy_only=False)
    except (ValueError, pa.ArrowException) as broken:
        raise InvalidInput(f"{str(path)!r} exists and is not a table of buckler sweep: {broken}") from None
    # The rows of a cell are contiguous.
    starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    return {str(names[a]): table.slice(a, b - a) for a, b in pairwise(starts)}
