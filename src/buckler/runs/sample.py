"""A specification, a classifier and inputs -> evidence in a folder: the votes, and scores if asked for.

The inputs are cut into blocks; a block is one file (shard) of the folder and one task of a worker, about ten seconds of
drawing as measured with the blocks before. What is drawn for an input is a function of the specification and the data,
not of the block, so it can be drawn anywhere, again, and in any order. An input that takes longer than that is drawn in
pieces, and its votes so far are kept in the folder too, so that an interrupt costs ten seconds at most.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, check_positive, check_whole
from buckler.files import temporary
from buckler.runs.executor import Executor
from buckler.runs.identity import Lookup, begin, identify
from buckler.runs.spec import MOST_TOGETHER, RunSpec, ScoreKind
from buckler.runs.store.folder import ShardRange, open_writer
from buckler.runs.store.shard import PartialInput, ScoreWriter, Shard
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import KeptScores
from buckler.sampling.datasets import Dataset
from buckler.sampling.engine import Engine
from buckler.sampling.simplex import ScoreMap, score_map
from buckler.sampling.streams import Request, Stream, content_id
from buckler.session import SAVE_SECONDS, Interrupted, Sink
from buckler.types import OTHERS, Float32Array, FloatArray, IntArray

SECONDS = SAVE_SECONDS
"""Seconds of drawing that a block of inputs should take."""

PIECE = SECONDS / 2
"""Seconds of drawing that a piece of one input should take; its votes are saved after each."""

Span = tuple[Stream, int, int]
"""Draws of a stream from ``start`` to before ``stop``, which share batches: (stream, start, stop)."""

BLOCK_GROWTH = 4
"""Largest growth from one block or piece to the next: the first ones are too short for a good measurement."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive inputs from position ``first`` of the data on, which a worker draws together.

    ``before`` holds the votes so far of an input that was begun earlier, which is then the only one.
    """

    first: int
    ids: tuple[str, ...]
    labels: IntArray | None
    x: Float32Array
    before: PartialInput | None = None

    def groups(self, size: int) -> list[tuple["Block", slice]]:
        """Return the block in parts, each with the slice of its inputs in the block.

        Cuts are where the position of an input in the data is a multiple of ``size``.
        """
        edges = [0, *range(size - self.first % size, len(self.ids), size), len(self.ids)]
        return [
            (
                Block(self.first + a, self.ids[a:b], None if self.labels is None else self.labels[a:b], self.x[a:b]),
                slice(a, b),
            )
            for a, b in pairwise(edges)
        ]


class Blocks:
    """Iterator over the blocks of a run, cut off the missing inputs one after another as workers ask for them.

    A block has ``shard_inputs`` inputs if the specification says so; otherwise its size follows the time that the
    blocks before took, in whole groups of inputs that are drawn together.
    """

    def __init__(
        self,
        spec: RunSpec,
        dataset: Dataset,
        missing: Sequence[tuple[int, int]],
        begun: dict[int, PartialInput] | None = None,
        most: int | None = None,
    ) -> None:
        """Take the ranges ``(first, stop)`` of missing inputs, and in ``begun`` votes of half drawn ones by position.

        At most ``most`` inputs are given out.
        """
        self._spec, self._dataset, self._missing, self._begun = spec, dataset, missing, begun or {}
        self._left = len(dataset) if most is None else most
        self._size = spec.drawn_together

    def __iter__(self) -> Iterator[Block]:
        group = self._spec.drawn_together
        for start, stop in self._missing:
            first = start
            while first < stop:
                before = self._begun.get(first)
                size = min(self._size if before is None else 1, stop - first)
                if size > self._left:
                    size = self._left - self._left % group
                if self._spec.shard_inputs:
                    size = min(group - first % group, stop - first)
                if not 0 < size <= self._left:
                    return
                self._left -= size
                data = self._dataset
                labels = None if data.labels is None else data.labels[first : first + size]
                yield Block(first, data.ids[first : first + size], labels, data.load(first, first + size), before)
                first += size

    def took(self, inputs: int, seconds: float) -> None:
        """Choose the size of the next blocks, given that a block of ``inputs`` inputs took so many seconds."""
        group = self._spec.drawn_together
        wanted = min(SECONDS * inputs / max(seconds, 1e-9), BLOCK_GROWTH * inputs, MOST_TOGETHER)
        self._size = max(group, int(wanted) // group * group)


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of ``sample``: ``inputs_done`` of ``inputs`` are finished, in so many ``shards`` (files) of the folder.

    ``samples`` are the draws made by this call, of which ``lost`` were not kept; ``under_way`` counts kept draws of an
    unfinished input. ``rows`` is the smallest size of a batch that fitted into memory.
    """

    inputs_done: int
    inputs: int
    shards: int
    under_way: int
    samples: int
    lost: int
    seconds: float
    rows: int

    @property
    def complete(self) -> bool:
        """Whether every input is finished."""
        return self.inputs_done == self.inputs


