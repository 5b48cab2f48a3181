"""Files written again by someone who knows how to seal them: what lies behind the checksums is reached."""

from pathlib import Path

import pyarrow as pa

from buckler.runs.store.parquet import read_table_origin, write_table


def rewrite(path: Path, table: pa.Table) -> None:
    """Put a table in the place of another, with that one's origin and a digest of its own rows."""
    write_table(path, table.replace_schema_metadata(None), read_table_origin(path, row_bytes=1 << 22))
