"""What the page of ``buckler reproduce`` says in words: differences, gains, and the artefact, read off the tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.cli.reproduction import NAMES
from buckler.evaluate.paper import ALPHA, TABLES
from buckler.report.reproduction import ESTIMATE, INVALID, PRINTED, VALID, Line, Reproduced
from buckler.report.tables import rounded_down
from buckler.runs.library import Library

BEYOND = (3.5, 4.0, 4.5)
"""Margins of Table 1 that no valid bound reaches with n = 100 draws."""

TWINS = {
    "discrete": {"CP + Bonferroni": "CP + Bonferroni", "Ours": "its method as printed"},
    "continuous": {"CS + Bonferroni": "CS + Bonferroni", "CS + Ours": "its method, CS"},
}
"""Which of our runs repeats a row of the paper."""


def page_facts(library: Library, made: Sequence[Reproduced], peers: Sequence[Reproduced]) -> dict[str, Any]:
    """Return everything that the prose of the page refers to."""
    by_name = {table.name: table for table in made}
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
        "artefact": _artefact(by_name["table1"]) if "table1" in by_name else None,
        "differences": [row for name in TABLES if name in by_name for row in _differences(by_name[name])],
        "gains": [row for table in made for row in _gains(table)],
        "peers": [table.name for table in peers],
        "imagenet": any(name.startswith("imagenet-") for name in library.runs),
    }  # fmt: skip


def _artefact(table: Reproduced) -> dict[str, str]:
    names = NAMES["discrete"]
    at = {margin: k for k, margin in enumerate(table.margins)}
    exact, published = (_line(table, 100, names[method]).accuracy for method in ("exact", "published"))
    largest = float(margin_lower(100, 0, 100, alpha=ALPHA, method="top_class"))
    printed = float(margin_lower(100, 0, 100, alpha=ALPHA, method="published"))
    return {
        "printed": rounded_down(printed),
        "largest": rounded_down(largest),
        "exact_at_3": rounded_down(exact[at[3.0]]),
        "published_beyond": ", ".join(rounded_down(published[at[m]]) for m in BEYOND),
        "exact_beyond": ", ".join(rounded_down(exact[at[m]]) for m in BEYOND),
    }


def _differences(table: Reproduced) -> list[dict[str, str]]:
    printed = TABLES[table.name]
    rows = []
    for line in table.lines:
        if line.standing != PRINTED:
            continue
        name = line.name.removeprefix("paper: ")
        ours = _line(table, line.n, TWINS[printed.case][name])
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
                    "table": table.name, "n": str(line.n), "ours": line.name, "baseline": base.name,
                    "mean": f"{gap.mean():+.3f}", "largest": f"{gap[best]:+.3f}", "at": f"{table.margins[best]:g}",
                }
            )  # fmt: skip
    return rows


def _line(table: Reproduced, n: int, name: str) -> Line:
    return next(line for line in table.lines if line.n == n and line.name == name)
