"""Everything of the paper that recorded runs can answer: its tables, its figures, and the page that holds them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.certificate import rounded_down
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput, MissingExtra, check_choice
from buckler.files import atomic_write
from buckler.paper.library import Library
from buckler.paper.peers import peer_summary, peer_table
from buckler.paper.printed import ALPHA, FIGURES, TABLES, PrintedTable
from buckler.paper.reproduced import (
    ESTIMATE,
    INVALID,
    OTHER_NETWORKS,
    PRINTED,
    VALID,
    Line,
    Reproduced,
    figure_caption,
    reproduce_figure,
    reproduce_table,
    text_table,
)
from buckler.paper.signomial import published_quantile
from buckler.report.plots import margin_grid
from buckler.report.tables import TABLE_FORMATS
from buckler.runs.certify import CertifiedClass

CLASSES: tuple[CertifiedClass, ...] = ("label", "selection")
"""The class that is certified: the true label, as in the paper, and the one selected on separate draws."""

PAPER_PARTS = (*TABLES, "figures", "all")

UNREACHED = (3.5, 4.0, 4.5)
"""Margins of Table 1 that no valid bound reaches with n = 100 draws."""


class Made(NamedTuple):
    """Result of ``reproduce_paper``: the reproduced tables, and the paths of all files written."""

    tables: list[Reproduced]
    written: list[Path]


def reproduce_paper(
    part: str,
    library: Library,
    out: Path,
    *,
    logs: Sequence[Path] = (),
    page: Path | None = None,
    command: str = "buckler reproduce",
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Made:
    """Write one of ``PAPER_PARTS`` of the paper, and a table for each log of another tool, into the folder ``out``.

    Tables are written as Markdown, LaTeX and CSV, figures as PNG and PDF. With ``all`` comes the page,
    ``reproduction.md`` in ``out`` unless another place is given; it says which ``command`` made it. ``advance`` is told
    how many steps are done, and of how many.
    """
    check_choice("part", part, PAPER_PARTS)
    if page is not None and part != "all":
        raise InvalidInput(f"page is for 'all', the part with everything on the page; got {part!r}")
    figures = FIGURES if part in {"figures", "all"} else ()
    wanted = [table for table in TABLES.values() if part in {table.name, "all"}]
    steps, total = count(1), len(CLASSES) * (len(figures) + len(wanted)) + len(logs)
    captions: dict[str, str] = {}
    for figure, chosen in product(figures, CLASSES):
        if (drawing := reproduce_figure(figure, library, chosen)) is not None:
            columns, title = drawing
            name = f"{figure.data}_{figure.name}" + ("" if chosen == "label" else "_selected")
            margin_grid(columns, [out / f"{name}{kind}" for kind in (".png", ".pdf")], title)
            captions[f"{name}.png"] = figure_caption(figure, title)
        advance(next(steps), total)
    tables: list[Reproduced] = []
    for table, chosen in product(wanted, CLASSES):
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
        for ending, form in TABLE_FORMATS.items()
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
    shown = {table.name: text_table(table).to_markdown() for table in tables}
    text = template.render(tables=shown, figures=figures, facts=facts, folder=folder, command=command)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def page_facts(library: Library, made: Sequence[Reproduced], peers: Sequence[Reproduced]) -> dict[str, Any]:
    """Return the values that the template of the page names, by name."""
    own = [(table, table.printed) for table in made if table.printed is not None and not table.selected]
    selected = {table.name: table for table in made if table.selected}
    again = {table.name: selected.get(f"{table.name}_selected") for table, _ in own}
    repeated = {table.name: again[table.name] for table, _ in own if _cells(table) == _cells(again[table.name])}
    summary, others = peer_summary(peers)
    specs = {name: run.evidence.spec for name, run in library.runs.items()}
    return {
        "runs": [
            {
                "name": name, "model": spec.model, "sigma": f"{spec.sigma:g}", "n": f"{spec.n:,}",
                "kept": f"{spec.kept_draws:,}", "n0": spec.n0, "inputs": library.runs[name].evidence.inputs,
            }
            for name, spec in specs.items()
        ],
        "n0": " or ".join(sorted({f"{spec.n0}" for spec in specs.values()})),
        "printed": PRINTED,
        "valid": VALID,
        "invalid": INVALID,
        "estimate": ESTIMATE,
        "repeated": list(repeated),
        "artefact": next((_artefact(table) for table, printed in own if printed.number == 1), None),
        "agreement": _agreement(own),
        "differences": [row for table, printed in own for row in _differences(table, printed)],
        "gains": [row for table in made if table not in repeated.values() for row in _gains(table)],
        "peers": {"table": summary and summary.to_markdown(), "others": others,
                  "cohen": any(table.name.startswith("cohen2019") for table in peers)},
        "other_network": any(spec.model in OTHER_NETWORKS for spec in specs.values()),
    }  # fmt: skip


def _cells(table: Reproduced | None) -> list[tuple[object, ...]]:
    """Return (n, method, accuracies as text) of each line of a table that the paper does not print; [] for None."""
    ours = [line for line in table.lines if line.standing != PRINTED] if table is not None else []
    return [(line.n, line.method, *map(rounded_down, line.accuracy)) for line in ours]


def _artefact(table: Reproduced) -> dict[str, str]:
    exact, published = (
        dict(zip(table.margins, table.line(100, method).accuracy, strict=True)) for method in ("exact", "published")
    )
    above = [
        f"{margin:g}: {rounded_down(published[margin])} against {rounded_down(exact[margin])}"
        for margin in table.margins
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


def _twins(table: Reproduced) -> list[tuple[Line, Line]]:
    """Return pairs of lines: a row that the paper prints, and our run of its method at as many draws."""
    return [(line, table.line(line.n, line.method)) for line in table.lines if line.standing == PRINTED]


def _agreement(tables: Sequence[tuple[Reproduced, PrintedTable]]) -> dict[str, Any] | None:
    """Return how far our accuracies lie from the paper's, and how often its method loses to its baseline."""
    pairs = [pair for table, _ in tables for pair in _twins(table)]
    if not pairs:
        return None
    gaps = np.array([np.subtract(ours.accuracy, line.accuracy) for line, ours in pairs])
    zeros = [np.array_equal(np.equal(line.accuracy, 0.0), np.equal(ours.accuracy, 0.0)) for line, ours in pairs]
    below = {}
    for table, printed in tables:
        baseline, own = printed.names
        rows = [(table.line(n, baseline), table.line(n, own)) for n in sorted({line.n for line, _ in _twins(table)})]
        lost = [np.subtract(b.accuracy, a.accuracy) for a, b in rows]
        below[str(printed.number)] = f"{int((np.array(lost) < 0.0).sum())} of {np.size(lost)}"
    return {
        "rows": len(pairs), "mean": f"{np.abs(gaps).mean():.3f}", "largest": f"{np.abs(gaps).max():.3f}",
        "zeros": sum(zeros), "below": below,
    }  # fmt: skip


def _differences(table: Reproduced, printed: PrintedTable) -> list[dict[str, str]]:
    rows = []
    for line, ours in _twins(table):
        gap = np.subtract(ours.accuracy, line.accuracy)
        rows.append(
            {
                "table": str(printed.number), "n": str(line.n), "printed": printed.names[line.method],
                "ours": ours.name, "mean": f"{gap.mean():+.3f}", "largest": f"{gap[np.abs(gap).argmax()]:+.3f}",
            }
        )  # fmt: skip
    return rows


def _gains(table: Reproduced) -> list[dict[str, str]]:
    title = f"{table.printed.number if table.printed else table.name}{', selected class' if table.selected else ''}"
    rows = []
    for line, base in table.gains():
        gap = np.subtract(line.accuracy, base.accuracy)
        best = int(gap.argmax())
        rows.append(
            {
                "table": title, "n": str(line.n), "ours": line.name, "baseline": base.name,
                "median": f"{np.median(gap):+.3f}", "mean": f"{gap.mean():+.3f}",
                "largest": f"{gap[best]:+.3f}", "at": f"{table.margins[best]:g}",
            }
        )  # fmt: skip
    return rows
