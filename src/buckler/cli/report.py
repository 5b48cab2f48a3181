"""``buckler report``: runs or certificates -> one page for people, self-contained."""

import json
import shlex
from pathlib import Path
from typing import Annotated, cast

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.errors import InvalidInput
from buckler.files import atomic_write, read_text
from buckler.report.pages import build_page
from buckler.runs.results import CertifyOptions, read_result, with_data, with_refutations
from buckler.types import MarginKind, SimplexMap

LARGEST_CLASS_FILE = 1_000_000
"""Bytes; more class names than that would not fit into a page."""


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of buckler sample, or Parquet files of certificates.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    alpha: Annotated[float | None, option("Error probability of each certificate.", "0.001")] = None,
    method: Annotated[list[str] | None, option("As for buckler certify; may be repeated.", "all for votes")] = None,
    margin: Annotated[str | None, option("quantile or probability.", "what the law has")] = None,
    n: options.FirstDraws = None,
    certified_class: options.CertifiedClass = None,
    map: options.Map = None,  # noqa: A002
    temperature: options.Temperature = None,
    delta: Annotated[float, option("The band holds with probability 1 - delta.")] = 1e-3,
    data: Annotated[
        str | None, option("Data of the runs, for pictures and labels of bare certificates.", "none")
    ] = None,
    refutations: Annotated[Path | None, option("File of buckler refute, for one run.", "none")] = None,
    classes: Annotated[Path | None, option("Text file of class names, one a line.", "numbers")] = None,
    title: Annotated[str, option("Heading of the page.")] = "Certified robustness",
    as_json: Annotated[bool, option("Print what was written as JSON.", name="--json")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one page about certified runs: curves, every input, settings. It opens from disk, without a network.

    Each curve holds alone: the best of several, picked after seeing them, does not hold at its level.

    Examples:

      buckler report run/ -o report.html

      buckler report small/ large/ --method exact --data cifar10.npz --classes names.txt

      buckler report certificates.parquet
    """
    options.check_outputs(out=out)
    certifying = CertifyOptions(
        alpha=alpha,
        methods=tuple(dict.fromkeys(method or ())),
        margin=cast(MarginKind | None, margin),
        n=n,
        certified_class=certified_class,
        map=cast(SimplexMap | None, map),
        temperature=temperature,
    )
    given = {
        "alpha": alpha, "margin": margin, "n": n, "class": certified_class, "map": map, "temperature": temperature,
        "delta": delta, "data": data, "refutations": refutations, "classes": classes, "title": title,
    }  # fmt: skip
    again = ["buckler", "report", *(str(run) for run in runs), "--out", str(out)]
    again += [part for name in certifying.methods for part in ("--method", name)]
    again += [part for key, value in given.items() if value is not None for part in (f"--{key}", str(value))]
    names = None if classes is None else _class_names(classes)
    results = [read_result(run, certifying) for run in runs]
    if refutations is not None:
        if len(results) > 1:
            raise InvalidInput(f"--refutations are of one run; got {len(results)} runs")
        results = [with_refutations(results[0], refutations)]
    if data is not None:
        results = [with_data(result, data) for result in results]
    page = build_page(results, delta=delta, title=title, class_names=names, command=shlex.join(again))
    with atomic_write(out) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    inputs, size = sum(len(result.ids) for result in results), len(page.encode())
    if as_json:
        print(json.dumps({"page": str(out), "inputs": inputs, "bytes": size}))
    elif not quiet:
        print(f"{out}: {inputs:,} inputs, {size / 1e6:.2f} MB; open it in a browser")


def _class_names(path: Path) -> list[str]:
    try:
        return [line.strip() for line in read_text(path, LARGEST_CLASS_FILE).splitlines()]
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"--classes must be a readable text file; got {str(path)!r} ({problem})") from None
