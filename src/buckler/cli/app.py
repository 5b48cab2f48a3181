"""The command line: its commands, loaded when they are called, and the one place where errors become exit codes."""

import logging
import os
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from buckler import __version__
from buckler.cli.help import Command, describe
from buckler.cli.terminal import INTERRUPTED, say

DONE, BUG, MISTAKE = 0, 1, 2

COMMANDS = {
    "demo": "Train a small network on bundled digits and certify it, in a minute.",
    "models": "List the bundled networks.",
    "train": "Train a network, or a denoiser, under noise.",
    "plan": "Forecast the draws, hours and disk space of a run.",
    "sample": "Draw noisy copies through a model and keep the votes on disk.",
    "certify": "Certify every input of a run from its votes, without the model.",
    "accuracy": "Limit the certified accuracy of a population, from few draws.",
    "conformal": "Predict sets of classes that cover also after a move of the input.",
    "decide": "Draw from a model until chosen radii are certified or given up.",
    "refute": "Attack certified inputs: find points where the class changes.",
    "sweep": "Certify runs under many settings, into one table.",
    "report": "Write a web page about certified runs.",
    "import": "Read a log of radii of another tool, and recover its votes.",
    "audit": "Check that a bound keeps its error probability.",
    "reproduce": "Make the paper's tables and figures again.",
    "compact": "Merge the files of a run into few.",
}
"""Name -> what it does, in the order of the work. Each is the function of that name in the module of that name."""

HELP = {"help_option_names": ["-h", "--help"]}


class Commands(TyperGroup):
    """The group of commands; only the one that is called is imported."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names in the order of the work."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, name: str) -> Any:
        """Return a command, or None for a name that is none."""
        return load(name) if name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands from ``COMMANDS``, and the options."""
        self.format_usage(ctx, formatter)
        describe(self.help or "", formatter)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        describe("buckler COMMAND --help tells the options of a command, with examples.", formatter)
        with formatter.section("Options"):
            rows = (parameter.get_help_record(ctx) for parameter in self.get_params(ctx))
            formatter.write_dl([row for row in rows if row is not None])


def load(name: str) -> Command:
    """Import a command and return it, ready to be parsed and called."""
    from buckler.errors import BucklerWarning

    warnings.simplefilter("always", BucklerWarning)
    python = "import_" if name == "import" else name
    function = getattr(import_module(f"buckler.cli.{python}"), python)
    own = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    own.command(name, cls=Command, context_settings=HELP)(function)
    command: Any = typer.main.get_command(own)
    command.function = function
    return command  # type: ignore[no-any-return]


app = typer.Typer(
    name="buckler", cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP
)


def _show_version(value: bool) -> None:
    if value:
        say(f"buckler {__version__}")
        raise typer.Exit


@app.callback(
    help="Certify classifiers by randomized smoothing.\n\nExit codes: 0 done; 2 a mistake in the command or its input, "
    "told in one line; 3 interrupted, and the same command goes on; 1 a bug, with its traceback, or what audit --fail "
    "or refute --strict found."
)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del version  # its callback has answered and left


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 the user's mistake, 3 interrupted, 1 a bug."""
    given = sys.argv[1:] if arguments is None else arguments
    logging.getLogger("buckler").setLevel(logging.ERROR if "--quiet" in given else logging.NOTSET)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that the terminal's encoding lacks is written as its number
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = app(args=given or ["--help"], prog_name="buckler", standalone_mode=False)
        sys.stdout.flush()  # a full disk is an error here, not a message of Python at exit
    except KeyboardInterrupt:
        say("buckler: interrupted", error=True)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader of our output closed it, as head does
        return DONE
    except Exception as problem:
        return _exit_code(problem)
    return MISTAKE if not given else code if isinstance(code, int) else DONE


def _exit_code(problem: Exception) -> int:
    """Return the exit code of an error, told in one line if it is the user's or the machine's."""
    from buckler.errors import BucklerError

    if isinstance(problem, BucklerError):
        return _mistake(str(problem))
    if hasattr(problem, "format_message"):  # a command line that cannot be parsed
        return _mistake(problem.format_message())
    if type(problem).__name__ == "Abort" and not isinstance(problem.__cause__, EOFError):
        say("buckler: interrupted", error=True)
        return INTERRUPTED
    if isinstance(problem, MemoryError):
        return _mistake(f"there is not enough memory for this: {problem}".removesuffix(": "))
    if isinstance(problem, OSError) and problem.errno is not None:
        _drop_output()
        where = f" {str(problem.filename)!r}" if problem.filename else ""
        return _mistake(f"cannot read or write{where}: {problem.strerror}")
    say("".join(traceback.format_exception(problem)).rstrip(), error=True)
    say("buckler: this is a bug; please report it with the lines above and your command", error=True)
    return BUG


def _mistake(message: str) -> int:
    say(f"buckler: error: {' '.join(message.split())}", error=True)
    return MISTAKE


def _drop_output() -> None:
    """Discard what is left to print, so that Python does not try once more at exit."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print a warning of ours in one line, and others as Python does."""
    del file
    ours = category.__module__.startswith("buckler.")
    text = f"buckler: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    say(" ".join(text.split()) if ours else text.rstrip(), error=True)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run())
