"""What the page says in words: differences, gains, and the artefact, read off the tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from buckler.certificate import rounded_down
from buckler.certify.votes import margin_lower
from buckler.paper.figures import OTHER_NETWORKS
from buckler.paper.library import Library
from buckler.paper.peers import peer_summary
from buckler.paper.printed import ALPHA, PrintedTable
from buckler.paper.quantile import published_quantile
from buckler.paper.tables import ESTIMATE, INVALID, PRINTED, VALID, Line, Reproduced
from buckler.report.tables import to_markdown

BEYOND = (3.5, 4.0, 4.5)
"""Margins of Table 1 that no valid bound reaches with n = 100 draws."""


def page_facts(library: Library, made: Sequence[Reproduced], peers: Sequence[Reproduced]) -> dict[str, Any]:
    """Return everything that the prose of the page refers to."""
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
        "peers": {"table": summary and to_markdown(summary), "others": others,
                  "cohen": any(table.name.startswith("cohen2019") for table in peers)},
        "other_network": any(spec.model in OTHER_NETWORKS for spec in specs.values()),
    }  # fmt: skip


def _cells(table: Reproduced | None) -> list[tuple[object, ...]]:
    """Return what a table shows, leaving aside what the paper prints."""
    ours = [line for line in table.lines if line.standing != PRINTED] if table is not None else []
    return [(line.n, line.method, *map(rounded_down, line.accuracy)) for line in ours]


def _artefact(table: Reproduced) -> dict[str, str]:
    exact, published = (
        dict(zip(table.margins, table.line(100, method).accuracy, strict=True)) for method in ("exact", "published")
    )
    above = [
        f"{margin:g}: {rounded_down(published[margin])} against {rounded_down(exact[margin])}"
        for margin in table.margins
        if published[margin] > exact[margin] and margin not in BEYOND
    ]
    return {
        "printed": rounded_down(2.0 * float(published_quantile(1.0))),
        "largest": rounded_down(float(margin_lower(100, 0, 100, alpha=ALPHA, method="top_class")), 4),
        "above": "; ".join(above),
        "exact_at_3": rounded_down(exact[3.0]),
        "published_beyond": ", ".join(rounded_down(published[m]) for m in BEYOND),
        "exact_beyond": ", ".join(rounded_down(exact[m]) for m in BEYOND),
    }


def _twins(table: Reproduced) -> list[tuple[Line, Line]]:
    """Return the paper's rows, each with our run of it."""
    return [(line, table.line(line.n, line.method)) for line in table.lines if line.standing == PRINTED]


def _agreement(tables: Sequence[tuple[Reproduced, PrintedTable]]) -> dict[str, Any] | None:
    """Return how near our runs come to the paper's rows, and where its method loses to its baseline."""
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
