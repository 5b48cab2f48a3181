"""``buckler conformal``: prediction sets that hold the true class after any move within a radius."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import InvalidInput
from buckler.evaluate.conformal import RobustConformal
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.types import FloatArray

USUALLY_USED = 100
"""Draws used at most where --n is not given: more make the sets hardly smaller."""


def conformal_command(
    calibration: Annotated[Path, typer.Argument(help="Folder written by buckler sample: clean inputs with labels.")],
    test: Annotated[Path, typer.Argument(help="Folder of the inputs to predict, drawn in the same way.")],
    radius: Annotated[float, option("How far an input may have been moved.")],
    alpha: Annotated[float, option("Error probability of a set.")] = 0.1,
    n: Annotated[
        int | None, option("Use the first n draws: one of the runs' checkpoints.", f"the largest up to {USUALLY_USED}")
    ] = None,
    scores: Annotated[bool, option("Count scores above a threshold in place of votes.", name="--scores")] = False,
    by_label: Annotated[
        bool, option("Give every label a threshold of its own: sets cover given the label.", name="--by-label")
    ] = False,
    seed: Annotated[int, option("Seed that splits off the inputs that tune.")] = 0,
    as_json: Annotated[bool, options.as_json_option("Print the sets as JSON, one input a line.")] = False,
) -> None:
    """Predict sets of classes that cover also after a move of the input.

    Within the radius, that is: each set misses the true class with probability at most alpha over calibration inputs,
    the test input and all draws, if both were drawn from one population. Radius 0 is plain conformal prediction.

    Examples:

      buckler conformal calibration/ test/ --radius 0.25 --alpha 0.1
      buckler conformal calibration/ test/ --radius 0.25 --scores --n 50 --json
    """
    known, new = open_evidence(calibration), open_evidence(test)
    for what in ("noise", "num_classes", "model"):
        pair = getattr(known.spec, what), getattr(new.spec, what)
        if pair[0] != pair[1]:
            raise InvalidInput(f"both runs must be drawn alike; their {what} are {pair[0]} and {pair[1]}")
    seen = {h for shard in known.read_shards() for h in shard.input_hashes}
    if any(h in seen for shard in new.read_shards() for h in shard.input_hashes):
        raise InvalidInput("the runs must be of different inputs; an input of the test is in the calibration too")
    draws = n or max((p for p in known.spec.checkpoints if p <= USUALLY_USED), default=None)
    (votes, _, labels), (other_votes, _, truth) = known.counts(draws), new.counts(draws)
    values, others = (_scores(known, draws), _scores(new, draws)) if scores else (votes.values, other_votes.values)
    shared = {*votes.ids} & {*other_votes.ids}
    if known.spec.seed == new.spec.seed and shared:
        raise InvalidInput(
            f"the runs must not share noise; both have seed {new.spec.seed} and an input named {min(shared)!r}: draw "
            f"the test with another --seed"
        )
    if labels is None:
        raise InvalidInput(f"the calibration data must have labels; {str(calibration)!r} was drawn without")
    made = RobustConformal(noise=known.spec.noise, radius=radius, alpha=alpha)
    sets = made.calibrate(values, labels, n=draws, seed=seed, by_label=by_label).predict_sets(others)
    if as_json:
        for name, row in zip(other_votes.ids, sets, strict=True):
            say(json.dumps({"id": name, "classes": np.flatnonzero(row).tolist()}))
        return
    covered = "" if truth is None else f", {sets[np.arange(len(sets)), truth].mean():.3f} hold the label"
    say(f"{len(sets)} inputs, mean size of a set {sets.sum(axis=1).mean():.3f} of {sets.shape[1]} classes{covered}")
    say(made)


def _scores(evidence: Evidence, draws: int | None) -> FloatArray:
    """Return the scores of all classes, ``[inputs, draws, classes]``."""
    rows = []
    for made, _, _ in evidence.scores(draws):
        if made.values.shape[2] != made.num_classes:
            raise InvalidInput("--scores needs the scores of all classes; this run kept some of them")
        rows.append(made.values[0][:, np.argsort(made.columns[0])])
    return np.array(rows)
