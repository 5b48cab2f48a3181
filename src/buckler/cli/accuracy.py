"""``buckler accuracy``: limit the certified accuracy of the population behind a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.evaluate.population import population_accuracy
from buckler.runs.results import votes_for_limit
from buckler.runs.store.evidence import open_evidence


def accuracy_command(
    run: Annotated[Path, typer.Argument(help="Folder written by buckler sample, of data with labels.")],
    radii: Annotated[str, option("Radii to report, as 0.25,0.5,0.75.")],
    delta: Annotated[float, option("Error probability of all limits together.")] = 1e-3,
    n: Annotated[
        int | None, option("Use the first n draws: one of the run's checkpoints.", "the largest up to 1000")
    ] = None,
    fixed_list: Annotated[bool, option("Limit the share of these inputs, not of a population.", name="--list")] = False,
    seed: Annotated[int, option("Seed that orders the inputs and splits off those that choose h.")] = 0,
    as_json: Annotated[bool, options.as_json_option("Print the limits as JSON.")] = False,
) -> None:
    """Limit the certified accuracy of a population, from few draws.

    The population is that which the run's inputs were drawn from. Each limit is a share of it that is classified right
    everywhere within its radius; with probability 1 - delta over draws and inputs all of them hold. No input is
    certified alone, so 40 to 1,000 draws of each are enough. Choose radii, n and seed before you look. How many inputs
    and draws a limit takes: buckler plan --accuracy.

    Examples:

      buckler accuracy run/ --radii 0.25,0.5,0.75,1
      buckler accuracy run/ --radii 0.5 --n 200 --delta 0.01 --list
    """
    evidence = open_evidence(run)
    votes, asked = votes_for_limit(evidence, n), options.radii_from(radii)
    found = population_accuracy(
        votes, [0] * len(votes), asked, noise=evidence.spec.noise, delta=delta, seed=seed, fixed_list=fixed_list
    )
    if not evidence.complete:
        say(f"buckler: the run is not finished: {found.inputs} of {evidence.inputs} inputs", error=True)
    shown = {"radii": asked, "low": found.low.tolist(), "delta": delta, "n": found.n, "inputs": found.inputs}
    say(json.dumps({**shown, "pilot": found.pilot, "list": fixed_list}) if as_json else found)
