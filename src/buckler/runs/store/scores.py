"""Writes and reads the scores of a shard: the selection draws of all inputs, then their estimation draws, in order."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import DamagedEvidence, show
from buckler.runs.spec import RunSpec
from buckler.runs.store.sealed import writing
from buckler.runs.store.tables import open_table
from buckler.types import AnyArray

NUMBERS_IN_A_GROUP = 1 << 20
"""Numbers in a row group of scores, which is held in memory when written and read."""

LARGEST_HALF = 65504.0
"""The largest finite float16; logits beyond it are clipped."""

HELD = 2
"""Row groups in memory while reading: inputs are read in order, alternating between their two streams."""


class ScoreWriter:
    """Writes rows of scores, given in draw order, in row groups of a fixed size."""

    def __init__(self, path: Path, ids: Sequence[str], spec: RunSpec) -> None:
        """Take the path, the inputs and the specification; the first rows fix the number of columns."""
        self._path, self._ids = path, pa.array(list(ids), pa.string())
        self._draws = {"selection": spec.n0, "estimation": spec.kept_draws}
        self._dtype = np.dtype(spec.score_dtype or "float32")
        self._writer: pq.ParquetWriter | None = None
        self._stream, self._position = "", 0
        self._pending: list[AnyArray] = []

    def begin(self, stream: str) -> None:
        """Finish the current stream and begin another."""
        self._flush(everything=True)
        self._stream, self._position = stream, 0

    def add(self, rows: AnyArray) -> None:
        """Take the next rows of the stream."""
        self._pending.append(rows)
        self._flush(everything=False)

    def close(self) -> None:
        """Write what is left."""
        self._flush(everything=True)
        if self._writer is not None:
            with writing(f"write {str(self._path)!r}"):
                self._writer.close()

    def _flush(self, *, everything: bool) -> None:
        if not self._pending:
            return
        size = max(1, NUMBERS_IN_A_GROUP // self._pending[0].shape[1])
        if not everything and sum(map(len, self._pending)) < size:
            return
        rows = np.concatenate(self._pending)
        stop = len(rows) if everything else len(rows) - len(rows) % size
        for start in range(0, stop, size):
            self._write(rows[start : min(start + size, stop)])
        self._pending = [rows[stop:]] if stop < len(rows) else []

    def _stored(self, rows: AnyArray) -> AnyArray:
        """Return the rows in the stored type: rounded to nearest, and clipped to its range."""
        if self._dtype == np.float16:
            rows = np.clip(rows, -LARGEST_HALF, LARGEST_HALF)
        return np.ascontiguousarray(rows, dtype=self._dtype)

    def _write(self, rows: AnyArray) -> None:
        which, draw = np.divmod(np.arange(self._position, self._position + len(rows)), self._draws[self._stream])
        self._position += len(rows)
        table = pa.table(
            {
                "id": pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), self._ids),
                "stream": pa.array([self._stream], pa.string()).dictionary_encode().take(pa.array([0] * len(rows))),
                "draw": pa.array(draw, pa.int64()),
                "scores": pa.FixedSizeListArray.from_arrays(pa.array(self._stored(rows).ravel()), rows.shape[1]),
            }
        )
        with writing(f"write {str(self._path)!r}"):
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path, table.schema, compression="zstd", use_dictionary=["id", "stream"]
                )
            self._writer.write_table(table, row_group_size=len(rows))


class ScoreFile:
    """Reads the scores of a shard, a row group at a time, in the stored type."""

    def __init__(self, path: Path, spec: RunSpec, inputs: int) -> None:
        """Open the file of a shard of ``inputs`` inputs; DamagedEvidence names a file with anything else."""
        self._path, self._inputs = path, inputs
        self._draws = {"selection": spec.n0, "estimation": spec.kept_draws}
        total = inputs * sum(self._draws.values())
        try:
            self._table = open_table(path, rows=total, row_bytes=64 + 8 * spec.num_classes, memory_map=True)
            found = self._table.metadata
            sizes = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
            if found.num_rows != total or min(sizes) < 1:
                raise ValueError(f"{found.num_rows} rows of scores, and there should be {total}")
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise self._damaged(problem) from None
        self._edges = np.concatenate([[0], np.cumsum(sizes)])
        self._held: dict[int, AnyArray] = {}

    def rows(self, stream: str, first: int, stop: int) -> Iterator[AnyArray]:
        """Yield the rows of a stream of the inputs ``[first, stop)`` in order, in pieces."""
        draws = self._draws[stream]
        before = 0 if stream == "selection" else self._inputs * self._draws["selection"]
        row, end = before + first * draws, before + stop * draws
        while row < end:
            group = int(np.searchsorted(self._edges, row, side="right")) - 1
            start, after = int(self._edges[group]), min(end, int(self._edges[group + 1]))
            yield self._group(group)[row - start : after - start]
            row = after

    def of(self, stream: str, position: int, draws: int) -> AnyArray:
        """Return the first ``draws`` rows of one input."""
        return np.concatenate(list(self.rows(stream, position, position + 1)))[:draws]

    def _group(self, group: int) -> AnyArray:
        if group not in self._held:
            for old in list(self._held)[: len(self._held) - HELD + 1]:
                del self._held[old]
            try:
                column = self._table.read_row_group(group, columns=["scores"])["scores"].combine_chunks()
                if column.null_count:
                    raise ValueError("scores that are not there")
                values = np.asarray(column.flatten())
                if values.dtype.kind != "f":
                    raise ValueError(f"scores of type {values.dtype}")
                self._held[group] = values.reshape(len(column), -1)
            except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError) as problem:
                raise self._damaged(problem) from None
        return self._held[group]

    def _damaged(self, problem: Exception) -> DamagedEvidence:
        return DamagedEvidence(f"{str(self._path)!r} is damaged: {show(str(problem), 100)}")
