"""The two pictures of the page as Vega-Lite specifications, without their data, and the runtime that draws them.

Text and axes take the colour of the page (``currentColor``), so one specification serves light and dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from buckler.errors import MissingExtra
from buckler.report.plots import PALETTE

COLOURS = (*PALETTE[:-1], "currentColor")
"""The palette of the figures, its black replaced by the colour of the text, which is seen in the dark too."""

DASHES = ((), (7, 3), (7, 3, 2, 3), (2, 3))


@dataclass(frozen=True, slots=True)
class Look:
    """How a curve is drawn."""

    colour: str
    dash: tuple[int, ...]


def looks(runs: Sequence[int]) -> list[Look]:
    """Return a look for each series, given the run of each: colour tells runs apart, or methods where there is one.

    >>> [look.colour for look in looks([0, 0, 1])]
    ['#0072B2', '#0072B2', '#D55E00']
    """
    single = len(set(runs)) == 1
    found = []
    for i, run in enumerate(runs):
        place = list(runs[:i]).count(run)
        # Neighbours differ in dashes too: colour alone tells nothing to some.
        colour, dash = (place, place) if single else (run, run + place)
        found.append(Look(COLOURS[colour % len(COLOURS)], DASHES[dash % len(DASHES)]))
    return found


def accuracy_chart(series: Sequence[Look], value: str, axis: str, top: float) -> dict[str, Any]:
    """Return the chart of curves against radius; rows ``(series, radius, place, accuracy, low)`` come as ``curves``.

    Between two radii of the grid the step shows the value at the larger one: never more than is certified.
    """
    alt = _altair()
    keys = [f"s{i}" for i in range(len(series))]
    shown = alt.param(name="shown", value=keys)
    cursor = alt.param(name="cursor", value=0)
    colour = alt.Color("series:N", legend=None, scale=alt.Scale(domain=keys, range=[look.colour for look in series]))
    dash = alt.StrokeDash(
        "series:N", legend=None, scale=alt.Scale(domain=keys, range=[list(look.dash) or [1, 0] for look in series])
    )
    x = alt.X("radius:Q", title=axis, scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=8))
    y = alt.Y("accuracy:Q", title=value, scale=alt.Scale(domain=[0, 1]))
    curves = alt.Chart(alt.NamedData("curves")).transform_filter("indexof(shown, datum.series) >= 0")
    here = curves.transform_filter("datum.place == cursor")
    band = curves.mark_area(interpolate="step-before", opacity=0.3).encode(x=x, y=y, y2="low:Q", color=colour)
    line = curves.mark_line(interpolate="step-before", strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash)
    rule = here.mark_rule(color="currentColor", opacity=0.5).encode(x=x)
    point = here.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour)
    return _finished(alt.layer(band, line, rule, point).add_params(shown, cursor), 320)


def bracket_chart(value: str, axis: str, top: float) -> dict[str, Any]:
    """Return the chart of both sides; rows ``(radius, certified, refuted, known)`` come as ``bracket``.

    Between two radii of the grid either line shows the value that is certain there: never more than is known.
    """
    alt = _altair()
    rows = alt.Chart(alt.NamedData("bracket"))
    x = alt.X("radius:Q", title=axis, scale=alt.Scale(domain=[0, top], nice=False))
    low = alt.Y("certified:Q", title=value, scale=alt.Scale(domain=[0, 1]))
    high = alt.Y("refuted:Q", scale=alt.Scale(domain=[0, 1]))
    strip = rows.mark_area(interpolate="step-after", opacity=0.15, color="currentColor")
    below = rows.mark_line(interpolate="step-before", strokeWidth=2, color=COLOURS[0])
    above = rows.mark_line(interpolate="step-after", strokeWidth=2, strokeDash=[7, 3], color=COLOURS[1])
    edge = alt.Y("known:Q", title=value, scale=alt.Scale(domain=[0, 1]))
    layers = strip.encode(x=x, y=edge, y2="refuted:Q"), below.encode(x=x, y=low), above.encode(x=x, y=high)
    return _finished(alt.layer(*layers), 260)


def histogram_chart(axis: str, step: float) -> dict[str, Any]:
    """Return the chart of radii; rows ``(low, high, kind, rank, count)``, ``step`` wide, come as ``histogram``."""
    alt = _altair()
    kinds = ["predicted right", "predicted wrong", "label unknown"]
    colour = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=kinds, range=[COLOURS[0], COLOURS[1], COLOURS[2]]))
    bars = (
        alt.Chart(alt.NamedData("histogram"))
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X("low:Q", title=axis, bin=alt.BinParams(binned=True, step=step)),
            x2="high:Q",
            y=alt.Y("count:Q", title="inputs", stack="zero", axis=alt.Axis(tickMinStep=1)),
            color=colour,
            order="rank:Q",
        )
    )
    return _finished(bars, 220)


@cache
def runtime() -> str:
    """Return the JavaScript that draws the charts, whole, for use inside of a page."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("vl-convert-python", "report") from None
    version = ".".join(_altair().SCHEMA_VERSION.split(".")[:2])
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


def _finished(chart: Any, height: int) -> dict[str, Any]:
    quiet = {"labelColor": "currentColor", "titleColor": "currentColor", "domainOpacity": 0.4, "tickOpacity": 0.4}
    lines = {"domainColor": "currentColor", "tickColor": "currentColor", "gridColor": "currentColor"}
    axis = {
        **quiet,
        **lines,
        "gridOpacity": 0.12,
        "titleFontWeight": "normal",
        "titleFontSize": 13,
        "labelFontSize": 12,
        "labelSeparation": 8,  # in a narrow window every other label goes, before they touch
        "labelFlush": False,  # the first and the last label stand at their ticks
    }
    made = chart.properties(width="container", height=height, background="transparent").configure(
        axis=axis, view={"stroke": None}, font="system-ui, sans-serif"
    )
    return dict(made.to_dict())


def _altair() -> Any:
    try:
        import altair as alt
    except ImportError:
        raise MissingExtra("altair", "report") from None
    return alt
