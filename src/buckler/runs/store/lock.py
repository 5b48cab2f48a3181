"""One writer at a time: a lock on a run's folder, and a note beside it that says who holds it."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from buckler.errors import StoreError, show
from buckler.runs.store.sealed import writing

LOCK = ".lock"
HOLDER = ".lock-holder"
LONGEST_NOTE = 200


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the folder for one writer; the operating system lets go of it however the writer ends.

    Children of the process do not keep it: the lock's file is closed in them.
    """
    lock = FileLock(root / LOCK, thread_local=False)
    with writing(f"write to {str(root)!r}{_holder(root)}"):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StoreError(
                f"another process is writing to {str(root)!r}{_holder(root)}; wait for it, or use another folder"
            ) from None
    note = root / HOLDER
    try:
        # Without the note a second writer is still refused, only without a name.
        with suppress(OSError):
            note.unlink(missing_ok=True)
            with note.open("x", encoding="utf-8") as file:
                now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
                file.write(f"process {os.getpid()} on {platform.node()} since {now}")
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)
        lock.release()


def _holder(root: Path) -> str:
    """Return who says to hold a folder, in brackets; empty if there is no note."""
    try:
        if (root / HOLDER).is_symlink() or not (root / HOLDER).is_file():
            return ""
        with (root / HOLDER).open("rb") as file:
            text = file.read(LONGEST_NOTE).decode("ascii", "replace")
    except OSError:
        return ""
    return f" ({show(text, LONGEST_NOTE)[1:-1]})" if text else ""
