"""A specification, a classifier and inputs -> evidence in a folder.

The inputs are cut into blocks (``runs.blocks``); a block is one shard of the store and the unit of work. What is drawn
for an input is a function of the specification and the data, not of the block, so it can be drawn anywhere, again, and
in any order.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, check_positive, check_whole
from buckler.runs.executor import Executor, Job, Step, StepContext
from buckler.runs.identity import Expected, identify
from buckler.runs.resume import check_finished
from buckler.runs.spec import MOST_TOGETHER, RunSpec, ScoreKind
from buckler.runs.store.folder import Place
from buckler.runs.store.sealed import temporary
from buckler.runs.store.shard import ScoreWriter, Shard
from buckler.runs.store.writer import Writer, open_writer
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import KeptScores
from buckler.sampling.datasets import Dataset
from buckler.sampling.engine import Engine, exhaust, score_map
from buckler.sampling.streams import Request, Stream, content_id
from buckler.types import OTHERS, Float32Array, FloatArray, IntArray

SECONDS = 10.0
"""The work of a block: what a kill or an interrupt can cost."""

GROWTH = 4
"""Times that a block may be larger than the one that was measured: the first ones are too short to measure well."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Inputs one after another, from the one at position ``first``, and the name of the file for their scores."""

    first: int
    ids: tuple[str, ...]
    labels: IntArray | None
    x: Float32Array
    score_file: str = ""

    def groups(self, size: int) -> list["Block"]:
        """Return the block cut where the position of an input is a multiple of ``size``."""
        edges = [0, *range(size - self.first % size, len(self.ids), size), len(self.ids)]
        return [
            Block(self.first + a, self.ids[a:b], None if self.labels is None else self.labels[a:b], self.x[a:b])
            for a, b in pairwise(edges)
        ]


