"""Reading evidence back. Files are checked against their seals before they are used."""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckler.errors import DamagedEvidence, InvalidInput, StoreError, check_whole, show
from buckler.records import Counts, Scores
from buckler.runs.spec import RunSpec, from_dict
from buckler.runs.store import folder
from buckler.runs.store.shard import Shard, decode
from buckler.runs.store.tables import open_table
from buckler.sampling.simplex import to_simplex
from buckler.types import FloatArray, IntArray, SimplexMap

AHEAD = 4
"""Shards that are read while the one before them is used."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's evidence as it is on disk; made by ``open_evidence``. Files are checked when they are read."""

    root: Path
    spec: RunSpec
    manifest: Mapping[str, Any]
    shards: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether every input has been drawn."""
        return len(self.shards) == int(self.manifest["shards"])

    @property
    def inputs(self) -> int:
        """The number of inputs of the whole run."""
        return int(self.manifest["inputs"])

    def seals(self) -> Iterator[dict[str, Any]]:
        """Yield the seals of the shards that are there; their files are not compared."""
        for shard in self.shards:
            yield folder.read_sealed(folder.shard_path(self.root, shard, "seal"))

    def read_shards(self) -> Iterator[Shard]:
        """Yield the shards that are there, in the order of the inputs."""
        pool = ThreadPoolExecutor(AHEAD)
        try:
            waiting = deque(pool.submit(self._read, shard) for shard in self.shards[:AHEAD])
            for shard in (*self.shards[AHEAD:], *[None] * len(waiting)):
                content = waiting.popleft().result()
                if shard is not None:
                    waiting.append(pool.submit(self._read, shard))
                yield content
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, shard: int) -> Shard:
        seal = folder.check_shard(self.root, shard, self.manifest["owner"])
        return decode(folder.shard_path(self.root, shard, "counts"), self.spec, int(seal["rows"]))

    def counts(self, n: int | None = None) -> tuple[Counts, Counts | None, IntArray | None]:
        """Return the votes of the first ``n`` draws (all unless told), of the selection, and the labels where known."""
        points = self.spec.checkpoints
        wanted = self.spec.n if n is None else check_whole("n", n, 1)
        if wanted not in points:
            raise InvalidInput(f"n must be one of the checkpoints {', '.join(map(str, points))}; got {n}")
        names: list[str] = []
        votes, chosen, labels = [], [], []
        for shard in self.read_shards():
            # Copies of what is asked for, so that the other checkpoints of a million inputs are not held.
            names += shard.ids
            votes.append(shard.counts[:, points.index(wanted)].copy())
            if shard.selection is not None:
                chosen.append(shard.selection.copy())
            if shard.labels is not None:
                labels.append(shard.labels)
        if not votes:
            raise StoreError(f"{str(self.root)!r} holds no finished shard yet")
        ids = tuple(names)
        return (
            Counts(ids, np.concatenate(votes)),
            Counts(ids, np.concatenate(chosen)) if chosen else None,
            np.concatenate(labels) if labels else None,
        )

    def scores(
        self,
        n: int | None = None,
        map: SimplexMap | None = None,  # noqa: A002
        temperature: float | None = None,
    ) -> Iterator[tuple[Scores, Scores | None, int | None]]:
        """Yield for each input its scores, those of its selection stream, and its label: one input in memory at a time.

        Where logits were stored, ``map`` and ``temperature`` are chosen here; otherwise they are those of the run.
        """
        kind = self.spec.scores
        if kind == "none":
            raise StoreError(f"{str(self.root)!r} holds votes alone: it was sampled without --scores")
        if kind != "logits" and (map not in {None, kind} or temperature not in {None, self.spec.temperature}):
            raise InvalidInput(f"map and temperature are those of the run, {kind} at {self.spec.temperature}")
        kept = self.spec.kept_draws
        draws = kept if n is None else check_whole("n", n, 1, kept)
        chosen: SimplexMap = (map or "softmax") if kind == "logits" else kind
        heat = temperature if kind == "logits" else self.spec.temperature
        for shard, content in zip(self.shards, self.read_shards(), strict=True):
            rows = _read_scores(folder.shard_path(self.root, shard, "scores"), self.spec, len(content.ids))
            before = len(content.ids) * self.spec.n0
            for i, name in enumerate(content.ids):
                label = None if content.labels is None else int(content.labels[i])
                parts = [rows[before + i * kept :][:draws], rows[i * self.spec.n0 :][: self.spec.n0]]
                made = [
                    Scores((name,), values[None], content.columns[i][None], self.spec.num_classes, chosen, heat)
                    for part in parts
                    if len(part) and content.columns is not None
                    for values in [to_simplex(part, chosen, heat) if kind == "logits" else part]
                ]
                yield made[0], made[1] if self.spec.n0 else None, label


def _read_scores(path: Path, spec: RunSpec, inputs: int) -> FloatArray:
    draws = inputs * (spec.kept_draws + spec.n0)
    try:
        table = open_table(path, rows=draws, row_bytes=64 + 8 * spec.num_classes, memory_map=True)
        values = table.read(columns=["scores"])["scores"].combine_chunks()
        if len(values) != draws or values.null_count:
            raise ValueError(f"{len(values)} rows of scores, and there should be {draws}")
        with np.errstate(invalid="ignore"):  # what is no number is refused, and named, where it is used
            return np.asarray(values.flatten(), dtype=np.float64).reshape(draws, -1)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError) as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {show(str(problem), 100)}") from None


def open_evidence(root: str | Path) -> Evidence:
    """Return the evidence in a folder; a run that is not finished is read as far as it got."""
    root = Path(root)
    if not (root / folder.MANIFEST).is_file():
        raise StoreError(f"{str(root)!r} is not a run: it has no {folder.MANIFEST}")
    if (root / folder.SHARDS).is_symlink():
        raise StoreError(f"{str(root / folder.SHARDS)!r} must be a folder of its own, not a link")
    manifest = folder.read_manifest(root)
    try:
        spec = from_dict(manifest["spec"])
    except InvalidInput as problem:
        raise DamagedEvidence(f"{str(root / folder.MANIFEST)!r} is damaged: {problem}") from None
    if manifest["owner"]["spec"] != spec.hash():
        raise DamagedEvidence(f"{str(root / folder.MANIFEST)!r} is damaged: its specification has another hash")
    shards = int(manifest["shards"])
    return Evidence(root, spec, manifest, tuple(s for s in folder.sealed_shards(root) if s < shards))
