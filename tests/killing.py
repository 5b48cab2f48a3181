"""A kill in its place: this process ends itself at a chosen call to the operating system, having said so on stderr.

A place is a call and a file's name (or a number):

    open 000012-000015.json      before the file is made, under its temporary name
    fsync 000012-000015.json     before it is flushed to the disk
    rename 000012-000015.json    before it gets its own name
    named 000012-000015.json     after that, before the folder is flushed
    draw 5                in the fifth call of the model, which calls ``drawing``
    hold 25               after so many calls it waits for a file ``go``, for a fault from outside
    write 9000            in the middle of a write, when a file has so many bytes (the kernel's own limit, SIGXFSZ)

Calls are seen through the interpreter's audit events, whoever makes them; only flushing has none, and is wrapped.
"""

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

FILE = "killed_at"
"""The file that names a place to a command that runs as it is; workers elsewhere do not get its environment."""

LONGEST_HOLD = 240.0
"""Seconds after which a process that nobody lets go goes on by itself, lest it stay for ever."""

_armed: list[str] = []
_draws = 0


def arm(place: str) -> None:
    """End this process at a place; once for each process."""
    call, _, name = place.partition(" ")
    _armed.append(place)
    if call == "write":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(name), int(name)))
    elif call not in {"draw", "hold"}:
        _watch(call, name)


def arm_from_file() -> None:
    """Arm this process if the folder it works in says so."""
    if Path(FILE).exists():
        arm(Path(FILE).read_text())


def drawing() -> None:
    """Count a call of the model."""
    global _draws  # noqa: PLW0603
    _draws += 1
    call, _, number = _armed[0].partition(" ") if _armed else ("", "", "")
    if call == "draw" and _draws == int(number):
        _end()
    if call == "hold" and _draws > int(number):
        Path(f"holding-{os.getpid()}").touch()
        deadline = time.monotonic() + LONGEST_HOLD
        while not Path("go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def _end() -> None:
    os.write(2, f"killed at {_armed[0]}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(call: str, name: str) -> None:
    here = threading.local()  # what this thread opened and renamed last: a file is flushed by the thread that opened it
    flush = os.fsync

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            here.opened = Path(arguments[0]).name
            if call == "open" and name in here.opened and arguments[2] & os.O_CREAT:
                _end()
        if event == "os.rename":
            here.renamed = Path(os.fsdecode(arguments[1])).name
            if call == "rename" and here.renamed == name:
                _end()

    def fsync(fd: Any) -> None:
        if call == "fsync" and name in getattr(here, "opened", ""):
            _end()
        if call == "named" and name == getattr(here, "renamed", ""):
            _end()
        flush(fd)

    sys.addaudithook(hook)
    os.fsync = fsync
