"""What the page of ``buckler reproduce`` says in words: differences, gains, and the artefact, read off the tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.cli.peers import peer_summary
from buckler.cli.reproduction import NAMES
from buckler.evaluate.paper import ALPHA, TABLES
from buckler.report.reproduction import ESTIMATE, INVALID, PRINTED, VALID, Line, Reproduced, same_cells
from buckler.report.tables import to_markdown
from buckler.rounding import rounded_down
from buckler.runs.library import Library

BEYOND = (3.5, 4.0, 4.5)
"""Margins of Table 1 that no valid bound reaches with n = 100 draws."""

SELECTED = "_selected"
"""What the name of a table of the selected class ends in."""

TWINS = {
    "discrete": {"CP + Bonferroni": "CP + Bonferroni", "Ours": "paper's method as printed"},
    "continuous": {"CS + Bonferroni": "CS + Bonferroni", "CS + Ours": "paper's method, CS"},
}
"""Which of our runs repeats a row of the paper."""


def page_facts(library: Library, made: Sequence[Reproduced], peers: Sequence[Reproduced]) -> dict[str, Any]:
    """Return everything that the prose of the page refers to."""
    by_name = {table.name: table for table in made}
    own = [by_name[name] for name in TABLES if name in by_name]
    repeated = [table.name for table in own if _is_repeated(table, by_name)]
    twice = {f"{name}{SELECTED}" for name in repeated}
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
        "repeated": repeated,
        "artefact": _artefact(by_name["table1"]) if "table1" in by_name else None,
        "agreement": _agreement(own),
        "differences": [row for table in own for row in _differences(table)],
        "gains": [row for table in made if table.name not in twice for row in _gains(table)],
        "peers": {"table": summary and to_markdown(summary), "others": others,
                  "cohen": any(table.name.startswith("cohen2019") for table in peers)},
        "imagenet": any(name.startswith("imagenet-") for name in library.runs),
    }  # fmt: skip


def _artefact(table: Reproduced) -> dict[str, str]:
    names = NAMES["discrete"]
    at = {margin: k for k, margin in enumerate(table.margins)}
    exact, published = (_line(table, 100, names[method]).accuracy for method in ("exact", "published"))
    above = [
        f"{margin:g}: {rounded_down(p)} against {rounded_down(e)}"
        for margin, p, e in zip(table.margins, published, exact, strict=True)
        if p > e and margin not in BEYOND
    ]
    largest = float(margin_lower(100, 0, 100, alpha=ALPHA, method="top_class"))
    printed = float(margin_lower(100, 0, 100, alpha=ALPHA, method="published"))
    return {
        "printed": rounded_down(printed),
        "largest": rounded_down(largest, 4),
        "above": "; ".join(above),
        "exact_at_3": rounded_down(exact[at[3.0]]),
        "published_beyond": ", ".join(rounded_down(published[at[m]]) for m in BEYOND),
        "exact_beyond": ", ".join(rounded_down(exact[at[m]]) for m in BEYOND),
    }


def _is_repeated(table: Reproduced, by_name: dict[str, Reproduced]) -> bool:
    """Whether the table of the selected class shows nothing else."""
    other = by_name.get(f"{table.name}{SELECTED}")
    return other is not None and same_cells(table, other)


def _twins(table: Reproduced) -> list[tuple[Line, Line]]:
    """Return the paper's rows, each with our run of it."""
    twin = TWINS[TABLES[table.name].case]
    printed = [line for line in table.lines if line.standing == PRINTED]
    return [(line, _line(table, line.n, twin[line.name.removeprefix("paper: ")])) for line in printed]


def _agreement(tables: Sequence[Reproduced]) -> dict[str, Any] | None:
    """Return how near our runs come to the paper's rows, and where its method loses to its baseline."""
    pairs = [pair for table in tables for pair in _twins(table)]
    if not pairs:
        return None
    gaps = np.array([np.subtract(ours.accuracy, line.accuracy) for line, ours in pairs])
    zeros = [np.array_equal(np.equal(line.accuracy, 0.0), np.equal(ours.accuracy, 0.0)) for line, ours in pairs]
    below = {}
    for table in tables:
        rows = _twins(table)
        lost = [np.subtract(b.accuracy, a.accuracy) for (_, a), (_, b) in zip(rows[::2], rows[1::2], strict=True)]
        below[str(TABLES[table.name].number)] = f"{int((np.array(lost) < 0.0).sum())} of {np.size(lost)}"
    return {
        "rows": len(pairs), "mean": f"{np.abs(gaps).mean():.3f}", "largest": f"{np.abs(gaps).max():.3f}",
        "zeros": sum(zeros), "below": below,
    }  # fmt: skip


def _differences(table: Reproduced) -> list[dict[str, str]]:
    printed = TABLES[table.name]
    rows = []
    for line, ours in _twins(table):
        name = line.name.removeprefix("paper: ")
        gap = np.array(ours.accuracy) - np.array(line.accuracy)
        rows.append(
            {
                "table": str(printed.number), "n": str(line.n), "printed": name, "ours": ours.name,
                "mean": f"{gap.mean():+.3f}", "largest": f"{gap[np.abs(gap).argmax()]:+.3f}",
            }
        )  # fmt: skip
    return rows


def _gains(table: Reproduced) -> list[dict[str, str]]:
    rows = []
    for line in table.lines:
        if line.name == table.ours:
            base = _line(table, line.n, table.baseline)
            gap = np.array(line.accuracy) - np.array(base.accuracy)
            best = int(gap.argmax())
            rows.append(
                {
                    "table": _title(table), "n": str(line.n), "ours": line.name, "baseline": base.name,
                    "median": f"{np.median(gap):+.3f}", "mean": f"{gap.mean():+.3f}",
                    "largest": f"{gap[best]:+.3f}", "at": f"{table.margins[best]:g}",
                }
            )  # fmt: skip
    return rows


def _title(table: Reproduced) -> str:
    number = TABLES[table.name.removesuffix(SELECTED)].number
    return f"{number}, selected class" if table.name.endswith(SELECTED) else str(number)


def _line(table: Reproduced, n: int, name: str) -> Line:
    return next(line for line in table.lines if line.n == n and line.name == name)
