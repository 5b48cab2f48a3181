"""The paper's questions asked of recorded runs: the lines of its tables and the columns of its figures."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from buckler.evaluate.curves import Curve, margin_accuracy
from buckler.evaluate.paper import ALPHA, Case, Figure, PrintedTable
from buckler.report.plots import Column
from buckler.report.reproduction import ESTIMATE, INVALID, PRINTED, VALID, Line, Reproduced
from buckler.runs.certify import CertifiedClass
from buckler.runs.library import Library
from buckler.runs.limits import Limits, Recorded
from buckler.types import FloatArray, MarginKind

NAMES: dict[Case, dict[str, str]] = {
    "discrete": {
        "bonferroni": "CP + Bonferroni",
        "published": "paper's method as printed",
        "exact": "exact (ours)",
    },
    "continuous": {
        "baseline/sequence": "CS + Bonferroni",
        "baseline/bernstein": "Bernstein + Bonferroni",
        "published/sequence": "paper's method, width as printed",
        "cited/sequence": "paper's method, CS",
        "cited/bernstein": "paper's method, Bernstein",
        "pairwise/star": "pairwise/star (ours)",
    },
}
"""Methods in the order they are shown. In the continuous case the paper's method has the width of the theorem that
it cites, which its tables fit, unless its name says *as printed*."""

IN_TABLES = {
    "discrete": ("bonferroni", "published", "exact"),
    "continuous": ("baseline/sequence", "published/sequence", "cited/sequence", "pairwise/star"),
}
IN_FIGURES = {
    "discrete": IN_TABLES["discrete"],
    "continuous": ("baseline/sequence", "baseline/bernstein", "cited/sequence", "cited/bernstein", "pairwise/star"),
}
DATA = {"cifar10": "CIFAR-10", "imagenet": "ImageNet"}
CLASS = {"label": "A the true label", "selection": "A selected on separate draws"}
AXES = {"n": "numbers of samples", "sigma": "standard deviations", "temperature": "temperatures"}
MARGINS: tuple[MarginKind, MarginKind] = ("probability", "quantile")
POINTS = 300
FARTHEST = 6.0
"""Where a second margin's axis ends at the latest: a printed bound may be infinite."""


def printed_lines(table: PrintedTable) -> list[Line]:
    """Return the paper's own rows."""
    return [
        Line(n, f"paper: {name}", PRINTED, row)
        for n, rows in table.rows.items()
        for name, row in zip((table.baseline, table.own), rows, strict=True)
    ]


def reproduce_table(table: PrintedTable, library: Library, certified_class: CertifiedClass) -> Reproduced | None:
    """Return a table of the paper with our rows below its own, or None where there is no evidence for it."""
    names, lines = NAMES[table.case], []
    found: list[Recorded] = []
    for n in table.rows:
        run = library.find("cifar10", table.sigma, n, table.temperature)
        if run is None:
            continue
        found.append(run)
        if certified_class == "label":
            lines += [line for line in printed_lines(table) if line.n == n]
        for method in IN_TABLES[table.case]:
            made = _limits(run, method, table.margin, n, certified_class, table.temperature)
            standing = VALID if made.sound else INVALID
            lines.append(Line(n, names[method], standing, _accuracy(made, table.margins)))
    if not found:
        return None
    lines += _near_truth(table, library, found[-1], certified_class)
    heat = "" if table.temperature is None else f", temperature {table.temperature:g}"
    which = "first" if table.margin == "probability" else "second"
    inputs = len(found[0].labels)
    caption = (
        f"Table {table.number} of the paper: certified accuracy at the {which} margin, {table.case} case, CIFAR-10, "
        f"sigma {table.sigma:g}{heat}, alpha {ALPHA:g}, {inputs} test images, {CLASS[certified_class]}."
    )
    first, *_, ours = (names[method] for method in IN_TABLES[table.case])
    name = table.name if certified_class == "label" else f"{table.name}_selected"
    return Reproduced(name, caption, table.margins, tuple(lines), first, ours)


