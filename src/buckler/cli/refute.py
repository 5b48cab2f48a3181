"""``buckler refute``: attack certified inputs, and compare certified with refuted radii."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from buckler.certificate import Bracket, rounded_down, rounded_up
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import FAILED, interruptible, kept_in, say, stop
from buckler.errors import InvalidInput
from buckler.evaluate.refutations import (
    CANDIDATE_DRAWS,
    SEARCH_REACH,
    RefutationSettings,
    alarm,
    bracket_curve,
    reach_of,
)
from buckler.progress import bar
from buckler.report.plots import bracket_plot, check_figure
from buckler.runs import refute as runs
from buckler.runs.executor import Interrupted
from buckler.runs.open_run import ExecutorOptions, open_run
from buckler.runs.plan import measure_rate, time_to_refute
from buckler.runs.results import Result, read_result

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack

ATTACK_GROUP = "Attack"


def refute_command(
    run: Annotated[Path, typer.Argument(help="Folder of buckler sample, or Parquet file of certificates.")],
    model: Annotated[str | None, option("As for buckler sample.", "the run's", group=options.MODEL_GROUP)] = None,
    data: Annotated[str | None, option("As for buckler sample.", "the run's", group=options.MODEL_GROUP)] = None,
    denoiser: Annotated[str | None, option("As for buckler sample.", "the run's", group=options.MODEL_GROUP)] = None,
    num_classes: options.NumClasses = None,
    method: Annotated[
        str | None, option("Method whose certificates are attacked.", "exact, or the file's", group=ATTACK_GROUP)
    ] = None,
    alpha: Annotated[float, option("Error probability of each refutation.", group=ATTACK_GROUP)] = 1e-3,
    max_radius: Annotated[
        float | None, option("Search no farther than this.", f"{SEARCH_REACH:g} sigma", group=ATTACK_GROUP)
    ] = None,
    within: Annotated[
        float | None,
        option("Stop at the first point inside of this claimed radius.", "search for the nearest", group=ATTACK_GROUP),
    ] = None,
    max_n: Annotated[int, option("Draws that test a candidate, at most.", group=ATTACK_GROUP)] = CANDIDATE_DRAWS,
    attack: Annotated[
        str, option("decoupled or pgd, or with sizes: decoupled:searches=6,steps=120,draws=32.", group=ATTACK_GROUP)
    ] = "decoupled",
    limit: Annotated[int | None, option("Attack at most this many certificates.", "all", group=ATTACK_GROUP)] = None,
    device: Annotated[str | None, option("Device of the torch model.", "the run's", group=options.DEVICE_GROUP)] = None,
    batch_size: options.BatchSize = None,
    executor: options.ExecutorOption = "process",
    address: options.AddressOption = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    out: Annotated[
        Path | None,
        option(
            "Keep points and votes in this Parquet file; the same command goes on with it.", group=options.OUTPUT_GROUP
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        option("Draw certified and refuted accuracy to this PNG, PDF or SVG file.", group=options.OUTPUT_GROUP),
    ] = None,
    strict: Annotated[
        bool,
        option(
            "Exit with code 1 if more certificates are contradicted than alpha allows.",
            name="--strict",
            group=options.OUTPUT_GROUP,
        ),
    ] = False,
    delta: Annotated[
        float, option("Probability of a false alarm about contradictions.", group=options.OUTPUT_GROUP)
    ] = 1e-3,
    as_json: Annotated[bool, options.as_json_option("Print the results as JSON, one a line.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack certified inputs: find points where the class changes.

    Points are searched with gradients through the noise and tested on fresh draws, so each refutation is false with
    probability at most alpha. The distance at which the class first changes then lies between the certified and the
    refuted radius. A refutation inside of a certified ball is a contradiction; more of them than chance allows are an
    alarm.

    Examples:

      buckler refute run/ --limit 100 --out refuted.parquet
      buckler refute certificates.parquet --model resnet110:weights.safetensors
        --data cifar10.npz --strict
    """
    options.check_outputs(out=out, figure=figure)
    result = read_result(run, (method or "exact",) if method or run.is_dir() else ())
    given = {
        "model": model, "data": data, "denoiser": denoiser, "device": device, "num_classes": num_classes,
        "batch_size": batch_size,
    }  # fmt: skip
    settings = runs.settings_to_refute(result, given)
    if result.caution and not quiet:
        say(f"buckler: {result.caution}", error=True)
    if figure is not None and check_figure(figure) and result.labels is None:
        raise InvalidInput("--figure shows accuracy and needs labels; these certificates have none")
    interrupted = False
    with interruptible():
        try:
            where = ExecutorOptions(executor, address, workers, gpus_per_worker)
            with open_run(settings, where) as opened, bar("refuting", quiet=quiet or as_json, unit="draws") as show:
                noise = opened.spec.noise
                total = sum(not c.abstained for c in result.groups[0])
                total = total if limit is None else min(limit, total)
                reach, value_range = reach_of(noise, max_radius, within), (opened.dataset.low, opened.dataset.high)
                how = RefutationSettings(
                    noise, alpha, max_n, reach, value_range, _attack(attack), first=within is not None
                )
                if not (quiet or as_json):
                    rate = opened.rate or measure_rate(opened.spec, opened.executor, opened.dataset)
                    if expected := time_to_refute(how, total, rate):
                        say(f"buckler: {expected}", error=True)
                refuted = runs.refute(
                    result, opened, how, out, limit=limit, progress=lambda inputs, draws: show(inputs, total, draws)
                )
        except Interrupted as interrupt:
            interrupted, refuted = True, runs.Refuted(interrupt.done, None)
        except KeyboardInterrupt:
            stop("interrupted before anything was drawn")
    if figure is not None:
        _draw(result, refuted.brackets, figure)
    if as_json:
        for bracket in refuted.brackets:
            say(json.dumps(_line(bracket)))
    elif not quiet:
        say(_summary(refuted.brackets))
    if refuted.same_model is False:
        say("buckler: the model answers otherwise than the one that was certified, or elsewhere", error=True)
    raised = alarm(refuted.brackets, len(result.groups[0]), delta)
    if raised is not None:
        say(f"buckler: {raised}", error=True)
    if interrupted:
        stop(f"interrupted; {len(refuted.brackets)} inputs are done and {kept_in(out)}")
    if raised is not None and strict:
        raise typer.Exit(FAILED)


