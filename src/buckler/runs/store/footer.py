"""The footer of a Parquet file, read without pyarrow: how many values its columns claim to hold.

pyarrow's ``RowGroupMetaData.column`` ends the process (``std::terminate``) for some damaged footers, so that no Python
code can refuse them; its ``read`` raises. The number of values must be known before anything is read, since a few bytes
can stand for any number of repeated values.

Format: https://parquet.apache.org/docs/file-format/metadata/ in the Thrift compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import os
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
LARGEST_FOOTER = 1 << 26
"""Bytes of a footer, at most: that of a gigabyte of scores has less than one."""

DEEPEST = 16
"""Structures inside of one another, at most: Parquet's own have eight levels."""

ROW_GROUPS, COLUMNS, COLUMN_METADATA, NUM_VALUES = 4, 1, 3, 5
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
        columns = [column for group in footer.get(ROW_GROUPS, []) for column in group.get(COLUMNS, [])]
        counts = [column[COLUMN_METADATA][NUM_VALUES] for column in columns]
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
        if depth > DEEPEST:
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
