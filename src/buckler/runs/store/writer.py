"""Appending evidence to a folder: one writer at a time, shard after shard, each whole or not there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.spec import RunSpec, difference
from buckler.runs.store import folder
from buckler.runs.store.shard import Shard, encode
from buckler.types import AnyArray

NUMBERS_IN_A_GROUP = 1 << 20
"""Numbers in a row group of scores: what is held in memory before it is written."""

LARGEST_HALF = 65504.0
"""The largest finite float16: a logit beyond it must not become infinite."""


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(self, root: Path, spec: RunSpec, owner: Mapping[str, str], done: set[int]) -> None:
        """Hold the folder; ``done`` are the shards already there and whole."""
        self.root, self.spec, self.done = root, spec, done
        self._owner = dict(owner)

    @property
    def desk(self) -> Path:
        """The folder in which a ``ScoreWriter`` leaves its file for ``append``."""
        return self.root / folder.SHARDS

    def append(self, shard: int, content: Shard) -> None:
        """Write a shard's votes, publish its files and seal them."""
        path = folder.shard_path(self.root, shard, "counts")
        with folder.writing(f"write {str(path)!r}"):
            table = encode(content, self.spec)
            pq.write_table(table, folder.temporary(path), compression="zstd", use_dictionary=["id", "stream"])
        parts = ["counts", "scores"] if content.columns is not None else ["counts"]
        for part in parts:
            folder.publish(folder.shard_path(self.root, shard, part))
        files = {part: folder.measure(folder.shard_path(self.root, shard, part)) for part in parts}
        seal = {"format": folder.FORMAT, "shard": shard, "owner": self._owner, "files": files, "rows": content.rows}
        folder.write_sealed(folder.shard_path(self.root, shard, "seal"), seal)
        self.done.add(shard)


class ScoreWriter:
    """Takes rows of scores in draw order and writes them in groups of a fixed size."""

    def __init__(self, desk: Path, shard: int, ids: Sequence[str], spec: RunSpec) -> None:
        """Write to the folder ``desk``, under a temporary name; the number of columns is that of the first rows."""
        name = folder.temporary(folder.shard_path(desk, shard, "scores")).name
        self._path, self._ids = desk / name, pa.array(list(ids), pa.string())
        self._draws = {"selection": spec.n0, "estimation": spec.kept_draws}
        self._dtype = np.dtype(spec.score_dtype or "float32")
        self._writer: pq.ParquetWriter | None = None
        self._stream, self._position = "", 0
        self._pending: list[AnyArray] = []

    def begin(self, stream: str) -> None:
        """Finish the stream before, and start another."""
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
            with folder.writing(f"write {str(self._path)!r}"):
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
        """Return the rows as they are kept: to nearest, and at the end of the range where they are beyond it."""
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
        with folder.writing(f"write {str(self._path)!r}"):
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path, table.schema, compression="zstd", use_dictionary=["id", "stream"]
                )
            self._writer.write_table(table, row_group_size=len(rows))


@contextmanager
def open_writer(
    root: str | Path,
    spec: RunSpec,
    *,
    classifier: str,
    data: str,
    inputs: int,
    environment: Mapping[str, str],
    repair: bool = False,
    any_environment: bool = False,
) -> Iterator[Writer]:
    """Hold a folder for writing the evidence of a specification: begun, gone on with, or refused with the reason.

    ``repair`` removes damaged shards, which are then drawn again; ``any_environment`` goes on although the versions of
    the libraries or the device differ from those that began the run.
    """
    root = Path(root)
    owner = {"spec": spec.hash(), "classifier": classifier, "data": data}
    shards = -(-inputs // spec.shard_inputs)
    manifest: dict[str, Any] = {
        "format": folder.FORMAT,
        "spec": spec.as_dict(),
        "owner": owner,
        "inputs": inputs,
        "shards": shards,
        "environment": dict(environment),
    }
    with folder.writing(f"open {str(root)!r}"):
        if root.exists() and not (root / folder.MANIFEST).exists() and _foreign(root):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {_foreign(root)!r}")
    with folder.locked(root):
        folder.clear_temporary(root)
        path = root / folder.MANIFEST
        found: Mapping[str, Any] | None = None
        try:
            found = folder.read_manifest(root) if path.exists() else None
        except DamagedEvidence:
            if not repair:
                raise
        if found is not None:
            _compare(root, found, manifest, any_environment)
        done = _check_shards(root, owner, shards, known=found is not None, repair=repair)
        if found is None:
            folder.write_sealed(path, manifest)
        yield Writer(root, spec, owner, done)


def _foreign(root: Path) -> str | None:
    own = {folder.MANIFEST, folder.SHARDS, ".lock"}
    return next((p.name for p in sorted(root.iterdir()) if p.name not in own and not p.name.startswith(".tmp-")), None)


def _compare(root: Path, found: Mapping[str, Any], asked: Mapping[str, Any], any_environment: bool) -> None:
    if found["spec"] != asked["spec"]:
        raise StoreError(
            f"{str(root)!r} holds a run of another specification: {difference(found['spec'], asked['spec'])}"
        )
    for part in ("classifier", "data"):
        if found["owner"][part] != asked["owner"][part]:
            raise StoreError(
                f"{str(root)!r} was begun with another {part}: {found['owner'][part]} there, {asked['owner'][part]} now"
            )
    if found["inputs"] != asked["inputs"]:
        raise StoreError(f"{str(root)!r} was begun with {found['inputs']} inputs; there are {asked['inputs']} now")
    if found["environment"] != asked["environment"] and not any_environment:
        changes = difference(found["environment"], asked["environment"])
        raise StoreError(
            f"{str(root)!r} was begun in another environment: {changes}; "
            "draws would not be the same bytes (--any-environment goes on all the same)"
        )


def _check_shards(root: Path, owner: Mapping[str, str], shards: int, *, known: bool, repair: bool) -> set[int]:
    """Return the shards that are whole; the others are removed if ``repair``, or the first of them is named.

    Where the manifest is lost (not ``known``), sound shards of another run must not be taken for damage and removed.
    """
    done: set[int] = set()
    damaged: dict[int, DamagedEvidence] = {}
    for shard in folder.sealed_shards(root):
        try:
            seal = folder.read_sealed(folder.shard_path(root, shard, "seal"))
            if not known and seal.get("owner") != dict(owner):
                raise StoreError(f"{str(root)!r} has lost its manifest and holds shards of another run")
            if shard >= shards:
                raise DamagedEvidence(f"{str(folder.shard_path(root, shard, 'seal'))!r} is damaged: no such shard")
            folder.check_shard(root, shard, owner)
            done.add(shard)
        except DamagedEvidence as problem:
            damaged[shard] = problem
    if damaged and not repair:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        first = next(iter(damaged.values()))
        raise DamagedEvidence(f"{first}{more}; --repair draws what is damaged again, and nothing else")
    for shard in damaged:
        folder.remove_shard(root, shard)
    return done
