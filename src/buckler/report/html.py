"""The page about certified runs: one file that opens from disk and makes no request.

``report_page`` renders it from a ``Page``: runs, curves and histograms as JSON, inputs as compressed JSON, small
pictures on one contact sheet, a tenth of the bytes of as many files. Radii and margins are rounded down here. Text from
a run (ids, class names, paths, settings) passes through Jinja's escaping or ``script_json``, and the page's content
policy allows only the two scripts that are hashed here.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from math import ceil, floor, isfinite, log10, sqrt
from typing import Any
from zlib import compress

import numpy as np

from buckler import __version__
from buckler.certificate import ANYTIME, ENUMERATED_METHOD, Refutation, rounded_down, rounded_up
from buckler.certificates import Certificates
from buckler.certify.methods import methods
from buckler.errors import InvalidInput, MissingExtra
from buckler.evaluate.curves import Curve, Histogram
from buckler.evaluate.population import PopulationAccuracy
from buckler.report.charts import Look, accuracy_chart, histogram_chart, looks, runtime
from buckler.report.plots import radius_axis
from buckler.runs.results import TopVotes
from buckler.types import AnyArray, IntArray

LARGEST_PAGE = 1_500_000
"""Largest size of a page in bytes; content that does not fit is left out, and the page says so."""

CUTS = (1, 4, 16, 64)
"""Divisors of the number of rows of a page without pictures, tried in turn until the page fits ``LARGEST_PAGE``."""

QUALITY = 50
"""Quality of the pictures in the page, which are WebP, from 0 to 100."""

LARGEST_TABLE = 2_000
"""Largest number of inputs of a run in the page's table, with pictures; the file of certificates has all."""

POINTS_IN_WORDS = 11
"""Number of radii of the chart that the page repeats as a table of text."""

SIDE = 48
"""Pixels on a side of a tile; a multiple of 16, so that no block of the compressed sheet crosses two pictures."""


