"""One self-contained page about certified runs: it opens from disk and asks no network for anything.

Whatever comes from a run (ids, class names, paths, settings) passes through Jinja's escaping or ``script_json``, and
the page's policy lets no script run but the two that are hashed here.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from importlib.resources import files
from math import floor, isfinite, log10
from typing import Any

import numpy as np

from buckler import __version__
from buckler.errors import InvalidInput, MissingExtra
from buckler.evaluate.curves import Curve
from buckler.evaluate.histogram import Histogram
from buckler.records import Certificate
from buckler.report.charts import accuracy_chart, histogram_chart, looks, runtime
from buckler.report.sentences import confidence
from buckler.report.thumbnails import Sheet, contact_sheet
from buckler.rounding import rounded_down
from buckler.types import AnyArray, IntArray

LARGEST_PAGE = 1_500_000
"""Bytes; what does not fit is left out and said to be."""

LARGEST_SHEET = 5_000
"""Pictures on a contact sheet at most."""

POINTS_IN_WORDS = 11
"""Radii of the chart that are repeated as a table of text."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve: the certificates of one run by one method, and what was computed from them."""

    name: str
    run: int
    certificates: Sequence[Certificate]
    curve: Curve
    histogram: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class RunPage:
    """What the page says about a run: a sentence with its guarantee, its inputs, and facts under headings."""

    name: str
    sentence: str
    ids: Sequence[str]
    labels: IntArray | None
    facts: Mapping[str, Mapping[str, str]]
    spec_toml: str | None
    commands: Sequence[str]
    tiles: Sequence[AnyArray] | None = None


@dataclass(frozen=True, slots=True)
class _Fit:
    """What of the inputs is put into the page: rows of each run, and the quality of their pictures."""

    rows: int
    quality: int | None


def report_page(
    runs: Sequence[RunPage], series: Sequence[Series], *, title: str, class_names: Sequence[str] | None = None
) -> str:
    """Return the page. Curves share one grid of radii from 0.

    Where the page would be too large, pictures are left out first, then rows of the table; the page says so.
    """
    if not runs or not series:
        raise InvalidInput("a report needs at least one run with certificates; got none")
    radii = series[0].curve.thresholds
    if radii.size < 2 or any(not np.array_equal(one.curve.thresholds, radii) for one in series):
        raise InvalidInput("curves must share one grid of at least two radii")
    code = runtime()
    rows = max(len(run.ids) for run in runs)
    for quality in _qualities(runs):
        page = _render(runs, series, title, class_names, code, _Fit(rows, quality))
        if len(page.encode()) < LARGEST_PAGE:
            return page
    bare = len(_render(runs, series, title, class_names, code, _Fit(0, None)).encode())
    while bare < LARGEST_PAGE:
        page = _render(runs, series, title, class_names, code, _Fit(rows, None))
        size = len(page.encode())
        if size < LARGEST_PAGE:
            return page
        rows = int(0.98 * rows * (LARGEST_PAGE - bare) / (size - bare))
    raise InvalidInput(f"the report does not fit into {LARGEST_PAGE:,} bytes: give fewer runs or methods")


