"""Executors: run blocks of work in this process; ``runs.ray`` runs them on a Ray cluster.

A block's results depend on its data alone, so any worker may compute it, more than once and in any order.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar

from buckler.sampling.classifiers import Classifier
from buckler.session import Sink

Answer = TypeVar("Answer")
Draws = Iterator[int]
ComputeBlock = Callable[[Any, Path, Sink], Draws]
"""Computes a block from its data: yields the draws made since the last time, writes files to a folder, and hands over
results, also where it is closed early."""

Watch = Callable[[int, int], None]
"""Callback (inputs done, draws made), called whenever one of the two rises."""


class Work(Protocol):
    """Protocol of the work on blocks; it is sent to the workers, so it holds plain values."""

    def begin(self, classifier: Classifier, threads: int | None) -> AbstractContextManager[ComputeBlock]:
        """Set up in a worker, once; ``threads`` make noise (None: one for each processor)."""


class Interrupted(KeyboardInterrupt):
    """An interrupt (Ctrl-C), with what was done before it."""

    def __init__(self, done: Any) -> None:
        super().__init__()
        self.done = done


class Executor:
    """Runs blocks one after another in this process; ``RayExecutor`` runs ``width`` of them at once elsewhere."""

    width = 1

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def call(self, function: Callable[[Classifier, int | None], Answer]) -> Answer:
        """Return what a function of a worker's classifier and its threads returns."""
        return function(self.classifier, None)

    def run(self, work: Work, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf) -> Draws:
        """Compute blocks, hand their results to ``sink`` and yield the draws made since the last time.

        A block's files are in ``folder`` when its results are handed over. After ``deadline`` (of ``time.monotonic``)
        the blocks under way end and no other begins.
        """
        with work.begin(self.classifier, None) as step:
            for data in blocks:
                with closing(step(data, folder, sink)) as draws:  # type: ignore[type-var]
                    for drawn in draws:
                        yield drawn
                        if time.monotonic() > deadline:
                            return