def _attack(text: str) -> "Attack":
    from buckler.evaluate.attacks import attack_named

    return attack_named(text)


def _draw(result: Result, brackets: Sequence[Bracket], path: Path) -> None:
    made = [bracket.refutation for bracket in brackets]
    farthest = max([one.radius or 0.0 for one in made] + [c.radius for c in result.groups[0]])
    curve = bracket_curve(result.groups[0], made, np.linspace(0.0, 1.05 * farthest, 200))
    noise = result.groups[0].first.noise
    bracket_plot(curve, path, f"{len(made)} of {curve.inputs} inputs attacked, {noise.describe()}")


def _line(bracket: Bracket) -> dict[str, object]:
    made = bracket.refutation
    return {
        "id": made.id, "class": made.label, "certified": bracket.certified, "refuted": made.radius, "rival": made.rival,
        "alpha": made.alpha, "certified_alpha": bracket.certified_alpha, "n": made.n, "label": bracket.truth,
    }  # fmt: skip


def _summary(brackets: Sequence[Bracket]) -> str:
    found = [(b.refutation.radius, b.certified) for b in brackets if b.refutation.radius is not None]
    text = f"{len(brackets)} certified inputs attacked, {len(found)} refuted"
    if not found:
        return text
    refuted, certified = np.array(found).T
    low, middle, high = (f"{q:.3f}" for q in np.quantile(refuted / certified, [0.25, 0.5, 0.75]))
    inside = sum(b.contradicts for b in brackets)
    return (
        f"{text}; median radius certified {rounded_down(float(np.median(certified)))}, refuted "
        f"{rounded_up(float(np.median(refuted)))}; ratio {middle} ({low} to {high}); contradictions {inside}"
    )