def tiles(inputs: Iterable[AnyArray], low: float, high: float, most: int | None = None) -> list[AnyArray]:
    """Return inputs with values in [low, high] as small RGB pictures, arrays ``[SIDE, SIDE, 3]`` (tiles).

    Inputs are images ``[height, width]``, or with 1 or 3 channels as a first or last axis. All inputs are read, since
    reading may check them, and the first ``most`` become pictures.
    """
    image = _pillow()
    made: list[AnyArray] = []
    for x in inputs:
        if most is not None and len(made) >= most:
            continue
        pixels = np.asarray(x)
        if pixels.ndim == 3 and pixels.shape[0] in {1, 3}:
            pixels = np.moveaxis(pixels, 0, -1)
        if pixels.ndim == 2:
            pixels = pixels[..., None]
        if pixels.ndim != 3 or pixels.shape[-1] not in {1, 3}:
            raise InvalidInput(
                "data must hold images, [height, width], or with 1 or 3 channels as a first or last axis; "
                f"got shape {np.shape(x)}"
            )
        levels = np.clip((pixels - low) / (high - low) * 255.0 + 0.5, 0.0, 255.0).astype(np.uint8)
        picture = image.fromarray(np.repeat(levels, 3, axis=-1) if levels.shape[-1] == 1 else levels)
        scale = SIDE / max(picture.size)
        size = tuple(max(1, round(side * scale)) for side in picture.size)
        small = picture.resize(size, image.Resampling.NEAREST if scale > 1 else image.Resampling.LANCZOS)
        tile = image.new("RGB", (SIDE, SIDE), "white")
        tile.paste(small, ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
        made.append(np.asarray(tile))
    return made


def contact_sheet(pictures: Sequence[AnyArray]) -> dict[str, Any]:
    """Return the tiles as one sheet, row by row: its WebP as a data ``uri``, and the number of its ``columns``."""
    columns = ceil(sqrt(len(pictures)))
    rows = ceil(len(pictures) / columns)
    sheet = np.full((rows * SIDE, columns * SIDE, 3), 255, dtype=np.uint8)
    for i, picture in enumerate(pictures):
        top, left = (i // columns) * SIDE, (i % columns) * SIDE
        sheet[top : top + SIDE, left : left + SIDE] = picture
    out = BytesIO()
    _pillow().fromarray(sheet).save(out, "WEBP", quality=QUALITY)
    return {"uri": "data:image/webp;base64," + b64encode(out.getvalue()).decode("ascii"), "columns": columns}


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "report") from None
    return Image


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve: the certificates of one run by one method, and the ``Curve`` and histogram computed from them.

    ``run`` is the number of the run on the page. ``kind`` is the method, with the settings that differ within its run;
    curves of one kind are shown together.
    """

    name: str
    kind: str
    run: int
    certificates: Certificates
    curve: Curve
    histogram: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class RunPage:
    """Content of the page about one run: a sentence about what was certified, its inputs, and facts under headings.

    ``tiles`` are pictures of the inputs, ``refutations`` points near some of them at which the smoothed classifier does
    not predict their class, and ``points`` pictures of those. ``file`` is the name of the file with all inputs, if the
    table has only some; ``link`` leads to it from the page, or None. ``population`` holds limits of the certified
    accuracy of the population, where votes allow them. ``commands`` make the run and the page again.
    """

    name: str
    sentence: str
    ids: Sequence[str]
    labels: IntArray | None
    facts: Mapping[str, Mapping[str, str]]
    spec_toml: str | None
    commands: Sequence[str]
    tiles: Sequence[AnyArray] = ()
    votes: TopVotes | None = None
    refutations: Sequence[Refutation] = ()
    points: Sequence[AnyArray] = ()
    file: str = ""
    link: str | None = None
    population: PopulationAccuracy | None = None

    @property
    def pictures(self) -> list[AnyArray]:
        """The pictures of the run's inputs, then those of the points that refute."""
        return [*self.tiles, *self.points]


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Content of a page about at least one run; all curves have one grid of at least two radii, from 0.

    ``promise`` is the guarantee of every certificate in words. ``card`` is the ``Entry`` of the board that the page is
    about, or None.
    """

    runs: Sequence[RunPage]
    series: Sequence[Series]
    title: str
    promise: str
    class_names: Sequence[str] | None = None
    card: object = None

    @property
    def value(self) -> str:
        """What the curves show, in words: certified accuracy, or the certified share if a run has no labels."""
        return "certified accuracy" if all(run.labels is not None for run in self.runs) else "certified share"


def kinds(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Return the kinds of curves, each a name, a sentence, and whether the page shows them at first.

    It shows the first kind of every run.
    """
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for one in series:
        kind = found.setdefault(one.kind, {"name": one.kind, "shown": False})
        kind["words"] = explained(one.certificates.first.method)
        kind["shown"] |= one.run not in seen
        seen.add(one.run)
    return list(found.values())


def payload_of(page: Page, sheet: dict[str, Any] | None) -> dict[str, Any]:
    """Return all content of a page but the inputs, for the page's script; ``sheet`` is that of the pictures."""
    series = page.series
    order = [kind["name"] for kind in kinds(series)]
    runs, seen = [], 0
    for run in page.runs:
        start, points = (None, None) if sheet is None else (seen, seen + len(run.tiles))
        runs.append({"name": run.name, "tiles": start if run.tiles else None, "points": points})
        seen += len(run.pictures)
    radii, edges = series[0].curve.radii, series[0].histogram.edges
    axis = radius_axis([one.curve for one in series])
    decimals = max(0, *(-int(Decimal(repr(float(r))).normalize().as_tuple().exponent) for r in radii))
    made: dict[str, Any] = {
        "classes": None if page.class_names is None else list(page.class_names),
        "sheet": sheet,
        "radii": [f"{r:.{decimals}f}" for r in radii],
        "runs": runs,
        "series": [_series(one, order.index(one.kind)) for one in series],
        "charts": {
            "accuracy": accuracy_chart(looks([one.run for one in series]), page.value, axis, float(radii[-1])),
            "histogram": histogram_chart(axis, float(edges[1] - edges[0])),
        },
        "population": [],
    }
    for place, run in enumerate(page.runs):
        if run.population is not None:  # shown with the first curve of the run
            first = next(i for i, one in enumerate(series) if one.run == place)
            pairs = zip(run.population.radii.tolist(), run.population.low.tolist(), strict=True)
            made["population"] += [
                {"series": f"s{first}", "radius": r, "accuracy": float(rounded_down(low))}
                for r, low in pairs
                if r <= float(radii[-1])
            ]
    return made


def _series(one: Series, kind: int) -> dict[str, Any]:
    histogram = one.histogram
    return {
        "name": one.name,
        "kind": kind,
        "run": one.run,
        "accuracy": [rounded_down(float(a)) for a in one.curve.accuracy],
        "low": [rounded_down(float(a)) for a in one.curve.low],
        "inputs": len(one.certificates),
        "abstained": histogram.abstained,
        "edges": histogram.edges.tolist(),
        "bars": [histogram.right.tolist(), histogram.wrong.tolist(), histogram.unlabelled.tolist()],
        "margin_kind": one.certificates.first.margin_kind,
    }


def rows_of(page: Page, rows: int) -> dict[str, Any]:
    """Return the first ``rows`` inputs of each run with their certificates, as columns, for the page's table.

    One kind of column comes after another: columns of two methods are much alike, and compress better side by side.
    """
    made = [_columns(one, rows) for one in page.series]
    return {
        "runs": [
            {
                "ids": list(run.ids[:rows]),
                "labels": None if run.labels is None else run.labels[:rows].tolist(),
                "votes": _votes(run.votes, rows),
                "refuted": _refuted(run, rows),
            }
            for run in page.runs
        ],
        "series": {name: [one[name] for one in made] for name in made[0]},
    }


def pack(value: object) -> str:
    """Return ``value`` as JSON, compressed, in base64; the function ``unpack`` of the page's script reads it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(compress(text.encode(), 9)).decode("ascii")


def digits_of(series: Series) -> int:
    """Return the number of decimals for a curve's radii: four significant digits of the largest, at least 4."""
    largest = float(series.certificates.radii.max())
    return min(12, max(4, 3 - floor(log10(largest)))) if largest > 0.0 else 4


def _columns(series: Series, rows: int) -> dict[str, Any]:
    """Return the columns of the table: classes, radii and margins, rounded down, draws, and the sentences."""
    certificates, digits = list(series.certificates[:rows]), digits_of(series)
    return {
        "predicted": [certificate.predicted for certificate in certificates],
        "radius": [rounded_down(certificate.radius, digits) for certificate in certificates],
        "margin": [
            rounded_down(certificate.margin, 4) if isfinite(certificate.margin) else "-inf"
            for certificate in certificates
        ],
        "n": [certificate.n for certificate in certificates],
        "sentence": [str(certificate).removeprefix(f"{certificate.id}: ") for certificate in certificates],
    }


def _votes(votes: TopVotes | None, rows: int) -> dict[str, Any] | None:
    """Return the votes of the first rows, a list for each place among the classes."""
    if votes is None:
        return None
    return {
        "classes": votes.classes[:rows].T.tolist(),
        "counts": votes.counts[:rows].T.tolist(),
        "n": votes.n[:rows].tolist(),
    }


def _refuted(run: RunPage, rows: int) -> dict[str, Any]:
    """Return what refutes inputs of the first rows, by id; pictures are numbered among the run's ``points``."""
    shown = set(run.ids[:rows])
    return {
        one.id: {
            "radius": rounded_up(one.radius, 4),
            "rival": one.rival,
            "sentence": str(one).removeprefix(f"{one.id}: "),
            "tile": place if run.points else None,
        }
        for place, one in enumerate(run.refutations)
        if one.id in shown and one.radius is not None
    }


def report_page(page: Page) -> str:
    """Return a page about runs as HTML.

    Curves and histograms are over all inputs; the table holds the first ``LARGEST_TABLE`` of each run. Where the page
    would be too large, pictures are left out first, then rows of the table; the page says so.
    """
    rows = min(LARGEST_TABLE, max(len(run.ids) for run in page.runs))
    pictured = any(run.pictures for run in page.runs)
    for size, pictures in [(rows, True)] * pictured + [(rows // part, False) for part in CUTS]:
        text = _render(page, size, pictures)
        if len(text.encode()) < LARGEST_PAGE:
            return text
    raise InvalidInput(f"the report does not fit into {LARGEST_PAGE:,} bytes: give fewer runs or methods")


def script_json(value: object) -> str:
    r"""Return ``value`` as JSON that can stand inside of a script element: it cannot end the element.

    >>> script_json({"id": "</script>"})
    '{"id":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # ASCII output has already escaped U+2028 and U+2029.
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def render(name: str, script: str | None = None, **values: Any) -> str:
    """Return the HTML page of a ``template`` of ``templates/`` and these values, with our style and script inside.

    A content security policy blocks everything else. Jinja escapes all values but ``payload`` and ``packed``, which
    must be what ``script_json`` and ``pack`` returned.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    templates = files("buckler.report") / "templates"
    inside = {"style": (templates / "page.css").read_text(encoding="utf-8")}
    if script is not None:
        inside |= {"runtime": runtime(), "script": (templates / script).read_text(encoding="utf-8")}
    hashes = {f"{part}_hash": _hash(text) for part, text in inside.items()}
    inside |= {part: values.pop(part) for part in ("payload", "packed") if part in values}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=PackageLoader("buckler.report"),
    )  # fmt: skip
    environment.filters["down"] = rounded_down
    ours = {part: Markup(text) for part, text in inside.items()}  # noqa: S704
    page = environment.get_template(name).render(version=__version__, **hashes, **ours, **values)
    # Bytes of a path that are no text become question marks.
    return page.encode("utf-8", "replace").decode("utf-8")


def _render(page: Page, rows: int, pictures: bool) -> str:
    """Return the page with this many rows of each run, with or without pictures."""
    runs, series = page.runs, page.series
    curve = series[0].curve
    sheet = contact_sheet([tile for run in runs for tile in run.pictures]) if pictures else None
    look = looks([one.run for one in series])
    step = max(1, (len(curve.radii) - 1) // (POINTS_IN_WORDS - 1))
    payload = payload_of(page, sheet)
    return render(
        "page.html",
        "page.js",
        title=page.title,
        promise=page.promise,
        card=page.card,
        runs=runs,
        kinds=kinds(series),
        series=[_summary(one, shape, step) for one, shape in zip(series, look, strict=True)],
        depth=_depth(series),
        radii=payload["radii"],
        radii_in_words=payload["radii"][::step],
        value=page.value,
        labelled=all(run.labels is not None for run in runs),
        confidence=confidence(curve.delta),
        rows=rows,
        rows_left_out=rows < max(len(run.ids) for run in runs),
        pictures_left_out=not pictures and any(run.pictures for run in runs),
        pictures=sheet is not None,
        payload=script_json(payload),
        packed=pack(rows_of(page, rows)),
    )


def _summary(one: Series, shape: Look, step: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "look": shape,
        "clean": rounded_down(float(one.curve.accuracy[0])),
        "low": rounded_down(float(one.curve.low[0])),
        "abstained": f"{one.curve.abstained:.3f}",
        "words": [rounded_down(float(a)) for a in one.curve.accuracy[::step]],
    }


def _depth(series: Sequence[Series]) -> str:
    """Return how deep the bands reach below their curves at most, in words; an empty text without bands."""
    deep = [float((one.curve.accuracy - one.curve.low).max()) for one in series]
    least, most = f"{min(deep):.3g}", f"{max(deep):.3g}"
    return "" if not any(deep) else f"{most} deep" if least == most else f"{least} to {most} deep"


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")


def explained(method: str) -> str:
    """Return what a method does, in one sentence, given its name."""
    beside = {
        ANYTIME: "draws until radii fixed beforehand are decided; valid whenever one stops",
        ENUMERATED_METHOD: "the votes of every noisy copy that there is: no estimate, and no error probability",
    }
    known = beside | {rule.name: rule.summary for rule in methods()}
    return known.get(method, "a bound of the user's own")


def confidence(delta: float) -> str:
    """Return ``1 - delta`` as a text, rounded down, with as many digits as it takes to differ from 1.

    >>> confidence(0.001), confidence(1e-7)
    ('0.999', '0.9999999')
    """
    # In decimals: 1 - 0.001 in binary is slightly below 0.999 and would be rounded down to 0.998.
    return rounded_down(1 - Decimal(repr(delta)), max(3, ceil(-log10(delta))))
