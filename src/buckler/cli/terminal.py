"""What commands print, and how they end: control characters are escaped, Ctrl-C and SIGTERM are one thing.

On either, the work in flight is dropped, what is finished is kept, and the exit code is 3.
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
    from buckler.certificate import Certificate
    from buckler.runs.spec import RunSpec

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 3
"""Exit codes; FAILED is a bug of ours, or what audit --fail, refute --strict and board --check found."""

ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("ARGUMENTS", default=())
"""Arguments of the command that is running, as ``app.run`` was given them."""


def say(text: object, *, error: bool = False) -> None:
    """Print to stdout, or to stderr; characters that steer a terminal, which files may hold, are printed as escapes."""
    print(escaped(str(text)), file=sys.stderr if error else sys.stdout)


def escaped(text: str) -> str:
    r"""Return a text whose control, format and other unprintable characters are escapes; lines and tabs stay.

    >>> escaped("red: \x1b[31m, tab: \t, reversed: \u202e")
    'red: \\x1b[31m, tab: \t, reversed: \\u202e'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def as_line(certificate: "Certificate") -> dict[str, Any]:
    """Return a certificate as an object of JSON, which has no infinity."""
    return {key: value if value != -inf else None for key, value in certificate.as_dict().items()}


def noise_text(spec: "RunSpec") -> str:
    """Return the noise of a run in few words: a sigma is Gaussian."""
    return spec.noise.describe() if "noise" in spec.as_dict() else f"sigma {spec.sigma:g}"


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
    return shlex.join(["buckler", *ARGUMENTS.get()])


def kept_in(out: Path | None) -> str:
    """Return a text that says where the work is kept: ``kept in PATH``, or that it is not saved."""
    return "not saved (no --out)" if out is None else f"kept in {out}"


def stop(kept: str) -> NoReturn:
    """Say why the work ends and what is kept, and exit with the code of an interruption."""
    say(f"buckler: {kept}. Go on with: {command_typed()}", error=True)
    raise typer.Exit(INTERRUPTED)
