"""Everything of the paper that recorded runs can answer: its tables, its figures, and the page that holds them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import rounded_down
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput, MissingExtra, check_choice
from buckler.files import atomic_write
from buckler.paper.library import Library
from buckler.paper.printed import ALPHA, FIGURES, TABLES
from buckler.paper.reproduced import (
    ESTIMATE,
    INVALID,
    OTHER_NETWORKS,
    PRINTED,
    VALID,
    Reproduced,
    figure_caption,
    reproduce_figure,
    reproduce_table,
    text_table,
)
from buckler.paper.signomial import published_quantile
from buckler.report.plots import margin_grid, one_below_another
from buckler.report.text import TABLE_FORMATS, TextTable

PAPER_PARTS = (*TABLES, "figures", "all")

UNREACHED = (3.5, 4.0, 4.5)
"""Margins of Table 1 that no valid bound reaches with n = 100 draws."""


def reproduce_paper(
    part: str,
    library: Library,
    out: Path,
    *,
    page: Path | None = None,
    command: str = "buckler reproduce",
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[dict[str, TextTable], list[Path]]:
    """Write tables or figures of the paper, again from recorded runs, into the folder ``out``; return tables and files.

    ``part`` is one of ``PAPER_PARTS``: a table, ``figures``, or ``all``, with which a page comes too: ``page``, by
    default ``reproduction.md`` in ``out``; it says which ``command`` made it. Tables are written as Markdown, LaTeX and
    CSV, figures as PNG and PDF; returned are the tables by name, and the Markdown and PNG files. ``advance`` is called
    with the number of steps done, and of all.
    """
    check_choice("part", part, PAPER_PARTS)
    if page is not None and part != "all":
        raise InvalidInput(f"page is for 'all', the part with everything on the page; got {part!r}")
    figures = FIGURES if part in {"figures", "all"} else ()
    wanted = [table for table in TABLES.values() if part in {table.name, "all"}]
    steps, total = count(1), len(figures) + len(wanted)
    captions: dict[str, str] = {}
    for figure in figures:
        if (drawing := reproduce_figure(figure, library)) is not None:
            columns, title = drawing
            name = f"{figure.data}_{figure.name}"
            margin_grid(columns, [out / f"{name}{kind}" for kind in (".png", ".pdf")], title)
            captions[name] = figure_caption(figure, title)
        advance(next(steps), total)
    again: list[Reproduced] = []
    for table in wanted:
        if (made := reproduce_table(table, library)) is not None:
            again.append(made)
        advance(next(steps), total)
    tables = {made.printed.name: text_table(made) for made in again}
    if not (tables or captions):
        raise InvalidInput(f"{str(library.root)!r} holds no run that {part} could be made from")
    texts = {
        out / f"{name}{ending}": form(table) for name, table in tables.items() for ending, form in TABLE_FORMATS.items()
    }
    if part == "all":
        place = page or out / "reproduction.md"
        folder = Path(os.path.relpath(out, place.parent)).as_posix()
        facts = page_facts(library, again)
        if captions:
            one_below_another([out / f"{name}.png" for name in captions], out / "figures.png")
        texts[place] = reproduction_page(tables, captions, facts, folder=folder, command=command)
    for path, text in texts.items():
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return tables, [*(path for path in texts if path.suffix == ".md"), *(out / f"{name}.png" for name in captions)]


def reproduction_page(
    tables: Mapping[str, TextTable], figures: Mapping[str, str], facts: Mapping[str, Any], *, folder: str, command: str
) -> str:
    """Return a Markdown page with the tables, the figures and the template's prose, which cites ``facts``.

    ``tables`` are given by name, and ``figures`` maps each figure's name to its caption. ``folder`` is the path,
    relative to the page, of the folder with the tables and figures as files and with ``figures.png``, which shows all
    figures. ``command`` wrote the page.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    environment = Environment(  # noqa: S701  (Markdown, made of our own words and numbers)
        loader=PackageLoader("buckler.paper"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("reproduction.md")
    shown = {name: table.to_markdown() for name, table in tables.items()}
    text = template.render(tables=shown, figures=figures, facts=facts, folder=folder, command=command)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def page_facts(library: Library, made: Sequence[Reproduced]) -> dict[str, Any]:
    """Return by name the values that ``reproduction_page`` cites, from the runs and the tables ``made`` of them."""
    specs = {name: run.spec for name, run in library.runs.items()}
    return {
        "runs": [
            {
                "name": name, "model": spec.model, "sigma": f"{spec.sigma:g}", "n": f"{spec.n:,}",
                "kept": f"{spec.kept_draws:,}", "n0": spec.n0, "inputs": library.runs[name].inputs,
            }
            for name, spec in specs.items()
        ],
        "printed": PRINTED,
        "valid": VALID,
        "invalid": INVALID,
        "estimate": ESTIMATE,
        "artefact": next((_artefact(table) for table in made if table.printed.number == 1), None),
        "agreement": _agreement(made),
        "gains": [row for table in made for row in _gains(table)],
        "other_network": any(spec.model in OTHER_NETWORKS for spec in specs.values()),
    }  # fmt: skip


def _artefact(table: Reproduced) -> dict[str, str]:
    exact, published = (
        dict(zip(table.printed.margins, table.line(100, method).accuracy, strict=True))
        for method in ("exact", "published")
    )
    above = [
        f"{margin:g}: {rounded_down(published[margin])} against {rounded_down(exact[margin])}"
        for margin in table.printed.margins
        if published[margin] > exact[margin] and margin not in UNREACHED
    ]
    return {
        "printed": rounded_down(2.0 * float(published_quantile(1.0))),
        "largest": rounded_down(float(vote_margin_lower(100, 0, 100, alpha=ALPHA, method="top_class")), 4),
        "above": "; ".join(above),
        "exact_at_3": rounded_down(exact[3.0]),
        "published_beyond": ", ".join(rounded_down(published[m]) for m in UNREACHED),
        "exact_beyond": ", ".join(rounded_down(exact[m]) for m in UNREACHED),
    }


def _agreement(tables: Sequence[Reproduced]) -> dict[str, Any] | None:
    """Return how far our accuracies lie from the paper's, and how often its method loses to its baseline."""
    gaps: list[Any] = []
    zeros, below = 0, {}
    for table in tables:
        printed = [line for line in table.lines if line.standing == PRINTED]  # its baseline and its method, at each n
        ours = np.array([table.line(line.n, line.method).accuracy for line in printed])
        theirs = np.array([line.accuracy for line in printed])
        gaps.extend(ours - theirs)
        zeros += int(((ours == 0.0) == (theirs == 0.0)).all(axis=1).sum())
        lost = ours[1::2] < ours[::2]
        below[str(table.printed.number)] = f"{int(lost.sum())} of {lost.size}"
    if not gaps:
        return None
    size = np.abs(gaps)
    return {
        "rows": len(gaps), "mean": f"{size.mean():.3f}", "largest": f"{size.max():.3f}", "zeros": zeros,
        "below": below,
    }  # fmt: skip


def _gains(table: Reproduced) -> list[dict[str, str]]:
    rows = []
    for line, base in table.gains():
        gap = np.subtract(line.accuracy, base.accuracy)
        best = int(gap.argmax())
        rows.append(
            {
                "table": str(table.printed.number), "n": str(line.n), "ours": line.name, "baseline": base.name,
                "median": f"{np.median(gap):+.3f}", "mean": f"{gap.mean():+.3f}",
                "largest": f"{gap[best]:+.3f}", "at": f"{table.printed.margins[best]:g}",
            }
        )  # fmt: skip
    return rows
