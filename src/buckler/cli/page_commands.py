"""``buckler report``, ``board`` and ``reproduce``: commands that write pages for people."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from buckler.certify.methods import sound_method
from buckler.cli import options
from buckler.cli.options import argument, option
from buckler.cli.terminal import FAILED, command_typed, say
from buckler.errors import InvalidInput, check_alpha
from buckler.files import atomic_write, read_text
from buckler.paper.library import open_library
from buckler.paper.page import PAPER_PARTS, reproduce_paper
from buckler.progress import bar
from buckler.report.board import check_board, write_board
from buckler.report.pages import build_page
from buckler.runs.results import read_result, with_data, with_refutations

SHOWN_GROUP = "What is shown"
LARGEST_CLASS_FILE = 1_000_000
"""Largest size in bytes of a file of class names: the names of a larger one would not fit into a page."""


def report_command(
    *,
    runs: list[Path] = argument("Folders of buckler sample, or Parquet files of certificates."),
    out: Path = option("The page to write.", Path("report.html"), name="--out -o", group=options.OUTPUT_GROUP),
    title: str = option("Heading of the page.", "Certified robustness", group=options.OUTPUT_GROUP),
    output: options.OutputOptions,
    data: str | None = option(
        "Data of the runs: shows pictures, and gives labels to bare certificates.", group=SHOWN_GROUP
    ),
    classes: Path | None = option("Text file of class names, one a line.", None, "numbers", group=SHOWN_GROUP),
    refutations: Path | None = option("File of buckler refute, for one run.", group=SHOWN_GROUP),
    delta: float = option("The bands of all curves hold with probability 1 - delta, each.", 1e-3, group=SHOWN_GROUP),
    given: options.CertifyOptions,
    method: list[str] | None = option(
        "As for buckler certify; may be repeated.", None, "all methods for votes", group=options.CERTIFICATE_GROUP
    ),
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
    names = None if classes is None else _class_names(classes)
    methods = tuple(dict.fromkeys(method or ()))
    results = [read_result(run, methods, **given.keywords()) for run in runs]
    if refutations is not None:
        if len(results) > 1:
            raise InvalidInput(f"--refutations needs a page of one run; got {len(results)} runs")
        results = [with_refutations(results[0], refutations)]
    if data is not None:
        results = [with_data(result, data) for result in results]
    for result in results:
        if result.planned > len(result.ids) and not output.quiet:
            done = f"{len(result.ids)} of {result.planned} inputs"
            say(f"buckler: {str(result.path)!r} is not finished: {done}", error=True)
    page = build_page(results, delta=delta, title=title, class_names=names, command=command_typed(), folder=out.parent)
    with atomic_write(out) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    inputs, size = sum(len(result.ids) for result in results), len(page.encode())
    if output.as_json:
        say(json.dumps({"page": str(out), "inputs": inputs, "bytes": size}))
    elif not output.quiet:
        say(f"{out}: {inputs:,} inputs, {size / 1e6:.2f} MB; open it in a browser")


def _class_names(path: Path) -> list[str]:
    try:
        return [line.strip() for line in read_text(path, LARGEST_CLASS_FILE).splitlines()]
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"--classes must be a readable text file; got {str(path)!r} ({problem})") from None


def board_command(
    *,
    folder: Path = argument("Folder of TOML files, each table of which is an entry."),
    out: Path | None = option("Folder for the site.", None, "site", name="--out -o", group=options.OUTPUT_GROUP),
    check: bool = option("Write nothing; exit with code 1 and a line for each thing that does not hold.", False),
    alpha: float = option("Error probability of each certificate.", 1e-3),
    method: str = option("Method that certifies every entry.", "exact"),
    output: options.OutputOptions,
) -> None:
    """Certify the entries of a board again, and write them as a site.

    An entry says what it is (model, data, noise, source, licence), what it claims, and where its evidence is, a folder
    written by buckler sample. Every entry is certified at one alpha by one method; the site shows what its evidence
    gives beside what it claims. It is static and makes no request.

    Examples:

      buckler board board/ -o site/
      buckler board board/ --check
    """
    check_alpha(alpha)
    if check and out is not None:
        raise InvalidInput(f"--check writes nothing, and --out is for what is written; got {str(out)!r}")
    site = Path("site") if out is None else out
    options.check_folder(site)
    sound_method(method, "votes")
    entries, problems = check_board(folder, alpha=alpha, method=method)
    written = [] if check else write_board(entries, site, alpha=alpha, method=method, problems=problems)
    if output.as_json:
        for entry in entries:
            claims = [{**asdict(claim), "verdict": claim.verdict} for claim in entry.claims]
            say(json.dumps({"name": entry.name, "verdict": entry.verdict, "claims": claims}))
    elif not output.quiet:
        for entry in entries:
            say(f"{entry.name}: {entry.verdict}")
    for line in problems:
        say(f"buckler: {line}", error=True)
    if written and not output.bare:
        say(f"Written: {site / 'index.html'} and {len(written) - 1} pages")
    if check and problems:
        raise typer.Exit(FAILED)


def reproduce_command(
    *,
    part: str = argument(f"What to make: {', '.join(PAPER_PARTS)}.", "all"),
    evidence: Path = option("Folder of runs, each called DATA-sigma...", Path("evidence")),
    out: Path = option("Folder for tables and figures.", Path("reproduction")),
    page: Path | None = option("The page with everything, for 'all'.", None, "reproduction.md in --out"),
    quiet: bool = options.QUIET_OPTION,
) -> None:
    """Make the paper's tables and figures again.

    The methods that the paper prints stand beside valid ones, all from recorded votes and scores: no model, data set or
    GPU is needed.
    Tables are written as Markdown, LaTeX and CSV, figures as PNG and PDF.

    Examples:

      buckler reproduce table1
      buckler reproduce all --evidence evidence/ --out reproduction/
      buckler reproduce all --out docs/reproduction --page docs/reproduction.md
    """
    options.check_folder(out)
    library = open_library(evidence)
    with bar("figures and tables", quiet=quiet) as advance:
        tables, written = reproduce_paper(part, library, out, page=page, command=command_typed(), advance=advance)
    if not quiet:
        for name in library.unfinished:
            say(f"buckler: {name} is not finished and was left out", error=True)
        for table in tables.values() if part.startswith("table") else ():
            say(table.to_markdown())
        for path in written:
            say(f"Written: {path}")
