"""Everything of the paper that recorded runs can answer: its tables, its figures, and the page that holds them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

from buckler.errors import InvalidInput, MissingExtra, check_choice
from buckler.files import atomic_write
from buckler.paper.facts import page_facts
from buckler.paper.figures import figure_caption, reproduce_figure
from buckler.paper.library import Library
from buckler.paper.peers import peer_table
from buckler.paper.printed import FIGURES, TABLES
from buckler.paper.tables import Reproduced, reproduce_table, text_table
from buckler.report.plots import margin_grid
from buckler.report.tables import FORMATS, to_markdown
from buckler.runs.certify import CertifiedClass

PARTS = (*TABLES, "figures", "all")


class Made(NamedTuple):
    """The paper's tables again, and every file that was written."""

    tables: list[Reproduced]
    written: list[Path]


def reproduce(
    part: str,
    library: Library,
    out: Path,
    *,
    classes: Sequence[CertifiedClass] = ("label", "selection"),
    logs: Sequence[Path] = (),
    page: Path | None = None,
    command: str = "buckler reproduce",
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Made:
    """Write one of ``PARTS`` of the paper, and a table for each log of another tool, into the folder ``out``.

    Tables are written as Markdown, LaTeX and CSV, figures as PNG and PDF. With ``all`` comes the page,
    ``reproduction.md`` in ``out`` unless another place is given; it says which ``command`` made it. ``advance`` is told
    how many steps are done, and of how many.
    """
    check_choice("part", part, PARTS)
    if page is not None and part != "all":
        raise InvalidInput(f"page is for 'all', which has everything that is on it; got {part!r}")
    figures = FIGURES if part in {"figures", "all"} else ()
    wanted = [table for table in TABLES.values() if part in {table.name, "all"}]
    steps, total = count(1), len(classes) * (len(figures) + len(wanted)) + len(logs)
    captions: dict[str, str] = {}
    for figure, chosen in product(figures, classes):
        if (drawing := reproduce_figure(figure, library, chosen)) is not None:
            columns, title = drawing
            name = f"{figure.data}_{figure.name}" + ("" if chosen == "label" else "_selected")
            margin_grid(columns, [out / f"{name}{kind}" for kind in (".png", ".pdf")], title)
            captions[f"{name}.png"] = figure_caption(figure, title)
        advance(next(steps), total)
    tables: list[Reproduced] = []
    for table, chosen in product(wanted, classes):
        if (again := reproduce_table(table, library, chosen)) is not None:
            tables.append(again)
        advance(next(steps), total)
    peers: list[Reproduced] = []
    for path in logs:
        peers.append(peer_table(path))
        advance(next(steps), total)
    if not (tables or captions or peers):
        raise InvalidInput(f"{str(library.root)!r} holds no run that {part} could be made from")
    texts = {
        out / f"{table.name}{ending}": form(text_table(table))
        for table in (*tables, *peers)
        for ending, form in FORMATS.items()
    }
    if part == "all":
        place = page or out / "reproduction.md"
        folder = Path(os.path.relpath(out, place.parent)).as_posix()
        facts = page_facts(library, tables, peers)
        texts[place] = reproduction_page(tables, captions, facts, folder=folder, command=command)
    for path, text in texts.items():
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return Made(tables, [*(path for path in texts if path.suffix == ".md"), *(out / name for name in captions)])


def reproduction_page(
    tables: Sequence[Reproduced], figures: Mapping[str, str], facts: Mapping[str, Any], *, folder: str, command: str
) -> str:
    """Return the page in Markdown: ``figures`` are captions by the names of files, ``facts`` what the prose refers to.

    ``folder`` holds tables and figures, seen from the page. A figure of the selected class is named below its twin.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    environment = Environment(  # noqa: S701  (Markdown, made of our own words and numbers)
        loader=PackageLoader("buckler.paper"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("reproduction.md")
    shown = {table.name: to_markdown(text_table(table)) for table in tables}
    text = template.render(tables=shown, figures=figures, facts=facts, folder=folder, command=command)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
