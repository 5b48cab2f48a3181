"""The paper's tables and figures again: its own rows, our runs of its methods, and sound methods beside them.

A figure shows accuracy against both margins, with a column for each value of some setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from buckler.certificate import rounded_down
from buckler.certify.methods import Method
from buckler.evaluate.curves import Curve
from buckler.paper.estimators import ESTIMATES, method_of
from buckler.paper.library import Library, Recorded
from buckler.paper.printed import ALPHA, Case, Figure, PrintedTable
from buckler.report.plots import Column
from buckler.report.tables import TextTable, relative_gain
from buckler.runs.certify import CertifiedClass
from buckler.types import MarginKind

PRINTED = "printed in the paper"
VALID = "valid limit"
INVALID = "not a certificate"
ESTIMATE = "estimate, no guarantee"

METHOD_NAMES = {
    "bonferroni": "CP + Bonferroni",
    "published": "paper's method as printed",
    "exact": "exact (ours)",
    "baseline/sequence": "CS + Bonferroni",
    "baseline/bernstein": "Bernstein + Bonferroni",
    "published/sequence": "paper's method, width as printed",
    "cited/sequence": "paper's method, CS",
    "cited/bernstein": "paper's method, Bernstein",
    "pairwise/star": "pairwise/star (ours)",
}
"""Names of methods in tables and figures. In the continuous case the paper's method has the width of the theorem that
it cites, which its tables fit, unless its name says *as printed*."""

COMPARED_METHODS: dict[Case, tuple[str, ...]] = {
    "discrete": ("bonferroni", "published", "exact"),
    "continuous": ("baseline/sequence", "published/sequence", "cited/sequence", "pairwise/star"),
}
CLASS = {"label": "A the true label", "selection": "A selected on separate draws"}

DRAWN: dict[Case, tuple[str, ...]] = {
    "discrete": COMPARED_METHODS["discrete"],
    "continuous": ("baseline/sequence", "baseline/bernstein", "cited/sequence", "cited/bernstein", "pairwise/star"),
}
DATA = {"cifar10": "CIFAR-10", "imagenet": "ImageNet"}
AXIS_NAMES = {"n": "numbers of samples", "sigma": "standard deviations", "temperature": "temperatures"}
LITE = "EfficientNet-Lite0: not trained with noise, and not the ResNet-50 of the paper"
OTHER_NETWORKS = {"examples.efficientnet_lite0:make": LITE}
"""Classifier in a manifest -> the sentence that a figure's title adds for its runs."""

POINTS = 300
LONGEST_AXIS = 6.0
"""Where a second margin's axis ends at the latest: a printed bound may be infinite."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table: a method at n draws, its name, what its numbers are, and an accuracy for each margin."""

    n: int
    method: str
    name: str
    standing: str
    accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A table as it is shown; gains are those of the method ``ours`` over the method ``baseline``.

    ``printed`` is the table of the paper, if it is one, and ``selected`` says that the class was not the true label.
    """

    name: str
    caption: str
    margins: tuple[float, ...]
    lines: tuple[Line, ...]
    baseline: str
    ours: str
    printed: PrintedTable | None = None
    selected: bool = False

    def line(self, n: int, method: str) -> Line:
        """Return our run of a method at n draws."""
        return next(line for line in self.lines if (line.n, line.method) == (n, method) and line.standing != PRINTED)

    def gains(self) -> list[tuple[Line, Line]]:
        """Return pairs of our runs: a line of the method ``ours``, and the baseline's line at as many draws."""
        return [(line, self.line(line.n, self.baseline)) for line in self.lines if line.method == self.ours]


def reproduce_table(table: PrintedTable, library: Library, certified_class: CertifiedClass) -> Reproduced | None:
    """Return a table of the paper with our rows below its own, or None where there is no evidence for it."""
    methods, lines = COMPARED_METHODS[table.case], []
    found: list[Recorded] = []

    def add(run: Recorded, method: Method, n: int, name: str, standing: str | None = None) -> None:
        limits = run.limits(method, ALPHA, table.margin, n, certified_class, table.temperature)
        what = standing or (VALID if limits.sound else INVALID)
        lines.append(Line(n, method.name, name, what, tuple(limits.curve(table.margins).accuracy.tolist())))

    for n, rows in table.rows.items():
        run = library.find("cifar10", table.sigma, n, table.temperature)
        if run is None:
            continue
        found.append(run)
        if certified_class == "label":
            for (method, name), row in zip(table.names.items(), rows, strict=True):
                lines.append(Line(n, method, f"paper: {name}", PRINTED, row))
        for method in methods:
            add(run, method_of(method), n, METHOD_NAMES[method])
    if not found:
        return None
    many = library.nearest_truth("cifar10", table.sigma, 100 * max(table.rows))
    if table.case == "continuous":  # only scores count, and there are no more than were kept
        kept = found[-1].evidence.spec.kept_draws
        add(found[-1], ESTIMATES["scores"], kept, "margin of the mean scores", ESTIMATE)
    elif many is not None:
        n = many.evidence.spec.n
        add(many, method_of("bonferroni"), n, "CP + Bonferroni, near-truth")
        add(many, ESTIMATES["votes"], n, "margin of the frequencies", ESTIMATE)
    temperature = "" if table.temperature is None else f", temperature {table.temperature:g}"
    which = "first" if table.margin == "probability" else "second"
    caption = (
        f"Table {table.number} of the paper: certified accuracy at the {which} margin, {table.case} case, CIFAR-10, "
        f"sigma {table.sigma:g}{temperature}, alpha {ALPHA:g}, {found[0].evidence.inputs} test images, "
        f"{CLASS[certified_class]}."
    )
    selected = certified_class == "selection"
    name = f"{table.name}_selected" if selected else table.name
    return Reproduced(name, caption, table.margins, tuple(lines), methods[0], methods[-1], table, selected)


