"""``buckler reproduce``: the paper's tables and figures again, from recorded evidence."""

import json
import os
import shlex
import sys
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli.painting import Draw, painter
from buckler.cli.peers import log_files, peer_table
from buckler.cli.reproduction import figure_caption, reproduce_figure, reproduce_table
from buckler.cli.reproduction_facts import page_facts
from buckler.cli.waiting import bar
from buckler.errors import InvalidInput, check_choice
from buckler.evaluate.paper import FIGURES, TABLES
from buckler.files import atomic_write
from buckler.report import tables
from buckler.report.reproduction import Reproduced, reproduction_page, text_table
from buckler.runs.certify import CertifiedClass
from buckler.runs.library import Library, open_library

PARTS = (*TABLES, "figures", "all")
CLASSES: dict[str, tuple[CertifiedClass, ...]] = {
    "label": ("label",),
    "selection": ("selection",),
    "both": ("label", "selection"),
}
KINDS = (".png", ".pdf")


def reproduce(
    part: Annotated[str, typer.Argument(help=f"What to make: {', '.join(PARTS)}.")] = "all",
    evidence: Annotated[Path, typer.Option(help="Folder of runs, each called DATA-sigma...")] = Path("evidence"),
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("reproduction"),
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Log of another tool, or a folder of them; may be repeated.", show_default="none"),
    ] = None,
    certified_class: Annotated[
        str, typer.Option("--class", help="label, as in the paper, selection, or both.")
    ] = "both",
    page: Annotated[
        Path | None,
        typer.Option(help="The page with everything, of 'all'.", show_default="reproduction.md in --out"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Reproduce the paper: its tables and figures, its printed methods beside valid ones, from recorded evidence.

    Tables are written as Markdown, LaTeX and CSV, figures as PNG and PDF. No model, data set or GPU is needed.

    Examples:

      buckler reproduce table1

      buckler reproduce all --evidence evidence/ --out reproduction/

      buckler reproduce all --log peer_logs/ --page docs/reproduction.md --out docs/reproduction
    """
    check_choice("PART", part, PARTS)
    classes = CLASSES[check_choice("--class", certified_class, tuple(CLASSES))]
    if page is not None and part != "all":
        raise InvalidInput(f"--page is for 'all', which has everything that is on it; got {part!r}")
    library = open_library(evidence)
    logs = log_files(log) if log else []
    hidden = quiet or as_json
    with painter() as draw:  # figures first: what is computed after them costs no time while they are drawn
        drawn = _figures(library, classes, out, draw, hidden) if part in {"figures", "all"} else {}
        with bar("tables, and the last figures", quiet=hidden):
            made = _tables(part, library, classes)
            peers = [peer_table(path) for path in logs]
    for table in (*made, *peers):
        _write_table(table, out)
    if not (made or drawn or peers):
        raise InvalidInput(f"{str(evidence)!r} holds no run that {part} could be made from")
    written = [*(out / f"{table.name}.md" for table in (*made, *peers)), *drawn]
    if part == "all":
        place = page or out / "reproduction.md"
        _write_page(place, out, library, made, peers, drawn)
        written.append(place)
    if as_json:
        print(json.dumps({"written": [str(path) for path in written], "unfinished": list(library.unfinished)}))
    elif not quiet:
        for name in library.unfinished:
            print(f"buckler: {name} is not finished and was left out", file=sys.stderr)
        if part.startswith("table"):
            for table in made:
                print(tables.to_markdown(text_table(table)))
        for path in written:
            print(f"Written: {path}")


def _tables(part: str, library: Library, classes: tuple[CertifiedClass, ...]) -> list[Reproduced]:
    wanted = [table for name, table in TABLES.items() if part in {name, "all"}]
    made = [reproduce_table(table, library, chosen) for table in wanted for chosen in classes]
    return [table for table in made if table is not None]


def _figures(
    library: Library, classes: tuple[CertifiedClass, ...], out: Path, draw: Draw, hidden: bool
) -> dict[Path, str]:
    """Return the captions of what is drawn, by the path of the PNG file."""
    drawn: dict[Path, str] = {}
    with bar("figures", quiet=hidden) as advance:
        for done, (figure, chosen) in enumerate(product(FIGURES, classes)):
            advance(done, len(FIGURES) * len(classes))
            found = reproduce_figure(figure, library, chosen)
            if found is None:
                continue
            columns, title = found
            name = f"{figure.data}_{figure.name}" + ("" if chosen == "label" else "_selected")
            draw(columns, [out / f"{name}{kind}" for kind in KINDS], title)
            drawn[out / f"{name}.png"] = figure_caption(figure, title)
    return drawn


def _write_table(table: Reproduced, out: Path) -> None:
    for ending, form in tables.FORMATS.items():
        with atomic_write(out / f"{table.name}{ending}") as temporary:
            temporary.write_text(form(text_table(table)), encoding="utf-8")


def _write_page(
    place: Path, out: Path, library: Library, made: list[Reproduced], peers: list[Reproduced], drawn: dict[Path, str]
) -> None:
    text = reproduction_page(
        made,
        {path.name: caption for path, caption in drawn.items()},
        page_facts(library, made, peers),
        folder=Path(os.path.relpath(out, place.parent)).as_posix(),
        command=shlex.join(["buckler", *sys.argv[1:]]),
    )
    with atomic_write(place) as temporary:
        temporary.write_text(text, encoding="utf-8")
