"""Parquet tables: written whole, with what they were made from; and opened although they may not be ours.

What a file would unfold to is known before any of it is read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from buckler.files import atomic_write, check_plain

ORIGIN = b"buckler"
"""A table's metadata under this key say, as JSON, what its rows were made from."""

SMALL = 1 << 20
"""Bytes that any table may have, whatever its rows."""

LARGE = 1 << 30
"""Bytes that the numbers of any table may take, whatever its rows."""

FEW = 100_000
"""Rows that any table may have, however small its file."""


def likely_rows(path: Path, per_byte: int = 1) -> int:
    """Return how many rows a file of this size can plausibly hold: even compressed, a row takes some bytes.

    Certificates take 2.3 bytes a row at the least; rows that repeat others, as in a sweep, take less.
    """
    try:
        return FEW + per_byte * path.stat().st_size
    except OSError:
        return FEW


def open_table(path: Path, *, rows: int, row_bytes: int, memory_map: bool = False) -> pq.ParquetFile:
    """Return the table in a file of at most ``rows`` rows of about ``row_bytes`` bytes each; others raise ValueError.

    A few bytes of a compressed table can stand for any number of rows, so the sizes that its footer states are compared
    with what is expected.
    """
    try:
        check_plain(path)
        table = pq.ParquetFile(path, memory_map=memory_map)
        found = table.metadata
        groups = [found.row_group(i) for i in range(found.num_row_groups)]
        unfolded = sum(group.total_byte_size for group in groups)
        # A column that repeats one value a million times has few bytes, and a million numbers in memory.
        numbers = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(problem) from None
    if not 0 < found.num_rows <= rows:
        raise ValueError(f"it has {found.num_rows} rows, and must have 1 to {rows}")
    expected = SMALL + found.num_rows * row_bytes
    if not 0 <= unfolded <= expected or not 0 <= 8 * numbers <= max(LARGE, expected):
        most = max(unfolded, 8 * numbers)
        raise ValueError(f"it unfolds to {most} bytes, too many for {found.num_rows} rows")
    return table


def schema(columns: Mapping[str, str | pa.DataType]) -> pa.Schema:
    """Return a schema from the types of its columns, by Arrow's names for them; ``?`` marks values that may be missing.

    >>> schema({"id": "string", "label": "int64?"}).field("label").nullable
    True
    """
    fields = []
    for name, kind in columns.items():
        named = isinstance(kind, str)
        of_type = pa.type_for_alias(str(kind).removesuffix("?")) if named else kind
        fields.append(pa.field(name, of_type, nullable=named and str(kind).endswith("?")))
    return pa.schema(fields)


def write_table(path: Path, table: pa.Table, origin: Mapping[str, Any] | None) -> None:
    """Write a table to ``path``, whole or not at all; ``origin`` says what it was made from."""
    if origin is not None:
        table = table.replace_schema_metadata({ORIGIN: json.dumps(dict(origin), sort_keys=True)})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
