"""The terminal: text stays text, whatever brackets a name may hold; Ctrl-C and SIGTERM are one thing.

The work in flight is dropped, what is finished is kept, the exit code is 3.
"""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer
from rich import console

Console = partial(console.Console, markup=False, emoji=False)
INTERRUPTED = 3


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


def command_typed() -> str:
    """Return the command as it can be typed again."""
    return shlex.join(["buckler", *sys.argv[1:]])


def kept_in(out: Path | None) -> str:
    """Return where work is kept, in words."""
    return "kept nowhere, for want of --out" if out is None else f"kept in {out}"


def stop(kept: str) -> NoReturn:
    """Say why the work ends and what is kept, and leave with the exit code of what can be gone on with."""
    print(f"buckler: {kept}. Go on with: {command_typed()}", file=sys.stderr)
    raise typer.Exit(INTERRUPTED)
