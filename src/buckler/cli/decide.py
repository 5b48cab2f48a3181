"""``buckler decide``: draw from a model until radii are decided, keeping what is decided."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn, cast

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from buckler.cli import options
from buckler.cli.certify import as_line, check_tsv, noise_in
from buckler.cli.options import IN_SPEC, option
from buckler.cli.terminal import Console, interruptible, kept_in, stop
from buckler.errors import InvalidInput
from buckler.records import Certificate
from buckler.rounding import rounded_down
from buckler.runs import decide as runs
from buckler.runs.interop import write_log
from buckler.runs.open_run import Where, open_run, settings_from
from buckler.runs.target import MAX_N, ClassRule, Target, margin_for, settings_to_decide


def decide(
    target_radius: options.TargetRadius = None,
    radii: options.Radii = None,
    radii_to: options.RadiiTo = None,
    step: options.Step = None,
    precision: Annotated[
        float | None, option("Certify as much as there is, to this share of the radius, in place of radii.", "none")
    ] = None,
    margin: Annotated[
        str | None, option("quantile (radius R2) or probability (radius R1+).", "what the law has")
    ] = None,
    max_seconds: Annotated[
        float | None, option("Stop after this many seconds, with what is certified by then.", "never")
    ] = None,
    alpha: Annotated[float, option("Error probability of each certificate.")] = 1e-3,
    max_n: Annotated[int | None, option("Draws for each input at most: n of --spec.", f"{MAX_N}")] = None,
    n0: Annotated[int | None, option("Selection draws for each input.", "100")] = None,
    certified_class: Annotated[str, option("selection, or label: the true one.", name="--class")] = "selection",
    spec: Annotated[Path | None, option("TOML file with settings of buckler sample; options win.", "none")] = None,
    model: Annotated[str | None, option("As for buckler sample.", IN_SPEC)] = None,
    data: Annotated[str | None, option("As for buckler sample.", IN_SPEC)] = None,
    sigma: Annotated[float | None, option("Noise, in the units of the input.", IN_SPEC)] = None,
    law: options.LawOption = None,
    denoiser: options.Denoiser = None,
    seed: Annotated[int | None, option("Seed of the noise.", "0")] = None,
    fresh_seed: options.FreshSeed = False,
    every: Annotated[int | None, option("Take every k-th input.", "1")] = None,
    limit: Annotated[int | None, option("Take at most this many inputs.", "all")] = None,
    device: Annotated[str | None, option("Torch device.", "cpu")] = None,
    num_classes: options.NumClasses = None,
    batch_size: options.BatchSize = None,
    out: Annotated[Path | None, option("Keep what is decided in this Parquet file.", "nowhere")] = None,
    tsv: options.Tsv = None,
    allow_other_model: options.AllowOtherModel = False,
    executor: options.Executor = "process",
    address: options.Address = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    as_json: Annotated[bool, option("Print the certificates as JSON lines.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw from a model until radii, fixed beforehand, are certified, hopeless or out of budget for each input.

    Most inputs take a hundred draws or so. A radius is certified after those below it, and the certificate of the
    largest one holds whenever drawing stopped. What is decided is kept in --out, with the votes of inputs under way,
    and the same command goes on from there; with a larger --max-n too, then beyond the first one by e-values alone.

    Examples:

      buckler decide --target-radius 0.5 --model mymodels:make --data cifar10.npz --sigma 0.5 --out decided.parquet

      buckler decide --radii-to 1.5 --step 0.25 --spec run.toml --class label --max-n 10000

      buckler decide --precision 0.05 --spec run.toml --max-seconds 600 --out decided.parquet
    """
    asked = options.radii_from(target_radius, radii, radii_to, step)
    if bool(asked) == (precision is not None):
        raise InvalidInput("one of --target-radius, --radii, --radii-to and --precision says what to decide; give one")
    given = {
        "model": model, "data": data, "sigma": sigma, "law": law, "n": max_n, "n0": n0, "seed": seed, "every": every,
        "fresh_seed": fresh_seed or None, "limit": limit, "device": device, "num_classes": num_classes,
        "batch_size": batch_size, "denoiser": denoiser,
    }  # fmt: skip
    merged = settings_from(spec, given)
    target = Target(asked, alpha, cast(ClassRule, certified_class), margin_for(merged, margin), precision)
    options.check_outputs(out=out, tsv=tsv)
    options.check_given(merged, "model", "data")
    settings = settings_to_decide(merged, target)
    if allow_other_model and out is None:
        raise InvalidInput("--allow-other-model is for going on with the file of --out, and there is none")
    kept = 0
    with interruptible():
        try:
            where = Where(executor, address, workers, gpus_per_worker)
            with open_run(settings, where, out) as run, _bar(len(run.dataset), quiet or as_json) as show:
                check_tsv(tsv, run.spec.noise_law, run.dataset.labels)

                def progress(decided: int, drawn: int) -> None:
                    nonlocal kept
                    kept = decided
                    show(decided, drawn)

                decisions = runs.decide(
                    run.spec,
                    target,
                    run.executor,
                    run.dataset,
                    out,
                    max_seconds=max_seconds,
                    allow_other_model=allow_other_model,
                    progress=progress,
                )
        except KeyboardInterrupt:
            _stopped("interrupted", kept, out)
    certificates = [decided.certificate for decided in decisions]
    complete = kept == len(run.dataset)
    if tsv is not None and run.dataset.labels is not None and certificates:
        true = dict(zip(run.dataset.ids, run.dataset.labels.tolist(), strict=True))
        write_log(tsv, certificates, [true[certificate.id] for certificate in certificates])
    if as_json:
        for decided in decisions:
            print(json.dumps({**as_line(decided.certificate), "decision": decided.decision}))
    elif not quiet and certificates:
        draws = np.array([certificate.n for certificate in certificates])
        Console().print(
            f"{len(certificates)} inputs: {_reached(certificates, target)}; draws {draws.sum():,} in all, mean "
            f"{draws.mean():,.0f}, median {np.median(draws):,.0f} ({noise_in(run.spec)}, alpha {alpha:g})",
            soft_wrap=True,
        )
    if not complete:
        _stopped("time is up", kept, out)


def _reached(certificates: Sequence[Certificate], target: Target) -> str:
    """Return how many inputs are certified to each radius that was asked, or how far half of them are."""
    reach = np.array([certificate.radius for certificate in certificates])
    if target.precision is not None:
        return f"median certified radius {rounded_down(float(np.median(reach)))}"
    counts = [f"{(reach >= radius).sum()} certified to radius {rounded_down(radius)}" for radius in target.radii]
    return f"{', '.join(counts)}, {(reach == 0.0).sum()} not"


def _stopped(why: str, decided: int, out: Path | None) -> NoReturn:
    stop(f"{why}; {decided} inputs are decided and {kept_in(out)}")


@contextmanager
def _bar(inputs: int, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield what shows the number of inputs decided, and of draws."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[draws]}"))
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=hidden) as bar:
        task = bar.add_task("deciding", total=inputs, draws="")

        def show(decided: int, drawn: int) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f", {drawn / elapsed:,.0f} a second" if elapsed > 0 else ""
            bar.update(task, completed=decided, draws=f"{drawn:,} draws{rate}")

        yield show
