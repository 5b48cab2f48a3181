"""``buckler report``: write a self-contained page about runs or certificates."""

import json
import shlex
from pathlib import Path
from typing import Annotated, cast

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import say
from buckler.errors import InvalidInput
from buckler.files import atomic_write, read_text
from buckler.report.pages import build_page
from buckler.runs.certify import CertifyKeywords
from buckler.runs.results import read_result, with_data, with_refutations
from buckler.types import MarginKind, SimplexMap

SHOWN_GROUP = "What is shown"
LARGEST_CLASS_FILE = 1_000_000
"""Largest size of a file of class names in bytes: more names would not fit into a page."""


def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of buckler sample, or Parquet files of certificates.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write.", rich_help_panel=options.OUTPUT_GROUP)
    ] = Path("report.html"),
    title: Annotated[str, option("Heading of the page.", group=options.OUTPUT_GROUP)] = "Certified robustness",
    as_json: Annotated[bool, options.as_json_option("Print what was written as JSON.")] = False,
    quiet: options.Quiet = False,
    data: Annotated[
        str | None,
        option("Data of the runs: shows pictures, and gives labels to bare certificates.", group=SHOWN_GROUP),
    ] = None,
    classes: Annotated[
        Path | None, option("Text file of class names, one a line.", "numbers", group=SHOWN_GROUP)
    ] = None,
    refutations: Annotated[Path | None, option("File of buckler refute, for one run.", group=SHOWN_GROUP)] = None,
    delta: Annotated[
        float, option("The bands of all curves hold with probability 1 - delta, each.", group=SHOWN_GROUP)
    ] = 1e-3,
    alpha: Annotated[
        float | None, option("Error probability of each certificate.", "0.001", group=options.CERTIFICATE_GROUP)
    ] = None,
    method: Annotated[
        list[str] | None,
        option("As for buckler certify; may be repeated.", "all methods for votes", group=options.CERTIFICATE_GROUP),
    ] = None,
    margin: options.Margin = None,
    n: options.FirstDraws = None,
    certified_class: options.ClassOption = None,
    map: options.Map = None,  # noqa: A002
    temperature: options.Temperature = None,
) -> None:
    """Write a web page about certified runs.

    One self-contained file with curves, a table of inputs and the settings; it opens from disk, without a network.
    Each curve holds alone: the best of several, picked after seeing them, does not hold at its alpha.

    Examples:

      buckler report run/ -o report.html
      buckler report small/ large/ --method exact --data cifar10.npz
      buckler report certificates.parquet --classes names.txt
    """
    options.check_outputs(out=out)
    methods = tuple(dict.fromkeys(method or ()))
    asked = CertifyKeywords(
        alpha=alpha,
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
    again += [part for name in methods for part in ("--method", name)]
    again += [part for key, value in given.items() if value is not None for part in (f"--{key}", str(value))]
    names = None if classes is None else _class_names(classes)
    results = [read_result(run, methods, **asked) for run in runs]
    if refutations is not None:
        if len(results) > 1:
            raise InvalidInput(f"--refutations are of one run; got {len(results)} runs")
        results = [with_refutations(results[0], refutations)]
    if data is not None:
        results = [with_data(result, data) for result in results]
    page = build_page(
        results, delta=delta, title=title, class_names=names, command=shlex.join(again), folder=out.parent
    )
    with atomic_write(out) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    inputs, size = sum(len(result.ids) for result in results), len(page.encode())
    if as_json:
        say(json.dumps({"page": str(out), "inputs": inputs, "bytes": size}))
    elif not quiet:
        say(f"{out}: {inputs:,} inputs, {size / 1e6:.2f} MB; open it in a browser")


def _class_names(path: Path) -> list[str]:
    try:
        return [line.strip() for line in read_text(path, LARGEST_CLASS_FILE).splitlines()]
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"--classes must be a readable text file; got {str(path)!r} ({problem})") from None
