"""The application that holds the commands, and the one place where errors become exit codes."""

import logging
import os
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from buckler import __version__
from buckler.cli.audit import audit
from buckler.cli.certify import certify
from buckler.cli.compact import compact
from buckler.cli.decide import decide
from buckler.cli.demo import demo
from buckler.cli.import_ import import_
from buckler.cli.models import models
from buckler.cli.options import defaults_from, option
from buckler.cli.plan import plan
from buckler.cli.refute import refute
from buckler.cli.report import report
from buckler.cli.reproduce import reproduce
from buckler.cli.sample import sample
from buckler.cli.sweep import sweep
from buckler.cli.terminal import INTERRUPTED
from buckler.cli.train import train
from buckler.errors import BucklerError, BucklerWarning, InvalidInput

DONE, BUG, MISTAKE = 0, 1, 2
_USUAL_WARNING = warnings.showwarning

app = typer.Typer(
    name="buckler",
    help="Certify classifiers by randomized smoothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Command(TyperCommand):
    """A command that says either nothing or JSON, not both."""

    def invoke(self, ctx: Any) -> Any:
        if ctx.params.get("quiet") and ctx.params.get("as_json"):
            raise InvalidInput("--quiet prints nothing, and --json asks for something to be printed: give one of them")
        return super().invoke(ctx)


for _command in (demo, sample, certify, decide, refute, sweep, report, reproduce, compact, train, audit, plan, models):
    app.command(cls=_Command)(_command)
app.command("import", cls=_Command)(import_)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"buckler {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    settings: Annotated[
        Path | None,
        option(r"TOML file with a table of options for each command: \[certify] alpha = 0.01. Options win.", "none"),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Certify classifiers by randomized smoothing.

    Exit codes: 0 done; 2 a mistake in the command or its input, told in one line; 3 interrupted, the same command goes
    on; 1 a bug, with its traceback (or, for audit --fail, a bound that failed).
    """
    del version  # its callback has answered and left
    if settings is not None:
        context.default_map = defaults_from(settings, getattr(context.command, "commands", {}))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 the user's mistake, 3 interrupted, 1 a bug."""
    given = sys.argv[1:] if arguments is None else arguments
    logging.getLogger("buckler").setLevel(logging.ERROR if "--quiet" in given else logging.NOTSET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", BucklerWarning)
            warnings.showwarning = _say_warning  # type: ignore[assignment]
            code = app(args=arguments, prog_name="buckler", standalone_mode=False)
        sys.stdout.flush()  # what cannot be printed is told here, not by Python at its end
    except TyperException as usage:
        return _mistake(usage.format_message() if hasattr(usage, "format_message") else str(usage))
    except BucklerError as mistake:
        return _mistake(str(mistake))
    except (KeyboardInterrupt, typer.Abort) as stop:
        if isinstance(stop.__cause__, EOFError):  # which typer takes for a person who closed the terminal
            return _bug()
        print("buckler: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed it, as head does; the flush at exit must not complain either.
        _drop_output()
        return DONE
    except MemoryError as problem:
        return _mistake(f"there is not enough memory for this: {problem}".removesuffix(": "))
    except OSError as problem:
        if problem.errno is None:
            return _bug()
        _drop_output()
        where = f" {str(problem.filename)!r}" if problem.filename else ""
        return _mistake(f"cannot read or write{where}: {problem.strerror}")
    except Exception:
        return _bug()
    return code if isinstance(code, int) else DONE


def _drop_output() -> None:
    """Send what is left to print nowhere, so that Python does not try once more at its end."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug() -> int:
    traceback.print_exc()
    print("buckler: this is a bug; please report it with the lines above and your command", file=sys.stderr)
    return BUG


def _say_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    if issubclass(category, BucklerWarning):
        print(f"buckler: {' '.join(str(message).split())}", file=sys.stderr)
    else:
        _USUAL_WARNING(message, category, *where)


def _mistake(message: str) -> int:
    if message.strip():  # without arguments the help has been shown and there is nothing to add
        print(f"buckler: error: {' '.join(message.split())}", file=sys.stderr)
    return MISTAKE


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run())
