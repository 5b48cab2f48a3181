"""Figures for publications (PNG, PDF, SVG) in one style for all eyes; the same curves always give the same bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput, MissingExtra, show
from buckler.evaluate.curves import Curve
from buckler.evaluate.refutations import BracketCurve
from buckler.files import atomic_write

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Colours of Okabe and Ito, which people with any common colour blindness can tell apart."""

LINE_STYLES = ("-", "--", "-.", ":")
FIGURE_FORMATS = ("png", "pdf", "svg")
STYLE: Any = {
    "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "axes.titlesize": 10, "font.size": 9,
    "grid.alpha": 0.3, "grid.linewidth": 0.6, "legend.fontsize": 8, "legend.frameon": False, "legend.title_fontsize": 8,
    "lines.linewidth": 1.6, "pdf.fonttype": 42, "savefig.dpi": 160, "svg.fonttype": "none", "svg.hashsalt": "buckler",
}  # fmt: skip
"""Settings of matplotlib; text stays text in PDF and SVG, so that it can be searched, read aloud and edited."""

Column = tuple[str, Sequence[Curve], Sequence[Curve]]


def check_figure(path: Path) -> str:
    """Return the format of a figure by the ending of its name, png, pdf or svg; InvalidInput for another."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FIGURE_FORMATS:
        raise InvalidInput(f"a figure must be a file ending in {', '.join(FIGURE_FORMATS)}; got {path.name!r}")
    return kind


def accuracy_plot(curves: Sequence[Curve], path: Path, title: str, *, ylabel: str = "certified accuracy") -> None:
    """Write the figure of ``accuracy_figure`` to the file ``path``, which ends in .png, .pdf or .svg."""
    check_figure(path)
    _save(accuracy_figure(curves, title, ylabel=ylabel), [path])


def bracket_plot(curve: BracketCurve, path: Path, title: str) -> None:
    """Write a figure of accuracy against l2 distance to the file ``path``, which ends in .png, .pdf or .svg.

    It has the certified curve, which is a lower limit, the refuted one, an upper limit, and the unknown between them.
    """
    check_figure(path)
    with _styled(1) as (figure, grid):
        axes, r = grid[0][0], curve.radii
        axes.fill_between(r, curve.known, curve.refuted, step="post", color="0.5", alpha=0.2, label="unknown")
        axes.plot(r, curve.refuted, "--", color=PALETTE[1], label="at most: not refuted", drawstyle="steps-post")
        axes.plot(r, curve.certified, "-", color=PALETTE[0], label="at least: certified", drawstyle="steps-pre")
        axes.set(xlabel="distance r (l2)", ylabel="accuracy", title=title, ylim=(0.0, 1.02), xlim=(0.0, float(r[-1])))
        axes.legend()
    _save(figure, [path])


def accuracy_figure(
    curves: Sequence[Curve], title: str = "", *, ylabel: str = "certified accuracy", ax: Any = None
) -> Any:
    """Return a matplotlib figure of certified accuracy against radius, which a notebook shows by itself.

    The shaded band reaches down to the accuracy that holds with probability ``1 - delta`` at all radii at once. With
    ``ax``, axes of matplotlib, the curves are added to what these show, in the looks that come next there.
    """
    if ax is not None and not hasattr(ax, "get_lines"):
        raise InvalidInput(f"ax must be axes of matplotlib, one of plt.subplots(); got {show(ax)}")
    place: Any = _styled(1) if ax is None else nullcontext((ax.figure, [[ax]]))
    with place as (figure, grid):
        axes = grid[0][0]
        taken = len(axes.get_lines())
        _draw(axes, curves, {curve.name: _look(taken + i) for i, curve in enumerate(curves)})
        axes.set(xlabel=radius_axis(curves), ylabel=ylabel, **({"title": title} if title else {}))
        axes.legend(title=_band(curves))
    if ax is None:
        figure._repr_png_ = lambda: _png(figure)
    return figure


def _png(figure: Any) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def radius_axis(curves: Sequence[Curve]) -> str:
    """Return the title of an axis of radii, with their norm; InvalidInput if the curves have two norms."""
    norms = sorted({curve.norm for curve in curves if curve.norm is not None})
    if len(norms) > 1:
        raise InvalidInput(f"curves must measure radii in one norm to share an axis; got {' and '.join(norms)}")
    return f"certified radius r ({norms[0]})" if norms else "certified radius r"


def margin_grid(columns: Sequence[Column], paths: Sequence[Path], title: str) -> None:
    """Write certified accuracy against the margin as the paper arranges it: first margin above, second below.

    A column is a value of some setting: its name, its curves of the first margin and those of the second. A curve's
    name has the same look everywhere. The same figure goes to all of ``paths``.
    """
    if not columns or not all(first and second for _, first, second in columns):
        raise InvalidInput("columns must be one or more, each with a curve of the first margin and one of the second")
    everything = [curve for _, first, second in columns for curve in (*first, *second)]
    looks = _looks(everything)
    with _styled(len(columns), rows=2) as (figure, axes):
        for k, (name, *pair) in enumerate(columns):
            for place, curves, which in zip(axes[:, k], pair, ("first", "second"), strict=True):
                _draw(place, curves, looks)
                place.set(xlabel=f"{which} margin")
                place.set_xlim(0.0, float(max(curve.radii[-1] for curve in curves)))
            axes[0, k].set_title(name)
        for row in axes:
            row[0].set_ylabel("certified accuracy")
        handles = {line.get_label(): line for place in axes.flat for line in place.get_lines()}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, title=_band(everything))
        figure.suptitle(title, fontsize=10)
    _save(figure, paths)


def one_below_another(figures: Sequence[Path], path: Path) -> None:
    """Write one PNG, ``path``, with the PNG files ``figures`` below one another, centred, in 64 colours."""
    from PIL import Image

    images = [Image.open(figure).convert("RGB") for figure in figures]
    sheet = Image.new("RGB", (max(one.width for one in images), sum(one.height for one in images)), "white")
    top = 0
    for one in images:
        sheet.paste(one, ((sheet.width - one.width) // 2, top))
        top += one.height
    with atomic_write(path) as temporary:
        sheet.quantize(64).save(temporary, format="png", optimize=True)


def _looks(curves: Sequence[Curve]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys(curve.name for curve in curves)
    return {name: _look(i) for i, name in enumerate(names)}


def _look(place: int) -> tuple[str, str]:
    # Seven colours against four dashes: neighbours differ in both, and no look comes back within 28 curves.
    return PALETTE[place % len(PALETTE)], LINE_STYLES[place % len(LINE_STYLES)]


def _draw(axes: Any, curves: Sequence[Curve], looks: dict[str, tuple[str, str]]) -> None:
    for curve in curves:
        colour, dash = looks[curve.name]
        # Steps, each at the accuracy of its right end: a slope between two radii would show more than is certified.
        # The first one begins at radius 0: what is certified to a radius is certified to all below it.
        radii = [0.0, *curve.radii]
        low, accuracy = [curve.low[0], *curve.low], [curve.accuracy[0], *curve.accuracy]
        axes.plot(radii, accuracy, dash, color=colour, label=curve.name, drawstyle="steps-pre")
        axes.fill_between(radii, low, accuracy, step="pre", color=colour, alpha=0.15, linewidth=0)
    axes.set(ylim=(0.0, 1.02), xlim=(0.0, None))


def _band(curves: Sequence[Curve]) -> str:
    return f"band: holds with probability {1 - curves[0].delta:g}"


@contextmanager
def _styled(panels: int, rows: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes ``[row, panel]`` in the house style."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report") from None
    with rc_context(STYLE):
        width = 6.4 if panels == 1 else max(6.4, 2.9 * panels)
        height = 4.0 if panels == rows == 1 else 3.2 * rows
        figure = Figure(figsize=(width, height), dpi=STYLE["savefig.dpi"], layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, panels, sharey=True, squeeze=False)


def _save(figure: Any, paths: Sequence[Path]) -> None:
    """Write one drawing to all files, in the format that each ending names."""
    from matplotlib import rc_context

    # Without a date, equal figures are equal files.
    dateless: dict[str, Any] = {"png": {"Software": "buckler"}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with rc_context(STYLE):
        # The layout is computed once for all formats: it takes longer than drawing, and saving would do it again.
        figure.get_layout_engine().execute(figure)
        figure.set_layout_engine(None)
        for path in paths:
            kind = check_figure(path)
            with atomic_write(path) as temporary:
                figure.savefig(temporary, format=kind, metadata=dateless[kind])
