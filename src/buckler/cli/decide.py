"""``buckler decide``: draw from a model until radii are certified or given up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import numpy as np

from buckler.certificate import rounded_down
from buckler.certificates import Certificates
from buckler.cli import options
from buckler.cli.certify import as_line, check_tsv, noise_text
from buckler.cli.options import option
from buckler.cli.terminal import interruptible, kept_in, say, stop
from buckler.errors import InvalidInput
from buckler.progress import bar
from buckler.runs import decide as runs
from buckler.runs.decide import MAX_N, ClassRule, Target, margin_for, settings_to_decide
from buckler.runs.executor import Interrupted
from buckler.runs.logs import write_log
from buckler.runs.open_run import ExecutorOptions, open_run, settings_from
from buckler.runs.plan import measure_rate, time_to_decide
from buckler.runs.store.tables import check_ending


def decide_command(
    radii: options.Radii = None,
    precision: Annotated[
        float | None,
        option("No radii: certify as much as possible, to this share of the radius (0.05).", group=options.RADII_GROUP),
    ] = None,
    model: options.Model = None,
    data: options.Data = None,
    spec: options.Spec = None,
    denoiser: options.Denoiser = None,
    num_classes: options.NumClasses = None,
    sigma: options.Sigma = None,
    noise: options.NoiseOption = None,
    seed: options.Seed = None,
    fresh_seed: options.FreshSeed = False,
    alpha: options.Alpha = 1e-3,
    margin: options.Margin = None,
    certified_class: options.ClassOption = None,
    max_n: Annotated[
        int | None, option("Draws for each input at most; n of --spec.", f"{MAX_N:,}", group=options.DRAWS_GROUP)
    ] = None,
    n0: options.SelectionDraws = None,
    every: options.Every = None,
    limit: options.LimitOption = None,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    max_seconds: Annotated[
        float | None,
        option("Stop after this time, with what is certified by then.", "no limit", group=options.RESUME_GROUP),
    ] = None,
    allow_other_model: options.AllowOtherModel = False,
    executor: options.ExecutorOption = "process",
    address: options.AddressOption = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    out: Annotated[
        Path | None,
        option("Keep decisions in this Parquet file; the same command goes on with it.", group=options.OUTPUT_GROUP),
    ] = None,
    tsv: options.Tsv = None,
    as_json: Annotated[bool, options.as_json_option("Print the certificates as JSON, one a line.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw from a model until chosen radii are certified or given up.

    Most inputs take about a hundred draws. Radii are certified in rising order, and the certificate of the largest
    holds whenever and why ever drawing stopped. With --out the same command goes on, also with a larger --max-n.

    Examples:

      buckler decide --radii 0.5 --model mymodels:make
        --data cifar10.npz --sigma 0.5 --out decided.parquet
      buckler decide --radii 0.25:1.5 --spec run.toml --class label
      buckler decide --precision 0.05 --spec run.toml --max-seconds 600
    """
    asked = options.radii_from(radii)
    if bool(asked) == (precision is not None):
        raise InvalidInput(
            f"exactly one of --radii and --precision must be given; got {'both' if asked else 'neither'}"
        )
    given = {
        "model": model, "data": data, "sigma": sigma, "noise": noise, "n": max_n, "n0": n0, "seed": seed,
        "fresh_seed": fresh_seed or None, "every": every, "limit": limit, "device": device, "num_classes": num_classes,
        "batch_size": batch_size, "denoiser": denoiser,
    }  # fmt: skip
    merged = settings_from(spec, given)
    rule = certified_class or ("selection" if merged.get("n0") else "winner")
    target = Target(asked, alpha, cast(ClassRule, rule), margin_for(merged, margin), precision)
    options.check_outputs(out=out, tsv=tsv)
    if out is not None:
        check_ending(out, (".parquet",), "--out")
    options.check_given(merged, "model", "data")
    settings = settings_to_decide(merged, target)
    if allow_other_model and out is None:
        raise InvalidInput("--allow-other-model is for going on with the file of --out; give --out")
    why = "time is up"
    with interruptible():
        try:
            where = ExecutorOptions(executor, address, workers, gpus_per_worker)
            shown = bar("deciding", quiet=quiet or as_json, unit="draws", transient=False)
            with open_run(settings, where, out) as run, shown as show:
                check_tsv(tsv, run.spec.noise, run.dataset.labels)
                inputs = len(run.dataset)
                if not (quiet or as_json):
                    rate = run.rate or measure_rate(run.spec, run.executor, run.dataset)
                    if expected := time_to_decide(target.ladder(run.spec), inputs, rate):
                        say(f"buckler: {expected}", error=True)
                decisions = runs.decide(
                    run.spec,
                    target,
                    run.executor,
                    run.dataset,
                    out,
                    max_seconds=max_seconds,
                    allow_other_model=allow_other_model,
                    progress=lambda decided, drawn: show(decided, inputs, drawn),
                )
        except Interrupted as interrupt:
            why, decisions = "interrupted", interrupt.done
        except KeyboardInterrupt:
            stop("interrupted before anything was drawn")
    certificates = Certificates.of(made.certificate for made in decisions)
    if run.dataset.labels is not None:
        true = dict(zip(run.dataset.ids, run.dataset.labels.tolist(), strict=True))
        certificates = replace(certificates, labels=np.array([true[name] for name in certificates.ids]))
    decided = sum(made.decision != "undecided" for made in decisions)
    if tsv is not None and certificates.labels is not None and certificates:
        write_log(tsv, certificates, certificates.labels)
    if as_json:
        for made in decisions:
            say(json.dumps({**as_line(made.certificate), "decision": made.decision}))
    elif not quiet and certificates:
        draws = certificates.n
        if certificates.labels is not None:
            title = f"Certified accuracy, {noise_text(run.spec)}, alpha {alpha:g}"
            say(certificates.table(radii=asked or None).to_text(title))
        say(
            f"{len(certificates)} inputs: {_reached(certificates, target)}; draws {draws.sum():,} in all, mean "
            f"{draws.mean():,.0f}, median {np.median(draws):,.0f} ({noise_text(run.spec)}, alpha {alpha:g})"
        )
    if decided < inputs:
        stop(f"{why}; {decided} inputs are decided and {kept_in(out)}")


def _reached(certificates: Certificates, target: Target) -> str:
    """Return a text: how many inputs are certified to each radius asked for, or with a precision the median radius."""
    reach = certificates.radii
    if target.precision is not None:
        return f"median certified radius {rounded_down(float(np.median(reach)))}"
    counts = [f"{(reach >= radius).sum()} certified to radius {rounded_down(radius)}" for radius in target.radii]
    return f"{', '.join(counts)}, {(reach == 0.0).sum()} not"
