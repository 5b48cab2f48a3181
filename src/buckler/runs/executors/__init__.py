"""Where the work of a run is done: in this process, or by workers on a Ray cluster.

A run is cut into numbered blocks; what a block gives is a function of its number, so it can be done anywhere, twice,
and in any order. An ``Executor`` holds the classifier, does the blocks that it is given and returns their results to
the process that asked, which alone reads the data and writes the files.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from buckler.errors import InvalidInput
from buckler.runs.executors.cluster import OnRay as OnRay
from buckler.runs.executors.protocol import Description as Description
from buckler.runs.executors.protocol import Executor as Executor
from buckler.runs.executors.protocol import InProcess as InProcess
from buckler.runs.executors.protocol import Job as Job
from buckler.runs.executors.protocol import Load as Load
from buckler.runs.executors.protocol import Step as Step
from buckler.runs.executors.protocol import StepContext as StepContext
from buckler.runs.executors.protocol import Work as Work
from buckler.runs.executors.protocol import describe as describe
from buckler.sampling.classifiers import Classifier


def as_executor(classifier: Classifier | Executor) -> Executor:
    """Return an executor as it is, and one in this process for a classifier."""
    return classifier if isinstance(classifier, (InProcess, OnRay)) else InProcess(classifier)  # type: ignore[arg-type]


@contextmanager
def open_executor(
    kind: str,
    load: Load,
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
    any_environment: bool = False,
) -> Iterator[Executor]:
    """Yield the executor called ``process`` or ``ray``, and let its workers go at the end."""
    if kind not in {"process", "ray"}:
        raise InvalidInput(f"executor must be one of 'process', 'ray'; got {kind!r}")
    if kind == "process" and (address is not None or workers is not None):
        raise InvalidInput("address and workers are for the executor 'ray'; this one works in its own process")
    executor: Executor = (
        InProcess(load()) if kind == "process" else OnRay(load, address, workers, gpus_per_worker, any_environment)
    )
    try:
        yield executor
    finally:
        executor.close()
