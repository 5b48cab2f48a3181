"""Opening a Parquet file that may not be ours: what it would unfold to is known before any of it is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SMALL = 1 << 20
"""Bytes that any table may have, whatever its rows."""


def open_table(path: Path, *, rows: int, row_bytes: int, memory_map: bool = False) -> pq.ParquetFile:
    """Return the table in a file of at most ``rows`` rows of about ``row_bytes`` bytes each; others raise ValueError.

    A few bytes of a compressed table can stand for any number of rows, so the sizes that its footer states are compared
    with what is expected.
    """
    try:
        table = pq.ParquetFile(path, memory_map=memory_map)
        found = table.metadata
        unfolded = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(problem) from None
    if not 0 < found.num_rows <= rows:
        raise ValueError(f"it has {found.num_rows} rows, and must have 1 to {rows}")
    if not 0 <= unfolded <= SMALL + found.num_rows * row_bytes:
        raise ValueError(f"it unfolds to {unfolded} bytes, too many for {found.num_rows} rows")
    return table
