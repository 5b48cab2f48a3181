"""Writes the shards of a run to its folder, one writer at a time, each shard whole or not at all; and merges them.

A merged shard counts from the moment its seal is renamed into place; the shards it was merged from then lie inside of
it, do not count any more (``folder.sort_out``), and are removed one after another. Killed at any moment, every input
is there once, and the next writer or ``compact`` removes what is left.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from buckler.errors import BucklerWarning, DamagedEvidence, StoreError
from buckler.runs.identity import Identity, admit, is_same
from buckler.runs.spec import NAMES, RunSpec, difference
from buckler.runs.store import folder
from buckler.runs.store.evidence import read_shard
from buckler.runs.store.folder import LOCK, ShardRange, locked
from buckler.runs.store.sealed import TEMPORARY, publish, read_sealed, temporary, write_sealed, writing
from buckler.runs.store.shard import (
    DAMAGE,
    PartialInput,
    ScoreFile,
    ScoreWriter,
    Shard,
    decode,
    decode_partial_input,
    encode,
    encode_partial_input,
)
from buckler.types import IntArray


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(
        self,
        root: Path,
        spec: RunSpec,
        manifest: Mapping[str, Any],
        done: Sequence[ShardRange],
        begun: Mapping[int, PartialInput] | None = None,
    ) -> None:
        """Take the manifest, the shards that are there and whole, in order, and the inputs that were begun."""
        self.root, self.spec, self.done, self.begun = root, spec, list(done), dict(begun or {})
        self._manifest = dict(manifest)

    @property
    def step_folder(self) -> Path:
        """The folder in which a step writes its files, before ``append`` gives them their names."""
        return self.root / folder.SHARDS

    @property
    def inputs_done(self) -> int:
        """The number of inputs that are there."""
        return sum(span.count for span in self.done)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges ``[first, stop)`` of inputs that are not there."""
        stops = [0, *(span.stop for span in self.done)]
        firsts = [*(span.first for span in self.done), int(self._manifest["inputs"])]
        return [(stop, first) for stop, first in zip(stops, firsts, strict=True) if stop < first]

    def read(self, span: ShardRange) -> Shard:
        """Return a shard that is there; its files were compared with their seal when the folder was opened."""
        return decode(span.path(self.root, "counts"), self.spec, span.count, 0)

    def parts(self, span: ShardRange) -> list[dict[str, Any]]:
        """Return the ranges of a shard's inputs that were drawn at once, and who drew them."""
        parts: list[dict[str, Any]] = folder.read_seal(self.root, span, self._manifest["owner"])["parts"]
        return parts

    def keep(self, begun: PartialInput) -> None:
        """Write the votes of an input that is under way, in place of those before."""
        self.begun[begun.first] = begun
        values = {"owner": self._manifest["owner"], **encode_partial_input(begun)}
        write_sealed(self.root / folder.begun_name(begun.first), values)

    def append(self, first: int, content: Shard) -> ShardRange:
        """Write a shard and seal it; a model that is new to the run is added to the manifest before."""
        known: list[dict[str, Any]] = self._manifest["drawn_by"]
        entry = admit(self.root, known, dict(content.drawn_by), allow=True)
        if entry not in known:
            self._manifest["drawn_by"] = [*known, entry]
            write_sealed(self.root / folder.MANIFEST, self._manifest)
        replayed, differed = content.replayed
        part = {"first": first, "count": len(content.ids), "rows": content.rows, "drawn_by": entry,
                "replayed": replayed, "differed": differed}  # fmt: skip
        return self.append_parts(content, [part])

    def append_parts(self, content: Shard, parts: Sequence[Mapping[str, Any]]) -> ShardRange:
        """Write a shard that holds what was drawn in parts, publish its files and seal them."""
        span = ShardRange(parts[0]["first"], parts[0]["first"] + len(content.ids))
        path = span.path(self.root, "counts")
        with writing(f"write {str(path)!r}"):
            table = encode(content, self.spec)
            pq.write_table(table, temporary(path), compression="zstd", use_dictionary=["id", "stream"])
        files = {}
        for part in ["counts", "scores"] if content.columns is not None else ["counts"]:
            publish(span.path(self.root, part))
            files[part] = folder.measure(span.path(self.root, part))
        seal = {"first": span.first, "count": span.count, "owner": self._manifest["owner"], "files": files,
                "parts": list(parts)}  # fmt: skip
        write_sealed(span.path(self.root, "seal"), seal)
        for begun in [begun for begun in self.begun if span.first <= begun < span.stop]:
            (self.root / folder.begun_name(begun)).unlink(missing_ok=True)
            del self.begun[begun]
        self.done = sorted([*self.done, span], key=lambda span: span.first)
        return span


