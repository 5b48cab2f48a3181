"""``buckler accuracy``: limit the certified accuracy of the population behind a run."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import InvalidInput
from buckler.evaluate.population import LARGEST_POPULATION_N, plan_population, population_accuracy
from buckler.report.tables import TextTable
from buckler.runs.results import true_votes
from buckler.runs.spec import IMPORTED
from buckler.runs.store.evidence import Evidence, open_evidence


def accuracy_command(
    run: Annotated[Path, typer.Argument(help="Folder written by buckler sample, of data with labels.")],
    radii: Annotated[str, option("Radii to report, as 0.25,0.5,0.75.")],
    delta: Annotated[float, option("Error probability of all limits together.")] = 1e-3,
    n: Annotated[
        int | None, option("Use the first n draws: one of the run's checkpoints.", "the largest up to 1000")
    ] = None,
    fixed_list: Annotated[bool, option("Limit the share of these inputs, not of a population.", name="--list")] = False,
    seed: Annotated[int, option("Seed that orders the inputs and splits off those that choose h.")] = 0,
    plan: Annotated[
        float | None,
        option("Forecast instead how many inputs and draws a limit of this share takes, this run being the pilot."),
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print the limits as JSON.")] = False,
) -> None:
    """Limit the certified accuracy of a population, from few draws.

    The population is that which the run's inputs were drawn from. Each limit is a share of it that is classified right
    everywhere within its radius; with probability 1 - delta over draws and inputs all of them hold. No input is
    certified alone, so 40 to 1,000 draws of each are enough. Choose radii, n and seed before you look.

    Examples:

      buckler accuracy run/ --radii 0.25,0.5,0.75,1
      buckler accuracy run/ --radii 0.5 --n 200 --delta 0.01 --list
      buckler accuracy pilot/ --radii 0.5 --plan 0.4
    """
    evidence = open_evidence(run)
    if n is not None:
        evidence.checkpoint(n)
    votes = true_votes(evidence, n)
    if votes is None:
        raise InvalidInput(f"RUN must have {_lacking(evidence, n)}; {str(run)!r} has none")
    asked = options.radii_from(radii)
    labels = np.zeros(len(votes), dtype=np.int64)
    if plan is not None:
        if len(asked) != 1 or fixed_list:
            raise InvalidInput("--plan is for one radius, and does not go with --list")
        efforts = plan_population(votes, labels, asked[0], plan, noise=evidence.spec.noise, delta=delta)
        if as_json:
            say(json.dumps([{"n": made.n, "inputs": made.inputs, "draws": made.draws} for made in efforts]))
            return
        rows = tuple((f"{made.n}", f"{made.inputs:,}", f"{made.draws:,}") for made in efforts)
        title = f"For a limit of {plan:g} at radius {asked[0]:g}, delta {delta:g}: a forecast from {len(votes)} inputs"
        table = TextTable(("draws of each", "inputs", "draws in all"), rows).to_text(title)
        say(table if rows else f"This classifier is not expected to reach {plan:g} at radius {asked[0]:g}.")
        return
    found = population_accuracy(
        votes, labels, asked, noise=evidence.spec.noise, delta=delta, seed=seed,
        fixed_list=fixed_list,
    )  # fmt: skip
    if not evidence.complete:
        say(f"buckler: the run is not finished: {found.inputs} of {evidence.inputs} inputs", error=True)
    shown = {"radii": asked, "low": found.low.tolist(), "delta": delta, "n": found.n, "inputs": found.inputs}
    say(json.dumps({**shown, "pilot": found.pilot, "list": fixed_list}) if as_json else found)


def _lacking(evidence: Evidence, n: int | None) -> str:
    """Return what a run lacks whose votes for the true class are not known."""
    spec = evidence.spec
    if spec.model == IMPORTED:
        return "votes that were counted, not recovered from a log"
    if spec.noise.total is not None:
        return f"noise that is drawn at random, not {spec.noise.describe()}"
    if not evidence.shards:
        return "a finished shard"
    smallest = spec.checkpoints[0]
    if smallest > min(n or LARGEST_POPULATION_N, LARGEST_POPULATION_N):
        return f"a checkpoint of at most {LARGEST_POPULATION_N:,} draws (its first is {smallest:,})"
    return "labels (sample takes them from --data, or for arrays without from --labels)"
