"""``buckler import``: the field's usual log of radii -> counts evidence, and which alpha it was really made with."""

import json
from pathlib import Path
from typing import Annotated, cast

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.runs.imported import import_log
from buckler.runs.interop import Rounding
from buckler.runs.recovery import USUAL_ALPHA, USUAL_DRAWS


def import_(
    log: Annotated[Path, typer.Argument(help="Text file: idx, label, predict, radius, correct, time; tabs between.")],
    out: Annotated[Path | None, option("Folder for the evidence, to be read by buckler certify.", "only look")] = None,
    sigma: Annotated[float | None, option("Noise of the log, as claimed.", "smallest usual one that fits")] = None,
    n: Annotated[int | None, option("Draws, as claimed.", f"{USUAL_DRAWS}", name="--n")] = None,
    alpha: Annotated[float | None, option("Level, as claimed.", f"{USUAL_ALPHA}")] = None,
    n0: Annotated[int | None, option("With --out: selection draws, as claimed.", "100")] = None,
    rounding: Annotated[
        str | None, option("How radii were rounded: nearest or down.", "nearest, or down for our own logs")
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Read a log of certified radii, find which alpha, n and sigma it fits, and write the votes behind it.

    A radius printed with three digits stands for a few counts of votes, or for none: so the log itself tells whether it
    can have been made as claimed. Unknown votes are taken at their worst: the smallest count, one bucket for all other
    classes. A claim that fits is used; otherwise, of the levels that fit, the one that stands for the fewest votes.
    A log written by buckler certify --tsv says how it was made.

    Examples:

      buckler import sigma_0.50.tsv --sigma 0.5

      buckler import sigma_0.50.tsv --sigma 0.5 --n 100000 --out imported/

      buckler certify imported/ --alpha 0.001 --tsv again.tsv
    """
    found = import_log(log, alpha=alpha, n=n, sigma=sigma, rounding=cast(Rounding | None, rounding), out=out, n0=n0)
    if as_json:
        print(json.dumps(found.as_dict()))
    elif not quiet:
        print("\n".join(found.sentences()))
