"""``buckler plan`` and ``audit``: commands for before a run, about its cost and about the validity of a bound."""

import json
from dataclasses import asdict
from math import comb
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import typer

from buckler.certify.ladder import Ladder
from buckler.certify.methods import sound_methods
from buckler.certify.sequential import warn_of_short_ladder
from buckler.certify.votes import votes_of
from buckler.cli import options
from buckler.cli.options import argument, option
from buckler.cli.terminal import FAILED, say
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole, show
from buckler.evaluate.audit import Audit, CountsBound, audit_discrete, outcomes
from buckler.evaluate.noise_audit import audit_noise
from buckler.evaluate.population import plan_population
from buckler.evaluate.power import Power, compare_power, default_truths
from buckler.noise import NOISES, BaseNoise, as_noise, default_margin, named, parse
from buckler.paper.estimators import METHODS
from buckler.progress import bar
from buckler.report.text import TextTable
from buckler.runs.certify import method_named
from buckler.runs.decide import MAX_N
from buckler.runs.open_run import measure_rate, open_run
from buckler.runs.plan import duration, plan
from buckler.runs.results import votes_for_limit
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.models import errors_in_one_line, find_function
from buckler.types import FloatArray, IntArray, MarginKind

RADIUS, SIGMA = 0.5, 0.5
"""Radius and standard deviation of the noise that ``plan`` takes by default."""

MEASURED_SECONDS = 3.0
"""Seconds for which ``plan`` measures how many draws a second a model makes."""

KNOWN_GROUP, FORECAST_GROUP = "Without a model", "Forecast of buckler decide"

WITHOUT_A_MODEL = {
    *("spec", "sigma", "noise", "n0", "n", "inputs", "classes", "rate", "gpus", "radii", "alpha", "like", "as_json")
}
"""Options of ``plan`` that say something where no model is given."""

LARGEST_ENUMERATION = 200_000
"""Largest number of outcomes that ``audit`` enumerates; for each it also tries some hundred class probabilities."""


