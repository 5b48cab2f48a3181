"""Writes Parquet tables whole, with checksums and a record of their origin; reads files that may be damaged or foreign.

A table's metadata hold a sealed record: the format, the version, what the rows were made from, and a digest of the
rows. Pages have checksums too. What a file would unfold to is compared with a limit before any of it is read: its
footer is parsed here, since pyarrow's ``RowGroupMetaData.column`` ends the process (``std::terminate``) for some
damaged footers, so that no Python code can refuse them.

Format of the footer: https://parquet.apache.org/docs/file-format/metadata/ in the Thrift compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from buckler.files import atomic_write, check_plain, parse_json, sealed, unsealed

RECORD = b"buckler"
"""The key of the sealed record in a table's metadata."""

BYTES_OF_ANY_TABLE = 1 << 20
"""Bytes that any table may unfold to, beside the bytes expected of its rows."""

NUMBER_BYTES_OF_ANY_TABLE = 1 << 30
"""Bytes that the numbers of a table may take in memory, however few bytes its rows are expected to have."""

ROWS_OF_ANY_TABLE = 100_000
"""Rows that any table may have, however small its file."""


def likely_rows(path: Path) -> int:
    """Return the most rows that a table of this size is expected to have: certificates take 2.3 bytes a row or more."""
    try:
        return ROWS_OF_ANY_TABLE + path.stat().st_size
    except OSError:
        return ROWS_OF_ANY_TABLE


def open_table(path: Path, *, rows: int, row_bytes: int, memory_map: bool = False) -> pq.ParquetFile:
    """Return the table in a file of at most ``rows`` rows of about ``row_bytes`` bytes each; others raise ValueError.

    A few bytes of a compressed table can stand for any number of rows, so the sizes that its footer states are compared
    with what is expected.
    """
    try:
        check_plain(path)
        numbers = number_of_values(path)
        table = pq.ParquetFile(path, memory_map=memory_map, page_checksum_verification=True)
        found = table.metadata
        unfolded = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(problem) from None
    if not 0 < found.num_rows <= rows:
        raise ValueError(f"it has {found.num_rows} rows, and must have 1 to {rows}")
    expected = BYTES_OF_ANY_TABLE + found.num_rows * row_bytes
    # A column that repeats one value a million times has few bytes, and a million numbers in memory.
    if not 0 <= unfolded <= expected or not 8 * numbers <= max(NUMBER_BYTES_OF_ANY_TABLE, expected):
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


def write_table(path: Path, table: pa.Table, origin: Mapping[str, Any]) -> None:
    """Write a table to ``path``, whole or not at all; ``origin`` says what it was made from."""
    record = sealed({"origin": dict(origin), "rows": rows_digest(table)})
    table = table.replace_schema_metadata({RECORD: json.dumps(record, sort_keys=True, allow_nan=False)})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def read_table(path: Path, *, row_bytes: int) -> tuple[pa.Table, dict[str, Any]]:
    """Return a table that ``write_table`` wrote, after comparing its rows with their digest, and its origin.

    Anything else raises ValueError, or StoreError for another format.
    """
    opened = open_table(path, rows=likely_rows(path), row_bytes=row_bytes)
    record = _record(opened, path)
    try:
        table = opened.read()
        if rows_digest(table) != record.get("rows"):
            raise ValueError("its rows are not those that were written")
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(problem) from None
    return table, _origin(record)


def read_table_origin(path: Path, *, row_bytes: int) -> dict[str, Any]:
    """Return the origin of a table without reading its rows; errors are those of ``read_table``."""
    return _origin(_record(open_table(path, rows=likely_rows(path), row_bytes=row_bytes), path))


def _record(opened: pq.ParquetFile, path: Path) -> dict[str, Any]:
    text = (opened.schema_arrow.metadata or {}).get(RECORD)
    if text is None:
        raise ValueError("the file was not written by buckler: its metadata lack our record")
    return unsealed(parse_json(text), path)


def _origin(record: Mapping[str, Any]) -> dict[str, Any]:
    origin = record.get("origin")
    if not isinstance(origin, dict):
        raise ValueError("it does not say what it was made from")
    return origin


def rows_digest(table: pa.Table) -> str:
    """Return a hash of a table's columns: names, types and values, however they are chunked or encoded."""
    digest = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"{name}:{len(column)};".encode())
        for part in _values(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)):
            digest.update(part)
    return digest.hexdigest()


def _values(array: pa.Array) -> Iterator[bytes]:
    """Yield the type and the values of an array as bytes, missing ones marked."""
    kind = array.type
    yield np.packbits(np.asarray(array.is_null())).tobytes() if array.null_count else b"whole"
    if pa.types.is_map(kind):
        pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        yield from _values(array.cast(pa.list_(pairs)))
    elif pa.types.is_list(kind):
        yield b"list" + np.asarray(pc.fill_null(pc.list_value_length(array), 0)).tobytes()
        yield from _values(array.flatten())
    elif pa.types.is_struct(kind):
        for field in array.flatten():
            yield from _values(field)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield b"text" + np.asarray(pc.fill_null(pc.binary_length(array), 0)).tobytes()
        yield b"".join(pc.fill_null(array.cast(pa.binary()), b"").to_pylist())
    else:
        yield str(kind).encode() + np.asarray(pc.fill_null(array, pa.scalar(0).cast(kind))).tobytes()


MAGIC = b"PAR1"
LARGEST_FOOTER = 1 << 26
"""Bytes of a footer, at most: that of a gigabyte of scores has less than one."""

DEEPEST_NESTING = 16
"""Structures inside of one another, at most: Parquet's own have eight levels."""

ROW_GROUPS_FIELD, COLUMNS_FIELD, METADATA_FIELD, NUM_VALUES_FIELD = 4, 1, 3, 5
"""Numbers of the fields FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data, ColumnMetaData.num_values."""


def number_of_values(path: Path) -> int:
    """Return the number of values that the columns of a Parquet file claim to hold; ValueError for a broken footer."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        end = file.read(8)
        length = int.from_bytes(end[:4], "little")
        if len(end) < 8 or end[4:] != MAGIC or not 0 < length <= min(size - 8, LARGEST_FOOTER):
            raise ValueError("it does not end as a Parquet file does")
        file.seek(size - 8 - length)
        data = file.read(length)
    try:
        footer = _Reader(data).struct()
        columns = [column for group in footer.get(ROW_GROUPS_FIELD, []) for column in group.get(COLUMNS_FIELD, [])]
        counts = [column[METADATA_FIELD][NUM_VALUES_FIELD] for column in columns]
        if any(count < 0 for count in counts):
            raise ValueError("it claims a negative number of values")
        return int(sum(counts))
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("its footer is broken") from None


class _Reader:
    """Reads values of the Thrift compact protocol; an IndexError or ValueError is a value that is not one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a structure by their numbers."""
        if depth > DEEPEST_NESTING:
            raise ValueError("its footer is nested too deeply")
        fields, number = dict[int, Any](), 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._whole()
            kind = head & 15
            fields[number] = kind == 1 if kind in {1, 2} else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in {1, 2, 3}:  # a boolean in a list, or a byte
            return self._byte()
        if kind in {4, 5, 6}:
            return self._whole()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in {9, 10}:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > len(self._data) - self._at:  # every element has a byte at least
                raise ValueError("its footer is broken")
            return [self._value(head & 15, depth) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("its footer is broken")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("its footer is broken")
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("its footer is broken")

    def _whole(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