@contextmanager
def open_writer(
    root: str | Path,
    spec: RunSpec,
    identity: Identity,
    *,
    inputs: int,
    repair: bool = False,
    allow_other_model: bool = False,
) -> Iterator[Writer]:
    """Yield a writer of a run that is begun or goes on; another specification, data or model is refused.

    ``repair`` sets damaged shards aside, so that they are drawn again; ``allow_other_model`` lets another model or
    environment go on with the run, which the manifest and the seals record.
    """
    root = Path(root)
    with writing(f"open {str(root)!r}"):
        if root.exists() and not (root / folder.MANIFEST).exists() and _foreign(root):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {_foreign(root)!r}")
        (root / folder.SHARDS).mkdir(parents=True, exist_ok=True)
        folder.check_own_shards(root)
    with locked(root):
        path = root / folder.MANIFEST
        moved = list[str]()
        manifest: dict[str, Any] | None = None
        holds_draws = bool(folder.sealed_names(root) or folder.begun_names(root))
        try:
            if path.exists():
                manifest, found = folder.read_manifest(root)
                if not holds_draws:
                    manifest = None  # no draws depend on it yet, so any setting may change
                else:
                    if spec.shard_inputs is None:
                        spec = replace(spec, shard_inputs=found.shard_inputs)  # what was begun with shards of a size
                    _compare(root, found.as_dict(), spec.as_dict())
        except DamagedEvidence:
            if not repair:
                raise
        owner = {"spec": spec.hash(), "data": identity.data}
        begun = manifest is not None
        if manifest is None:
            drawn_by = _drawn_by(root, owner) or [identity.as_dict()]
            manifest = {"spec": spec.as_dict(), "owner": owner, "inputs": inputs, "drawn_by": drawn_by}
        if manifest["owner"]["data"] != identity.data or manifest["inputs"] != inputs:
            raise StoreError(
                f"{str(root)!r} was begun with other data: ids, labels or values of inputs differ; use another folder"
            )
        admit(root, manifest["drawn_by"], identity.as_dict(), allow_other_model)
        done = check_shards(root, inputs, manifest["owner"], moved if repair else None)
        folder.clear_leftovers(root)
        if not begun:
            moved += folder.set_aside(root, [path]) if holds_draws else []
            write_sealed(path, manifest)
        under_way = _read_begun(root, spec, manifest["owner"], identity, moved if repair else None)
        if moved:
            listed = ", ".join(moved)
            warnings.warn(f"damaged files were set aside in {str(root)!r}: {listed}", BucklerWarning, stacklevel=3)
        yield Writer(root, spec, manifest, done, under_way)


def _read_begun(
    root: Path, spec: RunSpec, owner: Mapping[str, str], identity: Identity, moved: list[str] | None
) -> dict[int, PartialInput]:
    """Return the inputs that this model began, by position; a damaged file is set aside where ``moved`` is a list."""
    found: dict[int, PartialInput] = {}
    for name in folder.begun_names(root):
        try:
            values = read_sealed(root / name)
            begun = decode_partial_input(values, spec)
            if values.get("owner") != owner or name != folder.begun_name(begun.first):
                raise ValueError("it belongs to another run or input")
        except (DamagedEvidence, *DAMAGE) as problem:
            if moved is None:
                why = problem if isinstance(problem, DamagedEvidence) else f"{str(root / name)!r} is damaged: {problem}"
                raise DamagedEvidence(f"{why}; repair sets what is damaged aside and draws it again") from None
            moved += folder.set_aside(root, [root / name])
            continue
        if is_same(begun.drawn_by, identity.as_dict()):
            found[begun.first] = begun
    return found


def _foreign(root: Path) -> str | None:
    """Return the name of something in a folder that is not part of a run, None if there is nothing."""
    own = {folder.MANIFEST, folder.SHARDS, folder.DAMAGED, LOCK, *folder.begun_names(root)}
    names = sorted(path.name for path in root.iterdir())
    return next((name for name in names if name not in own and not name.startswith(TEMPORARY)), None)


