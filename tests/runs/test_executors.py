"""The executor of this process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from buckler.runs.executor import Executor, Job, Step, StepContext
from buckler.sampling.classifiers import Classifier, as_classifier


class Recorded:
    """A step that sends one result for each block, and a second one except for block 2."""

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        assert classifier.num_classes == 2
        assert threads is None

        def step(data: Any, context: StepContext) -> None:
            context.send_result(f"first {data}")
            context.tick(10)
            if data != 4:
                context.send_result(f"second {data}")

        yield step


def test_blocks_run_in_order_in_this_process() -> None:
    done: list[tuple[int, Any]] = []
    ticks: list[int] = []
    executor = Executor(as_classifier(lambda b: b, num_classes=2))
    assert executor.width == 1
    assert executor.describe().num_classes == 2
    job = Job(Recorded().begin, [3, 2, 0], lambda k: 2 * k, lambda *result: done.append(result), ticks.append)
    executor.run(job)
    assert done == [(3, "first 6"), (3, "second 6"), (2, "first 4"), (0, "first 0"), (0, "second 0")]
    assert ticks == [10, 10, 10]
    done.clear()
    executor.run(replace(job, deadline=time.monotonic() - 1.0))
    assert done == [(3, "first 6")]  # the block under way ends at its first tick, and no other begins