def plan_command(
    *,
    ctx: typer.Context,
    given: options.DrawOptions,
    n: int | None = option("Draws for each input.", None, f"{MAX_N:,}", group=options.DRAWS_GROUP),
    inputs: int | None = option("Inputs to certify.", None, "those of --data", group=KNOWN_GROUP),
    classes: int | None = option("Classes of the model.", None, "those of --model", group=KNOWN_GROUP),
    rate: float | None = option("Draws a second of one device.", None, "measured for a few seconds", group=KNOWN_GROUP),
    gpus: int = option("Devices that share the work.", 1, group=options.DEVICE_GROUP),
    radii: str | None = options.RADII_OPTION,
    alpha: float = option("Error probability of buckler decide, or of the limit.", 1e-3, group=FORECAST_GROUP),
    like: Path | None = option(
        "A run or a file of decisions whose votes are like those to come.",
        None,
        "a typical data set",
        group=FORECAST_GROUP,
    ),
    accuracy: float | None = option(
        "Forecast instead how many inputs and draws take the limit of buckler accuracy at one radius to this share; "
        "--like is the pilot.",
        group=FORECAST_GROUP,
    ),
    as_json: bool = options.JSON_OPTION,
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
    settings: dict[str, Any] = {"n": MAX_N, **given.settings(n=n)}
    if {"router", "experts"} & settings.keys():
        raise InvalidInput("a composition cannot be planned as one: plan its router and its experts one by one")
    if "sigma" not in settings and "noise" not in settings:
        settings["sigma"] = SIGMA
    smoothing = as_noise(settings.get("sigma"), settings.get("noise"), settings.get("noise_parameters"))
    usual = RADIUS if "sigma" in smoothing.parameters else smoothing.unit
    asked = options.radii_from(radii) or (usual,)
    if "model" in settings:
        options.check_given(settings, "data")
        with open_run(settings) as run:
            inputs = len(run.dataset) if inputs is None else inputs
            classes = run.spec.num_classes if classes is None else classes
            rate = measure_rate(run.spec, run.executor, run.dataset, MEASURED_SECONDS) if rate is None else rate
    if inputs is None or classes is None or rate is None:
        raise InvalidInput("--model and --data must be given, to be measured; or --inputs, --classes and --rate")
    if "model" not in settings:
        options.refuse_others(ctx, WITHOUT_A_MODEL, "without --model no model and no data are opened")
    check_whole("n", settings["n"], 1)
    check_whole("classes", classes, 2)
    n, n0 = int(settings["n"]), int(settings.get("n0", 0))
    if radii is not None:
        margin = default_margin(smoothing)
        warn_of_short_ladder(Ladder(asked, smoothing, check_alpha(alpha), n, margin, winner=True), classes)
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
    if not 0.0 < accuracy < 1.0:
        raise InvalidInput(f"--accuracy must be a share above 0 and below 1; got {accuracy:g}")
    pilot = open_evidence(like)
    votes = votes_for_limit(pilot)
    efforts = plan_population(votes, [0] * len(votes), radii[0], accuracy, noise=pilot.spec.noise, delta=alpha)
    if as_json:
        say(json.dumps([made._asdict() for made in efforts]))
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


def audit_command(
    *,
    ctx: typer.Context,
    method: str | None = argument("exact, bonferroni, ..., or package.module:function for a bound of your own.", None),
    noise: str | None = option(
        "Instead of METHOD: audit the radius of a noise, named as for buckler sample or package.module:NAME. Only "
        "--fail, --json and --quiet go with it."
    ),
    m: int = option("Number of classes.", 3),
    n: int = option("Number of draws.", 40),
    alpha: float = option("Error probability that the bound promises.", 0.01),
    margin: str = option("Margin that it bounds: quantile or probability.", "quantile"),
    points: int = option("Probabilities tried along each curve; more is finer.", 24),
    power: bool = option("Compare its power with the best possible, by linear programming.", False),
    truth: list[str] | None = option(
        "With --power: class probabilities, class 0 first, as 0.6,0.3,0.1; may be repeated.", None, "several"
    ),
    fail: bool = option("Exit with code 1 if the bound failed.", False, group=options.OUTPUT_GROUP),
    output: options.OutputOptions,
) -> None:
    """Check that a bound keeps its error probability.

    All outcomes of n draws are enumerated, and class probabilities are searched for which the bound is wrong most
    often. The exit code is 0 whatever the result, unless --fail is given.

    A bound of your own is a function (counts, alpha) -> lows: counts is an int64 array of k rows and m columns, one
    outcome a row, class 0 the certified class; lows are k lower limits of its margin over the best other class. Its
    module is imported, from the current folder too.

    Examples:

      buckler audit exact --m 3 --n 40 --alpha 0.01
      buckler audit mybounds:wald --m 3 --n 30 --alpha 0.05 --fail
      buckler audit bonferroni --n 60 --power --truth 0.8,0.15,0.05
      buckler audit --noise splitting:lam=0.5
    """
    if noise is not None:
        options.refuse_others(ctx, {"noise", "fail", "as_json", "quiet"}, "--noise is audited without draws")
        asked = audit_noise(_noise_named(noise))
        if not output.quiet:
            say(json.dumps({"passed": asked.passed, **asdict(asked)}) if output.as_json else asked)
        if fail and not asked.passed:
            raise typer.Exit(FAILED)
        return
    if method is None:
        ours = ", ".join(known.name for known in sound_methods())
        raise InvalidInput(f"METHOD must be given: {ours}, or package.module:function for a bound of your own")
    kind = cast(MarginKind, check_choice("margin", margin, get_args(MarginKind)))
    check_whole("n", n, 1)
    check_whole("m", m, 2)
    check_alpha(alpha)
    check_whole("points", points, 2)
    if truth and not power:
        raise InvalidInput("--truth is for --power, which is not given")
    if power and output.quiet:
        raise InvalidInput("--power cannot be given with --quiet, which prints nothing: leave one of them out")
    if comb(n + m - 1, m - 1) > LARGEST_ENUMERATION:
        raise InvalidInput(
            f"m and n must leave at most {LARGEST_ENUMERATION:,} outcomes to enumerate; "
            f"m = {m} with n = {n} has {comb(n + m - 1, m - 1):,}"
        )
    truths = [_probabilities(text) for text in truth] if truth else default_truths(m)
    bound = bound_of(method, kind, alpha)
    with bar("searching truths", quiet=output.bare) as progress:
        found = audit_discrete(bound, margin=kind, num_classes=m, n=n, alpha=alpha, points=points, progress=progress)
    studied: list[Power] = []
    if power:
        counts = outcomes(m, n)
        bounds = {method: bound(counts)}
        bounds.setdefault("exact", bound_of("exact", kind, alpha)(counts))
        studied = compare_power(bounds, counts, margin=kind, alpha=alpha, truths=truths)
    if output.as_json:
        more = {"power": [asdict(row) for row in studied]} if studied else {}
        say(json.dumps({"method": method, "passed": found.passed, **asdict(found), **more}))
    elif not output.quiet:
        _show(method, found, studied)
        if not found.passed and ":" in method and kind == "quantile":
            say("It was read as a limit of the quantile margin; --margin probability is for a difference of shares.")
    if fail and not found.passed:
        raise typer.Exit(FAILED)


def _noise_named(text: str) -> BaseNoise:
    """Return a noise: ours, ``NAME:key=value,...``, or a user's own.

    ``package.module:NOISE`` is a class or a function that makes the noise without arguments.
    """
    if text.partition(":")[0] in NOISES:
        noise: Any = named(*parse(text))
    else:
        if ":" not in text:
            check_choice("--noise", text, [*NOISES, "package.module:NAME"])
        make = find_function(text, "noise")
        with errors_in_one_line(f"noise {text} cannot be made"):
            noise = make()
    if not isinstance(noise, BaseNoise):
        raise InvalidInput(f"noise {text} must be a buckler.noise.BaseNoise; got {show(noise)}")
    return noise


def bound_of(name: str, margin: MarginKind, alpha: float) -> CountsBound:
    """Return the named method as a function ``counts [outcomes, classes] -> lows [outcomes]``, at level ``alpha``.

    ``lows`` are lower limits of class 0's margin of the kind ``margin``. The paper's methods for votes are known too,
    which no certificate may be made by.
    """
    printed = METHODS.get(name)  # of the paper's, which no certificate may be made by
    method = printed if printed is not None and printed.reads == "votes" else method_named(name, "votes")
    method.check_margin(margin)

    def bound(counts: IntArray) -> FloatArray:
        votes = votes_of(counts, np.zeros(len(counts), dtype=np.int64))
        return np.asarray(method.limit(votes, alpha, margin), dtype=np.float64)

    return bound


def _probabilities(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--truth must be probabilities separated by commas; got {text!r}") from None


def _show(name: str, found: Audit, studied: list[Power]) -> None:
    if name in METHODS:
        say(f"{name} is known to be unsound: it cannot issue a certificate.")
    say(f"{name} {found}")
    if not studied:
        return
    names = tuple(studied[0].powers)
    rows = tuple(
        (
            " ".join(f"{x:.3g}" for x in row.truth),
            f"{row.target:.4f}",
            f"{row.optimum:.4f}",
            *(f"{row.powers[method]:.4f} ({100 * row.powers[method] / row.optimum:.1f}%)" for method in names),
        )
        for row in studied
    )
    header = ("truth", "target", "optimum", *names)
    caption = "power: probability that the limit exceeds the target; the best test of that level has the optimum, 1/2"
    say(TextTable(header, rows, caption).to_text())
