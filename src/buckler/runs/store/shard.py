"""A shard: the draws of a block of inputs, in memory and as a Parquet table.

The table has a row for each input, stream and checkpoint: id, label, hash of the input, stream, n, the list of votes,
and the classes of the columns of scores. The bytes of its file depend on its content alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import DamagedEvidence, show
from buckler.files import writing
from buckler.runs.identity import Record, is_record, replayed_in
from buckler.runs.spec import RunSpec
from buckler.runs.store.parquet import open_table
from buckler.types import AnyArray, IntArray

LONGEST_NAME = 8192
"""Bytes of an id, a label, a hash and a stream's name in a row, at most about."""


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The draws of a block of inputs. ``counts[input, checkpoint, class]`` are votes up to each checkpoint.

    ``input_hashes`` are hashes of the inputs' values, ``columns`` the classes of the scores that are kept. The seal
    holds ``rows``, the rows of the batches used; ``drawn_by``, the record of the model (``runs.identity``); and
    ``replayed``, the numbers of rows that were run again and of those that gave other bits. ``seconds`` of drawing are
    not kept.
    """

    ids: tuple[str, ...]
    labels: IntArray | None
    input_hashes: tuple[str, ...]
    selection: IntArray | None
    counts: IntArray
    columns: IntArray | None
    rows: int = 0
    seconds: float = 0.0
    drawn_by: Record = field(default_factory=dict)
    replayed: tuple[int, int] = (0, 0)


class PartialInput(NamedTuple):
    """Votes of the first ``done`` draws, selection draws included, of an input that is not finished.

    Row 0 of ``votes`` counts the selection draws, row k the estimation draws from checkpoint k - 1 to checkpoint k;
    unlike ``Shard.counts``, rows do not add up. ``first`` is the input's place; other fields are as in ``Shard``.
    """

    first: int
    done: int
    votes: IntArray
    rows: int
    drawn_by: Record
    replayed: tuple[int, int]


DAMAGE = (ValueError, TypeError, KeyError, IndexError)


def encode_partial_input(begun: PartialInput) -> dict[str, Any]:
    """Return the fields of a JSON file; votes are a list of ``[row, class, count]``, without counts of 0."""
    places = np.argwhere(begun.votes)
    votes = [[*place, int(begun.votes[tuple(place)])] for place in places.tolist()]
    return {**begun._asdict(), "votes": votes, "drawn_by": dict(begun.drawn_by), "replayed": list(begun.replayed)}


def decode_partial_input(values: Mapping[str, Any], spec: RunSpec) -> PartialInput:
    """Return what ``encode_partial_input`` wrote; an error of the kinds in ``DAMAGE`` is raised for anything else."""
    first, done, rows = (values[name] for name in ("first", "done", "rows"))
    listed = values["votes"]
    if not isinstance(listed, list) or not is_record(values.get("drawn_by")):
        raise ValueError("it does not hold votes")
    numbers = [first, done, rows, *(number for row in listed for number in row)]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("it holds something else than whole numbers")
    votes = np.zeros((1 + len(spec.checkpoints), spec.num_classes), dtype=np.int64)
    for point, k, count in listed:
        votes[point, k] = count
    ends = np.minimum(spec.checkpoints, max(done - spec.n0, 0))
    sizes = [min(done, spec.n0), *np.diff(ends, prepend=0).tolist()]
    if votes.sum(axis=1).tolist() != sizes or sum(sizes) != done:
        raise ValueError("it holds votes that do not add up to their number of draws")
    return PartialInput(first, done, votes, rows, values["drawn_by"], replayed_in(values))


def encode(content: Shard, spec: RunSpec) -> pa.Table:
    """Return a shard as an Arrow table: for each input a row for the selection, if any, and one for each checkpoint."""
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


def decode(path: Path, spec: RunSpec, inputs: int) -> Shard:
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
            selection=votes[:, 0].copy() if spec.n0 else None,  # a view would hold the votes of every checkpoint
            counts=votes[:, -points:],
            columns=None if columns[0] is None else np.asarray(columns, dtype=np.int64),
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError, AttributeError) as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {show(str(problem), 100)}") from None


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
        """Write the rows still buffered and close the file."""
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
        """Return the first ``draws`` rows of scores of the input at ``position`` in a stream."""
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
