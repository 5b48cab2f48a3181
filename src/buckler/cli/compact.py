"""``buckler compact``: merge the files of a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.terminal import say
from buckler.runs.store.writer import compact


def compact_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    as_json: Annotated[bool, options.as_json_option("Print the numbers of files as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Merge the files of a run into few.

    The votes stay the same, in files of at most a gigabyte. Every file is checked before it is merged, and a command
    that is killed loses nothing. Do not compact a run that another program reads.

    Example:

      buckler compact run/
    """
    done = compact(run)
    if as_json:
        say(json.dumps({"before": done.before, "after": done.after}))
    elif not quiet:
        say(f"{run}: {done.before:,} files before, {done.after:,} now")
