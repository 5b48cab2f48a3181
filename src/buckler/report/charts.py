"""The charts of report pages as Vega-Lite specifications, without their data, and the JavaScript that draws them.

Text and axes take the colour of the page (``currentColor``), so one specification serves light and dark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from buckler.errors import MissingExtra
from buckler.report.plots import PALETTE

COLOURS = (*PALETTE[:-1], "currentColor")
"""Colours of curves: those of the figures, but the colour of the page's text in place of black, for the dark mode."""

DASHES = ((), (7, 3), (7, 3, 2, 3), (2, 3))


@dataclass(frozen=True, slots=True)
class Look:
    """Colour of a curve, and its dashes: lengths of stroke and gap in turn, none for a solid line."""

    colour: str
    dash: tuple[int, ...]


def looks(runs: Sequence[int]) -> list[Look]:
    """Return the ``Look`` of each curve, given the number of its run: one colour a run, dashes tell its curves apart.

    If all curves are of one run, each has a colour of its own.

    >>> [look.colour for look in looks([0, 0, 1])]
    ['#0072B2', '#0072B2', '#D55E00']
    """
    single = len(set(runs)) == 1
    found = []
    for i, run in enumerate(runs):
        place = list(runs[:i]).count(run)
        # Neighbours differ in dashes too, for the colour-blind.
        colour, dash = (place, place) if single else (run, run + place)
        found.append(Look(COLOURS[colour % len(COLOURS)], DASHES[dash % len(DASHES)]))
    return found


def accuracy_chart(series: Sequence[Look], value: str, axis: str, top: float) -> dict[str, Any]:
    """Return the Vega-Lite chart of curves of certified accuracy, to which the page adds its data.

    ``series`` are the looks of the curves, ``value`` and ``axis`` the titles of the axes, and ``top`` the largest
    radius. The data set ``curves`` has rows ``(series, radius, place, accuracy, low)``. The data set ``population``,
    with rows ``(series, radius, accuracy)``, has limits for the population, shown as open diamonds.

    Between two radii of the grid the step shows the value at the larger one: never more than is certified.
    """
    keys = [f"s{i}" for i in range(len(series))]
    dashes = [list(look.dash) or [1, 0] for look in series]
    colour = _nominal("series", keys, [look.colour for look in series])
    x = _number("radius", axis, domain=[0, top], nice=False) | {"axis": {"tickCount": 8}}
    y = _number("accuracy", value, domain=[0, 1])
    shown = {"filter": "indexof(shown, datum.series) >= 0"}
    here = [shown, {"filter": "datum.place == cursor"}]
    band = {"type": "area", "interpolate": "step-before", "opacity": 0.3}
    line = {"type": "line", "interpolate": "step-before", "strokeWidth": 2}
    rule = {"type": "rule", "color": "currentColor", "opacity": 0.5}
    point = {"type": "point", "filled": True, "opacity": 1, "size": 60}
    limit = {"type": "point", "shape": "diamond", "opacity": 1, "size": 70, "strokeWidth": 2}
    xyc = {"x": x, "y": y, "color": colour}
    layers = [
        {"mark": band, "transform": [shown], "encoding": xyc | {"y2": {"field": "low"}}},
        {"mark": line, "transform": [shown], "encoding": xyc | {"strokeDash": _nominal("series", keys, dashes)}},
        {"mark": limit, "data": {"name": "population"}, "transform": [shown], "encoding": xyc},
        {"mark": rule, "transform": here, "encoding": {"x": x}},
        {"mark": point, "transform": here, "encoding": xyc},
    ]
    parameters = [{"name": "shown", "value": keys}, {"name": "cursor", "value": 0}]
    return _chart("curves", 320) | {"layer": layers, "params": parameters}


def histogram_chart(axis: str, step: float) -> dict[str, Any]:
    """Return the Vega-Lite chart of a histogram of certified radii, to which the page adds its data.

    The data set ``histogram`` has rows ``(low, high, kind, rank, count)``: a bar from low to high, ``step`` wide, of
    count inputs that were predicted right or wrong (kind), stacked by rank. ``axis`` titles the axis of radii.
    """
    kinds = ["predicted right", "predicted wrong", "label unknown"]
    encoding = {
        "x": _number("low", axis) | {"bin": {"binned": True, "step": step}},
        "x2": {"field": "high"},
        "y": _number("count", "inputs") | {"stack": "zero", "axis": {"tickMinStep": 1}},
        "color": _nominal("kind", kinds, list(COLOURS[:3])),
        "order": {"field": "rank", "type": "quantitative"},
    }
    return _chart("histogram", 220) | {"mark": {"type": "bar", "binSpacing": 1}, "encoding": encoding}


@cache
def runtime() -> str:
    """Return the JavaScript of Vega and Vega-Lite, which draws the charts, to be put inside of a page."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("vl-convert-python", "report") from None
    # The newest Vega-Lite fits the Vega beside it; a vl-convert that cannot list its versions has 5.17.
    versions = getattr(vl_convert, "get_vegalite_versions", lambda: ["5.17"])()
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=versions[-1]))


def _number(field: str, title: str, **scale: Any) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "title": title} | ({"scale": scale} if scale else {})


def _nominal(field: str, domain: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return {"field": field, "type": "nominal", "legend": None, "scale": {"domain": domain, "range": values}}


def _chart(data: str, height: int) -> dict[str, Any]:
    """Return the Vega-Lite fields that all charts share: data, size, and axes in the colour of the text."""
    axis = {
        **{f"{part}Color": "currentColor" for part in ("label", "title", "domain", "tick", "grid")},
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "gridOpacity": 0.12,
        "titleFontWeight": "normal",
        "titleFontSize": 13,
        "labelFontSize": 12,
        "labelSeparation": 8,  # in a narrow window every other label goes, before they touch
        "labelFlush": False,  # the first and the last label stand at their ticks
    }
    return {
        "config": {"axis": axis, "view": {"stroke": None}, "font": "system-ui, sans-serif"},
        "data": {"name": data},
        "width": "container",
        "height": height,
        "background": "transparent",
    }
