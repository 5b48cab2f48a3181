"""``buckler plan``: what a run costs, before it is begun."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.table import Table

from buckler.certify.forecast import CENTRE, SPREAD
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import Console
from buckler.errors import check_whole
from buckler.noise import settled
from buckler.runs.plan import pilot_top
from buckler.runs.plan import plan as make_plan

RADIUS, SIGMA = 0.5, 0.5
"""The radius and the noise of the forecast unless told."""


def plan(
    inputs: Annotated[int, option("Inputs to certify.")],
    classes: Annotated[int, option("Classes of the model.")],
    n: Annotated[int, option("Estimation draws for each input.")],
    rate: Annotated[float, option("Draws a second of one device, as buckler sample shows it.")],
    n0: Annotated[int, option("Selection draws for each input.")] = 100,
    gpus: Annotated[int, option("Devices to share the work.")] = 1,
    sigma: Annotated[float | None, option("For the any-time forecast: the noise.", f"{SIGMA}")] = None,
    law: options.LawOption = None,
    target_radius: options.TargetRadius = None,
    radii: options.Radii = None,
    radii_to: options.RadiiTo = None,
    step: options.Step = None,
    alpha: Annotated[float, option("For the any-time forecast: error probability.")] = 1e-3,
    like: Annotated[Path | None, option("Certificates of a pilot run (Parquet).", "a typical data set")] = None,
    as_json: Annotated[bool, option("Print the plan as JSON.", name="--json")] = False,
) -> None:
    """Plan a run: draws, device-hours, evidence on disk, and what buckler decide is expected to save.

    That forecast is for the radii given as for buckler decide, or for radius 0.5, for other norms lam / 4 or one pixel.
    The forecast is as good as the probabilities it is built on: those of a typical data set, or of a pilot (--like).

    Examples:

      buckler plan --inputs 50000 --classes 1000 --n 100000 --rate 24000

      buckler plan --inputs 10000 --classes 10 --n 100000 --rate 90000 --like pilot.parquet

      buckler plan --inputs 10000 --classes 10 --n 100000 --rate 90000 --radii-to 1.5 --step 0.25
    """
    check_whole("gpus", gpus, 1)
    noise = settled(SIGMA if sigma is None and law is None else sigma, law)
    usual = RADIUS if "sigma" in noise.parameters else noise.unit
    asked = options.radii_from(target_radius, radii, radii_to, step) or (usual,)
    top = None if like is None else pilot_top(like)
    made = make_plan(
        inputs=inputs, num_classes=classes, n=n, rate=rate, n0=n0, law=noise, radii=asked, alpha=alpha,
        top=top,
    )  # fmt: skip
    if as_json:
        print(json.dumps({**asdict(made), "times_fewer": made.times_fewer, "gpus": gpus}))
        return
    source = f"pilot of {len(top)} certificates, {like}" if top is not None else (
        f"typical data set: normal quantiles of the top class's probability ~ Normal({CENTRE:g}, {SPREAD:g})"
    )  # fmt: skip
    share = f"{gpus} devices" if gpus > 1 else "one device"
    table = Table(title=f"{inputs:,} inputs, {classes:,} classes, n {n:,}, n0 {n0:,}, {rate:,.0f} draws/s a device")
    what = f"radius {asked[0]:g} is" if len(asked) == 1 else f"{len(asked)} radii up to {asked[-1]:g} are"
    for heading in ("", "every draw", f"until {what} decided"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("draws", f"{made.samples:,}", f"{made.anytime_samples:,} ({made.times_fewer:,.1f} times fewer)")
    table.add_row("device-hours", _hours(made.gpu_hours), _hours(made.anytime_hours))
    table.add_row(f"hours on {share}", _hours(made.gpu_hours / gpus), _hours(made.anytime_hours / gpus))
    table.add_row("evidence on disk", _size(made.evidence_bytes), "certificates alone")
    shares = ", ".join(f"{share:.0%}" for share in made.anytime_shares_certified)
    under = f"at sigma {noise.unit:g}" if law is None else f"under {noise.describe()}"
    console = Console()
    console.print(table)
    console.print(
        f"Any-time forecast {under}, alpha {alpha:g}, {shares} of inputs with the "
        f"margin, from a {source}; the runner-up holds all other votes.",
        soft_wrap=True,
    )


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 10 else f"{hours:.2g}"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
