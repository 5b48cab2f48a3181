"""The command line: loads and runs a command, prints its help, and turns errors into exit codes.

Help is plain text for 80 columns: options in groups, a narrow column of flags, defaults in words.
"""

import logging
import os
import re
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from buckler import __version__
from buckler.cli.terminal import ARGUMENTS, DONE, FAILED, INTERRUPTED, MISTAKE, say

COMMANDS = {
    "demo": "Train a small network on bundled digits and certify it, in a minute.",
    "models": "List the bundled networks.",
    "sample": "Draw noisy copies through a model and keep the votes on disk.",
    "certify": "Certify every input of a run from its votes, without the model.",
    "decide": "Draw from a model until chosen radii are certified or given up.",
    "report": "Write a web page about certified runs.",
    "refute": "Attack certified inputs: find points where the class changes.",
    "sweep": "Certify runs under many settings, into one table.",
    "accuracy": "Find a lower limit of a population's certified accuracy.",
    "conformal": "Predict sets of classes that hold the true one, also after a move.",
    "audit": "Check that a bound keeps its error probability.",
    "train": "Train a network, or a denoiser, under noise.",
    "plan": "Forecast the draws, hours and disk space of a run.",
    "import": "Read a log of radii of another tool, and recover its votes.",
    "board": "Certify the entries of a board again, and write them as a site.",
    "reproduce": "Make the paper's tables and figures again.",
}
"""Name of each command -> what it does, in one line; in the order in which one uses them."""

MODULES = {
    "model_commands": ("demo", "models", "train"),
    "drawing_commands": ("sample", "decide", "refute"),
    "evidence_commands": ("import", "certify", "sweep", "accuracy", "conformal"),
    "planning_commands": ("plan", "audit"),
    "page_commands": ("report", "board", "reproduce"),
}
"""Module of ``buckler.cli`` -> names of its commands; the command NAME is its function NAME_command."""

HELP = {"help_option_names": ["-h", "--help"]}

SPINS = "1000"
"""Default of the environment variable GOMP_SPINCOUNT: how often a waiting thread of torch looks for work before it
sleeps. Without it that is 300,000 times, milliseconds at each layer if another program holds a processor. Affects
speed, not results; torch reads it when it is loaded."""

WIDEST_FLAG = 26
"""Width, in characters, of the column of flags in a help; the text of a longer flag stands on the next line."""


class Command(TyperCommand):
    """A command of Typer whose help is printed in our form, and that refuses --quiet together with --json."""

    def invoke(self, ctx: Any) -> Any:
        """Call the command's function; InvalidInput if both --quiet and --json are given."""
        if ctx.params.get("quiet") and ctx.params.get("as_json"):
            from buckler.errors import InvalidInput

            raise InvalidInput("--quiet prints nothing, and --json asks for something to be printed: give one of them")
        return super().invoke(ctx)

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        """Write the command's description into its help, with the lines of examples as they are."""
        _describe(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options into the help: groups, and options within one, as they are declared."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            taken = parameter.param_type_name == "argument"
            heading = "Arguments" if taken else getattr(parameter, "rich_help_panel", None) or "Options"
            if (row := parameter.get_help_record(ctx)) is not None:
                said = re.sub(r"\[default: \((.*)\)\]", r"[default: \1]", row[1])  # typer brackets a default in words
                groups.setdefault(heading, []).append((row[0], said))
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=WIDEST_FLAG)


def _describe(text: str, formatter: Any) -> None:
    """Write paragraphs, wrapped; lines of a paragraph that begin with a space are kept, as commands in examples are."""
    for paragraph in text.strip().split("\n\n"):
        formatter.write_paragraph()
        with formatter.indentation():
            if paragraph.startswith(" "):
                formatter.write("".join(f"  {line}\n" for line in paragraph.splitlines()))
            else:
                formatter.write_text(" ".join(paragraph.split()))


class Commands(TyperGroup):
    """The group of all commands; imports only the one that is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command called ``name``, imported; raise InvalidInput if there is none (None in completion)."""
        if name not in COMMANDS and not ctx.resilient_parsing:
            from buckler.errors import check_choice

            check_choice("the command", name, list(COMMANDS))
        return load(name) if name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of ``buckler`` itself: the list of commands, and its options."""
        self.format_usage(ctx, formatter)
        _describe(self.help or "", formatter)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        _describe("buckler COMMAND --help tells the options of a command, with examples.", formatter)
        with formatter.section("Options"):
            rows = (parameter.get_help_record(ctx) for parameter in self.get_params(ctx))
            formatter.write_dl([row for row in rows if row is not None])


def load(name: str) -> Command:
    """Return the command called ``name``, imported and ready to be called."""
    from buckler.errors import BucklerWarning

    warnings.simplefilter("always", BucklerWarning)
    from buckler.cli.options import flat

    module = next(module for module, names in MODULES.items() if name in names)
    function = getattr(import_module(f"buckler.cli.{module}"), f"{name}_command")
    own = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    # Python -OO drops docstrings.
    own.command(name, cls=Command, context_settings=HELP, help=function.__doc__ or COMMANDS[name])(flat(function))
    return cast(Command, typer.main.get_command(own))


app = typer.Typer(
    name="buckler", cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP
)


def _show_version(value: bool) -> None:
    if value:
        say(f"buckler {__version__}")
        raise typer.Exit


@app.callback(
    help="Certify classifiers by randomized smoothing.\n\nExit codes: 0 done; 2 a mistake in the command or its input, "
    "told in one line; 3 interrupted, and the same command goes on; 1 a bug, with its traceback, or what audit --fail, "
    "refute --strict or board --check found."
)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del version  # its callback has answered and left


def run(arguments: list[str] | None = None) -> int:
    """Run one command, given its ``arguments`` (by default those of this process), and return its exit code.

    That is 0 for done, 2 for the user's mistake, 3 for an interrupt, 1 for a bug.
    """
    given = sys.argv[1:] if arguments is None else arguments
    ARGUMENTS.set(given)
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
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
    if hasattr(problem, "format_message"):  # click's error for a command line that it cannot parse
        return _mistake(problem.format_message() + _came(problem))
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
    return FAILED


def _came(problem: Exception) -> str:
    """Return what came, which a newer Typer leaves out of the error for an option that is no number."""
    from buckler.errors import show

    found = getattr(problem.__cause__, "errors", None)
    return f"; got {show(found()[0]['input'])}" if found else ""


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
    """Run the command of this process's arguments, and exit with its code."""
    sys.exit(run())