def sample(
    spec: RunSpec,
    classifier: Classifier | Executor,
    dataset: Dataset,
    folder: str | Path,
    *,
    progress: Callable[[int, int, int], None] = lambda *_: None,
    max_seconds: float | None = None,
    max_samples: int | None = None,
    repair: bool = False,
    allow_other_model: bool = False,
) -> Summary:
    """Draw the votes that are missing in a folder and return a summary; the same call again draws the rest.

    ``classifier`` is one in this process, or an executor that runs it elsewhere; the files are the same.
    ``max_samples`` ends before a block that would exceed it, ``max_seconds`` at the first look at the clock after it;
    an interrupt raises ``Interrupted`` with the summary of what is kept. ``progress`` is called with the draws in the
    folder, the draws that the whole run needs, and those made by this call.

    A run goes on with the model, the environment and the data that began it (``runs.identity``). ``allow_other_model``
    lets another model or environment go on, which the files record. ``repair`` sets damaged files aside and draws what
    they held again.
    """
    started = time.monotonic()
    deadline = inf if max_seconds is None else started + check_positive("max_seconds", max_seconds)
    if max_samples is not None:
        max_samples = check_whole("max_samples", max_samples, 1)
    if dataset.labels is not None and (largest := int(dataset.labels.max())) >= spec.num_classes:
        shifted = largest == spec.num_classes and dataset.labels.min() > 0
        hint = ": labels begin at 0, and these seem to begin at 1" if shifted else ""
        raise InvalidInput(f"num_classes must be above the largest label, {largest}; got {spec.num_classes}{hint}")
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    each, drawn = spec.n + spec.n0, 0
    with open_writer(
        folder, spec, identity, inputs=len(dataset), repair=repair, allow_other_model=allow_other_model
    ) as writer:
        lookup = Lookup(dataset, writer.root)
        for place in writer.done:
            finished = writer.read(place)
            lookup.check(finished.ids, finished.input_hashes)
        most = None if max_samples is None else max_samples // each
        blocks = Blocks(writer.spec, dataset, writer.missing(), writer.begun, most)
        work = partial(begin, probe, identity.record, partial(draw_block, writer.spec), allow_other_model)

        def take(made: PartialInput | tuple[int, Shard]) -> None:
            if isinstance(made, PartialInput):
                writer.keep(made)
                return
            first, content = made
            blocks.took(len(content.ids), content.seconds)
            writer.append(first, content)

        def under_way() -> int:
            return sum(begun.done for begun in writer.begun.values())

        def summary() -> Summary:
            lost = there + drawn - writer.inputs_done * each - under_way()
            return Summary(
                writer.inputs_done, len(dataset), len(writer.done), under_way(), drawn, max(lost, 0),
                time.monotonic() - started, writer.rows,
            )  # fmt: skip

        there, total = writer.inputs_done * each + under_way(), len(dataset) * each
        try:
            for more in executor.run(work, blocks, take, writer.step_folder, deadline):
                drawn += more
                progress(min(there + drawn, total), total, drawn)
        except KeyboardInterrupt:
            raise Interrupted(summary()) from None
        return summary()


def _spans(spec: RunSpec) -> list[Span]:
    """Return the spans of an input: its selection draws, those with scores kept, and the rest."""
    kept = spec.kept_draws
    spans: list[Span] = [("selection", 0, spec.n0), ("estimation", 0, kept), ("estimation", kept, spec.n)]
    return [span for span in spans if span[1] < span[2]]


def draw_block(
    spec: RunSpec, engine: Engine, record: dict[str, Any], block: Block, folder: Path, sink: Sink
) -> Iterator[int]:
    """Draw a block in a worker: yield numbers of draws, write scores to ``folder``, and pass the result to ``sink``.

    That is the position of the block and its ``Shard`` of votes, or before it votes of a half drawn input. ``record``
    is that of the worker's model.
    """
    started, at_first = time.monotonic(), np.array(engine.replayed())
    if block.before is not None:
        at_first -= block.before.replayed

    def replayed() -> tuple[int, int]:
        compared, differed = (np.array(engine.replayed()) - at_first).tolist()
        return compared, differed

    def hand_over() -> None:
        so_far = votes[0].copy()
        sink(PartialInput(block.first, int(so_far.sum()), so_far, engine.rows, record, replayed()))

    votes = np.zeros((len(block.ids), 1 + len(spec.checkpoints), spec.num_classes), dtype=np.int64)
    columns = None
    if spec.scores != "none":
        columns = yield from _draw_with_scores(engine, spec, block, votes, folder)
    elif len(block.ids) == 1:
        yield from _draw_in_pieces(engine, spec, block, votes, hand_over)
    else:
        for group, rows in block.groups(spec.drawn_together):
            for span in _spans(spec):
                yield from _draw(engine, spec, group, span, votes[rows])
    counts, hashes = votes[:, 1:].cumsum(axis=1), tuple(content_id(row) for row in block.x)
    made = Shard(
        block.ids, block.labels, hashes, votes[:, 0] if spec.n0 else None, counts, columns, engine.rows,
        time.monotonic() - started, record, replayed(),
    )  # fmt: skip
    sink((block.first, made))


