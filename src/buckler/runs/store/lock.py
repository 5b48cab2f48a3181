"""Locks the folder of a run for one writer, with a note that says who holds it."""

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
    """Hold the lock of a folder; the operating system releases it however the process ends.

    Child processes do not keep it: the lock's file is closed in them.
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
        # A second writer is refused without the note too, but not told by whom.
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
    """Return the note in parentheses, empty if there is none."""
    try:
        if (root / HOLDER).is_symlink() or not (root / HOLDER).is_file():
            return ""
        with (root / HOLDER).open("rb") as file:
            text = file.read(LONGEST_NOTE).decode("ascii", "replace")
    except OSError:
        return ""
    return f" ({show(text, LONGEST_NOTE)[1:-1]})" if text else ""
