"""A second process that draws figures while this one finds the limits of the next: either takes about as long."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from buckler.report.plots import Column, margin_grid

Draw = Callable[[Sequence[Column], Sequence[Path], str], None]


@contextmanager
def painter() -> Iterator[Draw]:
    """Yield a function that draws what ``margin_grid`` draws, at the latest when the block ends.

    The process is started afresh rather than forked, which is the same on every system. Where none can be started (a
    program that Python reads from its standard input cannot be read again), figures are drawn here.
    """
    waiting: list[tuple[Future[None], tuple[Sequence[Column], Sequence[Path], str]]] = []
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def draw(columns: Sequence[Column], paths: Sequence[Path], title: str) -> None:
        try:
            waiting.append((pool.submit(margin_grid, columns, paths, title), (columns, paths, title)))
        except BrokenProcessPool:
            margin_grid(columns, paths, title)

    try:
        yield draw
        for drawing, figure in waiting:
            try:
                drawing.result()
            except BrokenProcessPool:
                margin_grid(*figure)
    finally:
        pool.shutdown(cancel_futures=True)  # an error or an interrupt waits for one figure and not for all
