"""Ctrl-C and SIGTERM as one thing: the work in flight is dropped, what is finished is kept, the exit code is 3."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on SIGTERM too, and put the old handler back afterwards."""

    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
