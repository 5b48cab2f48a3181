"""``buckler import``, ``certify``, ``sweep``, ``accuracy``, ``conformal``: they read recorded votes, not a model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import rounded_down
from buckler.certificates import Certificates
from buckler.certify.budget import split_alpha
from buckler.cli import options
from buckler.cli.options import argument, option
from buckler.cli.terminal import as_line, interruptible, noise_text, say, stop
from buckler.errors import InvalidInput, check_choice
from buckler.evaluate.conformal import RobustConformal
from buckler.evaluate.population import population_accuracy
from buckler.files import atomic_write
from buckler.progress import bar
from buckler.report.sweeps import draw_axes, sweep_records, sweep_table
from buckler.report.text import format_of
from buckler.runs.certify import certify_by_each
from buckler.runs.logs import USUAL_DRAWS, import_log, write_log
from buckler.runs.open_run import settings_from
from buckler.runs.results import votes_for_limit
from buckler.runs.routing import certify_composition, is_composition
from buckler.runs.spec import IMPORTED, NO_RIVALS, distinct_values
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.tables import check_ending, refuse_drawn, write_certificates
from buckler.runs.sweep import Grid, sweep_runs
from buckler.types import OTHERS, FloatArray

CLAIMED_GROUP, GRID_GROUP = "What the log claims", "Settings (several values, separated by commas)"
SWEEP_SETTINGS = ("runs", "n", "alpha", "method", "margin", "map", "temperature", "class", "radii", "baseline")

USUALLY_USED = 100
"""Draws that ``conformal`` uses at most where --n is not given: more make the sets hardly smaller."""


def import_command(
    *,
    log: Path = argument("Text file with columns idx, label, predict, radius, correct, time."),
    out: Path | None = option(
        "Folder for the recovered votes, which buckler certify reads.", None, "only look", group=options.OUTPUT_GROUP
    ),
    output: options.OutputOptions,
    sigma: float | None = option("Noise.", None, "the smallest usual one that fits", group=CLAIMED_GROUP),
    n: int | None = option("Draws.", None, f"{USUAL_DRAWS:,}", group=CLAIMED_GROUP),
    alpha: float | None = option("Error probability.", None, "all usual ones that fit", group=CLAIMED_GROUP),
) -> None:
    """Read a log of radii of another tool, and recover its votes.

    A radius printed with three digits comes from a few possible numbers of votes, or from none: so the log tells
    whether it can have been made as claimed, and which alpha and sigma fit. --out needs all three settings, and a log
    that fits them. Of the possible numbers of votes the lowest is taken, and all other votes count for one rival.

    Examples:

      buckler import log.tsv --sigma 0.5
      buckler import log.tsv --alpha 0.001 --n 100000 --sigma 0.5 --out imported/
      buckler certify imported/ --alpha 0.001 --method top_class
    """
    options.check_folder(out)
    found = import_log(log, alpha=alpha, n=n, sigma=sigma, out=out)
    lines, certified, first = len(found.log.ids), int(found.log.certified.sum()), found.fits[0]
    if output.as_json:
        fits = [{"alpha": fit.alpha, "n": fit.n, "sigma": fit.sigma} for fit in found.fits]
        say(json.dumps({"lines": lines, "certified": certified, "fits": fits, "out": out and str(out)}))
    if output.bare:
        return
    say(f"{lines} lines, {certified} certified, {lines - certified} abstentions.")
    alphas = " or ".join(f"{fit.alpha:g}" for fit in found.fits if fit.sigma == first.sigma)
    say(f"It fits n {first.n:,}, sigma {first.sigma:g}, alpha {alphas}: every radius has a count of votes.")
    if larger := sorted({fit.sigma for fit in found.fits} - {first.sigma}):
        say(f"Sigma may also be {', '.join(f'{s:g}' for s in larger)}: give it to be sure.")
    if n is None and not found.log.settings:
        say(f"A log of fewer draws than {first.n:,} fits them as well: give --n to be sure.")
    if out is None:
        say("To certify it, import it with its --alpha, --n and --sigma and with --out FOLDER.")
    else:
        say(
            f"Votes written to {out}; certify them with: buckler certify {out} --alpha {first.alpha:g}. Any other "
            f"alpha will do as well; {NO_RIVALS}."
        )


def certify_command(
    *,
    run: Path = argument("Folder written by buckler sample."),
    given: options.CertifyOptions,
    method: str | None = option(
        "exact, bonferroni or top_class for votes; pairwise/randomised_star, or pairwise/ and one of star, sequence, "
        "bernstein or hoeffding for scores. Choose it before you look.",
        None,
        "exact; top_class for an imported log",
        group=options.CERTIFICATE_GROUP,
    ),
    radii: str | None = option("Radii of the table: 0.25,0.5 or FIRST:LAST.", group=options.OUTPUT_GROUP),
    out: Path | None = option("Write the certificates to this .parquet or .csv file.", group=options.OUTPUT_GROUP),
    tsv: Path | None = options.TSV_OPTION,
    output: options.OutputOptions,
) -> None:
    """Certify every input of a run from its votes, without the model.

    Any alpha, method, margin or number of first draws can be certified again, at no cost. Each certificate holds alone:
    the best of several, picked after seeing them, does not hold at its alpha. To draw from a model until a radius is
    decided, see buckler decide.

    Examples:

      buckler certify run/ --alpha 0.001 --out certificates.parquet
      buckler certify run/ --n 1000 --class label --margin probability
      buckler certify run/ --method pairwise/randomised_star --temperature 0.5
      buckler certify run/ --alpha 0.001 --tsv sigma_0.50.tsv
    """
    options.check_outputs(out=out, tsv=tsv)
    if out is not None:
        check_ending(out, name="--out")
        refuse_drawn(out, "--out")
    shown = options.radii_from(radii)
    if shown and output.bare:
        raise InvalidInput("--radii is for the table, which --json and --quiet leave out: give one of them")
    kept: dict[str, Any] = {}
    if is_composition(run):
        if out is not None:
            check_ending(out, (".csv",), "--out of a composition")
        certificates, parts = certify_composition(run, method, **given.keywords())
        levels = ", ".join(noise_text(part.spec) for part in parts[1:])
        noise = f"router {noise_text(parts[0].spec)}, levels {levels}"
    else:
        evidence = open_evidence(run)
        if evidence.spec.model == IMPORTED and not output.quiet:
            say(f"buckler: {NO_RIVALS}", error=True)
        with bar(f"certifying {evidence.inputs:,} inputs", quiet=output.bare):
            made = certify_by_each(evidence, [method or evidence.spec.default_method], **given.keywords())
        certificates, parts, noise = made.certificates[0], (evidence,), noise_text(evidence.spec)
        first, drawn = certificates.first, evidence.provenance()
        origin = {
            "spec": evidence.spec.as_dict(), "owner": dict(evidence.manifest["owner"]), "alpha": first.alpha,
            "environment": drawn.environment, "caution": drawn.caution,
            "method": first.method, "margin": first.margin_kind, "n": given.n or evidence.spec.n,
            "class": given.certified_class, "map": given.map, "temperature": given.temperature,
        }  # fmt: skip
        kept = {"origin": origin, "contents": made.contents}
    labels = certificates.labels
    options.check_tsv(tsv, parts[0].spec.noise, labels)
    if out is not None:
        write_certificates(out, certificates, labels=labels, **kept)
    for caution in {part.provenance().caution for part in parts} - {""}:
        if not output.quiet:
            say(f"buckler: {caution}", error=True)
    if tsv is not None and labels is not None:
        write_log(tsv, certificates, labels)
    _print(certificates, parts[0].inputs, noise, shown, output)


def _print(
    certificates: Certificates, inputs: int, noise: str, radii: Sequence[float], output: options.OutputOptions
) -> None:
    """Print certificates of a run of so many ``inputs`` as lines of JSON, or a table and a line about them."""
    if len(certificates) < inputs and not output.quiet:
        say(f"buckler: the run is not finished: {len(certificates)} of {inputs} inputs", error=True)
    if output.as_json:
        for certificate in certificates:
            say(json.dumps(as_line(certificate)))
    elif not output.quiet:
        first, abstained = certificates.first, certificates.abstained.sum()
        if radii or certificates.labels is not None:
            what = "Share certified" if certificates.labels is None else "Certified accuracy"
            title = f"{what}, {noise}, n {first.n:,}, alpha {first.alpha:g}"
            say(certificates.table(radii=radii or None).to_text(title))
        median = rounded_down(float(np.median(certificates.radii)))
        say(
            f"{len(certificates)} inputs, {abstained} abstained, median radius {median} "
            f"(method {first.method}, {first.margin_kind} margin, {noise}, n {first.n:,}, alpha {first.alpha:g})"
        )


def sweep_command(
    *,
    runs: list[Path] | None = argument("Folders written by buckler sample.", None),
    spec: Path | None = option(
        "TOML file with these settings; an option on the command line replaces its value.", group=GRID_GROUP
    ),
    n: str | None = option(
        "Numbers of first draws, 100,200,500, or all checkpoints: all.", None, "all draws", group=GRID_GROUP
    ),
    alpha: str | None = option("Error probabilities.", None, "0.001", group=GRID_GROUP),
    method: str | None = option(
        "Methods: exact,bonferroni,pairwise/star ...", None, "exact; top_class for an imported log", group=GRID_GROUP
    ),
    margin: str | None = option(
        "quantile,probability.", None, "quantile, or what the noise certifies", group=GRID_GROUP
    ),
    map: str | None = option("For stored logits: softmax,sparsemax.", None, "softmax", group=GRID_GROUP),  # noqa: A002
    temperature: str | None = option("For stored logits: temperatures of the softmax.", None, "1", group=GRID_GROUP),
    certified_class: str | None = option(
        "winner, selection or label.", None, "selection, if there are such draws", name="--class", group=GRID_GROUP
    ),
    radii: str | None = option(
        "Radii to show: 0.25,0.5 or FIRST:LAST.", None, "multiples of sigma", group=options.OUTPUT_GROUP
    ),
    baseline: str | None = option(
        "Method from which gains are measured.", None, "no gains", group=options.OUTPUT_GROUP
    ),
    out: Path = option(
        "Write all certificates to this table (Parquet).", Path("sweep.parquet"), group=options.OUTPUT_GROUP
    ),
    table: Path | None = option("Write what is shown to FILE.md, FILE.tex or FILE.csv.", group=options.OUTPUT_GROUP),
    plots: Path | None = option(
        "Folder for figures (PNG, PDF), one for each setting with several values.", group=options.OUTPUT_GROUP
    ),
    output: options.OutputOptions,
) -> None:
    """Certify runs under many settings, into one table.

    Every combination of the values, separated by commas, is a cell; the table has a row for each run, cell and input.

    A bound of your own is package.module:function, as for buckler audit; its rows are marked sound = false.

    Each cell holds alone. If you pick the best of k cells after seeing them, certify each at alpha / k.

    Examples:

      buckler sweep run/ --n 100,1000,10000 --method exact,bonferroni
        --baseline bonferroni
      buckler sweep s12/ s25/ s50/ --alpha 0.001,0.01 --plots figures/
      buckler sweep run/ --method pairwise/star --temperature 0.1,0.5,1
        --margin probability --table sweep.tex
    """
    given = {
        "runs": [str(path) for path in runs or ()] or None, "n": n, "alpha": alpha, "method": method, "margin": margin,
        "map": map, "temperature": temperature, "class": certified_class,
        "radii": options.radii_from(radii) or None, "baseline": baseline,
    }  # fmt: skip
    options.check_outputs(out=out, table=table)
    options.check_folder(plots, "--plots")
    if plots is not None and plots.suffix in {".pdf", ".png", ".svg"}:
        raise InvalidInput(f"--plots must be a folder; got {str(plots)!r}, a name for a file")
    check_ending(out, (".parquet",), "--out")
    refuse_drawn(out, "--out")
    settings = settings_from(spec, given, SWEEP_SETTINGS)
    grid = Grid.from_settings(settings)
    shown, against = distinct_values("radii", settings.get("radii"), float), settings.get("baseline")
    _check(grid, shown, against, table, unseen=output.quiet and table is None and bool(shown or against))
    with interruptible():
        try:
            with bar("certifying cells", quiet=output.bare) as advance:
                cells = sweep_runs(distinct_values("runs", settings.get("runs"), str), grid, out, progress=advance)
        except KeyboardInterrupt:
            stop(f"interrupted; {out} was not written")
    text = sweep_table(cells, shown, baseline=against)
    if table is not None:
        with atomic_write(table) as temporary:
            temporary.write_text(format_of(table)(text), encoding="utf-8")
    drawn = [] if plots is None else draw_axes(cells, plots)
    if output.as_json:
        for record in sweep_records(cells, shown, baseline=against):
            say(json.dumps(record))
    elif not output.quiet:
        say(text.to_text())
        for path in (out, table, *drawn):
            if path is not None:
                say(f"Written: {path}")
    if len(cells) > 1 and not output.quiet:
        worst = max(grid.alpha)
        say(
            f"buckler: each of these {len(cells)} cells holds alone. Picking the best of them afterwards costs alpha: "
            f"choose beforehand, or certify each at {worst:g} / {len(cells)} = {split_alpha(worst, len(cells)):.3g}.",
            error=True,
        )


def _check(grid: Grid, radii: Sequence[float], baseline: str | None, table: Path | None, *, unseen: bool) -> None:
    """Check --baseline, --table and --radii before the work begins."""
    if not all(radius >= 0.0 for radius in radii):
        raise InvalidInput(f"radii must be at least 0; got {min(radii):g}")
    if baseline is not None:
        if grid.method:
            check_choice("baseline", baseline, grid.method)
        if len(grid.method) < 2:
            raise InvalidInput(f"--baseline must have another --method to be compared with; got {baseline!r} alone")
    if table is not None:
        format_of(table)
    if unseen:
        raise InvalidInput(
            "--radii and --baseline are for the table shown: with --quiet, give --table or leave them out"
        )


def accuracy_command(
    *,
    run: Path = argument("Folder written by buckler sample, of data with labels."),
    radii: str = option("Radii to report, as 0.25,0.5,0.75.", ...),
    delta: float = option("Error probability of all limits together.", 1e-3),
    n: int | None = option("Use the first n draws: one of the run's checkpoints.", None, "the largest up to 1000"),
    fixed_list: bool = option("Limit the share of these inputs, not of a population.", False, name="--list"),
    seed: int = option("Seed that orders the inputs and splits off those that tune the limit.", 0),
    as_json: bool = options.JSON_OPTION,
) -> None:
    """Find a lower limit of a population's certified accuracy.

    The population is that which the run's inputs were drawn from. For each radius a share is printed: at least so much
    of the population is classified right everywhere within the radius. With probability 1 - delta over draws and inputs
    all these limits hold. No input is certified alone, so 40 to 1,000 draws of each are enough. Choose radii, n and
    seed before you look. How many inputs and draws a limit takes: buckler plan --accuracy.

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


