"""What commands print, and how they end: control characters are printed as escapes; SIGTERM does what Ctrl-C does.

Either of them stops the work, what is finished is kept, and the exit code is 3.
"""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from buckler.certificate import Claim
    from buckler.runs.spec import RunSpec

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 3
"""Exit codes; FAILED stands for a bug, or for what audit --fail, refute --strict and board --check found."""

ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("ARGUMENTS", default=())
"""Arguments of the command that is being run, as ``app.run`` got them."""


def say(text: object, *, error: bool = False) -> None:
    """Print ``text`` to stdout, or to stderr if ``error``; characters that could steer the terminal become escapes."""
    print(escaped(str(text)), file=sys.stderr if error else sys.stdout)


def escaped(text: str) -> str:
    r"""Return ``text`` with control, format and other unprintable characters as escapes; line ends and tabs stay.

    >>> escaped("red: \x1b[31m, tab: \t, reversed: \u202e")
    'red: \\x1b[31m, tab: \t, reversed: \\u202e'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def as_line(certificate: "Claim") -> dict[str, Any]:
    """Return a certificate as a dict for one line of JSON; an infinite margin, which JSON lacks, becomes None.

    Where a smoothed router chose the noise level, its own record is under ``router``.
    """
    line = {key: value if value != -inf else None for key, value in certificate.as_dict().items()}
    return line if certificate.router is None else {**line, "router": as_line(certificate.router)}


def noise_text(spec: "RunSpec") -> str:
    """Return the noise of a run in few words: ``sigma 0.5`` if it is Gaussian, else its description."""
    return spec.noise.describe() if "noise" in spec.as_dict() else f"sigma {spec.sigma:g}"


@contextmanager
def interruptible() -> Iterator[None]:
    """Context in which SIGTERM raises ``KeyboardInterrupt``, as Ctrl-C does; the old handler comes back afterwards."""

    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def command_typed() -> str:
    """Return the command that is being run as it can be typed again."""
    return shlex.join(["buckler", *ARGUMENTS.get()])


def kept_in(out: Path | None) -> str:
    """Return where results are kept, in words: ``kept in PATH``, or that they are not saved, if ``out`` is None."""
    return "not saved (--out would keep them)" if out is None else f"kept in {out}"


def stop(kept: str) -> NoReturn:
    """End the command with the exit code of an interrupt, after printing ``kept`` and how to go on."""
    say(f"buckler: {kept}. Go on with: {command_typed()}", error=True)
    raise typer.Exit(INTERRUPTED)
