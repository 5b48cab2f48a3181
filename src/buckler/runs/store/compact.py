"""Merges the shards of a run into one, or into a few of bounded size.

A merged shard counts from the moment its seal is renamed into place; the shards it was merged from then lie inside of
it, do not count any more (``folder.sort_out``), and are removed one after another. Killed at any moment, every input
is there once, and the next writer or ``compact`` removes what is left.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from buckler.runs.spec import RunSpec
from buckler.runs.store import folder
from buckler.runs.store.evidence import read_shard
from buckler.runs.store.folder import Place
from buckler.runs.store.lock import locked
from buckler.runs.store.scores import ScoreFile, ScoreWriter
from buckler.runs.store.sealed import temporary
from buckler.runs.store.shard import Shard
from buckler.runs.store.writer import Writer, check_shards
from buckler.types import IntArray

LARGEST = 1 << 30
"""Bytes of a merged shard, at most: of its votes in memory and its scores on disk."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Numbers of shards before and after merging."""

    before: int
    after: int


def compact(root: str | Path, *, largest: int = LARGEST) -> Compacted:
    """Merge neighbouring shards of a run, finished or not, after checking every file; return their numbers."""
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


def _groups(root: Path, spec: RunSpec, found: Sequence[Place], largest: int) -> Iterator[list[Place]]:
    """Yield groups of two or more neighbours that together have at most ``largest`` bytes."""
    group, held = list[Place](), 0
    votes = 8 * spec.num_classes * (len(spec.checkpoints) + (spec.n0 > 0))
    for place in found:
        scores = place.path(root, "scores")
        size = votes * place.count + (scores.stat().st_size if spec.kept_draws else 0)
        if group and (group[-1].stop != place.first or held + size > largest):
            if len(group) > 1:
                yield group
            group, held = [], 0
        group.append(place)
        held += size
    if len(group) > 1:
        yield group


def _merge(writer: Writer, group: Sequence[Place], owner: Mapping[str, Any]) -> Place:
    """Write the shard that holds what the shards of a group hold, and return its place."""
    root, spec = writer.root, writer.spec
    content = _joined([read_shard(root, place, spec, owner) for place in group])
    if content.columns is not None:
        place = Place(group[0].first, group[-1].stop)
        _merge_scores(root, spec, group, ScoreWriter(temporary(place.path(root, "scores")), content.ids, spec))
    return writer.append_parts(content, _coalesced([part for place in group for part in writer.parts(place)]))


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


def _merge_scores(root: Path, spec: RunSpec, group: Sequence[Place], writer: ScoreWriter) -> None:
    """Write the selection draws of all parts, then their estimation draws, a row group in memory at a time."""
    for stream in ("selection", "estimation"):
        writer.begin(stream)
        for place in group:
            for rows in ScoreFile(place.path(root, "scores"), spec, place.count).rows(stream, 0, place.count):
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