class Blocks:
    """Cuts blocks off the inputs that are missing, one after another as they are asked for, and loads them.

    A block is named by the position of its first input. Where the specification gives the size of a shard, that is the
    size; otherwise it follows the time that the blocks before took, in whole groups of inputs that are drawn together.
    """

    def __init__(
        self, spec: RunSpec, dataset: Dataset, missing: Sequence[tuple[int, int]], *, most: int | None
    ) -> None:
        """Take the ranges of inputs to draw; at most ``most`` inputs are given out."""
        self._spec, self._dataset, self._missing = spec, dataset, missing
        self._left = len(dataset) if most is None else most
        self._size = spec.drawn_together
        self._stops: dict[int, int] = {}

    def __iter__(self) -> Iterator[int]:
        group = self._spec.drawn_together
        for start, stop in self._missing:
            first = start
            while first < stop:
                size = min(self._size, stop - first)
                if size > self._left:
                    size = self._left - self._left % group
                if self._spec.shard_inputs:
                    size = min(group - first % group, stop - first)
                if not 0 < size <= self._left:
                    return
                self._left -= size
                self._stops[first] = first + size
                yield first
                first += size

    def took(self, inputs: int, seconds: float) -> None:
        """Size the blocks to come by the time that one took."""
        group = self._spec.drawn_together
        wanted = min(SECONDS * inputs / max(seconds, 1e-9), GROWTH * inputs, MOST_TOGETHER)
        self._size = max(group, int(wanted) // group * group)

    def load(self, first: int) -> Block:
        """Return a block with its inputs loaded."""
        stop = self._stops[first]
        place = Place(first, stop)
        labels = None if self._dataset.labels is None else self._dataset.labels[first:stop]
        name = temporary(place.path(Path(), "scores")).name
        return Block(first, self._dataset.ids[first:stop], labels, self._dataset.load(first, stop), name)


ScoreMap = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a call to ``sample`` did: inputs there and in all, shards there, draws made by this call and lost by it."""

    inputs_done: int
    inputs: int
    shards: int
    samples: int
    lost: int
    seconds: float
    rows: int

    @property
    def complete(self) -> bool:
        """Whether every input is there."""
        return self.inputs_done == self.inputs


class Interrupted(KeyboardInterrupt):
    """An interrupt, with what was done before it."""

    def __init__(self, summary: Summary) -> None:
        super().__init__()
        self.summary = summary


@dataclass(frozen=True, slots=True)
class SamplingProgress:
    """Where a run stands: draws there and in all, and those made by this call."""

    done: int
    total: int
    drawn: int


def sample(
    spec: RunSpec,
    classifier: Classifier | Executor,
    dataset: Dataset,
    folder: str | Path,
    *,
    progress: Callable[[SamplingProgress], None] | None = None,
    finished: Callable[[int, Shard], None] | None = None,
    max_seconds: float | None = None,
    max_samples: int | None = None,
    repair: bool = False,
    allow_other_model: bool = False,
) -> Summary:
    """Draw what is missing from a folder and return what was done; the same call again finishes the rest.

    ``classifier`` is one in this process, or an executor that runs it elsewhere; the bytes are the same.
    ``max_samples`` ends before a block that would pass it, ``max_seconds`` at the first look at the clock after it; an
    interrupt raises ``Interrupted``, which says what is kept.
    Blocks are written, and ``finished`` called with each, in a second thread while others are drawn.

    A run goes on with the model, the environment and the data that began it (``runs.identity``); one finished input is
    drawn again and must give the same votes. ``allow_other_model`` lets another model or environment go on, which the
    manifest and the seals record. ``repair`` sets damaged shards aside and draws them again.
    """
    if max_seconds is not None:
        max_seconds = check_positive("max_seconds", max_seconds)
    if max_samples is not None:
        max_samples = check_whole("max_samples", max_samples, 1)
    if dataset.labels is not None and int(dataset.labels.max()) >= spec.num_classes:
        raise InvalidInput(
            f"num_classes must be above the largest label, {dataset.labels.max()}; got {spec.num_classes}"
        )
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    each = spec.n + spec.n0
    started = time.monotonic()
    drawn = kept = 0
    rows = spec.batch_size
    with (
        open_writer(
            folder, spec, identity, inputs=len(dataset), repair=repair, allow_other_model=allow_other_model
        ) as writer,
        ThreadPoolExecutor(1) as background,
    ):
        check_finished(writer, executor, dataset, identity)
        there = writer.inputs_done
        most = None if max_samples is None else max_samples // each
        blocks = Blocks(writer.spec, dataset, writer.missing(), most=most)
        last: Future[None] | None = None

        def tick(count: int) -> None:
            nonlocal drawn
            drawn += count
            if progress is not None:
                progress(SamplingProgress(min(there * each + drawn, len(dataset) * each), len(dataset) * each, drawn))

        def done(first: int, content: Shard) -> None:
            nonlocal last, rows, kept
            rows = min(rows, content.rows)
            blocks.took(len(content.ids), content.seconds)
            if last is not None:
                last.result()
            last = background.submit(_write, writer, first, content, finished)
            kept += len(content.ids) * each

        def summary() -> Summary:
            if last is not None:
                last.result()
            spent = time.monotonic() - started
            there, lost = writer.inputs_done, max(drawn - kept, 0)
            return Summary(there, len(dataset), len(writer.done), drawn, lost, spent, rows)

        work = DrawBlocks(writer.spec, Expected(probe, identity, allow_other_model))
        try:
            deadline = None if max_seconds is None else started + max_seconds
            executor.run(Job(work.begin, blocks, blocks.load, done, tick, writer.step_folder, deadline))
        except KeyboardInterrupt:
            raise Interrupted(summary()) from None
        return summary()


def _write(writer: Writer, first: int, content: Shard, finished: Callable[[int, Shard], None] | None) -> None:
    writer.append(first, content)
    if finished is not None:
        finished(first, content)


@dataclass(frozen=True, slots=True)
class DrawBlocks:
    """The work of ``sample``, for an executor."""

    spec: RunSpec
    expected: Expected

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that draws a block."""
        record = self.expected.check(classifier, threads)
        engine = self.spec.engine(classifier, threads)
        with engine.session():

            def step(block: Block, context: StepContext) -> None:
                context.send_result(replace(draw_block(engine, self.spec, block, context), drawn_by=record))

            yield step


def draw_block(engine: Engine, spec: RunSpec, block: Block, context: StepContext) -> Shard:
    """Return a block's votes, its scores already in a file of the context's folder; groups of inputs share batches."""
    started, before = time.monotonic(), engine.replayed()
    make = None if spec.scores == "none" else _scores(spec.scores, spec.temperature)
    groups = block.groups(spec.drawn_together)
    columns = None if make is None else np.concatenate([_columns(engine, spec, group, make) for group in groups])
    scores = None if make is None else ScoreWriter(context.folder / block.score_file, block.ids, spec)

    def draw(stream: Stream, n: int, kept: int, checkpoints: Sequence[int]) -> IntArray:
        if scores is not None:
            scores.begin(stream)
        sink = None if scores is None else scores.add
        votes = np.zeros((len(block.ids), len(checkpoints), spec.num_classes), dtype=np.int64)
        for group in groups:
            rows = slice(group.first - block.first, group.first - block.first + len(group.ids))
            chosen = columns[rows] if columns is not None and OTHERS in columns else None
            keep = None if make is None else KeptScores(make, chosen)
            for start, stop, what in ((0, kept, keep), (kept, n, None)):
                if start < stop:
                    requests = [Request(i, start, stop) for i in range(len(group.ids))]
                    steps = engine.steps(
                        group.x, group.ids, stream, requests, checkpoints=checkpoints, keep=what, sink=sink
                    )
                    votes[rows] += exhaust(steps, context.tick).counts
        return votes.cumsum(axis=1)

    selection = draw("selection", spec.n0, 0 if scores is None else spec.n0, (spec.n0,))[:, 0] if spec.n0 else None
    counts = draw("estimation", spec.n, spec.kept_draws, spec.checkpoints)
    if scores is not None:
        scores.close()
    hashes = tuple(content_id(row) for row in block.x)
    seconds = time.monotonic() - started
    compared, differed = (now - then for now, then in zip(engine.replayed(), before, strict=True))
    made = Shard(block.ids, block.labels, hashes, selection, counts, columns, engine.rows, seconds)
    return replace(made, replayed=(compared, differed))


def _columns(engine: Engine, spec: RunSpec, group: Block, make: ScoreMap) -> IntArray:
    """Return the columns whose scores are kept: all, or chosen on a first pass over the selection draws."""
    ids = group.ids
    if spec.runner_ups is None:
        return np.tile(np.arange(spec.num_classes, dtype=np.int64), (len(ids), 1))
    requests = [Request(i, 0, spec.n0) for i in range(len(ids))]
    sums = engine.draw(group.x, ids, "selection", requests, keep=KeptScores(make, rows=False, sums=True)).sums
    none = np.zeros((len(ids), spec.num_classes))
    return choose_columns(none if sums is None else sums, group.labels, spec.runner_ups)


def choose_columns(sums: FloatArray, labels: IntArray | None, runner_ups: int) -> IntArray:
    """Return the columns to keep for each input: its label where known, then the best by the selection's scores.

    One column for the rest comes last; all classes are kept where none would be left over.
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
