"""``buckler plan``: forecast the cost of a run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import check_whole
from buckler.noise import noise_from_spec
from buckler.report.tables import TextTable
from buckler.runs.plan import CENTRE, SPREAD, pilot_top, plan

RADIUS, SIGMA = 0.5, 0.5
"""Default radius and noise of the forecast."""

RUN, FORECAST = "The run", "Forecast of buckler decide"


def plan_command(
    inputs: Annotated[int, option("Inputs to certify.", group=RUN)],
    classes: Annotated[int, option("Classes of the model.", group=RUN)],
    n: Annotated[int, option("Draws for each input.", group=RUN)],
    rate: Annotated[float, option("Draws a second of one device, as buckler sample shows them.", group=RUN)],
    n0: Annotated[int, option("Separate draws that select the class.", group=RUN)] = 0,
    gpus: Annotated[int, option("Devices that share the work.", group=RUN)] = 1,
    radii: options.Radii = None,
    sigma: Annotated[float | None, option("Noise of buckler decide.", f"{SIGMA}", group=FORECAST)] = None,
    noise: options.NoiseOption = None,
    alpha: Annotated[float, option("Error probability of buckler decide.", group=FORECAST)] = 1e-3,
    like: Annotated[
        Path | None, option("Certificates of a pilot run (Parquet).", "a typical data set", group=FORECAST)
    ] = None,
    as_json: Annotated[bool, options.as_json_option("Print the plan as JSON.")] = False,
) -> None:
    """Forecast the draws, hours and disk space of a run.

    And what buckler decide would save: for the radii given as for that command, by default radius 0.5 (lam / 4 or one
    pixel under other noise). That forecast is as good as the probabilities it is built on, those of a typical data set
    or of a pilot run. How many inputs and draws a limit of the population's accuracy takes: buckler accuracy --plan.

    Examples:

      buckler plan --inputs 50000 --classes 1000 --n 100000 --rate 24000
      buckler plan --inputs 10000 --classes 10 --n 100000 --rate 90000
        --like pilot.parquet --radii 0.25:1.5
    """
    check_whole("gpus", gpus, 1)
    smoothing = noise_from_spec(SIGMA if sigma is None and noise is None else sigma, noise)
    usual = RADIUS if "sigma" in smoothing.parameters else smoothing.unit
    asked = options.radii_from(radii) or (usual,)
    top = None if like is None else pilot_top(like)
    made = plan(
        inputs=inputs, num_classes=classes, n=n, rate=rate, n0=n0, noise=smoothing, radii=asked, alpha=alpha,
        top=top,
    )  # fmt: skip
    if as_json:
        say(json.dumps({**asdict(made), "times_fewer": made.times_fewer, "gpus": gpus}))
        return
    source = f"pilot of {len(top)} certificates, {like}" if top is not None else (
        f"typical data set: normal quantiles of the top class's probability ~ Normal({CENTRE:g}, {SPREAD:g})"
    )  # fmt: skip
    share = f"{gpus} devices" if gpus > 1 else "one device"
    what = f"radius {asked[0]:g} is" if len(asked) == 1 else f"{len(asked)} radii up to {asked[-1]:g} are"
    fewer = f"{made.anytime_samples:,} ({made.times_fewer:,.1f} times fewer)"
    rows = (
        ("draws", f"{made.samples:,}", fewer),
        ("device-hours", _hours(made.gpu_hours), _hours(made.anytime_hours)),
        (f"hours on {share}", _hours(made.gpu_hours / gpus), _hours(made.anytime_hours / gpus)),
        ("disk space", _size(made.evidence_bytes), "certificates alone"),
    )
    title = f"{inputs:,} inputs, {classes:,} classes, n {n:,}, n0 {n0:,}, {rate:,.0f} draws a second and device"
    say(TextTable(("", "every draw", f"until {what} decided"), rows).to_text(title))
    shares = ", ".join(f"{share:.0%}" for share in made.anytime_shares_certified)
    under = f"at sigma {smoothing.unit:g}" if noise is None else f"under {smoothing.describe()}"
    say(
        f"Forecast of buckler decide {under}, alpha {alpha:g}: {shares} of inputs are certified, from a {source}; the "
        "runner-up holds all other votes."
    )


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 10 else f"{hours:.2g}"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
