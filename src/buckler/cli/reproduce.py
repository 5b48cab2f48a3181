"""``buckler reproduce``: make the paper's tables and figures from recorded votes and scores."""

from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import command_typed, say
from buckler.paper.library import open_library
from buckler.paper.page import PAPER_PARTS, reproduce_paper
from buckler.paper.peers import log_files
from buckler.progress import bar


def reproduce_command(
    part: Annotated[str, typer.Argument(help=f"What to make: {', '.join(PAPER_PARTS)}.")] = "all",
    evidence: Annotated[Path, option("Folder of runs, each called DATA-sigma...")] = Path("evidence"),
    out: Annotated[Path, option("Folder for tables and figures.")] = Path("reproduction"),
    log: Annotated[list[Path] | None, option("Log of another tool, or a folder of them; may be repeated.")] = None,
    page: Annotated[Path | None, option("The page with everything, for 'all'.", "reproduction.md in --out")] = None,
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
    library = open_library(evidence)
    logs = log_files(log) if log else []
    with bar("figures and tables", quiet=quiet) as advance:
        made = reproduce_paper(part, library, out, logs=logs, page=page, command=command_typed(), advance=advance)
    if not quiet:
        for name in library.unfinished:
            say(f"buckler: {name} is not finished and was left out", error=True)
        for table in made.tables.values() if part.startswith("table") else ():
            say(table.to_markdown())
        for path in made.written:
            say(f"Written: {path}")
