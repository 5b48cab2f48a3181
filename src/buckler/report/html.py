"""Render the page about certified runs: one file that opens from disk and makes no request.

Text from a run (ids, class names, paths, settings) passes through Jinja's escaping or ``script_json``, and the page's
content policy allows only the two scripts that are hashed here.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np

from buckler import __version__
from buckler.certificate import rounded_down, rounded_up
from buckler.errors import InvalidInput, MissingExtra
from buckler.evaluate.bracket import BracketCurve
from buckler.report.charts import Look, looks, runtime
from buckler.report.payload import Content, RunPage, Series, kinds, pack, payload_of, rows_of
from buckler.report.sentences import confidence
from buckler.report.thumbnails import contact_sheet

LARGEST_PAGE = 1_500_000
"""Bytes; what does not fit is left out, and the page says so."""

LARGEST_TABLE = 2_000
"""Inputs of a run in the table at most, with their pictures; the file of certificates has all."""

POINTS_IN_WORDS = 11
"""Radii of the chart that are repeated as a table of text."""

LINE = 2 / 320
"""The width of a curve's line as a share of the chart's height: a band that is thinner is not seen."""


def report_page(
    runs: Sequence[RunPage],
    series: Sequence[Series],
    *,
    title: str,
    promise: str,
    class_names: Sequence[str] | None = None,
    bracket: BracketCurve | None = None,
) -> str:
    """Return the page; ``promise`` is what every certificate on it says. Curves share one grid of radii from 0.

    Curves and histograms are over all inputs; the table holds the first ``LARGEST_TABLE`` of each run. Where the page
    would be too large, pictures are left out first, then rows of the table; the page says so.
    """
    if not runs or not series:
        raise InvalidInput("a report needs at least one run with certificates; got none")
    radii = series[0].curve.thresholds
    if radii.size < 2 or any(not np.array_equal(one.curve.thresholds, radii) for one in series):
        raise InvalidInput("curves must share one grid of at least two radii")
    content = Content(runs, series, title, promise, class_names, bracket)
    rows = min(LARGEST_TABLE, max(len(run.ids) for run in runs))
    packed = pack(rows_of(content, rows))
    pictured = any(run.pictures for run in runs)
    for quality in (80, 50, 25) if pictured else ():
        page = _render(content, packed, rows, quality)
        if len(page.encode()) < LARGEST_PAGE:
            return page
    bare = len(_render(content, "", 0).encode())
    while bare < LARGEST_PAGE:
        size = bare + len(packed)
        if size + 1000 < LARGEST_PAGE:  # a sentence on what was left out
            return _render(content, packed, rows)
        rows = int(0.98 * rows * (LARGEST_PAGE - 1000 - bare) / (size - bare))
        packed = pack(rows_of(content, rows))
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


def _render(content: Content, packed: str, rows: int, quality: int | None = None) -> str:
    """Return the page with this many rows of each run and, with a ``quality``, their pictures."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    runs, series = content.runs, content.series
    code, curve = runtime(), series[0].curve
    sheet = None
    if quality is not None:
        sheet = contact_sheet([tile for run in runs for tile in run.pictures], quality)
    look = looks([one.run for one in series])
    labelled = all(run.labels is not None for run in runs)
    value = "certified accuracy" if labelled else "certified share"
    step = max(1, (len(curve.thresholds) - 1) // (POINTS_IN_WORDS - 1))
    payload = payload_of(content, sheet, value)
    templates = files("buckler.report") / "templates"
    script = (templates / "page.js").read_text(encoding="utf-8")
    style = (templates / "page.css").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=PackageLoader("buckler.report"),
    )  # fmt: skip
    # Markup is for our own files alone, for JSON that script_json has made inert, and for base64.
    page = environment.get_template("page.html").render(
        title=content.title,
        promise=content.promise,
        version=__version__,
        runs=runs,
        kinds=kinds(series),
        series=[_summary(one, shape, step) for one, shape in zip(series, look, strict=True)],
        depth=_depth(series),
        radii=payload["radii"],
        radii_in_words=payload["radii"][::step],
        value=value,
        labelled=labelled,
        bracket=None if content.bracket is None else _bracket_words(content.bracket),
        confidence=confidence(curve.delta),
        rows=rows,
        rows_left_out=rows < max(len(run.ids) for run in runs),
        pictures_left_out=quality is None and any(run.pictures for run in runs),
        pictures=sheet is not None,
        style=Markup(style),  # noqa: S704
        style_hash=_hash(style),
        runtime=Markup(code),  # noqa: S704
        runtime_hash=_hash(code),
        script=Markup(script),  # noqa: S704
        script_hash=_hash(script),
        payload=Markup(script_json(payload)),  # noqa: S704
        packed=Markup(packed),  # noqa: S704
    )
    # Bytes of a path that are no text become question marks.
    return page.encode("utf-8", "replace").decode("utf-8")


def _summary(one: Series, shape: Look, step: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "look": shape,
        "clean": rounded_down(float(one.curve.accuracy[0])),
        "low": rounded_down(float(one.curve.low[0])),
        "abstained": f"{one.curve.abstained:.3f}",
        "words": [rounded_down(float(a)) for a in one.curve.accuracy[::step]],
    }


def _bracket_words(curve: BracketCurve) -> str:
    """Return the chart of certified and refuted accuracy as a sentence."""
    gap = curve.refuted - curve.certified
    worst = int(gap.argmax())
    return (
        f"{curve.attacked:,} of {curve.inputs:,} inputs were attacked. Least is known at distance "
        f"{curve.radii[worst]:.3g}, where accuracy lies between {rounded_down(float(curve.certified[worst]))} and "
        f"{rounded_up(float(curve.refuted[worst]))}, each input with the error probability of both its statements."
    )


def _depth(series: Sequence[Series]) -> str:
    """Return how far the bands reach down, in words, or an empty text without bands."""
    deep = [float((one.curve.accuracy - one.curve.low).max()) for one in series]
    if not any(deep):
        return ""
    least, most = f"{min(deep):.3g}", f"{max(deep):.3g}"
    words = f"{most} deep" if least == most else f"{least} to {most} deep"
    return f"{words}, thinner than the line" if 0.0 < max(deep) < LINE else words


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")
