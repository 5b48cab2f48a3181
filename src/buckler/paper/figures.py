"""The paper's figures again: accuracy against both margins, a column for each value of some setting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from buckler.certify.methods import find
from buckler.evaluate.curves import Curve
from buckler.paper.library import Library
from buckler.paper.limits import Recorded
from buckler.paper.printed import ALPHA, Case, Figure
from buckler.paper.tables import CLASS, COMPARED, NAMES
from buckler.report.plots import Column
from buckler.runs.certify import CertifiedClass
from buckler.types import MarginKind

DRAWN: dict[Case, tuple[str, ...]] = {
    "discrete": COMPARED["discrete"],
    "continuous": ("baseline/sequence", "baseline/bernstein", "cited/sequence", "cited/bernstein", "pairwise/star"),
}
DATA = {"cifar10": "CIFAR-10", "imagenet": "ImageNet"}
AXES = {"n": "numbers of samples", "sigma": "standard deviations", "temperature": "temperatures"}
LITE = "EfficientNet-Lite0: not trained with noise, and not the ResNet-50 of the paper"
OTHER_NETWORKS = {"examples.efficientnet_lite0:make": LITE}
"""What a title says about the runs of a classifier, called as it is in their manifests."""

POINTS = 300
FARTHEST = 6.0
"""Where a second margin's axis ends at the latest: a printed bound may be infinite."""


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
    return f"Figure {figure.number} of the paper, for different {AXES[figure.axis]}: {'. '.join(title.splitlines())}."


def _curves(run: Recorded, at: Figure, margin: MarginKind, certified_class: CertifiedClass) -> Sequence[Curve]:
    made = {
        method: run.limits(find(method), ALPHA, margin, at.n, certified_class, at.temperature)
        for method in DRAWN[at.case]
    }
    lows = np.concatenate([limits.low for limits in made.values()])
    farthest = min(FARTHEST, max(0.1, 1.05 * lows[np.isfinite(lows)].max(initial=0.0)))
    grid = np.linspace(0.0, 1.0 if margin == "probability" else float(farthest), POINTS)
    return [
        limits.curve(grid, NAMES[method] + ("" if limits.sound else " (not a certificate)"))
        for method, limits in made.items()
    ]
