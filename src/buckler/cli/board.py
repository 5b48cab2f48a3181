"""``buckler board``: certify the entries of a board again from their evidence, and write them as a site."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from buckler.certify.methods import sound_method
from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import FAILED, say
from buckler.errors import InvalidInput, check_alpha
from buckler.report.board import check_board, write_board


def board_command(
    folder: Annotated[Path, typer.Argument(help="Folder of entries, each a folder with card.toml and its evidence.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the site.", rich_help_panel=options.OUTPUT_GROUP)
    ] = Path("site"),
    check: Annotated[
        bool, option("Write nothing; exit with code 1 and a line for each thing that does not hold.", name="--check")
    ] = False,
    alpha: Annotated[float, option("Error probability of each certificate.")] = 1e-3,
    method: Annotated[str, option("Method that certifies every entry.")] = "exact",
    as_json: Annotated[bool, options.as_json_option("Print the verdicts as JSON, one line an entry.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Certify the entries of a board again, and write them as a site.

    An entry is a folder with card.toml (model, data, noise, source, licence, claims) and evidence: a folder written by
    buckler sample, or a log of radii. Every entry is certified at one alpha by one method; the site shows what its
    evidence gives beside what it claims. It is static and makes no request.

    Examples:

      buckler board board/ -o site/
      buckler board board/ --check
    """
    check_alpha(alpha)
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"--out must be a folder; got {str(out)!r}")
    sound_method(method, "votes")
    entries, problems = check_board(folder, alpha=alpha, method=method)
    written = [] if check else write_board(entries, out, alpha=alpha, method=method, problems=problems)
    if as_json:
        for entry in entries:
            claims = [{**asdict(claim), "verdict": claim.verdict} for claim in entry.claims]
            say(json.dumps({"name": entry.name, "verdict": entry.verdict, "claims": claims}))
    elif not quiet:
        for entry in entries:
            say(f"{entry.name}: {entry.verdict}")
    for line in problems:
        say(f"buckler: {line}", error=True)
    if written and not quiet and not as_json:
        say(f"Written: {out / 'index.html'} and {len(written) - 1} pages")
    if check and problems:
        raise typer.Exit(FAILED)
