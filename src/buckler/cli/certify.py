"""``buckler certify``: evidence in a folder -> certificates. No model is needed."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from buckler.cli.executors import AddressOption, ExecutorOption, GpusOption, Where, WorkersOption
from buckler.cli.sample import settings_from
from buckler.cli.target import certify_target
from buckler.cli.terminal import Console
from buckler.cli.waiting import bar
from buckler.errors import InvalidInput
from buckler.evaluate.curves import certified_accuracy
from buckler.records import Certificate
from buckler.report.tables import accuracy_table, rounded_down
from buckler.runs.certify import certify_evidence
from buckler.runs.interop import write_log
from buckler.runs.store.certificates import write_certificates
from buckler.runs.store.evidence import open_evidence
from buckler.types import MarginKind, SimplexMap


def certify(
    run: Annotated[Path | None, typer.Argument(help="Folder written by buckler sample.")] = None,
    alpha: Annotated[float, typer.Option(help="Error probability of each certificate.")] = 1e-3,
    method: Annotated[
        str, typer.Option(help="exact, bonferroni, ... for votes; pairwise/star, ... for scores. Choose beforehand.")
    ] = "exact",
    margin: Annotated[str, typer.Option(help="quantile or probability.")] = "quantile",
    n: Annotated[int | None, typer.Option(help="Use the first n draws alone: a checkpoint of the run.")] = None,
    certified_class: Annotated[
        str | None, typer.Option("--class", help="label (the true one) or selection.  [default: selection if drawn]")
    ] = None,
    map: Annotated[str | None, typer.Option(help="For stored logits: softmax or sparsemax.")] = None,  # noqa: A002
    temperature: Annotated[float | None, typer.Option(help="For stored logits: temperature of the softmax.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the certificates to this Parquet file.")] = None,
    tsv: Annotated[
        Path | None,
        typer.Option(help="Write the field's usual log: idx label predict radius correct time; rounded down."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificates as JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
    target_radius: Annotated[
        float | None, typer.Option(help="Draw from a model until this radius is decided; takes the options below.")
    ] = None,
    max_n: Annotated[int, typer.Option(help="With a target: draws for each input at most.")] = 100_000,
    n0: Annotated[int, typer.Option(help="With a target: selection draws for each input.")] = 100,
    spec: Annotated[Path | None, typer.Option(help="With a target: TOML file with settings of buckler sample.")] = None,
    model: Annotated[str | None, typer.Option(help="With a target: as for buckler sample.")] = None,
    data: Annotated[str | None, typer.Option(help="With a target: as for buckler sample.")] = None,
    sigma: Annotated[float | None, typer.Option(help="With a target: noise, in the units of the input.")] = None,
    seed: Annotated[int | None, typer.Option(help="With a target: seed of the noise.")] = None,
    every: Annotated[int | None, typer.Option(help="With a target: take every k-th input.")] = None,
    limit: Annotated[int | None, typer.Option(help="With a target: take at most this many inputs.")] = None,
    device: Annotated[str | None, typer.Option(help="With a target: torch device.")] = None,
    num_classes: Annotated[int | None, typer.Option(help="With a target: classes, if the model is silent.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="With a target: rows of a batch.")] = None,
    executor: ExecutorOption = "process",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = None,
) -> None:
    """Certify every input of a run from its evidence, at any alpha, method, margin or prefix of the draws.

    Each certificate holds alone: picking the best of several methods or prefixes after seeing them does not.
    With --target-radius no run is needed: inputs are drawn from a model until that radius, fixed beforehand, is
    certified, hopeless or out of budget; what is decided is kept in --out, and the same command goes on from there.

    Examples:

      buckler certify run/ --alpha 0.001 --out certificates.parquet

      buckler certify run/ --n 1000 --class label --margin probability

      buckler certify run/ --method pairwise/star --temperature 0.5

      buckler certify run/ --alpha 0.001 --tsv sigma_0.50.tsv

      buckler certify --target-radius 0.5 --model mymodels:make --data cifar10.npz --sigma 0.5 --out decided.parquet
    """
    if target_radius is not None:
        if run is not None or method != "exact" or n is not None or margin != "quantile":
            raise InvalidInput("--target-radius draws anew: it takes no run, --method, --n or --margin")
        given = {
            "model": model, "data": data, "sigma": sigma, "seed": seed, "every": every, "limit": limit,
            "device": device, "num_classes": num_classes, "n0": n0 if certified_class != "label" else 0, "n": max_n,
            "batch_size": batch_size,
        }  # fmt: skip
        settings = settings_from(spec, {key: value for key, value in given.items() if value is not None})
        certificates, labels = certify_target(
            settings,
            Where(executor, address, workers, gpus_per_worker),
            target_radius,
            alpha,
            use_labels=certified_class == "label",
            out=out,
            quiet=quiet or as_json,
        )
        _write_tsv(tsv, certificates, labels)
        _print(certificates, labels, float(settings["sigma"]), as_json=as_json, quiet=quiet)
        return
    if executor != "process":
        raise InvalidInput("--executor is for --target-radius: a run is certified from its evidence, in this process")
    if run is None:
        raise InvalidInput("RUN must be a folder written by buckler sample, unless --target-radius is given")
    evidence = open_evidence(run)
    with bar(f"certifying {evidence.inputs:,} inputs", quiet=quiet or as_json):
        certificates, labels = certify_evidence(
            evidence,
            alpha=alpha,
            method=method,
            margin=cast(MarginKind, margin),
            n=n,
            certified_class=certified_class,
            map=cast(SimplexMap | None, map),
            temperature=temperature,
        )
    if out is not None:
        origin = {
            "spec": evidence.spec.as_dict(), "owner": dict(evidence.manifest["owner"]), "alpha": alpha,
            "method": method, "margin": margin, "n": n or evidence.spec.n, "class": certified_class, "map": map,
            "temperature": temperature,
        }  # fmt: skip
        write_certificates(out, certificates, origin)
    _write_tsv(tsv, certificates, labels)
    if not evidence.complete and not quiet:
        print(f"buckler: the run is not finished: {len(certificates)} of {evidence.inputs} inputs", file=sys.stderr)
    _print(certificates, labels, evidence.spec.sigma, as_json=as_json, quiet=quiet)


def _write_tsv(path: Path | None, certificates: list[Certificate], labels: Any) -> None:
    if path is None:
        return
    if labels is None:
        raise InvalidInput("--tsv needs labels, and this data has none")
    write_log(path, certificates, labels)


def _print(certificates: list[Certificate], labels: Any, sigma: float, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        for certificate in certificates:
            print(json.dumps({k: v if v != -np.inf else None for k, v in asdict(certificate).items()}))
    elif not quiet:
        _show(certificates, labels, sigma)


def _show(certificates: list[Certificate], labels: Any, sigma: float) -> None:
    console = Console()
    first = certificates[0]
    abstained = sum(c.abstained for c in certificates)
    if first.method == "anytime":
        draws = np.array([c.n for c in certificates])
        reached = max(c.radius for c in certificates)
        console.print(
            f"{len(certificates)} inputs: {len(certificates) - abstained} certified to radius {rounded_down(reached)}, "
            f"{abstained} not; draws {draws.sum():,} in all, mean {draws.mean():,.0f}, median {np.median(draws):,.0f} "
            f"(sigma {sigma:g}, alpha {first.alpha:g})",
            soft_wrap=True,
        )
        return
    if labels is not None:
        radii = [0.0, *(sigma * step for step in (0.5, 1.0, 1.5, 2.0, 3.0))]
        title = f"Certified accuracy, sigma {sigma:g}, n {first.n:,}, alpha {first.alpha:g}"
        console.print(accuracy_table([certified_accuracy(certificates, labels, radii)], title))
    median = rounded_down(float(np.median([c.radius for c in certificates])))
    console.print(
        f"{len(certificates)} inputs, {abstained} abstentions, median radius {median} "
        f"(method {first.method}, {first.margin_kind} margin, sigma {sigma:g}, n {first.n:,}, alpha {first.alpha:g})",
        soft_wrap=True,
    )