def text_table(table: Reproduced) -> TextTable:
    """Return the table as text; accuracies are rounded down."""
    header = ("n", "row", "standing", *(f"{margin:g}" for margin in table.margins))
    bases = dict(table.gains())
    rows: list[tuple[str, ...]] = []
    for line in table.lines:
        rows.append((str(line.n), line.name, line.standing, *map(rounded_down, line.accuracy)))
        if (base := bases.get(line)) is not None:
            gains = map(relative_gain, base.accuracy, line.accuracy)
            rows.append((str(line.n), f"gain over {base.name}", "", *gains))
    return TextTable(header, tuple(rows), table.caption, names=3)


def summary_table(tables: Mapping[str, Reproduced], n: int, methods: Sequence[str], caption: str) -> TextTable:
    """Return the lines of several tables at n draws in one, tables by what their lines are about.

    Only the ``methods`` named; those of one table that show the same numbers share a line.
    """
    margins = next(iter(tables.values())).margins
    shown: list[tuple[str, ...]] = []
    for name, table in tables.items():
        lines = {line.method: line for line in table.lines if line.n == n}
        alike: dict[tuple[str, ...], list[str]] = {}
        for line in (lines[method] for method in methods if method in lines):
            alike.setdefault((line.standing, *map(rounded_down, line.accuracy)), []).append(line.name)
        shown += [(name, ", ".join(names), *cells) for cells, names in alike.items()]
    return TextTable(("network", "row", "standing", *(f"{m:g}" for m in margins)), tuple(shown), caption, names=3)


def reproduce_figure(
    figure: Figure, library: Library, certified_class: CertifiedClass
) -> tuple[list[Column], str] | None:
    """Return the columns of a figure of the paper and its title, or None where there is no evidence for it."""
    sigmas = library.sigmas(figure.data)
    if figure.axis != "sigma" and figure.sigma not in sigmas and sigmas:
        figure = replace(figure, sigma=sigmas[-1])
    columns: list[Column] = []
    notes: dict[str, None] = {}
    for value in figure.columns:
        at = figure.at(value)
        run = None if at.sigma is None or at.n is None else library.find(at.data, at.sigma, at.n, at.temperature)
        if run is not None:
            first, second = (_curves(run, at, margin, certified_class) for margin in get_args(MarginKind))
            columns.append((f"{figure.axis} {value:g}", first, second))
            notes |= {OTHER_NETWORKS[name]: None for name in [run.evidence.spec.model] if name in OTHER_NETWORKS}
    if not columns:
        return None
    fixed = {"n": figure.n, "sigma": figure.sigma, "temperature": figure.temperature}
    held = ", ".join(f"{name} {value:g}" for name, value in fixed.items() if value is not None and name != figure.axis)
    title = f"{DATA[figure.data]}, {figure.case} case, {held}, alpha {ALPHA:g}, {CLASS[certified_class]}"
    return columns, "\n".join([title, *notes])


def figure_caption(figure: Figure, title: str) -> str:
    """Return what stands below a figure on the page: which of the paper's it is, and its title as sentences."""
    about = ". ".join(title.splitlines())
    return f"Figure {figure.number} of the paper, for different {AXIS_NAMES[figure.axis]}: {about}."


def _curves(run: Recorded, at: Figure, margin: MarginKind, certified_class: CertifiedClass) -> Sequence[Curve]:
    made = {
        method: run.limits(method_of(method), ALPHA, margin, at.n, certified_class, at.temperature)
        for method in DRAWN[at.case]
    }
    lows = np.concatenate([limits.low for limits in made.values()])
    farthest = min(LONGEST_AXIS, max(0.1, 1.05 * lows[np.isfinite(lows)].max(initial=0.0)))
    grid = np.linspace(0.0, 1.0 if margin == "probability" else float(farthest), POINTS)
    return [
        limits.curve(grid, METHOD_NAMES[method] + ("" if limits.sound else " (not a certificate)"))
        for method, limits in made.items()
    ]