def script_json(value: object) -> str:
    r"""Return JSON that is inert inside of a script element.

    >>> script_json({"id": "</script>"})
    '{"id":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # ASCII output has already escaped U+2028 and U+2029.
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _qualities(runs: Sequence[RunPage]) -> Sequence[int]:
    pictures = sum(len(run.tiles or ()) for run in runs)
    return (80, 50, 25) if 0 < pictures <= LARGEST_SHEET else ()


def _render(
    runs: Sequence[RunPage],
    series: Sequence[Series],
    title: str,
    class_names: Sequence[str] | None,
    code: str,
    fit: _Fit,
) -> str:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    sheet = None
    if fit.quality is not None:
        sheet = contact_sheet([tile for run in runs for tile in run.tiles or ()], fit.quality)
    look = looks([one.run for one in series])
    labelled = all(run.labels is not None for run in runs)
    value = "certified accuracy" if labelled else "certified share"
    curve = series[0].curve
    step = max(1, (len(curve.thresholds) - 1) // (POINTS_IN_WORDS - 1))
    payload = _payload(runs, series, class_names, sheet, fit)
    edges = series[0].histogram.edges
    payload["charts"] = {
        "accuracy": accuracy_chart(look, value, float(curve.thresholds[-1]), curve.norm),
        "histogram": histogram_chart(float(edges[1] - edges[0]), curve.norm),
    }
    templates = files("buckler.report") / "templates"
    script = (templates / "page.js").read_text(encoding="utf-8")
    style = (templates / "page.css").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=PackageLoader("buckler.report"),
    )  # fmt: skip
    # Markup is for our own files alone, and for JSON that script_json has made inert.
    page = environment.get_template("page.html").render(
        title=title,
        version=__version__,
        runs=runs,
        series=[
            {
                "name": one.name,
                "look": shape,
                "clean": rounded_down(float(one.curve.accuracy[0])),
                "low": rounded_down(float(one.curve.low[0])),
                "abstained": f"{one.curve.abstained:.3f}",
                "words": [rounded_down(float(a)) for a in one.curve.accuracy[::step]],
            }
            for one, shape in zip(series, look, strict=True)
        ],
        radii=payload["radii"],
        radii_in_words=payload["radii"][::step],
        value=value,
        labelled=labelled,
        confidence=confidence(curve.delta),
        rows=fit.rows,
        rows_left_out=fit.rows < max(len(run.ids) for run in runs),
        pictures_left_out=fit.quality is None and any(run.tiles for run in runs),
        pictures=sheet is not None,
        style=Markup(style),  # noqa: S704
        style_hash=_hash(style),
        runtime=Markup(code),  # noqa: S704
        runtime_hash=_hash(code),
        script=Markup(script),  # noqa: S704
        script_hash=_hash(script),
        payload=Markup(script_json(payload)),  # noqa: S704
    )
    # A path may hold bytes that are no text; they can be shown as question marks, but not written.
    return page.encode("utf-8", "replace").decode("utf-8")


def _payload(
    runs: Sequence[RunPage],
    series: Sequence[Series],
    class_names: Sequence[str] | None,
    sheet: Sheet | None,
    fit: _Fit,
) -> dict[str, Any]:
    """Return what the page's script reads. Radii and margins are rounded down here and nowhere else."""
    starts, seen = [], 0
    for run in runs:
        starts.append(seen if sheet is not None and run.tiles else None)
        seen += len(run.tiles or ())
    radii = series[0].curve.thresholds
    decimals = max(0, *(-int(Decimal(repr(float(r))).normalize().as_tuple().exponent) for r in radii))
    return {
        "classes": None if class_names is None else list(class_names),
        "sheet": None if sheet is None else {"uri": sheet.uri, "columns": sheet.columns},
        "radii": [f"{r:.{decimals}f}" for r in radii],
        "runs": [
            {
                "name": run.name,
                "ids": list(run.ids[: fit.rows]),
                "labels": None if run.labels is None else run.labels[: fit.rows].tolist(),
                "tiles": start,
            }
            for run, start in zip(runs, starts, strict=True)
        ],
        "series": [_series(one, fit.rows) for one in series],
    }


def _series(one: Series, rows: int) -> dict[str, Any]:
    first = one.certificates[0]
    digits = min(12, max(1, 3 - floor(log10(first.law.unit))))
    shown = one.certificates[:rows]
    draws = {certificate.n for certificate in one.certificates}
    histogram = one.histogram
    return {
        "name": one.name,
        "run": one.run,
        "accuracy": [rounded_down(float(a)) for a in one.curve.accuracy],
        "low": [rounded_down(float(a)) for a in one.curve.low],
        "inputs": len(one.certificates),
        "abstained": histogram.abstained,
        "edges": histogram.edges.tolist(),
        "bars": [histogram.right.tolist(), histogram.wrong.tolist(), histogram.unlabelled.tolist()],
        "digits": digits,
        "margin_kind": first.margin_kind,
        "predicted": [certificate.predicted for certificate in shown],
        "radius": [_units(certificate.radius, digits) for certificate in shown],
        "margin": [_units(certificate.margin, 4) for certificate in shown],
        "n": first.n if len(draws) == 1 else [certificate.n for certificate in shown],
    }


def _units(value: float, digits: int) -> int | None:
    """Return a number rounded down, in units of its last digit, which are shorter to write; None for -inf."""
    return int(rounded_down(value, digits).replace(".", "")) if isfinite(value) else None


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")
