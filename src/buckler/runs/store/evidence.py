"""Reads the evidence of a run; files are compared with their seals before they are used."""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from buckler.errors import DamagedEvidence, InvalidInput, StoreError, check_choice, check_whole
from buckler.runs.identity import Provenance, provenance
from buckler.runs.spec import RunSpec
from buckler.runs.store import folder
from buckler.runs.store.folder import ShardRange
from buckler.runs.store.shard import ScoreFile, Shard, decode
from buckler.sampling.simplex import to_simplex
from buckler.types import AnyArray, FloatArray, IntArray, SimplexMap

if TYPE_CHECKING:
    from buckler.certify.scores import Scores

AHEAD = 4
"""Number of shards that are read ahead of the one in use."""

LOG_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
"""Columns of the usual log of radii; whoever reads one needs the first four."""


class RecordedVotes(NamedTuple):
    """Votes ``values[input, class]`` of some first draws, with the names of the inputs and the hashes of their values.

    ``selection`` are the votes of the selection draws, if there were any, and ``labels`` the true classes where known.
    """

    ids: tuple[str, ...]
    values: IntArray
    selection: IntArray | None
    labels: IntArray | None
    contents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a run on disk, made by ``open_evidence``; files are checked when they are read."""

    root: Path
    spec: RunSpec
    manifest: Mapping[str, Any]
    shards: tuple[ShardRange, ...]
    seals: tuple[Mapping[str, Any], ...]
    """What the seal of each shard says."""

    @property
    def complete(self) -> bool:
        """Whether every input has been drawn."""
        return self.inputs_done == self.inputs

    @property
    def inputs(self) -> int:
        """The number of inputs of the whole run."""
        return int(self.manifest["inputs"])

    @property
    def inputs_done(self) -> int:
        """The number of inputs that have been drawn."""
        return sum(span.count for span in self.shards)

    @property
    def replayed(self) -> tuple[int, int]:
        """Rows that were run again at other places of a batch, and how many of them gave other bits."""
        compared, differed = np.array([seal["replayed"] for seal in self.seals] or [(0, 0)]).sum(axis=0).tolist()
        return compared, differed

    def provenance(self) -> Provenance:
        """Return what is told of the models that drew the run."""
        drawn = [(seal["drawn_by"], span.count) for span, seal in zip(self.shards, self.seals, strict=True)]
        return provenance(drawn, self.replayed)

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

    def _read(self, span: ShardRange) -> Shard:
        """Return a shard after comparing its files with its seal."""
        folder.check_shard(self.root, span, self.manifest["owner"])
        return decode(span.path(self.root, "counts"), self.spec, span.count)

    def digest(self) -> str:
        """Return a hash of all draws, input by input: it does not depend on where shards begin and end."""
        total = hashlib.blake2b(digest_size=20, person=b"buckler-drawn-1")
        for span, shard in zip(self.shards, self.read_shards(), strict=True):
            scores = None if shard.columns is None else self._scores(span)
            for i, name in enumerate(shard.ids):
                label = None if shard.labels is None else int(shard.labels[i])
                total.update(json.dumps([span.first + i, name, label, shard.input_hashes[i]]).encode())
                for values in (shard.selection, shard.counts, shard.columns):
                    total.update(b"-" if values is None else values[i].tobytes())
                for stream in ("selection", "estimation") if scores is not None else ():
                    for rows in scores.rows(stream, i, i + 1) if scores is not None else ():
                        total.update(rows.tobytes())
        return total.hexdigest()

    def _scores(self, span: ShardRange) -> ScoreFile:
        return ScoreFile(span.path(self.root, "scores"), self.spec, span.count)

    def checkpoint(self, n: int | None) -> int:
        """Return the index of the checkpoint at ``n`` draws, by default the last."""
        points = self.spec.checkpoints
        wanted = self.spec.n if n is None else check_whole("n", n, 1)
        if wanted not in points:
            raise InvalidInput(f"n must be one of the checkpoints {', '.join(map(str, points))}; got {n}")
        return points.index(wanted)

    def counts(self, n: int | None = None) -> RecordedVotes:
        """Return the votes of the first ``n`` draws, by default of all."""
        point = self.checkpoint(n)
        # Of each shard one checkpoint is copied, so that the others are freed.
        read = [replace(shard, counts=shard.counts[:, point].copy()) for shard in self.read_shards()]
        if not read:
            raise StoreError(f"{str(self.root)!r} holds no finished shard yet")
        return RecordedVotes(
            tuple(name for shard in read for name in shard.ids),
            np.concatenate([shard.counts for shard in read]),
            _joined([shard.selection for shard in read]),
            _joined([shard.labels for shard in read]),
            tuple(content for shard in read for content in shard.input_hashes),
        )

    def scores(
        self,
        n: int | None = None,
        map: SimplexMap | None = None,  # noqa: A002
        temperature: float | None = None,
    ) -> Iterator["tuple[Scores, Scores | None, int | None]"]:
        """Yield for each input its scores, those of its selection draws, and its label; one input is in memory.

        ``map`` and ``temperature`` are for stored logits; other scores have those of the run.
        """
        for span, content in zip(self.shards, self.read_shards(), strict=True):
            yield from self.scores_of(span, content, n, map, temperature)

    def score_map(
        self,
        map: SimplexMap | None,  # noqa: A002
        temperature: float | None,
    ) -> tuple[SimplexMap, float | None]:
        """Return the map and the temperature of the scores: as asked for where logits were stored, else the run's."""
        kind = self.spec.scores
        if kind == "none":
            raise StoreError(
                f"{str(self.root)!r} holds votes alone; a method for scores needs a run sampled with scores"
            )
        if kind != "logits":
            if map not in {None, kind} or temperature not in {None, self.spec.temperature}:
                at = "" if kind == "sparsemax" else f" at temperature {self.spec.temperature or 1.0:g}"
                raise InvalidInput(
                    f"map and temperature must be those of the run, {kind}{at}; others need a run sampled with "
                    "--scores logits"
                )
            return kind, self.spec.temperature
        if map == "sparsemax" and temperature is not None:
            raise InvalidInput("temperature is for softmax scores; got map 'sparsemax'")
        check_choice("map", map or "softmax", ("softmax", "sparsemax"))
        return map or "softmax", temperature

    def scores_of(
        self,
        span: ShardRange,
        content: Shard,
        n: int | None = None,
        map: SimplexMap | None = None,  # noqa: A002
        temperature: float | None = None,
    ) -> Iterator["tuple[Scores, Scores | None, int | None]"]:
        """Yield what ``scores`` yields, for the inputs of one shard that has been read."""
        from buckler.certify.scores import Scores  # compiled code, loaded only where it is used

        chosen, temperature = self.score_map(map, temperature)
        kept = self.spec.kept_draws
        draws = kept if n is None else check_whole("n", n, 1, kept)
        stored_logits, rows = self.spec.scores == "logits", self._scores(span)
        for i, name in enumerate(content.ids):
            label = None if content.labels is None else int(content.labels[i])
            made = [
                Scores((name,), values[None], content.columns[i][None], self.spec.num_classes, chosen, temperature)
                for stream, size in (("estimation", draws), ("selection", self.spec.n0))
                if size and content.columns is not None
                for part in [_as_double(rows.of(stream, i, size))]
                for values in [to_simplex(part, chosen, temperature) if stored_logits else part]
            ]
            yield made[0], made[1] if self.spec.n0 else None, label


