"""``buckler sample``, ``decide`` and ``refute``: commands that draw from a model, can be stopped, and go on later."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import typer

from buckler.certificate import Bracket, rounded_down, rounded_up
from buckler.certificates import Certificates
from buckler.certify.sequential import Decided, warn_of_short_ladder
from buckler.cli import options
from buckler.cli.options import argument, option
from buckler.cli.terminal import FAILED, as_line, interruptible, kept_in, noise_text, say, stop
from buckler.errors import InvalidInput, check_risk
from buckler.evaluate.refutations import (
    CANDIDATE_DRAWS,
    SEARCH_REACH,
    RefutationSettings,
    alarm,
    bracket_curve,
    reach_of,
)
from buckler.progress import Advance, bar
from buckler.report.plots import bracket_plot, check_figure
from buckler.runs import decide, refute, routing, sample
from buckler.runs.decide import MAX_N, Target, settings_to_decide
from buckler.runs.logs import write_log
from buckler.runs.open_run import OpenRun, measure_rate, open_run
from buckler.runs.plan import duration, typical_draws
from buckler.runs.results import Result, read_result
from buckler.runs.routing import Part
from buckler.runs.spec import RunSpec, with_draws
from buckler.runs.store.folder import shard_ranges
from buckler.runs.store.tables import check_ending
from buckler.session import Interrupted
from buckler.types import MarginKind

SCORES_GROUP, ATTACK_GROUP = "Scores", "Attack"


@contextmanager
def _drawing(
    settings: Mapping[str, Any],
    cluster: options.ClusterOptions,
    out: Path | None,
    doing: str,
    output: options.OutputOptions,
) -> Iterator[tuple[OpenRun, Advance]]:
    """Open a run and show a bar; an interrupt before anything is drawn ends the command with its exit code."""
    with interruptible():
        try:
            shown = bar(doing, quiet=output.bare, unit="draws", transient=doing == "refuting")
            with open_run(settings, cluster, out) as run, shown as advance:
                yield run, advance
        except KeyboardInterrupt:
            stop(f"interrupted before {doing} began")


SHORT = 5.0
"""Seconds of work up to which a command prints no forecast of its time."""


def _forecast(
    run: OpenRun,
    output: options.OutputOptions,
    most: float,
    likely: Callable[[], float] | None = None,
    inputs: int | None = None,
) -> None:
    """Print how long ``most`` draws take at the speed of the model, and ``likely`` ones, where that is long."""
    if output.bare or most == 0:
        return
    rate = measure_rate(run.spec, run.executor, run.dataset)
    if most / rate > SHORT:
        said = duration(most / rate)
        if likely is not None:
            said = f"about {duration(likely() / rate)} for a typical data set, {said} at most"
        say(
            f"buckler: {len(run.dataset) if inputs is None else inputs:,} inputs, "
            f"{format(rate, ',.0f' if rate >= 10 else '.2g')} draws a second: {said}",
            error=True,
        )


@dataclass(frozen=True)
class SampleOptions(options.RunOptions):
    """Options of ``sample`` beside those that it shares with ``decide``; each is a setting of the run."""

    n: int | None = option("Draws for each input.", group=options.DRAWS_GROUP)
    scores: str | None = option("Keep scores too: none, logits, softmax or sparsemax.", group=SCORES_GROUP)
    temperature: float | None = option("Temperature of softmax.", None, "1", group=SCORES_GROUP)
    runner_ups: int | None = option(
        "Keep this many runner-up classes, and one column for the others.", None, "all", group=SCORES_GROUP
    )
    score_draws: int | None = option("Keep the scores of this many draws.", None, "all", group=SCORES_GROUP)
    score_dtype: str | None = option(
        "Keep scores as float32 or, rounded, float16.", None, "float32", group=SCORES_GROUP
    )
    shard_inputs: int | None = option(
        "Inputs in a file of the run.", None, "some seconds of work", group=options.RESUME_GROUP
    )


def sample_command(
    *,
    out: Path = argument("Folder for the run. The same command again goes on with it."),
    given: SampleOptions,
    max_seconds: float | None = option(
        "Stop after this time; the same command goes on.", None, "no limit", group=options.RESUME_GROUP
    ),
    max_samples: int | None = option(
        "Stop before more draws than this; likewise.", None, "no limit", group=options.RESUME_GROUP
    ),
    repair: bool = option("Set damaged files aside and draw them again.", False, group=options.RESUME_GROUP),
    allow_other_model: bool = options.OTHER_MODEL_OPTION,
    cluster: options.ClusterOptions,
    output: options.OutputOptions,
) -> None:
    """Draw noisy copies through a model and keep the votes on disk.

    This is the expensive step, done once: buckler certify, sweep and report read the folder, without the model.

    Examples:

      buckler sample run/ --model mymodels:make --data cifar10.npz --sigma 0.5
        --n 10000 --every 20
      buckler sample run/ --model resnet110:weights.safetensors --sigma 0.25
        --data cifar-10-batches-bin --n 100000 --device cuda --dtype bfloat16
        --channels-last --compile
      buckler sample run/ --spec run.toml --executor ray --address auto

    A specification with a table [router] and tables [[experts]], each with a model and a sigma, draws a composition:
    buckler certify reads its folder.
    """
    options.check_folder(out, "OUT")
    began, drawn = time.monotonic(), 0
    for part in routing.parts(with_draws(given.settings()), out, routing.levels_by_votes, given=options.chosen(given)):
        options.check_given(part.settings, "model", "data", "n")
        left, path = _left(max_seconds, began) if drawn else max_seconds, cast(Path, part.path)
        if drawn and (left == 0.0 or drawn == max_samples):
            stop(f"stopped at the limit before {path}")
        with _drawing(part.settings, cluster, path, f"sampling {part.name}".rstrip(), output) as (run, advance):
            there = sum(span.count for span in shard_ranges(path, len(run.dataset)))
            left_over = max(len(run.dataset) - there, 0)
            _forecast(run, output, left_over * (run.spec.n + run.spec.n0), inputs=left_over)
            try:
                done = sample.sample(
                    run.spec,
                    run.executor,
                    part.inputs(run.dataset),
                    path,
                    progress=advance,
                    max_seconds=left,
                    max_samples=None if max_samples is None else max_samples - drawn,
                    repair=repair,
                    allow_other_model=allow_other_model,
                )
            except Interrupted as interrupt:
                _stopped("interrupted", path, interrupt.done)
        drawn += done.samples
        _print_sampled(done, run.spec, part, output)
        if not done.complete:
            _stopped("stopped at the limit", path, done)


def _left(limit: float | None, began: float) -> float | None:
    """Return what is left of a limit in seconds since ``began``, at least 0; None if there is no limit."""
    return None if limit is None else max(limit - (time.monotonic() - began), 0.0)


def _print_sampled(done: sample.Summary, spec: RunSpec, part: Part, output: options.OutputOptions) -> None:
    if output.as_json:
        fields = {
            "complete": done.complete, "inputs": done.inputs, "inputs_done": done.inputs_done, "shards": done.shards,
            "under_way": done.under_way, "samples": done.samples, "lost": done.lost,
            "seconds": round(done.seconds, 3), "batch_rows": done.rows, "spec_hash": spec.hash(),
        }  # fmt: skip
        say(json.dumps({"part": part.name, **fields} if part.name else fields))
    elif not output.quiet:
        rate = done.samples / max(done.seconds, 1e-9)
        inputs = f"{done.inputs_done:,} of {done.inputs:,} inputs in {part.path}"
        say(f"{inputs}; {done.samples:,} draws, {rate:,.0f} a second")
    if done.rows < spec.batch_size and not output.quiet:
        say(f"buckler: memory ran out; batches were cut to {done.rows} rows", error=True)


def _stopped(why: str, out: Path, done: sample.Summary) -> NoReturn:
    shards = "1 shard" if done.shards == 1 else f"{done.shards:,} shards"
    begun = f" and {done.under_way:,} draws of the input under way" if done.under_way else ""
    lost = f"; {done.lost:,} draws are lost" if done.lost else ""
    stop(f"{why}; {out} keeps {done.inputs_done:,} of {done.inputs:,} inputs in {shards}{begun}{lost}")


def decide_command(
    *,
    radii: str | None = options.RADII_OPTION,
    precision: float | None = option(
        "No radii: certify as much as possible, to this share of the radius (0.05).", group=options.RADII_GROUP
    ),
    given: options.RunOptions,
    alpha: float = option("Error probability of each certificate.", 1e-3, group=options.CERTIFICATE_GROUP),
    margin: str | None = options.MARGIN_OPTION,
    certified_class: str | None = options.CLASS_OPTION,
    max_n: int | None = option(
        "Draws for each input at most; n of --spec.", None, f"{MAX_N:,}", group=options.DRAWS_GROUP
    ),
    max_seconds: float | None = option(
        "Stop after this time, with what is certified by then.", None, "no limit", group=options.RESUME_GROUP
    ),
    allow_other_model: bool = options.OTHER_MODEL_OPTION,
    cluster: options.ClusterOptions,
    out: Path | None = option(
        "Keep decisions in this Parquet file; the same command goes on with it.", group=options.OUTPUT_GROUP
    ),
    tsv: Path | None = options.TSV_OPTION,
    output: options.OutputOptions,
) -> None:
    """Draw from a model until chosen radii are certified or given up.

    Most inputs take about a hundred draws. Radii are certified in rising order, and the certificate of the largest
    holds whenever and why ever drawing stopped. With --out the same command goes on, also with a larger --max-n.

    Examples:

      buckler decide --radii 0.5 --model mymodels:make
        --data cifar10.npz --sigma 0.5 --out decided.parquet
      buckler decide --radii 0.25:1.5 --spec run.toml --class label
      buckler decide --precision 0.05 --spec run.toml --max-seconds 600

    A specification with a table [router] and tables [[experts]] decides a composition; --out is then a folder.
    """
    asked = options.radii_from(radii)
    if bool(asked) == (precision is not None):
        raise InvalidInput(
            f"exactly one of --radii and --precision must be given; got {'both' if asked else 'neither'}"
        )
    merged = given.settings(n=max_n)
    rule: Any = certified_class or ("selection" if merged.get("n0") else "winner")
    target = Target(asked, alpha, rule, cast(MarginKind | None, margin), precision)
    options.check_outputs(tsv=tsv)
    if allow_other_model and out is None:
        raise InvalidInput("--allow-other-model is for going on with the file of --out; give --out")
    chosen = options.chosen(given) | (set() if max_n is None else {"n"})
    began, made, why = time.monotonic(), list[_Decisions](), ""
    for part in routing.parts(merged, out, routing.levels_by_decisions, ".parquet", chosen):
        left = _left(max_seconds, began) if any(one.drawn for one in made) else max_seconds
        if made and left == 0.0:
            why = "time is up"
            break
        made.append(_decide(part, target, left, allow_other_model, cluster, tsv, output))
        if why := made[-1].why:
            break
    first, *others = made
    if part.name and first.why:
        stop(f"{why}; {first.done} inputs are decided by the router and {kept_in(part.path)}")
    noise, certificates = noise_text(first.spec), Certificates.of(one.certificate for one in first.decisions)
    ended = {one.certificate.id: str(one.decision) for one in first.decisions}
    drawn = {one.certificate.id: one.certificate.n for one in first.decisions}
    if part.name:
        of_experts = {one.certificate.id: one for other in others for one in other.decisions}
        noise = f"a router among {first.spec.num_classes} levels"
        certificates = routing.compose_decisions(first.decisions, list(of_experts.values()), alpha)
        for route in first.decisions:
            name, expert = route.certificate.id, of_experts.get(route.certificate.id)
            ended[name] = routing.ending_of(route, expert)
            drawn[name] += 0 if expert is None else expert.certificate.n
    if first.labels:
        certificates = replace(certificates, labels=np.array([first.labels[name] for name in certificates.ids]))
    if tsv is not None and certificates.labels is not None and certificates:
        write_log(tsv, certificates, certificates.labels)
    if output.as_json:
        for certificate in certificates:
            say(json.dumps({**as_line(certificate), "decision": ended[certificate.id]}))
    elif not output.quiet and certificates:
        draws = np.array(list(drawn.values()))
        if certificates.labels is not None:
            title = f"Certified accuracy, {noise}, alpha {alpha:g}"
            say(certificates.table(radii=asked or None).to_text(title))
        say(
            f"{len(certificates)} inputs: {_reached(certificates, target, [*ended.values()])}; draws {draws.sum():,} "
            f"in all, mean {draws.mean():,.0f}, median {np.median(draws):,.0f} ({noise}, alpha {alpha:g})"
        )
    if why:
        stop(f"{why}; {sum(how != 'undecided' for how in ended.values())} inputs are decided and {kept_in(out)}")


class _Decisions(NamedTuple):
    """What one run of ``decide`` returned, after so many draws of this call (``drawn``).

    ``why`` says why it stopped before its end, and is empty at its end.
    """

    decisions: list[Decided]
    why: str
    drawn: int
    spec: RunSpec
    labels: dict[str, int]

    @property
    def done(self) -> int:
        return sum(made.decision != "undecided" for made in self.decisions)


def _decide(
    part: Part,
    target: Target,
    max_seconds: float | None,
    allow_other_model: bool,
    cluster: options.ClusterOptions,
    tsv: Path | None,
    output: options.OutputOptions,
) -> _Decisions:
    """Return what ``decide`` makes of one run, ``part``: the only one, or one of a composition."""
    if part.path is not None:
        options.check_outputs(out=part.path)
        check_ending(part.path, (".parquet",), "--out")
    options.check_given(part.settings, "model", "data")
    by_label, target = target.certified_class == "label", routing.target_of(part, target)
    settings, why, drawn = settings_to_decide(part.settings, target), "time is up", [0]
    routing.check_budget(part, settings["n"])

    def progress(decided: int, draws: int) -> None:
        drawn[0] = draws
        show(decided, len(data), draws)

    with _drawing(settings, cluster, part.path, f"deciding {part.name}".rstrip(), output) as (run, show):
        data, ladder = run.dataset, target.ladder(run.spec)
        options.check_tsv(tsv, run.spec.noise, data.labels)
        if by_label and data.labels is None:
            raise InvalidInput("class 'label' needs labels, and this data has none")
        if part.level in {None, -1}:  # experts of small sigma are not meant for the largest radii
            warn_of_short_ladder(ladder, run.spec.num_classes)
        _forecast(run, output, len(data) * ladder.max_n, lambda: len(data) * typical_draws(ladder))
        try:
            decisions = decide.decide(
                run.spec,
                target,
                run.executor,
                part.inputs(data),
                part.path,
                max_seconds=max_seconds,
                allow_other_model=allow_other_model,
                progress=progress,
            )
        except Interrupted as interrupt:
            why, decisions = "interrupted", interrupt.done
    if sum(made.decision != "undecided" for made in decisions) == len(data):
        why = ""
    labels = {} if data.labels is None else dict(zip(data.ids, data.labels.tolist(), strict=True))
    return _Decisions(decisions, why, drawn[0], run.spec, labels)


def _reached(certificates: Certificates, target: Target, ended: Sequence[str]) -> str:
    """Return a text: how many inputs are certified to each radius of ``target``, and how many not at all.

    ``ended`` says how each ended; those that are undecided are counted apart. If ``target`` has a precision in place of
    radii, the text is the median certified radius.
    """
    reach, open_still = certificates.radii, np.array([how == "undecided" for how in ended])
    if target.precision is not None:
        return f"median certified radius {rounded_down(float(np.median(reach)))}"
    counts = [f"{(reach >= radius).sum()} certified to radius {rounded_down(radius)}" for radius in target.radii]
    counts.append(f"{((reach == 0.0) & ~open_still).sum()} not")
    return ", ".join([*counts, f"{open_still.sum()} undecided so far"] if open_still.any() else counts)


@dataclass(frozen=True)
class RefuteOptions:
    """Options of ``refute`` for a model and data that are not as the run names them."""

    model: str | None = option("As for buckler sample.", None, "the run's", group=options.MODEL_GROUP)
    data: str | None = option("As for buckler sample.", None, "the run's", group=options.MODEL_GROUP)
    denoiser: str | None = option("As for buckler sample.", None, "the run's", group=options.MODEL_GROUP)
    num_classes: int | None = options.CLASSES_OPTION
    device: str | None = option("Device of the torch model.", None, "the run's", group=options.DEVICE_GROUP)
    batch_size: int | None = options.BATCH_OPTION


def refute_command(
    *,
    run: Path = argument("Folder of buckler sample, or Parquet file of certificates."),
    given: RefuteOptions,
    method: str | None = option(
        "Method whose certificates are attacked.", None, "exact, or the file's", group=ATTACK_GROUP
    ),
    alpha: float = option("Error probability of each refutation.", 1e-3, group=ATTACK_GROUP),
    max_radius: float | None = option(
        "Search no farther than this.", None, f"{SEARCH_REACH:g} sigma", group=ATTACK_GROUP
    ),
    within: float | None = option(
        "Stop at the first point inside of this claimed radius.", None, "search for the nearest", group=ATTACK_GROUP
    ),
    max_n: int = option("Draws that test a candidate, at most.", CANDIDATE_DRAWS, group=ATTACK_GROUP),
    attack: str = option(
        "decoupled or pgd, or with sizes: decoupled:searches=6,steps=120,draws=32.", "decoupled", group=ATTACK_GROUP
    ),
    limit: int | None = option("Attack at most this many certificates.", None, "all", group=ATTACK_GROUP),
    cluster: options.ClusterOptions,
    out: Path | None = option(
        "Keep points and votes in this Parquet file; the same command goes on with it.", group=options.OUTPUT_GROUP
    ),
    figure: Path | None = option(
        "Draw certified and refuted accuracy to this PNG, PDF or SVG file.", group=options.OUTPUT_GROUP
    ),
    strict: bool = option(
        "Exit with code 1 if more certificates are contradicted than alpha allows.", False, group=options.OUTPUT_GROUP
    ),
    delta: float = option("Probability of a false alarm about contradictions.", 1e-3, group=options.OUTPUT_GROUP),
    output: options.OutputOptions,
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
    if out is not None:
        check_ending(out, (".parquet",), "--out")
    check_risk(delta, "delta")
    result = read_result(run, (method or "exact",) if method or run.is_dir() else ())
    settings = refute.settings_to_refute(result, vars(given))
    if result.caution and not output.quiet:
        say(f"buckler: {result.caution}", error=True)
    if figure is not None and check_figure(figure) and result.labels is None:
        raise InvalidInput("--figure shows accuracy and needs labels; these certificates have none")
    interrupted = False
    with _drawing(settings, cluster, None, "refuting", output) as (opened, show):
        from buckler.evaluate.attacks import attack_named  # needs torch

        noise = opened.spec.noise
        total = sum(not c.abstained for c in result.groups[0])
        total = total if limit is None else min(limit, total)
        reach, value_range = reach_of(noise, max_radius, within), (opened.dataset.low, opened.dataset.high)
        how = RefutationSettings(
            noise, alpha, max_n, reach, value_range, attack_named(attack), first=within is not None
        )
        _forecast(opened, output, total * how.draws, inputs=total)
        try:
            refuted = refute.refute(
                result, opened, how, out, limit=limit, progress=lambda inputs, draws: show(inputs, total, draws)
            )
        except Interrupted as interrupt:
            interrupted, refuted = True, refute.Refuted(interrupt.done, None)
    if figure is not None:
        _draw(result, refuted.brackets, figure)
    if output.as_json:
        for bracket in refuted.brackets:
            say(json.dumps(_line(bracket)))
    elif not output.quiet:
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
        f"{rounded_up(float(np.median(refuted)))}; ratio {middle} (quartiles {low} and {high}); contradictions {inside}"
    )
