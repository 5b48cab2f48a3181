"""What an executor is, and the one that does everything in this process."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from buckler.sampling.classifiers import Classifier
from buckler.sampling.environment import environment

Load = Callable[[], Classifier]


@dataclass(frozen=True, slots=True)
class Description:
    """What the workers run: the classifier's facts, without the classifier."""

    num_classes: int | None
    device: str
    files: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is given: a folder for its files, a counter of draws, and a way to send results before its end."""

    folder: Path
    tick: Callable[[int], None]
    send_result: Callable[[Any], None]


Step = Callable[[Any, StepContext], Any]
"""Does one block: its data and a context -> its last result, or None. Its files are in place when that arrives."""


class Work(Protocol):
    """What is done with each block; sent to the workers, so it holds plain values alone."""

    def begin(self, classifier: Classifier, threads: int | None) -> AbstractContextManager[Step]:
        """Make ready once for each worker, with that many threads for noise, or as many as there are processors."""


@dataclass(frozen=True, slots=True)
class Job:
    """Blocks to be done, and where their results go.

    ``fetch`` returns what a block needs, and is called when it is handed out. ``done`` is called with each result as it
    comes, and with its block's number (-1 for results before the end of a block). The files that a step writes are in
    ``folder`` when its last result arrives. ``tick`` is called with the draws made since, at least once a second where
    that can be; what it raises ends the job.
    """

    work: Work
    blocks: Iterable[int]
    fetch: Callable[[int], Any]
    folder: Path
    tick: Callable[[int], None]
    done: Callable[[int, Any], None]


class Executor(Protocol):
    """Runs a classifier somewhere."""

    width: int
    """Blocks that can be under way at once."""

    def describe(self) -> Description:
        """Return what the workers run."""

    def run(self, job: Job) -> None:
        """Do the blocks of a job, in any order."""

    def close(self) -> None:
        """Let the workers go."""


def describe(classifier: Classifier) -> Description:
    """Return the facts of a classifier in this process."""
    return Description(classifier.num_classes, classifier.device, dict(classifier.files), environment(classifier))


class InProcess:
    """Does everything here, block after block."""

    width = 1

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    def describe(self) -> Description:
        """Return what is run."""
        return describe(self._classifier)

    def run(self, job: Job) -> None:
        """Do the blocks in order."""
        context = StepContext(job.folder, job.tick, lambda result: job.done(-1, result))
        with job.work.begin(self._classifier, None) as step:
            for block in job.blocks:
                last = step(job.fetch(block), context)
                if last is not None:
                    job.done(block, last)

    def close(self) -> None:
        """Nothing to let go of."""