def _joined(parts: list[IntArray | None]) -> IntArray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _as_double(rows: AnyArray) -> FloatArray:
    with np.errstate(invalid="ignore"):  # NaN is refused where scores are used
        return np.asarray(rows, dtype=np.float64)


def refuse_log(path: Path) -> None:
    """Raise InvalidInput if the file at ``path`` is a log of radii; the message has the command that makes it a run."""
    header = list[str]()
    with suppress(OSError), path.open("rb") as file:  # a file that cannot be read is named by what reads it next
        header = file.readline(1000).decode("ascii", "replace").split()
    if set(LOG_COLUMNS[:4]) <= set(header):
        raise InvalidInput(
            f"{str(path)!r} is a log of radii; import it first, with the alpha, n and sigma that it was made with: "
            "buckler import LOG --alpha ALPHA --n N --sigma SIGMA --out FOLDER"
        )


def open_evidence(root: str | Path) -> Evidence:
    """Return the evidence in a folder; a run that is not finished is read as far as it got."""
    root = Path(root)
    if root.is_file():
        refuse_log(root)
        raise StoreError(
            f"{str(root)!r} is a file, but a run is a folder that buckler sample wrote; buckler report and buckler "
            "refute also read files of certificates and of decisions (.parquet)"
        )
    if not (root / folder.MANIFEST).is_file():
        routed = (root / folder.ROUTER / folder.MANIFEST).is_file()
        hint = "; it is a composition, which buckler certify reads" if routed else ""
        raise StoreError(f"{str(root)!r} is not a run: it has no {folder.MANIFEST}{hint}")
    folder.check_own_shards(root)
    manifest, spec = folder.read_manifest(root)
    shards = folder.shard_ranges(root, manifest["inputs"])
    for span in folder.overlapping(shards):
        raise DamagedEvidence(f"{str(span.path(root, 'seal'))!r} is damaged: it overlaps another shard")
    seals = [folder.read_seal(root, span, manifest["owner"]) for span in shards]
    return Evidence(root, spec, manifest, tuple(shards), tuple(seals))
