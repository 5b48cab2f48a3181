"""``buckler audit``: the exact error probability of a bound, ours or the user's own, and its power."""

import json
from dataclasses import asdict
from math import comb
from typing import Annotated, Any, cast, get_args

import numpy as np
import typer

from buckler.certify.methods import Method, Votes, sound_methods
from buckler.certify.votes import votes_of
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import FAILED, say
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole
from buckler.evaluate.audit import Audit, CountsBound, PairBound, audit_collapsed, audit_discrete, outcomes
from buckler.evaluate.noise_audit import audit_noise
from buckler.evaluate.power import Power, compare_power, default_truths
from buckler.noise import NOISES, named, parse
from buckler.paper.estimators import METHODS
from buckler.progress import bar
from buckler.report.tables import TextTable
from buckler.runs.certify import method_named
from buckler.sampling.models import errors_in_one_line, find_function
from buckler.types import FloatArray, IntArray, MarginKind

LARGEST_ENUMERATION = 200_000
"""Largest number of outcomes enumerated; the search weighs them all at some hundred truths for each outcome."""


def audit_command(
    ctx: typer.Context,
    method: Annotated[
        str | None, typer.Argument(help="exact, bonferroni, ..., or package.module:function for a bound of your own.")
    ] = None,
    noise: Annotated[
        str | None,
        option(
            "Instead of METHOD: audit the radius of a noise, named as for buckler sample or package.module:NAME. Only "
            "--fail, --json and --quiet go with it."
        ),
    ] = None,
    m: Annotated[int | None, option("Number of classes.", "3", name="--m")] = None,
    n: Annotated[int, option("Number of draws.", name="--n")] = 40,
    alpha: Annotated[float, option("Error probability that the bound promises.")] = 0.01,
    margin: Annotated[str, option("Margin that it bounds: quantile or probability.")] = "quantile",
    points: Annotated[int, option("Probabilities tried along each curve; more is finer.")] = 24,
    collapsed: Annotated[
        bool,
        option("The bound depends on (top, runner-up, n) alone: audit one pair; allows large n.", name="--collapsed"),
    ] = False,
    power: Annotated[
        bool, option("Compare its power with the best possible, by linear programming.", name="--power")
    ] = False,
    truth: Annotated[
        list[str] | None,
        option("With --power: class probabilities, class 0 first, as 0.6,0.3,0.1; may be repeated.", "several"),
    ] = None,
    fail: Annotated[
        bool, option("Exit with code 1 if the bound failed.", name="--fail", group=options.OUTPUT_GROUP)
    ] = False,
    as_json: Annotated[bool, options.as_json_option("Print one JSON object.")] = False,
    quiet: Annotated[
        bool, option("Print nothing; for use with --fail.", name="--quiet", group=options.OUTPUT_GROUP)
    ] = False,
) -> None:
    """Check that a bound keeps its error probability.

    All outcomes of n draws are enumerated, and class probabilities are searched for which the bound is wrong most
    often. The exit code is 0 whatever the result, unless --fail is given.

    A bound of your own is a function (counts, alpha) -> lows: counts is an int64 array of k rows and m columns, one
    outcome a row, class 0 the certified class; lows are k lower limits of its margin over the best other class. Its
    module is imported, from the current folder too. With --collapsed it is a function (top, runner_up, n, alpha) ->
    lows of three arrays, and must not rise with the runner-up.

    Examples:

      buckler audit exact --m 3 --n 40 --alpha 0.01
      buckler audit mybounds:wald --m 3 --n 30 --alpha 0.05 --fail
      buckler audit bonferroni --collapsed --n 2000
      buckler audit bonferroni --n 60 --power --truth 0.8,0.15,0.05
      buckler audit --noise splitting:lam=0.5
    """
    if noise is not None:
        options.refuse_others(ctx, {"noise", "fail", "as_json", "quiet"}, "--noise is audited without draws")
        asked = audit_noise(_noise_named(noise))
        if not quiet or as_json:
            say(json.dumps({"passed": asked.passed, **asdict(asked)}) if as_json else asked)
        if fail and not asked.passed:
            raise typer.Exit(FAILED)
        return
    if method is None:
        ours = ", ".join(known.name for known in sound_methods())
        raise InvalidInput(f"METHOD must be given: {ours}, or package.module:function for a bound of your own")
    name = method
    kind = cast(MarginKind, check_choice("margin", margin, get_args(MarginKind)))
    check_whole("n", n, 1)
    check_alpha(alpha)
    check_whole("points", points, 2)
    if truth and not power:
        raise InvalidInput("--truth is for --power, which is not given")
    if power and quiet:
        raise InvalidInput("--power cannot be given with --quiet, which prints nothing: leave one of them out")
    if collapsed:
        if power:
            raise InvalidInput("--power does not go with --collapsed: its optimum is over all outcomes of m classes")
        if m is not None:
            raise InvalidInput("--m does not go with --collapsed, which audits one pair of any number of classes")
        pair = pair_bound_of(name, kind, alpha)
        with bar("searching truths", quiet=quiet or as_json) as progress:
            found = audit_collapsed(pair, margin=kind, n=n, alpha=alpha, points=points, progress=progress)
        _finish(name, found, [], as_json, quiet, fail)
        return
    m = check_whole("m", 3 if m is None else m, 2)
    if comb(n + m - 1, m - 1) > LARGEST_ENUMERATION:
        raise InvalidInput(
            f"m and n must leave at most {LARGEST_ENUMERATION:,} outcomes to enumerate; "
            f"m = {m} with n = {n} has {comb(n + m - 1, m - 1):,}"
        )
    truths = [_probabilities(text) for text in truth] if truth else default_truths(m)
    bound = bound_of(name, kind, alpha)
    with bar("searching truths", quiet=quiet or as_json) as progress:
        found = audit_discrete(bound, margin=kind, num_classes=m, n=n, alpha=alpha, points=points, progress=progress)
    _finish(name, found, _power(name, bound, found, truths) if power else [], as_json, quiet, fail)


