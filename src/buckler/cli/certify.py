"""``buckler certify``: evidence in a folder -> certificates. No model is needed."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.console import Console

from buckler.certify.methods import certify_counts
from buckler.certify.scores import certify_scores
from buckler.cli.sample import settings_from
from buckler.cli.target import certify_target
from buckler.errors import InvalidInput, check_choice
from buckler.evaluate.curves import certified_accuracy
from buckler.records import Certificate
from buckler.report.tables import accuracy_table, rounded_down
from buckler.runs.store.certificates import write_certificates
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.types import MarginKind, SimplexMap


def certify(
    run: Annotated[Path | None, typer.Argument(help="Folder written by buckler sample.")] = None,
    alpha: Annotated[float, typer.Option(help="Error probability of each certificate.")] = 1e-3,
    method: Annotated[str, typer.Option(help="How the margin is bounded; chosen before looking at the result.")] = "",
    margin: Annotated[str, typer.Option(help="quantile or probability.")] = "quantile",
    n: Annotated[int | None, typer.Option(help="Use the first n draws alone: a checkpoint of the run.")] = None,
    certified_class: Annotated[
        str | None, typer.Option("--class", help="label (the true one) or selection.  [default: selection if drawn]")
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Use the run's scores, not its votes; --method is then like pairwise/star.")
    ] = False,
    score_map: Annotated[
        str | None, typer.Option("--map", help="With --scores and stored logits: softmax or sparsemax.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="With --scores and stored logits: of softmax.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the certificates to this Parquet file.")] = None,
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
) -> None:
    """Certify every input of a run from its evidence, at any alpha, method, margin or prefix of the draws.

    Each certificate holds alone: picking the best of several methods or prefixes after seeing them does not.
    With --target-radius no run is needed: inputs are drawn from a model until that radius, fixed beforehand, is
    certified, hopeless or out of budget; what is decided is kept in --out, and the same command goes on from there.

    Examples:

      buckler certify run/ --alpha 0.001 --out certificates.parquet

      buckler certify run/ --n 1000 --class label --margin probability

      buckler certify run/ --scores --method pairwise/star

      buckler certify --target-radius 0.5 --model mymodels:make --data cifar10.npz --sigma 0.5 --out decided.parquet
    """
    if target_radius is not None:
        if run is not None or method or n is not None or margin != "quantile":
            raise InvalidInput("--target-radius draws anew: it takes no run, --method, --n or --margin")
        given = {
            "model": model, "data": data, "sigma": sigma, "seed": seed, "every": every, "limit": limit,
            "device": device, "num_classes": num_classes, "n0": n0 if certified_class != "label" else 0, "n": max_n,
        }  # fmt: skip
        settings = settings_from(spec, {key: value for key, value in given.items() if value is not None})
        certificates, labels = certify_target(
            settings, target_radius, alpha, use_labels=certified_class == "label", out=out, quiet=quiet or as_json
        )
        _print(certificates, labels, float(settings["sigma"]), as_json=as_json, quiet=quiet)
        return
    if run is None:
        raise InvalidInput("RUN must be a folder written by buckler sample, unless --target-radius is given")
    evidence = open_evidence(run)
    if scores:
        certificates, labels = certify_evidence_scores(
            evidence,
            alpha=alpha,
            method=method,
            margin=margin,
            n=n,
            certified_class=certified_class,
            score_map=score_map,
            temperature=temperature,
        )
    elif score_map is not None or temperature is not None:
        raise InvalidInput("--map and --temperature are for --scores")
    else:
        certificates, labels = certify_evidence(
            evidence, alpha=alpha, method=method, margin=margin, n=n, certified_class=certified_class
        )
    if out is not None:
        write_certificates(out, certificates)
    if not evidence.complete and not quiet:
        print(f"buckler: the run is not finished: {len(certificates)} of {evidence.inputs} inputs", file=sys.stderr)
    _print(certificates, labels, evidence.spec.sigma, as_json=as_json, quiet=quiet)


def _print(certificates: list[Certificate], labels: Any, sigma: float, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        for certificate in certificates:
            print(json.dumps({k: v if v != -np.inf else None for k, v in asdict(certificate).items()}))
    elif not quiet:
        _show(certificates, labels, sigma)


def certify_evidence(
    evidence: Evidence, *, alpha: float, method: str, margin: str, n: int | None, certified_class: str | None
) -> tuple[list[Certificate], Any]:
    """Return the certificates of a run's votes, and the labels where they are known."""
    counts, selection, labels = evidence.counts(n)
    chosen = certified_class or ("label" if selection is None else "selection")
    check_choice("--class", chosen, ("label", "selection"))
    if chosen == "label" and labels is None:
        raise InvalidInput("--class label needs labels, and the data of this run had none")
    if chosen == "selection" and selection is None:
        raise InvalidInput("--class selection needs selection draws, and this run has none (n0 = 0)")
    options: dict[str, Any] = {"method": method} if method else {}
    made = certify_counts(
        counts.values,
        sigma=evidence.spec.sigma,
        alpha=alpha,
        label=labels if chosen == "label" else None,
        selection=selection.values if chosen == "selection" and selection is not None else None,
        margin=cast(MarginKind, margin),
        ids=counts.ids,
        **options,
    )
    return cast(list[Certificate], made), labels


def certify_evidence_scores(
    evidence: Evidence,
    *,
    alpha: float,
    method: str,
    margin: str,
    n: int | None,
    certified_class: str | None,
    score_map: str | None,
    temperature: float | None,
) -> tuple[list[Certificate], Any]:
    """Return the certificates of a run's scores, one input in memory at a time, and the labels where they are known."""
    options: dict[str, Any] = {}
    if method:
        combine, slash, limit = method.partition("/")
        options = {"combine": combine, "limit": limit} if slash else {"combine": combine}
    chosen = certified_class or ("selection" if evidence.spec.n0 else "label")
    check_choice("--class", chosen, ("label", "selection"))
    if chosen == "selection" and not evidence.spec.n0:
        raise InvalidInput("--class selection needs selection draws, and this run has none (n0 = 0)")
    if score_map is not None:
        check_choice("--map", score_map, ("softmax", "sparsemax"))
    certificates: list[Certificate] = []
    labels: list[int | None] = []
    for rows, selection, label in evidence.scores(n, cast(SimplexMap | None, score_map), temperature):
        if chosen == "label" and label is None:
            raise InvalidInput("--class label needs labels, and the data of this run had none")
        made = certify_scores(
            rows,
            sigma=evidence.spec.sigma,
            alpha=alpha,
            label=[label] if chosen == "label" and label is not None else None,
            selection=selection,
            margin=cast(MarginKind, margin),
            **options,
        )
        certificates += cast(list[Certificate], made)
        labels.append(label)
    if not certificates:
        raise InvalidInput(f"{str(evidence.root)!r} holds no finished shard yet")
    return certificates, None if labels[0] is None else np.asarray(labels, dtype=np.int64)


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