def _compare(root: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse another specification; names of models and data are left out, what they stand for is compared."""
    there, now = ({k: v for k, v in spec.items() if k not in NAMES} for spec in (found, asked))
    if there != now:
        raise StoreError(
            f"{str(root)!r} holds draws with other settings: {difference(there, now)}; give the settings of the folder "
            "to go on with it, or another folder"
        )


def _drawn_by(root: Path, owner: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the models that drew a run whose manifest is lost, as its seals tell; seals of another run are refused."""
    known: list[dict[str, Any]] = []
    for span in folder.shard_ranges(root, 10**12)[0]:
        with suppress(DamagedEvidence):
            if read_sealed(span.path(root, "seal")).get("owner") != owner:
                raise StoreError(
                    f"{str(root)!r} has lost its manifest and holds shards of another run; use another folder"
                )
            parts = folder.read_seal(root, span, owner)["parts"]
            known += [part["drawn_by"] for part in parts if part["drawn_by"] not in known]
    return known


def check_shards(root: Path, inputs: int, owner: Mapping[str, str], moved: list[str] | None = None) -> list[ShardRange]:
    """Return the shards that are whole, in order, or name the first damaged one.

    With a list ``moved``, damaged shards are set aside and their files' new names added to it. Parts that a larger
    shard was merged from are removed once that one is known to be whole.
    """
    while True:
        found, strange = folder.shard_ranges(root, inputs)
        count, inside, overlapping = folder.sort_out(found)
        damaged = {name: _damaged(root, name, "this run has no such shard") for name in strange}
        damaged |= {span.name: _damaged(root, span.name, "it overlaps another shard") for span in overlapping}
        for span in count:
            try:
                folder.check_shard(root, span, owner)
            except DamagedEvidence as problem:
                damaged[span.name] = problem
        if not damaged:
            break
        if moved is None:
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            first = next(iter(damaged.values()))
            raise DamagedEvidence(
                f"{first}{more}; sampling with repair (--repair) sets what is damaged aside and draws it again"
            )
        for name in damaged:
            moved += folder.set_aside(root, folder.shard_files(root, name))
    for span in inside:
        _damaged(root, span.name, "it was merged into another shard")
        folder.remove_shard(root, span.name)
    return count


def _damaged(root: Path, name: str, why: str) -> DamagedEvidence:
    """Return the error for a damaged shard; raise StoreError for a seal of another format, which is left as it is."""
    path = root / folder.SHARDS / f"{name}.json"
    with suppress(DamagedEvidence):
        read_sealed(path)
    return DamagedEvidence(f"{str(path)!r} is damaged: {why}")


MERGED_SHARD_BYTES = 1 << 30
"""Bytes of a merged shard, at most: of its votes in memory and its scores on disk."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Numbers of shards before and after merging."""

    before: int
    after: int


def compact(root: str | Path, *, largest: int = MERGED_SHARD_BYTES) -> Compacted:
    """Check every file of a run, merge neighbouring shards, and return the numbers of shards before and after."""
    root = Path(root)
    folder.check_run(root)
    with locked(root):
        manifest, spec = folder.read_manifest(root)
        owner = manifest["owner"]
        before = len(folder.sealed_names(root))
        found = check_shards(root, manifest["inputs"], owner)
        folder.clear_leftovers(root)
        writer = Writer(root, spec, manifest, found)
        for group in _groups(root, spec, found, largest):
            merged = _merge(writer, group, owner)
            folder.check_shard(root, merged, owner)
            for part in group:
                folder.remove_shard(root, part.name)
        return Compacted(before, len(folder.sealed_names(root)))


def _groups(root: Path, spec: RunSpec, found: Sequence[ShardRange], largest: int) -> Iterator[list[ShardRange]]:
    """Yield groups of two or more neighbours that together have at most ``largest`` bytes."""
    group, held = list[ShardRange](), 0
    votes = 8 * spec.num_classes * (len(spec.checkpoints) + (spec.n0 > 0))
    for span in found:
        scores = span.path(root, "scores")
        size = votes * span.count + (scores.stat().st_size if spec.kept_draws else 0)
        if group and (group[-1].stop != span.first or held + size > largest):
            if len(group) > 1:
                yield group
            group, held = [], 0
        group.append(span)
        held += size
    if len(group) > 1:
        yield group


def _merge(writer: Writer, group: Sequence[ShardRange], owner: Mapping[str, Any]) -> ShardRange:
    """Write the shard that holds what the shards of a group hold, and return its place."""
    root, spec = writer.root, writer.spec
    content = _joined([read_shard(root, span, spec, owner) for span in group])
    if content.columns is not None:
        span = ShardRange(group[0].first, group[-1].stop)
        _merge_scores(root, spec, group, ScoreWriter(temporary(span.path(root, "scores")), content.ids, spec))
    return writer.append_parts(content, _coalesced([part for span in group for part in writer.parts(span)]))


def _joined(shards: Sequence[Shard]) -> Shard:
    def join(field: str) -> IntArray | None:
        values = [getattr(shard, field) for shard in shards]
        return None if any(value is None for value in values) else np.concatenate(values)

    return Shard(
        ids=tuple(name for shard in shards for name in shard.ids),
        labels=join("labels"),
        input_hashes=tuple(name for shard in shards for name in shard.input_hashes),
        selection=join("selection"),
        counts=np.concatenate([shard.counts for shard in shards]),
        columns=join("columns"),
        rows=min(shard.rows for shard in shards),
    )


def _merge_scores(root: Path, spec: RunSpec, group: Sequence[ShardRange], writer: ScoreWriter) -> None:
    """Write the selection draws of all parts, then their estimation draws, a row group in memory at a time."""
    for stream in ("selection", "estimation"):
        writer.begin(stream)
        for span in group:
            for rows in ScoreFile(span.path(root, "scores"), spec, span.count).rows(stream, 0, span.count):
                writer.add(rows)
    writer.close()


def _coalesced(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts with neighbours of one model and batch size joined."""
    made: list[dict[str, Any]] = []
    for part in parts:
        if made and (made[-1]["rows"], made[-1]["drawn_by"]) == (part["rows"], part["drawn_by"]):
            for name in ("count", "replayed", "differed"):
                made[-1][name] += part[name]
        else:
            made.append(dict(part))
    return made