def _finish(name: str, found: Audit, studied: list[Power], as_json: bool, quiet: bool, fail: bool) -> None:
    if as_json:
        power = {"power": [asdict(row) for row in studied]} if studied else {}
        say(json.dumps({"method": name, "passed": found.passed, **asdict(found), **power}))
    elif not quiet:
        _show(name, found, studied)
    if fail and not found.passed:
        raise typer.Exit(FAILED)


def _noise_named(text: str) -> Any:
    """Return a noise that lists its copies (``every``, ``points``): ours, ``NAME:key=value,...``, or a user's own.

    ``package.module:NOISE`` is a class or a function that makes the noise without arguments.
    """
    if text.partition(":")[0] in NOISES:
        noise: Any = named(*parse(text))
    else:
        make = find_function(text, "noise")
        with errors_in_one_line(f"noise {text} cannot be made"):
            noise = make()
    if not hasattr(noise, "every") or not hasattr(noise, "points"):
        raise InvalidInput(f"noise {text} must list its copies to be audited: every(x) and points(); it does not")
    return noise


def _method(name: str, *, pairs: bool = False) -> Method:
    """Return the method of a name that reads votes, the paper's included."""
    printed = METHODS.get(name)
    if printed is not None and printed.reads == "votes":
        return printed
    return method_named(name, "votes", pairs=pairs)


def pair_bound_of(name: str, margin: MarginKind, alpha: float) -> PairBound:
    """Return the named method as a bound for one pair of classes: (top, runner_up, n) -> lower limits of the margin."""
    method = _method(name, pairs=True)
    method.check_margin(margin)

    def bound(top: IntArray, runner_up: IntArray, n: IntArray) -> FloatArray:
        return np.asarray(method.limit(Votes(top, runner_up, n), alpha, margin), dtype=np.float64)

    return bound


def bound_of(name: str, margin: MarginKind, alpha: float) -> CountsBound:
    """Return the named method as a bound: counts ``[k, m]`` -> lower limits ``[k]`` of the margin."""
    method = _method(name)
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


def _power(name: str, bound: CountsBound, found: Audit, truths: list[list[float]]) -> list[Power]:
    counts = outcomes(found.num_classes, found.n)
    bounds = {name: bound(counts)}
    bounds.setdefault("exact", bound_of("exact", found.margin, found.alpha)(counts))
    return compare_power(bounds, counts, margin=found.margin, alpha=found.alpha, truths=truths)


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
