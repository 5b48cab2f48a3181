"""The application that holds the commands, and the one place where errors become exit codes."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from buckler import __version__
from buckler.cli.audit import audit
from buckler.cli.certify import certify
from buckler.cli.compact import compact
from buckler.cli.decide import decide
from buckler.cli.demo import demo
from buckler.cli.import_ import import_
from buckler.cli.plan import plan
from buckler.cli.report import report
from buckler.cli.reproduce import reproduce
from buckler.cli.sample import sample
from buckler.cli.settings import defaults_from
from buckler.cli.sweep import sweep
from buckler.cli.train import train
from buckler.errors import BucklerError

DONE, BUG, MISTAKE, INTERRUPTED = 0, 1, 2, 3

app = typer.Typer(
    name="buckler",
    help="Certify classifiers by randomized smoothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(sample)
app.command()(certify)
app.command()(decide)
app.command()(sweep)
app.command()(report)
app.command()(reproduce)
app.command()(compact)
app.command()(train)
app.command()(audit)
app.command("import")(import_)
app.command()(plan)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"buckler {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    settings: Annotated[
        Path | None,
        typer.Option(help="TOML file with a table of options for each command: [certify] alpha = 0.01. Options win."),
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
    try:
        code = app(args=arguments, prog_name="buckler", standalone_mode=False)
    except TyperException as usage:
        return _mistake(usage.format_message() if hasattr(usage, "format_message") else str(usage))
    except BucklerError as mistake:
        return _mistake(str(mistake))
    except (KeyboardInterrupt, typer.Abort):
        print("buckler: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output, head for instance, has seen enough; the flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception:
        traceback.print_exc()
        print("buckler: this is a bug; please report it with the lines above and your command", file=sys.stderr)
        return BUG
    return code if isinstance(code, int) else DONE


def _mistake(message: str) -> int:
    if message.strip():  # without arguments the help has been shown and there is nothing to add
        print(f"buckler: error: {' '.join(message.split())}", file=sys.stderr)
    return MISTAKE


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run())
