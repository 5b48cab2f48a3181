"""``buckler import``: recover votes from a log of radii, and check the settings it claims."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.runs.logs import import_log
from buckler.runs.store.folder import USUAL_ALPHA, USUAL_DRAWS

CLAIMED_GROUP = "What the log claims"


def import_command(
    log: Annotated[Path, typer.Argument(help="Text file with columns idx, label, predict, radius, correct, time.")],
    out: Annotated[
        Path | None,
        option("Folder for the run, to be read by buckler certify.", "only look", group=options.OUTPUT_GROUP),
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print one JSON object.")] = False,
    quiet: options.Quiet = False,
    sigma: Annotated[
        float | None, option("Noise of the log.", "smallest usual one that fits", group=CLAIMED_GROUP)
    ] = None,
    n: Annotated[int | None, option("Draws.", f"{USUAL_DRAWS:,}", name="--n", group=CLAIMED_GROUP)] = None,
    alpha: Annotated[float | None, option("Error probability.", f"{USUAL_ALPHA}", group=CLAIMED_GROUP)] = None,
    n0: Annotated[int | None, option("With --out: selection draws.", "100", group=CLAIMED_GROUP)] = None,
) -> None:
    """Read a log of radii of another tool, and recover its votes.

    A radius printed with three digits comes from a few possible numbers of votes, or from none: so the log tells
    whether it can have been made as claimed, and which alpha, n and sigma fit. --out needs all three, and a log that
    fits them. Of the votes that are possible the lowest are taken, and all others count for one rival.

    Examples:

      buckler import log.tsv --sigma 0.5
      buckler import log.tsv --alpha 0.001 --n 100000 --sigma 0.5 --out imported/
      buckler certify imported/ --alpha 0.001 --method top_class
    """
    found = import_log(log, alpha=alpha, n=n, sigma=sigma, out=out, n0=n0)
    if as_json:
        say(json.dumps(found.as_dict()))
    elif not quiet:
        say("\n".join(found.sentences()))