def _draw(engine: Engine, spec: RunSpec, group: Block, span: Span, votes: IntArray, **options: Any) -> Iterator[int]:
    """Yield the draws of a span of a group, and add its votes: row 0 is the selection, others end at checkpoints."""
    stream, start, stop = span
    points, rows = ((spec.n0,), slice(0, 1)) if stream == "selection" else (spec.checkpoints, slice(1, None))
    requests = [Request(i, start, stop) for i in range(len(group.ids))]
    votes[:, rows] += yield from engine.steps(group.x, group.ids, stream, requests, checkpoints=points, **options)


def _draw_with_scores(
    engine: Engine, spec: RunSpec, block: Block, votes: IntArray, folder: Path
) -> Generator[int, None, IntArray]:
    """Yield the draws of a block, span by span, write its scores to the folder, and return their columns."""
    make, groups = _scores(spec.scores, spec.temperature), block.groups(spec.drawn_together)
    columns = np.concatenate([_columns(engine, spec, group, make) for group, _ in groups])
    file = ShardRange(block.first, block.first + len(block.ids)).path(Path(), "scores")
    scores = ScoreWriter(folder / temporary(file).name, block.ids, spec)
    for span in _spans(spec):
        if span[1] == 0:
            scores.begin(span[0])
        for group, rows in groups:
            chosen = columns[rows] if OTHERS in columns else None
            kept = span[0] == "selection" or span[2] <= spec.kept_draws
            keep = KeptScores(make, scores.add, chosen) if kept else None
            yield from _draw(engine, spec, group, span, votes[rows], keep=keep)
    scores.close()
    return columns


def _draw_in_pieces(
    engine: Engine, spec: RunSpec, block: Block, votes: IntArray, hand_over: Callable[[], None]
) -> Iterator[int]:
    """Yield the draws left of one input in pieces of whole batches, and hand over its votes after each few seconds.

    The votes alone say how many draws are done, so that an interrupt at any place hands over a whole number of pieces.
    """
    if block.before is not None:
        votes[0] += block.before.votes
    saved = skip = int(votes.sum())
    batches, last = 1, spec.n + spec.n0
    try:
        for stream, first, stop in _spans(spec):
            low = min(first + skip, stop)
            skip -= low - first
            while low < stop:
                high, began = min(low + batches * spec.batch_size, stop), time.monotonic()
                yield from _draw(engine, spec, block, (stream, low, high), votes)
                low, took = high, time.monotonic() - began
                batches = max(1, int(min(BLOCK_GROWTH, PIECE / max(took, 1e-9)) * batches))
                if took >= PIECE / BLOCK_GROWTH and votes.sum() < last:
                    hand_over()
                    saved = int(votes.sum())
    finally:
        if saved < votes.sum() < last:
            hand_over()


def _columns(engine: Engine, spec: RunSpec, group: Block, make: ScoreMap) -> IntArray:
    """Return the columns whose scores are kept: all, or chosen on a first pass over the selection draws."""
    ids = group.ids
    if spec.runner_ups is None:
        return np.tile(np.arange(spec.num_classes, dtype=np.int64), (len(ids), 1))
    sums, first, rows = np.zeros((len(ids), spec.num_classes)), 0, list[Float32Array]()
    for drawn in engine.vote_steps(group.x, ids, "selection", spec.n0, keep=KeptScores(make, rows.append)):
        # In float64 and one after the other, so that the sums do not depend on how many rows come at a time.
        np.add.at(sums, np.arange(first, first + drawn) // spec.n0, np.concatenate(rows).astype(np.float64))
        first += drawn
        rows.clear()
    return choose_columns(sums, group.labels, spec.runner_ups)


def choose_columns(sums: FloatArray, labels: IntArray | None, runner_ups: int) -> IntArray:
    """Return the classes whose scores are kept, ``[inputs, columns]``: the label, if known, and the best others.

    There are ``runner_ups + 1`` others, those with the largest ``sums`` of selection scores, ``[inputs, classes]``. The
    last column is OTHERS, for the rest; where none would be left over, all classes are kept.
    """
    inputs, m = sums.shape
    width = runner_ups + 1 + (labels is not None)
    if width >= m:
        return np.tile(np.arange(m, dtype=np.int64), (inputs, 1))
    ranked = np.argsort(-sums, axis=1, kind="stable")
    rows = []
    for i in range(inputs):
        order = [] if labels is None else [int(labels[i])]
        order += [int(k) for k in ranked[i] if int(k) not in order]
        rows.append([*order[:width], OTHERS])
    return np.asarray(rows, dtype=np.int64)


def _scores(kind: ScoreKind, temperature: float | None) -> ScoreMap:
    if kind == "softmax" or kind == "sparsemax":  # noqa: PLR1714  (spelled out for the type checker)
        return score_map(kind, temperature)
    return lambda logits: logits
