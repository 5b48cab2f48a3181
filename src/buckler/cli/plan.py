"""``buckler plan``: forecast the cost of a run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import InvalidInput, check_whole
from buckler.evaluate.population import plan_population
from buckler.noise import noise_from_spec
from buckler.report.tables import TextTable
from buckler.runs.decide import MAX_N
from buckler.runs.open_run import open_run, settings_from
from buckler.runs.plan import duration, measure_rate, plan
from buckler.runs.results import votes_for_limit
from buckler.runs.store.evidence import open_evidence

RADIUS, SIGMA = 0.5, 0.5
"""Default radius and noise of the forecast."""

MEASURED_SECONDS = 3.0
"""Seconds for which the command measures draws a second."""

KNOWN_GROUP, FORECAST_GROUP = "Without a model", "Forecast of buckler decide"


def plan_command(
    ctx: typer.Context,
    model: options.Model = None,
    data: options.Data = None,
    spec: options.Spec = None,
    num_classes: options.NumClasses = None,
    sigma: options.Sigma = None,
    noise: options.NoiseOption = None,
    n: Annotated[
        int | None, option("Draws for each input.", f"{MAX_N:,}", name="--n", group=options.DRAWS_GROUP)
    ] = None,
    n0: options.SelectionDraws = None,
    every: options.Every = None,
    limit: options.LimitOption = None,
    device: options.Device = None,
    inputs: Annotated[int | None, option("Inputs to certify.", "those of --data", group=KNOWN_GROUP)] = None,
    classes: Annotated[int | None, option("Classes of the model.", "those of --model", group=KNOWN_GROUP)] = None,
    rate: Annotated[
        float | None, option("Draws a second of one device.", "measured for a few seconds", group=KNOWN_GROUP)
    ] = None,
    gpus: Annotated[int, option("Devices that share the work.", group=options.DEVICE_GROUP)] = 1,
    radii: options.Radii = None,
    alpha: Annotated[
        float, option("Error probability of buckler decide, or of the limit.", group=FORECAST_GROUP)
    ] = 1e-3,
    like: Annotated[
        Path | None,
        option(
            "A run or a file of decisions whose votes are like those to come.",
            "a typical data set",
            group=FORECAST_GROUP,
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        option(
            "Forecast instead how many inputs and draws take the limit of buckler accuracy at one radius to this "
            "share; --like is the pilot.",
            group=FORECAST_GROUP,
        ),
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print the plan as JSON.")] = False,
) -> None:
    """Forecast the draws, hours and disk space of a run.

    Measures the model on one input for a few seconds, and says what n draws for every input cost, and what buckler
    decide would: for the radii given as for that command, by default radius 0.5 (lam / 4 or one pixel under other
    noise). The forecast for decide is as good as the votes it is built on: those of a typical data set, or of --like.
    With --accuracy it says how many inputs and draws a limit of the population's accuracy takes.

    Examples:

      buckler plan --model mymodels:make --data cifar10.npz --sigma 0.5
      buckler plan --spec run.toml --like pilot/ --radii 0.25:1.5
      buckler plan --inputs 50000 --classes 1000 --rate 24000 --gpus 8
      buckler plan --like pilot/ --radii 0.5 --accuracy 0.4
    """
    if accuracy is not None:
        options.refuse_others(
            ctx, {"accuracy", "like", "radii", "alpha", "as_json"}, "--accuracy is planned from --like"
        )
        _plan_accuracy(like, options.radii_from(radii), accuracy, alpha, as_json)
        return
    check_whole("gpus", gpus, 1)
    given = {
        "model": model, "data": data, "num_classes": num_classes, "sigma": sigma, "noise": noise, "n": n, "n0": n0,
        "every": every, "limit": limit, "device": device,
    }  # fmt: skip
    settings: dict[str, Any] = {"n": MAX_N, **settings_from(spec, given)}
    if "sigma" not in settings and "noise" not in settings:
        settings["sigma"] = SIGMA
    smoothing = noise_from_spec(settings.get("sigma"), settings.get("noise"), settings.get("noise_parameters"))
    usual = RADIUS if "sigma" in smoothing.parameters else smoothing.unit
    asked = options.radii_from(radii) or (usual,)
    if "model" in settings:
        options.check_given(settings, "data")
        with open_run(settings) as run:
            inputs, classes = inputs or len(run.dataset), classes or run.spec.num_classes
            rate = measure_rate(run.spec, run.executor, run.dataset, MEASURED_SECONDS) if rate is None else rate
    if inputs is None or classes is None or rate is None:
        raise InvalidInput("--model and --data must be given, to be measured; or --inputs, --classes and --rate")
    n, n0 = int(settings["n"]), int(settings.get("n0", 0))
    made = plan(
        inputs=inputs, num_classes=classes, n=n, rate=rate, n0=n0, noise=smoothing, radii=asked, alpha=alpha,
        like=like,
    )  # fmt: skip
    if as_json:
        say(json.dumps({**asdict(made), "times_fewer": made.times_fewer, "gpus": gpus, "rate": rate}))
        return
    share = f"{gpus} devices" if gpus > 1 else "one device"
    what = f"radius {asked[0]:g} is" if len(asked) == 1 else f"{len(asked)} radii up to {asked[-1]:g} are"
    fewer = f"{made.anytime_samples:,} ({made.times_fewer:,.1f} times fewer)"
    rows = (
        ("draws", f"{made.samples:,}", fewer),
        (f"time on {share}", *(duration(3600.0 * hours / gpus) for hours in (made.gpu_hours, made.anytime_hours))),
        ("disk space", _size(made.evidence_bytes), "certificates alone"),
    )
    title = f"{inputs:,} inputs, {classes:,} classes, n {n:,}, n0 {n0:,}, {rate:,.0f} draws a second and device"
    say(TextTable(("", "every draw", f"until {what} decided"), rows).to_text(title))
    certified = ", ".join(f"{part:.0%}" for part in made.anytime_shares_certified)
    under = f"at sigma {smoothing.unit:g}" if "noise" not in settings else f"under {smoothing.describe()}"
    source = "a typical data set" if like is None else f"the votes in {like}"
    say(f"Forecast of buckler decide {under}, alpha {alpha:g}: {certified} of inputs are certified, from {source}.")


def _plan_accuracy(like: Path | None, radii: tuple[float, ...], accuracy: float, alpha: float, as_json: bool) -> None:
    """Print how many inputs, with how many draws of each, take the limit at one radius to this accuracy."""
    if like is None or len(radii) != 1:
        raise InvalidInput("--accuracy must be given with a pilot run, --like, and with one radius, --radii")
    pilot = open_evidence(like)
    votes = votes_for_limit(pilot)
    labels = [0] * len(votes)
    efforts = plan_population(votes, labels, radii[0], accuracy, noise=pilot.spec.noise, delta=alpha)
    if as_json:
        say(json.dumps([{**asdict(made), "draws": made.draws} for made in efforts]))
        return
    rows = tuple((f"{made.n}", f"{made.inputs:,}", f"{made.draws:,}") for made in efforts)
    title = f"For a limit of {accuracy:g} at radius {radii[0]:g}, alpha {alpha:g}: a forecast from {len(votes)} inputs"
    table = TextTable(("draws of each", "inputs", "draws in all"), rows).to_text(title)
    say(table if rows else f"This classifier is not expected to reach {accuracy:g} at radius {radii[0]:g}.")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
