"""Executors: run the numbered blocks of a job in this process; ``runs.ray`` runs them on a Ray cluster.

A block's results depend on its number alone, so any worker may compute it, more than once and in any order. The process
that calls ``run`` reads the data and writes the files.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from buckler.sampling.classifiers import Classifier


class OutOfTime(Exception):  # noqa: N818
    """Raised by ``StepContext.tick`` after the deadline; ends the block."""


class Description(NamedTuple):
    """Classes and device of the classifier that the workers run; ``runs.identity`` compares the rest."""

    num_classes: int | None
    device: str


class StepContext(NamedTuple):
    """A folder for a block's files, a counter of its draws, and a function that takes its results."""

    folder: Path
    tick: Callable[[int], None]
    send_result: Callable[[Any], None]


Step = Callable[[Any, StepContext], None]
"""Computes one block from its data."""


Work = Callable[[Classifier, int | None], AbstractContextManager[Step]]
"""Sets a step up once in each worker, with that many threads for noise (None: one for each processor); is sent there,
so it holds plain values."""


@dataclass(frozen=True, slots=True)
class Job:
    """Blocks to compute: ``fetch`` returns a block's data, ``done`` takes its number and each of its results.

    A block's files are in ``folder`` when ``done`` is called with its last result. ``tick`` takes the draws made since
    the last call. After ``deadline`` (of ``time.monotonic``) blocks under way end and no other begins.
    """

    work: Work
    blocks: Iterable[int]
    fetch: Callable[[int], Any]
    done: Callable[[int, Any], None]
    tick: Callable[[int], None] = lambda _: None
    folder: Path = Path()
    deadline: float | None = None


def describe(classifier: Classifier) -> Description:
    """Return the description of a classifier in this process."""
    return Description(classifier.num_classes, classifier.device)


class Executor:
    """Runs blocks one after another in this process; ``RayExecutor`` runs several at once elsewhere."""

    width = 1
    """Blocks that run at once."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def describe(self) -> Description:
        """Return the description of the classifier."""
        return describe(self.classifier)

    def run(self, job: Job) -> None:
        """Compute the blocks in order."""

        def tick(draws: int) -> None:
            job.tick(draws)
            if job.deadline is not None and time.monotonic() > job.deadline:
                raise OutOfTime

        with suppress(OutOfTime), job.work(self.classifier, None) as step:
            for block in job.blocks:
                step(job.fetch(block), StepContext(job.folder, tick, partial(job.done, block)))
