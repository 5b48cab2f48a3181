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
from buckler.cli.interrupts import interruptible
from buckler.cli.loading import load_run
from buckler.errors import InvalidInput, StoreError, check_choice
from buckler.evaluate.curves import certified_accuracy
from buckler.records import Certificate
from buckler.report.tables import accuracy_table, rounded_down
from buckler.runs.anytime import certify_until_decided
from buckler.runs.sample import make_engine
from buckler.runs.store.certificates import write_certificates
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.types import MarginKind

INPUTS_AT_ONCE = 512
"""Inputs under way together with --target-radius: enough to fill a batch when each wants few draws."""


def certify(
    run: Annotated[Path, typer.Argument(help="Folder written by buckler sample.")],
    alpha: Annotated[float, typer.Option(help="Error probability of each certificate.")] = 1e-3,
    method: Annotated[str, typer.Option(help="How the margin is bounded; chosen before looking at the result.")] = "",
    margin: Annotated[str, typer.Option(help="quantile or probability.")] = "quantile",
    n: Annotated[int | None, typer.Option(help="Use the first n draws alone: a checkpoint of the run.")] = None,
    certified_class: Annotated[
        str | None, typer.Option("--class", help="label (the true one) or selection.  [default: selection if drawn]")
    ] = None,
    target_radius: Annotated[
        float | None,
        typer.Option(help="Load the run's model again, and draw for each input until this radius is decided."),
    ] = None,
    max_n: Annotated[int, typer.Option(help="The most draws for an input with --target-radius.")] = 100_000,
    out: Annotated[Path | None, typer.Option(help="Write the certificates to this Parquet file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificates as JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Certify every input of a run from its evidence, at any alpha, method, margin or prefix of the draws.

    Each certificate holds alone: picking the best of several methods or prefixes after seeing them does not.

    Examples:

      buckler certify run/ --alpha 0.001 --out certificates.parquet

      buckler certify run/ --n 1000 --class label --margin probability

      buckler certify run/ --target-radius 0.5 --max-n 100000
    """
    evidence = open_evidence(run)
    if target_radius is None:
        certificates, labels = certify_evidence(
            evidence, alpha=alpha, method=method, margin=margin, n=n, certified_class=certified_class
        )
    else:
        if method or n is not None or margin != "quantile":
            raise InvalidInput("--target-radius stands alone: it takes --max-n, not --n, --method or --margin")
        with interruptible():
            certificates, labels = certify_target(evidence, target_radius, alpha, max_n, certified_class)
    if out is not None:
        write_certificates(out, certificates)
    if not evidence.complete and target_radius is None and not quiet:
        print(f"buckler: the run is not finished: {len(certificates)} of {evidence.inputs} inputs", file=sys.stderr)
    if as_json:
        for certificate in certificates:
            print(json.dumps({k: v if v != -np.inf else None for k, v in asdict(certificate).items()}))
    elif not quiet:
        _show(certificates, labels, evidence.spec.sigma)


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


def certify_target(
    evidence: Evidence, target_radius: float, alpha: float, max_n: int, certified_class: str | None
) -> tuple[list[Certificate], Any]:
    """Return any-time certificates for every input of a run, drawn until decided with the run's own model and seed."""
    run = load_run(evidence.spec.as_dict())
    owner = {"classifier": run.classifier.fingerprint(), "data": run.dataset.fingerprint}
    for part, found in owner.items():
        if found != evidence.manifest["owner"][part]:
            there = evidence.manifest["owner"][part]
            raise StoreError(f"the {part} is not the one of the run: {there} there, {found} now")
    chosen = certified_class or ("selection" if run.spec.n0 else "label")
    check_choice("--class", chosen, ("label", "selection"))
    labels = run.dataset.labels
    if chosen == "label" and labels is None:
        raise InvalidInput("--class label needs labels, and the data of this run had none")
    engine = make_engine(run.spec, run.classifier)
    certificates: list[Certificate] = []
    for start in range(0, len(run.dataset), INPUTS_AT_ONCE):
        stop = min(start + INPUTS_AT_ONCE, len(run.dataset))
        certificates += certify_until_decided(
            engine,
            run.dataset.load(start, stop),
            run.dataset.ids[start:stop],
            target_radius=target_radius,
            alpha=alpha,
            max_n=max_n,
            n0=run.spec.n0,
            labels=labels[start:stop] if chosen == "label" and labels is not None else None,
        )
    return certificates, labels


def _show(certificates: list[Certificate], labels: Any, sigma: float) -> None:
    console = Console()
    first = certificates[0]
    abstained = sum(c.abstained for c in certificates)
    used = {c.n for c in certificates}
    draws = f"n {first.n:,}" if len(used) == 1 else f"mean n {np.mean([c.n for c in certificates]):,.0f}"
    if labels is not None:
        radii = [0.0, *(sigma * step for step in (0.5, 1.0, 1.5, 2.0, 3.0))]
        title = f"Certified accuracy, sigma {sigma:g}, {draws}, alpha {first.alpha:g}"
        console.print(accuracy_table([certified_accuracy(certificates, labels, radii)], title))
    median = rounded_down(float(np.median([c.radius for c in certificates])))
    console.print(
        f"{len(certificates)} inputs, {abstained} abstentions, median radius {median} "
        f"(method {first.method}, {first.margin_kind} margin, sigma {sigma:g}, {draws}, alpha {first.alpha:g})",
        soft_wrap=True,
    )