def _near_truth(table: PrintedTable, library: Library, run: Recorded, certified_class: CertifiedClass) -> list[Line]:
    """Return the last rows: what very many votes certify, or where only scores count the mean of all that were kept."""
    if table.case == "continuous":
        n = run.evidence.spec.kept_draws
        made = _limits(run, "estimate", table.margin, n, certified_class, table.temperature)
        return [Line(n, "margin of the mean scores", ESTIMATE, _accuracy(made, table.margins))]
    many = library.nearest_truth("cifar10", table.sigma, 100 * max(table.rows))
    if many is None:
        return []
    n = many.evidence.spec.n
    lines = []
    for method, name, standing in (
        ("bonferroni", "CP + Bonferroni, near-truth", VALID),
        ("estimate", "margin of the frequencies", ESTIMATE),
    ):
        made = _limits(many, method, table.margin, n, certified_class, None)
        lines.append(Line(n, name, standing, _accuracy(made, table.margins)))
    return lines


def reproduce_figure(
    figure: Figure, library: Library, certified_class: CertifiedClass
) -> tuple[list[Column], str] | None:
    """Return the columns of a figure of the paper and its title, or None where there is no evidence for it."""
    sigmas = library.sigmas(figure.data)
    if figure.axis != "sigma" and figure.sigma not in sigmas and sigmas:
        figure = replace(figure, sigma=sigmas[-1])
    columns: list[Column] = []
    models: list[str] = []
    for value in figure.columns:
        at = figure.at(value)
        run = None if at.sigma is None or at.n is None else library.find(at.data, at.sigma, at.n, at.temperature)
        if run is not None and at.n is not None:
            curves = [_curves(run, at.case, margin, at.n, certified_class, at.temperature) for margin in MARGINS]
            columns.append((f"{figure.axis} {value:g}", curves[0], curves[1]))
            models.append(run.evidence.spec.model)
    if not columns:
        return None
    fixed = {"n": figure.n, "sigma": figure.sigma, "temperature": figure.temperature}
    held = ", ".join(f"{name} {value:g}" for name, value in fixed.items() if value is not None and name != figure.axis)
    title = f"{DATA[figure.data]}, {figure.case} case, {held}, alpha {ALPHA:g}, {CLASS[certified_class]}"
    if any("efficientnet" in model for model in models):
        title += "\nEfficientNet-Lite0: not trained with noise, and not the ResNet-50 of the paper"
    return columns, title


def figure_caption(figure: Figure, title: str) -> str:
    """Return what stands below a figure on the page: which of the paper's it is, and its title as sentences."""
    return f"Figure {figure.number} of the paper, for different {AXES[figure.axis]}: {'. '.join(title.splitlines())}."


def _curves(
    run: Recorded, case: Case, margin: MarginKind, n: int, certified_class: CertifiedClass, temperature: float | None
) -> list[Curve]:
    made = [_limits(run, method, margin, n, certified_class, temperature) for method in IN_FIGURES[case]]
    grid = np.linspace(0.0, 1.0 if margin == "probability" else _reach(made), POINTS)
    return [
        margin_accuracy(
            limits.low,
            limits.chosen == limits.labels,
            grid,
            alpha=limits.alpha,
            sound=limits.sound,
            name=NAMES[case][limits.method] + ("" if limits.sound else " (not a certificate)"),
        )
        for limits in made
    ]


def _reach(made: Sequence[Limits]) -> float:
    lows: FloatArray = np.concatenate([limits.low for limits in made])
    finite = lows[np.isfinite(lows)]
    return float(min(FARTHEST, max(0.1, 1.05 * finite.max(initial=0.0))))


def _limits(
    run: Recorded,
    method: str,
    margin: MarginKind,
    n: int,
    certified_class: CertifiedClass,
    temperature: float | None,
) -> Limits:
    return run.limits(method, margin=margin, n=n, alpha=ALPHA, certified_class=certified_class, temperature=temperature)


def _accuracy(made: Limits, margins: Sequence[float]) -> tuple[float, ...]:
    right = made.chosen == made.labels
    curve = margin_accuracy(made.low, right, margins, alpha=made.alpha, sound=made.sound, name=made.method)
    return tuple(curve.accuracy.tolist())
