"""A specification, radii fixed beforehand, and inputs -> decisions: drawn until decided, on any executor.

Inputs are cut into blocks; the draws of a block share batches, and each decision comes as it is made. What is decided
is kept in a file, with the votes of inputs that are under way, and the same call goes on from there.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.certify.anytime import AnytimeTest
from buckler.certify.decision import Decided
from buckler.errors import InvalidInput, check_label, check_positive
from buckler.runs.blocks import Block
from buckler.runs.executor import Executor, Job, Step, StepContext
from buckler.runs.identity import Expected, identify
from buckler.runs.resume import DecidedFile
from buckler.runs.sample import make_engine
from buckler.runs.spec import RunSpec
from buckler.runs.target import Target
from buckler.sampling.adaptive import draw_until_decided
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset
from buckler.sampling.engine import Engine
from buckler.types import IntArray

Watch = Callable[[int, int], None]
"""Is told, as they rise, how many inputs are decided and how many draws were made."""

BATCHES_AT_ONCE = 4
"""Inputs of a block at most, in rows of a batch: enough that the last ones of a block seldom leave a batch thin."""

FEWEST = 64
"""Inputs of a block at least, for the same reason: each wants sixteen draws or more at a time."""

SEND_EVERY = 10.0
"""Seconds after which the votes of inputs under way are sent again: what a lost worker can cost."""


class Begun(NamedTuple):
    """A block of inputs, and where an earlier call left each of them, if it had begun."""

    block: Block
    before: tuple[Decided | None, ...]


@dataclass(frozen=True, slots=True)
class DecideInputs:
    """The work of ``decide``: one test for all inputs of a block, their draws in shared batches."""

    spec: RunSpec
    target: Target
    exam_n: int
    expected: Expected

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        """Yield the step that decides a block: each decision is sent when it is made, others as they stand."""
        self.expected.check(classifier, threads)
        spec, engine = self.spec, make_engine(self.spec, classifier, threads)
        ladder = self.target.ladder(spec, self.exam_n)

        def step(begun: Begun, context: StepContext) -> None:
            block = begun.block
            test, told = AnytimeTest(ladder, self._classes(engine, begun), spec.num_classes), engine.replayed()
            for row, before in enumerate(begun.before):
                if before is not None:
                    test.restore(row, before)

            def send(rows: IntArray) -> None:
                nonlocal told
                for row in rows.tolist():
                    if test.n[row]:
                        decided = test.decided(row, block.ids[row], spec.n0)
                        context.send_result(decided)
                now = engine.replayed()
                context.send_result((now[0] - told[0], now[1] - told[1]))
                told = now

            send(np.setdiff1d(np.arange(len(block.ids)), test.undecided))
            sent = time.monotonic()
            try:
                with closing(draw_until_decided(engine, block.x, block.ids, test)) as rounds:
                    for done in rounds:
                        send(done.finished)
                        if time.monotonic() - sent > SEND_EVERY:
                            send(test.undecided)
                            sent = time.monotonic()
                        context.tick(done.drawn)
            finally:
                send(test.undecided)

        with engine.session():
            yield step

    def _classes(self, engine: Engine, begun: Begun) -> IntArray:
        """Return the class of every input: its label, what it had before, or what the selection draws say."""
        block = begun.block
        if block.labels is not None:
            return block.labels
        found = np.array([-1 if before is None else before.label for before in begun.before])
        new = np.flatnonzero(found < 0)
        if new.size:
            votes = engine.votes(block.x[new], [block.ids[row] for row in new], "selection", self.spec.n0)
            found[new] = votes.argmax(axis=1)
        return found


def decide(
    spec: RunSpec,
    target: Target,
    classifier: Classifier | Executor,
    dataset: Dataset,
    out: str | Path | None = None,
    *,
    max_seconds: float | None = None,
    allow_other_model: bool = False,
    progress: Watch | None = None,
) -> list[Decided]:
    """Return how every input ended or stands, in the order of the data; at most ``spec.n`` draws go into each.

    **Guarantee.** For each input, the probability that a false radius is ever certified is at most ``target.alpha``,
    whenever its drawing stopped, over all calls together. Its draws and its decision are those of its input alone,
    whatever the executor, for a classifier that treats rows independently.

    ``out`` is a Parquet file that keeps what is decided, and the votes of inputs under way: written as work goes on,
    and at the end, also where that is an interrupt or an error; the same call goes on from it. With a larger ``n`` in
    the specification the call goes on where the budget was too small, by e-values alone beyond the first ``n``, whose
    exam is not taken again (theory T17). After ``max_seconds`` drawing stops: inputs under way are ``undecided``, with
    the certificates that they have by then, and those that were not begun are missing.

    The file goes on with the model, environment and data of earlier calls alone (``runs.identity``), and one finished
    input is drawn again; ``allow_other_model`` lets another model or environment go on, which the file records.
    """
    labels = _labels(spec, target, dataset)
    deadline = None if max_seconds is None else time.monotonic() + check_positive("max_seconds", max_seconds)
    executor = classifier if isinstance(classifier, Executor) else Executor(classifier)
    identity, probe = identify(spec, executor, dataset)
    asked = {"spec": spec.as_dict(), **target.as_dict(), "exam_n": spec.n}
    file = None if out is None else DecidedFile(Path(out), asked, identity, allow_other_model)
    exam_n = spec.n if file is None else file.exam_n
    kept: dict[str, Decided] = {} if file is None else file.read(target.ladder(spec).radii, dataset)
    if file is not None:
        file.draw_again(list(kept.values()), spec, executor, dataset)
    finished = {name for name, decided in kept.items() if decided.decision != "undecided"}
    left = [i for i, name in enumerate(dataset.ids) if name not in finished]
    most = spec.batch_size * BATCHES_AT_ONCE
    size = most if executor.width == 1 else min(most, max(FEWEST, -(-len(left) // (4 * executor.width))))
    drawn, changed = 0, False

    def fetch(number: int) -> Begun:
        chosen = left[number * size : (number + 1) * size]
        part = dataset.select(ids=[dataset.ids[i] for i in chosen])
        x = part.load(0, len(part))
        if file is not None:
            file.loaded(part.ids, x)
        block = Block(number, part.ids, None if labels is None else labels[chosen], x)
        return Begun(block, tuple(kept.get(name) for name in part.ids))

    def tell(count: int) -> None:
        nonlocal drawn
        drawn += count
        if progress is not None:
            progress(len(finished), drawn)

    def keep(_: int, decided: Decided | tuple[int, int]) -> None:
        nonlocal changed
        if isinstance(decided, tuple):  # rows that the block ran again, and how many of them differed
            if file is not None:
                file.ran_again(*decided)
            return
        name = decided.certificate.id
        if file is not None:
            file.sign(name)  # before it is kept: what is kept is written, also after an interrupt here
        kept[name], changed = decided, True
        if decided.decision != "undecided":
            finished.add(name)
        if file is not None and file.is_due():
            file.write(in_order())

    def in_order() -> list[Decided]:
        return [kept[name] for name in dataset.ids if name in kept]

    tell(0)
    work = DecideInputs(spec, target, exam_n, Expected(probe, identity))
    try:
        executor.run(Job(work.begin, range(-(-len(left) // size)), fetch, keep, tell, deadline=deadline))
    finally:
        if file is not None and changed:
            file.write(in_order())
        tell(0)
    return in_order()


def _labels(spec: RunSpec, target: Target, dataset: Dataset) -> Any:
    if target.certified_class == "selection":
        if spec.n0 == 0:
            raise InvalidInput("n0 must be at least 1 where the class is selected; got 0")
        return None
    if spec.n0 != 0:
        raise InvalidInput(f"n0 must be 0 where the class is the label: no draws select it; got {spec.n0}")
    if dataset.labels is None:
        raise InvalidInput("class 'label' needs labels, and this data has none")
    return check_label(dataset.labels, spec.num_classes, len(dataset), "labels")
