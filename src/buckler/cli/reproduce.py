"""``buckler reproduce``: make the paper's tables and figures from recorded votes and scores."""

import json
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import command_typed, say
from buckler.errors import check_choice
from buckler.paper.library import open_library
from buckler.paper.page import PAPER_PARTS, reproduce_paper
from buckler.paper.peers import log_files
from buckler.paper.reproduced import text_table
from buckler.progress import bar
from buckler.runs.certify import CertifiedClass

CLASSES: dict[str, tuple[CertifiedClass, ...]]
CLASSES = {"label": ("label",), "selection": ("selection",), "both": ("label", "selection")}


def reproduce_command(
    part: Annotated[str, typer.Argument(help=f"What to make: {', '.join(PAPER_PARTS)}.")] = "all",
    evidence: Annotated[Path, option("Folder of runs, each called DATA-sigma...")] = Path("evidence"),
    out: Annotated[Path, option("Folder for tables and figures.")] = Path("reproduction"),
    log: Annotated[list[Path] | None, option("Log of another tool, or a folder of them; may be repeated.")] = None,
    certified_class: Annotated[str, option("label, as in the paper, selection, or both.", name="--class")] = "both",
    page: Annotated[Path | None, option("The page with everything, for 'all'.", "reproduction.md in --out")] = None,
    as_json: Annotated[bool, options.as_json_option("Print what was written as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the paper's tables and figures again.

    Its printed methods stand beside valid ones, from recorded votes and scores: no model, data set or GPU is needed.
    Tables are written as Markdown, LaTeX and CSV, figures as PNG and PDF.

    Examples:

      buckler reproduce table1
      buckler reproduce all --evidence evidence/ --out reproduction/
      buckler reproduce all --log peer_logs/ --out docs/reproduction
        --page docs/reproduction.md
    """
    classes = CLASSES[check_choice("--class", certified_class, tuple(CLASSES))]
    library = open_library(evidence)
    logs = log_files(log) if log else []
    with bar("figures and tables", quiet=quiet or as_json) as advance:
        made = reproduce_paper(
            part, library, out, classes=classes, logs=logs, page=page, command=command_typed(), advance=advance
        )
    if as_json:
        say(json.dumps({"written": [str(path) for path in made.written], "unfinished": list(library.unfinished)}))
    elif not quiet:
        for name in library.unfinished:
            say(f"buckler: {name} is not finished and was left out", error=True)
        for table in made.tables if part.startswith("table") else ():
            say(text_table(table).to_markdown())
        for path in made.written:
            say(f"Written: {path}")
