"""Executors run blocks of work in this process; ``runs.ray`` runs them on a Ray cluster. Results go to a sink.

A block's results depend on its data alone, so any worker may compute it, more than once and in any order.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from buckler.sampling.classifiers import Classifier
from buckler.session import SAVE_SECONDS, Sink

Answer = TypeVar("Answer")
Draws = Iterator[int]
ComputeBlock = Callable[[Any, Path, Sink], Draws]
"""Computes a block from its data: yields the draws made since the last time, writes files to a folder, and hands over
results, also where it is closed early."""

Begin = Callable[[Classifier, int | None], AbstractContextManager[ComputeBlock]]
"""Sets up the work in a worker, once; the number of threads make noise (None: one for each processor). It is sent to
the workers, so it holds plain values."""

Watch = Callable[[int, int], None]
"""Callback (inputs done, draws made), called whenever one of the two rises."""

SAVING_SHARE = 0.05
"""Share of the time that may go into saving, where files are so large that this takes longer."""


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

    def run(
        self, begin: Begin, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf
    ) -> Draws:
        """Compute blocks, hand their results to ``sink`` and yield the draws made since the last time.

        A block's files are in ``folder`` when its results are handed over. After ``deadline`` (of ``time.monotonic``)
        the blocks under way end and no other begins.
        """
        with begin(self.classifier, None) as step:
            for data in blocks:
                with closing(step(data, folder, sink)) as draws:  # type: ignore[type-var]
                    for drawn in draws:
                        yield drawn
                        if time.monotonic() > deadline:
                            return


class ResultFile:
    """Results by the names of inputs, of earlier calls and of this one: in memory and, with a path, in a file.

    The file is written about every ten seconds and at the end, so that an interruption costs no more.
    """

    def __init__(self, path: Path | None, names: Sequence[str]) -> None:
        """Name the file, and the inputs in their order."""
        self.path, self.names = path, names
        self.kept: dict[str, Any] = {}
        self._saved, self._took, self._changed = time.monotonic(), 0.0, False

    @property
    def done(self) -> int:
        """The number of inputs whose result is final."""
        return len(self.kept)

    def take(self, made: Any) -> None:
        """Keep what a worker hands over."""
        raise NotImplementedError

    def write(self, path: Path) -> None:
        """Write everything to the file."""
        raise NotImplementedError

    def keep(self, name: str, result: Any) -> None:
        """Keep the result of an input, and write the file from time to time."""
        self.kept[name], self._changed = result, True
        if time.monotonic() - self._saved > max(SAVE_SECONDS, self._took / SAVING_SHARE):
            self.save()

    def save(self) -> None:
        """Write the file, if there is one and anything changed."""
        if self.path is not None and self._changed:
            started = time.monotonic()
            self.write(self.path)
            self._saved, self._changed = time.monotonic(), False
            self._took = self._saved - started

    def in_order(self) -> list[Any]:
        """Return the results in the order of the inputs."""
        return [self.kept[name] for name in self.names if name in self.kept]

    def fill(
        self, executor: Executor, begin: Begin, blocks: Iterable[Any], progress: Watch, deadline: float = inf
    ) -> None:
        """Run blocks and keep their results, also those by an error or an interrupt, which raises ``Interrupted``."""
        drawn = 0
        progress(self.done, drawn)
        try:
            for more in executor.run(begin, blocks, self.take, deadline=deadline):
                drawn += more
                progress(self.done, drawn)
        except KeyboardInterrupt:
            raise Interrupted(self.in_order()) from None
        finally:
            self.save()
            progress(self.done, drawn)