def conformal_command(
    *,
    calibration: Path = argument("Folder written by buckler sample: clean inputs with labels."),
    test: Path = argument("Folder of the inputs to predict, drawn in the same way."),
    radius: float = option("How far an input may have been moved.", ...),
    alpha: float = option("Error probability of a set.", 0.1),
    n: int | None = option(
        "Use the first n draws: one of both runs' checkpoints.", None, f"the largest up to {USUALLY_USED}"
    ),
    scores: bool = option("Count scores above a threshold in place of votes.", False),
    by_label: bool = option("Give every label a threshold of its own: sets cover given the label.", False),
    seed: int = option("Seed that splits off the inputs that tune.", 0),
    as_json: bool = options.JSON_OPTION,
) -> None:
    """Predict sets of classes that hold the true one, also after a move.

    A set is predicted for each input of the second run, which may have been moved by up to the radius. It misses the
    true class with probability at most alpha over calibration inputs, test input and all draws, if both inputs were
    drawn from one population. Radius 0 is plain conformal prediction.

    Examples:

      buckler conformal calibration/ test/ --radius 0.25 --alpha 0.1
      buckler conformal calibration/ test/ --radius 0.25 --scores --n 50 --json
    """
    known, new = open_evidence(calibration), open_evidence(test)
    for what in ("noise", "num_classes", "model"):
        pair = getattr(known.spec, what), getattr(new.spec, what)
        if pair[0] != pair[1]:
            raise InvalidInput(f"both runs must be drawn alike; their {what} are {pair[0]} and {pair[1]}")
    shared = {*known.spec.checkpoints} & {*new.spec.checkpoints}
    draws = max((p for p in shared if p <= USUALLY_USED), default=None) if n is None else n
    votes, other_votes = known.counts(draws), new.counts(draws)
    if {*votes.contents} & {*other_votes.contents}:
        raise InvalidInput("the runs must be of different inputs; an input of the test is in the calibration too")
    values, others = (_scores(known, draws), _scores(new, draws)) if scores else (votes.values, other_votes.values)
    twice = {*votes.ids} & {*other_votes.ids}
    if known.spec.seed == new.spec.seed and twice:
        raise InvalidInput(
            f"the runs must not share noise; both have seed {new.spec.seed} and an input named {min(twice)!r}: draw "
            f"the test with another --seed"
        )
    if votes.labels is None:
        raise InvalidInput(f"the calibration data must have labels; {str(calibration)!r} was drawn without")
    made = RobustConformal(noise=known.spec.noise, radius=radius, alpha=alpha)
    sets = made.calibrate(values, votes.labels, n=draws, seed=seed, by_label=by_label).predict_sets(others)
    if as_json:
        for name, row in zip(other_votes.ids, sets, strict=True):
            say(json.dumps({"id": name, "classes": np.flatnonzero(row).tolist()}))
        return
    truth = other_votes.labels
    covered = "" if truth is None else f", {sets[np.arange(len(sets)), truth].mean():.3f} hold the label"
    say(f"{len(sets)} inputs, mean size of a set {sets.sum(axis=1).mean():.3f} of {sets.shape[1]} classes{covered}")
    say(made)


def _scores(evidence: Evidence, draws: int | None) -> FloatArray:
    """Return the scores of all classes, ``[inputs, draws, classes]``."""
    rows = []
    for made, _, _ in evidence.scores(draws):
        if OTHERS in made.columns:
            raise InvalidInput("--scores needs the scores of all classes; this run kept some of them")
        rows.append(made.values[0][:, np.argsort(made.columns[0])])
    return np.array(rows)
