"""The executor of this process, and the lock that keeps a folder to one writer."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from buckler.errors import StoreError
from buckler.runs.executor import ComputeBlock, Executor
from buckler.runs.store.folder import LOCK, locked
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.session import Sink


class Recorded:
    """A step that hands over one result, draws twice, and hands over another one at its end, however it comes."""

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[ComputeBlock]:
        assert classifier.num_classes == 2
        assert threads is None

        def step(data: Any, _: Path, sink: Sink) -> Iterator[int]:
            sink(f"first {data}")
            try:
                yield 10
                yield 20
            finally:
                sink(f"last {data}")

        yield step


def test_blocks_run_in_order_until_a_deadline() -> None:
    executor, done = Executor(as_classifier(lambda b: b, num_classes=2)), list[str]()
    assert executor.call(lambda classifier, threads: (classifier.num_classes, threads)) == (2, None)
    assert list(executor.run(Recorded().begin, iter([6, 4]), done.append)) == [10, 20, 10, 20]
    assert done == ["first 6", "last 6", "first 4", "last 4"]
    done.clear()
    assert list(executor.run(Recorded().begin, iter([6, 4]), done.append, deadline=time.monotonic() - 1.0)) == [10]
    assert done == ["first 6", "last 6"]  # the block under way ends at its first draws, and no other begins


def hold(root: Path) -> None:
    with locked(root):
        pass


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreError, match="another process is writing to"):
        hold(tmp_path)
    hold(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="cannot write to"):
        hold(tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_folder(tmp_path: Path) -> None:
    wait, go = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(wait, 1)  # lives on after its parent has let go
            os._exit(0)
    hold(tmp_path)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child was to be alive all the while"
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
