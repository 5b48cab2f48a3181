"""Where the work of a run is done: in this process, or by workers on a Ray cluster.

A run is cut into numbered blocks; what a block gives is a function of its number, so it can be done anywhere, twice,
and in any order. An ``Executor`` holds the classifier, does the blocks that it is given and returns their results to
the process that asked, which alone reads the data and writes the files.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from buckler.errors import InvalidInput
from buckler.runs.executors.cluster import OnRay
from buckler.runs.executors.protocol import Description, Executor, InProcess, Job, Load, Step, StepContext, describe
from buckler.sampling.classifiers import Classifier

__all__ = ["Description", "Executor", "Job", "Step", "StepContext", "as_executor", "describe", "open_executor"]


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
