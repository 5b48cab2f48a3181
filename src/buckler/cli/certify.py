"""``buckler certify``: certify the inputs of a run from its votes or scores."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from buckler.certificate import Certificate, rounded_down
from buckler.certificates import Certificates
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import InvalidInput
from buckler.progress import bar
from buckler.runs.certify import certify_evidence
from buckler.runs.identity import contents_hash
from buckler.runs.logs import write_log
from buckler.runs.spec import IMPORTED, NO_RIVALS, RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import check_ending, write_certificates
from buckler.types import MarginKind, Noise, SimplexMap


def certify_command(
    run: Annotated[Path, typer.Argument(help="Folder written by buckler sample.")],
    alpha: options.Alpha = 1e-3,
    method: Annotated[
        str | None,
        option(
            "exact, bonferroni or top_class for votes; pairwise/randomised_star, or pairwise/ and one "
            "of star, betting, sequence, bernstein or hoeffding for scores. Choose it before you look.",
            "exact; top_class for an imported log",
            group=options.CERTIFICATE_GROUP,
        ),
    ] = None,
    margin: options.Margin = None,
    n: options.FirstDraws = None,
    certified_class: options.ClassOption = None,
    map: options.Map = None,  # noqa: A002
    temperature: options.Temperature = None,
    radii: Annotated[
        str | None, option("Radii of the table: 0.25,0.5 or FIRST:LAST.", group=options.OUTPUT_GROUP)
    ] = None,
    out: Annotated[
        Path | None, option("Write the certificates to this .parquet or .csv file.", group=options.OUTPUT_GROUP)
    ] = None,
    tsv: options.Tsv = None,
    as_json: Annotated[bool, options.as_json_option("Print the certificates as JSON, one a line.")] = False,
    quiet: options.Quiet = False,
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
    shown = options.radii_from(radii)
    evidence = open_evidence(run)
    if evidence.spec.model == IMPORTED and not quiet:
        say(f"buckler: {NO_RIVALS}", error=True)
    with bar(f"certifying {evidence.inputs:,} inputs", quiet=quiet or as_json):
        certificates, labels = certify_evidence(
            evidence,
            alpha=alpha,
            method=method,
            margin=cast(MarginKind | None, margin),
            n=n,
            certified_class=certified_class,
            map=cast(SimplexMap | None, map),
            temperature=temperature,
        )
    check_tsv(tsv, evidence.spec.noise, labels)
    drawn = evidence.provenance()
    if out is not None:
        contents = contents_hash(
            pair for s in evidence.read_shards() for pair in zip(s.ids, s.input_hashes, strict=True)
        )
        origin = {
            "spec": evidence.spec.as_dict(), "owner": dict(evidence.manifest["owner"]), "alpha": alpha,
            "inputs": contents, "drawn": drawn.as_dict(),
            "method": certificates[0].method, "margin": certificates[0].margin_kind, "n": n or evidence.spec.n,
            "class": certified_class, "map": map, "temperature": temperature,
        }  # fmt: skip
        write_certificates(out, certificates, origin, labels)
    if drawn.sentence() and not quiet:
        say(f"buckler: {drawn.sentence()}", error=True)
    if tsv is not None and labels is not None:
        write_log(tsv, certificates, labels)
    if not evidence.complete and not quiet:
        say(f"buckler: the run is not finished: {len(certificates)} of {evidence.inputs} inputs", error=True)
    if as_json:
        for certificate in certificates:
            say(json.dumps(as_line(certificate)))
    elif not quiet:
        _show(replace(certificates, labels=labels), evidence.spec, shown)


def check_tsv(path: Path | None, noise: Noise, labels: Any) -> None:
    """Refuse --tsv, before anything is drawn or written, where there are no labels or no l2 radii for such a log."""
    if path is not None and labels is None:
        raise InvalidInput("--tsv needs labels, and this data has none")
    if path is not None and noise.norm != "l2":
        raise InvalidInput(f"--tsv is for l2 radii; got {noise.norm} ones under {noise.describe()}")


def as_line(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as an object of JSON, which has no infinity."""
    return {key: value if value != -np.inf else None for key, value in certificate.as_dict().items()}


def noise_text(spec: RunSpec) -> str:
    """Return the noise of a run in few words: a sigma is Gaussian."""
    return spec.noise.describe() if "noise" in spec.as_dict() else f"sigma {spec.sigma:g}"


def _show(certificates: Certificates, spec: RunSpec, radii: Sequence[float]) -> None:
    first, abstained = certificates.first, certificates.abstained.sum()
    if radii or certificates.labels is not None:
        what = "Share certified" if certificates.labels is None else "Certified accuracy"
        title = f"{what}, {noise_text(spec)}, n {first.n:,}, alpha {first.alpha:g}"
        say(certificates.table(radii=radii or None).to_text(title))
    median = rounded_down(float(np.median(certificates.radii)))
    say(
        f"{len(certificates)} inputs, {abstained} abstained, median radius {median} "
        f"(method {first.method}, {first.margin_kind} margin, {noise_text(spec)}, n {first.n:,}, alpha {first.alpha:g})"
    )
