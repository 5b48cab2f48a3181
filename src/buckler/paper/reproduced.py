"""The paper's tables and figures again: its own rows, our runs of its methods, and sound methods beside them.

A figure shows accuracy against both margins, with a column for each value of some setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from buckler.certificate import rounded_down
from buckler.certify.methods import Method
from buckler.evaluate.curves import Curve
from buckler.paper.estimators import ESTIMATES, method_of
from buckler.paper.library import Library, recorded_limits
from buckler.paper.printed import ALPHA, Case, Figure, PrintedTable
from buckler.report.plots import Column
from buckler.report.text import TextTable, relative_gain
from buckler.runs.store.evidence import Evidence
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
"""Names of methods in tables and figures. With scores, the continuous case, the paper's method has the width of the
theorem that it cites, which its tables fit, unless its name says *as printed*."""

COMPARED_METHODS: dict[Case, tuple[str, ...]] = {
    "discrete": ("bonferroni", "published", "exact"),
    "continuous": ("baseline/sequence", "published/sequence", "cited/sequence", "pairwise/star"),
}

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
"""Largest end of a quantile margin's axis: a bound of the paper may be infinite."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a reproduced table: a method at n draws, and its certified accuracy at each of the table's margins.

    ``name`` is shown, and ``standing`` says what the numbers are: printed in the paper, a valid limit, no certificate,
    or an estimate.
    """

    n: int
    method: str
    name: str
    standing: str
    accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A table of the paper as printed, and the lines that are shown: its own rows and those from recorded runs."""

    printed: PrintedTable
    caption: str
    lines: tuple[Line, ...]

    def line(self, n: int, method: str) -> Line:
        """Return the line of a method at n draws that comes from recorded runs, not from the paper."""
        return next(line for line in self.lines if (line.n, line.method) == (n, method) and line.standing != PRINTED)

    def gains(self) -> list[tuple[Line, Line]]:
        """Return, for each number of draws, the lines of our own method and of the paper's valid baseline, both run."""
        baseline, *_, ours = COMPARED_METHODS[self.printed.case]
        return [(line, self.line(line.n, baseline)) for line in self.lines if line.method == ours]


def reproduce_table(table: PrintedTable, library: Library) -> Reproduced | None:
    """Return a table of the paper with rows from recorded runs below its own, or None where no run fits it."""
    lines: list[Line] = []
    found: list[Evidence] = []

    def add(run: Evidence, n: int, asked: list[tuple[Method, str, str | None]]) -> None:
        found_limits = recorded_limits(run, [method for method, _, _ in asked], table.margin, n, table.temperature)
        for (method, name, standing), limits in zip(asked, found_limits, strict=True):
            accuracy = tuple(limits.curve(table.margins).accuracy.tolist())
            lines.append(Line(n, method.name, name, standing or (VALID if limits.sound else INVALID), accuracy))

    for n, rows in table.rows.items():
        run = library.find("cifar10", table.sigma, n, table.temperature)
        if run is None:
            continue
        found.append(run)
        for (method, name), row in zip(table.names.items(), rows, strict=True):
            lines.append(Line(n, method, f"paper: {name}", PRINTED, row))
        add(run, n, [(method_of(method), METHOD_NAMES[method], None) for method in COMPARED_METHODS[table.case]])
    if not found:
        return None
    many = library.nearest_truth("cifar10", table.sigma, 100 * max(table.rows))
    if table.case == "continuous":  # only scores count, and there are no more than were kept
        add(found[-1], found[-1].spec.kept_draws, [(ESTIMATES["scores"], "margin of the mean scores", ESTIMATE)])
    elif many is not None:
        baseline = method_of("bonferroni"), "CP + Bonferroni, near-truth", None
        add(many, many.spec.n, [baseline, (ESTIMATES["votes"], "margin of the frequencies", ESTIMATE)])
    temperature = "" if table.temperature is None else f", temperature {table.temperature:g}"
    which = "first" if table.margin == "probability" else "second"
    caption = (
        f"Table {table.number} of the paper: certified accuracy at the {which} margin, {table.case} case, CIFAR-10, "
        f"sigma {table.sigma:g}{temperature}, alpha {ALPHA:g}, {found[0].inputs} test images, A the true label."
    )
    return Reproduced(table, caption, tuple(lines))


def text_table(table: Reproduced) -> TextTable:
    """Return a reproduced table as text, gains over the baseline added; accuracies are rounded down."""
    header = ("n", "row", "standing", *(f"{margin:g}" for margin in table.printed.margins))
    bases = dict(table.gains())
    rows: list[tuple[str, ...]] = []
    for line in table.lines:
        rows.append((str(line.n), line.name, line.standing, *map(rounded_down, line.accuracy)))
        if (base := bases.get(line)) is not None:
            gains = map(relative_gain, base.accuracy, line.accuracy)
            rows.append((str(line.n), f"gain over {base.name}", "", *gains))
    return TextTable(header, tuple(rows), table.caption, names=3)


def reproduce_figure(figure: Figure, library: Library) -> tuple[list[Column], str] | None:
    """Return the columns of a figure of the paper, drawn from recorded runs, and its title; None where no run fits."""
    sigmas = library.sigmas(figure.data)
    if figure.axis != "sigma" and figure.sigma not in sigmas and sigmas:
        figure = replace(figure, sigma=sigmas[-1])
    columns: list[Column] = []
    notes: dict[str, None] = {}
    for value in figure.columns:
        at = figure.at(value)
        if at.sigma is None or at.n is None:
            continue
        if (run := library.find(at.data, at.sigma, at.n, at.temperature)) is not None:
            first, second = (_curves(run, at.case, at.n, at.temperature, margin) for margin in get_args(MarginKind))
            columns.append((f"{figure.axis} {value:g}", first, second))
            notes |= {OTHER_NETWORKS[name]: None for name in [run.spec.model] if name in OTHER_NETWORKS}
    if not columns:
        return None
    fixed = {"n": figure.n, "sigma": figure.sigma, "temperature": figure.temperature}
    held = ", ".join(f"{name} {value:g}" for name, value in fixed.items() if value is not None and name != figure.axis)
    title = f"{DATA[figure.data]}, {figure.case} case, {held}, alpha {ALPHA:g}, A the true label"
    return columns, "\n".join([title, *notes])


def figure_caption(figure: Figure, title: str) -> str:
    """Return the caption of a figure on the page: its number in the paper, what differs, and its title as sentences."""
    about = ". ".join(title.splitlines())
    return f"Figure {figure.number} of the paper, for different {AXIS_NAMES[figure.axis]}: {about}."


def _curves(run: Evidence, case: Case, n: int, temperature: float | None, margin: MarginKind) -> Sequence[Curve]:
    methods = [method_of(name) for name in DRAWN[case]]
    made = recorded_limits(run, methods, margin, n, temperature)
    lows = np.concatenate([limits.low for limits in made])
    farthest = min(LONGEST_AXIS, max(0.1, 1.05 * lows[np.isfinite(lows)].max(initial=0.0)))
    grid = np.linspace(0.0, 1.0 if margin == "probability" else float(farthest), POINTS)
    return [
        limits.curve(grid, METHOD_NAMES[method.name] + ("" if limits.sound else " (not a certificate)"))
        for method, limits in zip(methods, made, strict=True)
    ]
