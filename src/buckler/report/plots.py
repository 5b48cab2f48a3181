"""Publication figures in one colour-blind-safe style."""

from collections.abc import Sequence
from pathlib import Path

from buckler.errors import MissingExtra
from buckler.evaluate.curves import Curve

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, told apart with every common kind of colour blindness."""

DASHES = ("-", "--", "-.", ":")


def accuracy_plot(curves: Sequence[Curve], path: Path, title: str) -> None:
    """Draw certified accuracy against radius, one curve a method, to a file of any format matplotlib writes.

    The shaded band reaches down to the accuracy that holds with probability ``1 - delta`` at all radii at once.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report") from None
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        colour = PALETTE[i % len(PALETTE)]
        axes.plot(curve.radii, curve.accuracy, DASHES[i % len(DASHES)], color=colour, label=curve.name)
        axes.fill_between(curve.radii, curve.low, curve.accuracy, color=colour, alpha=0.15, linewidth=0)
    axes.set(
        xlabel="certified radius r (l2)", ylabel="certified accuracy", title=title, ylim=(0.0, 1.02), xlim=(0.0, None)
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title=f"band: holds with probability {1 - curves[0].delta:g}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
