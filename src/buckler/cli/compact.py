"""``buckler compact``: the shards of a run merged into one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.runs.store.compact import compact as merge


def compact(
    run: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    as_json: Annotated[bool, option("Print the numbers of shards as JSON.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Merge the shards of a run into one, or a few of at most a gigabyte; what they hold stays the same.

    Every shard is checked before. Killed at any moment, nothing is lost and nothing is there twice. Not while others
    read the run: their files go.

    Example:

      buckler compact run/
    """
    done = merge(run)
    if as_json:
        print(json.dumps({"before": done.before, "after": done.after}))
    elif not quiet:
        print(f"{done.before:,} shards before, {done.after:,} now in {run}")
