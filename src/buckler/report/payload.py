"""Content of the page, and the data for its script: curves and histograms as JSON, inputs as compressed JSON.

Radii and margins are rounded down here and nowhere else.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import floor, isfinite, log10
from typing import Any, NamedTuple
from zlib import compress

from buckler.certificate import rounded_down
from buckler.certificates import CertificateArrays
from buckler.evaluate.bracket import BracketCurve
from buckler.evaluate.curves import Curve, Histogram
from buckler.evaluate.population import PopulationAccuracy
from buckler.report.charts import accuracy_chart, bracket_chart, histogram_chart, looks
from buckler.report.plots import radius_axis
from buckler.report.sentences import explained
from buckler.report.thumbnails import Sheet
from buckler.runs.results import TopVotes
from buckler.types import AnyArray, IntArray

MARGIN_DIGITS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Refuted:
    """A refutation in a row's details: its distance as text, the class that wins there, and its sentence.

    ``tile`` is a small picture of the point, as ``thumbnails.tiles`` makes them.
    """

    radius: str
    rival: int
    sentence: str
    tile: AnyArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve: the certificates of one run by one method, and what was computed from them.

    ``kind`` is the method, with the settings that differ within its run; curves of one kind are shown together.
    """

    name: str
    kind: str
    run: int
    certificates: CertificateArrays
    curve: Curve
    histogram: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class RunPage:
    """Content of the page about one run: a sentence with its guarantee, its inputs, and facts under headings.

    ``refuted`` has, by id, a point near an input at which the smoothed classifier does not predict its class. ``file``
    holds all inputs where the table is cut; ``link`` leads to it from the page, if it is known where that will be.
    ``population`` are limits of the certified accuracy of the population, where votes allow them.
    """

    name: str
    sentence: str
    ids: Sequence[str]
    labels: IntArray | None
    facts: Mapping[str, Mapping[str, str]]
    spec_toml: str | None
    commands: Sequence[str]
    tiles: Sequence[AnyArray] | None = None
    votes: TopVotes | None = None
    refuted: Mapping[str, Refuted] = field(default_factory=dict)
    file: str = ""
    link: str | None = None
    population: PopulationAccuracy | None = None

    @property
    def pictures(self) -> list[AnyArray]:
        """The pictures of its inputs, then those of the points that refute."""
        return [*(self.tiles or ()), *(one.tile for one in self.refuted.values() if one.tile is not None)]


class Content(NamedTuple):
    """Content of the page."""

    runs: Sequence[RunPage]
    series: Sequence[Series]
    title: str
    promise: str
    class_names: Sequence[str] | None
    bracket: BracketCurve | None = None


def kinds(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Return the kinds of curves with a sentence each; the first kind of every run is shown at the start."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for one in series:
        kind = found.setdefault(one.kind, {"name": one.kind, "shown": False})
        kind["words"] = explained(one.certificates.first.method)
        kind["shown"] |= one.run not in seen
        seen.add(one.run)
    return list(found.values())


def payload_of(content: Content, sheet: Sheet | None, value: str) -> dict[str, Any]:
    """Return what the page's script reads first: everything but the inputs."""
    series = content.series
    order = [kind["name"] for kind in kinds(series)]
    runs, seen = [], 0
    for run in content.runs:
        start, points = (None, None) if sheet is None else (seen, seen + len(run.tiles or ()))
        runs.append({"name": run.name, "tiles": start if run.tiles else None, "points": points})
        seen += len(run.pictures)
    radii, edges = series[0].curve.thresholds, series[0].histogram.edges
    axis = radius_axis([one.curve for one in series])
    decimals = max(0, *(-int(Decimal(repr(float(r))).normalize().as_tuple().exponent) for r in radii))
    made: dict[str, Any] = {
        "classes": None if content.class_names is None else list(content.class_names),
        "sheet": None if sheet is None else {"uri": sheet.uri, "columns": sheet.columns},
        "radii": [f"{r:.{decimals}f}" for r in radii],
        "norm": series[0].curve.norm,
        "runs": runs,
        "series": [_series(one, order.index(one.kind)) for one in series],
        "charts": {
            "accuracy": accuracy_chart(looks([one.run for one in series]), value, axis, float(radii[-1])),
            "histogram": histogram_chart(axis, float(edges[1] - edges[0])),
        },
        "bracket": None,
        "population": [row for i, run in enumerate(content.runs) for row in _limits(run, series, i, float(radii[-1]))],
    }
    if (curve := content.bracket) is not None:
        norm = series[0].curve.norm
        axis = f"distance r ({norm})" if norm else "distance r"
        made["charts"]["bracket"] = bracket_chart("accuracy", axis, float(curve.radii[-1]))
        columns = {"radius": curve.radii, "certified": curve.certified, "refuted": curve.refuted, "known": curve.known}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        made["bracket"] = [dict(zip(columns, row, strict=True)) for row in rows]
    return made


def _limits(run: RunPage, series: Sequence[Series], place: int, top: float) -> list[dict[str, Any]]:
    """Return the points of a run's limits for the population, which are shown with its first curve."""
    if run.population is None:
        return []
    first = next(i for i, one in enumerate(series) if one.run == place)
    pairs = zip(run.population.radii.tolist(), run.population.low.tolist(), strict=True)
    return [{"series": f"s{first}", "radius": r, "accuracy": float(rounded_down(low))} for r, low in pairs if r <= top]


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
        "digits": digits_of(one),
        "margin_kind": one.certificates.first.margin_kind,
    }


def rows_of(content: Content, rows: int) -> dict[str, Any]:
    """Return the inputs of each run and the columns of each series, for the first rows.

    One kind of column comes after another: columns of two methods are much alike, and compress better side by side.
    """
    made = [_columns(one, rows) for one in content.series]
    return {
        "runs": [
            {
                "ids": list(run.ids[:rows]),
                "labels": None if run.labels is None else run.labels[:rows].tolist(),
                "votes": _votes(run.votes, rows),
                "refuted": _refuted(run, rows),
            }
            for run in content.runs
        ],
        "series": {name: [one[name] for one in made] for name in made[0]},
    }


def pack(value: object) -> str:
    """Return JSON, compressed, in letters; ``unpack`` of the page's script reads it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(compress(text.encode(), 9)).decode("ascii")


def digits_of(series: Series) -> int:
    """Return how many decimals the radii of a series are shown with: four significant ones, and four at least."""
    largest = float(series.certificates.radii.max())
    return min(12, max(4, 3 - floor(log10(largest)))) if largest > 0.0 else 4


def _columns(series: Series, rows: int) -> dict[str, Any]:
    """Return the columns of the table: radii and margins in units of their last digit, and the sentences."""
    certificates, digits = series.certificates[:rows], digits_of(series)
    draws = [certificate.n for certificate in certificates]
    return {
        "predicted": [certificate.predicted for certificate in certificates],
        "radius": [_units(certificate.radius, digits) for certificate in certificates],
        "margin": [_units(certificate.margin, MARGIN_DIGITS) for certificate in certificates],
        "n": draws[0] if len(set(draws)) == 1 else draws,
        "sentence": [str(certificate).removeprefix(f"{certificate.id}: ") for certificate in certificates],
    }


def _votes(votes: TopVotes | None, rows: int) -> dict[str, Any] | None:
    """Return the votes of the first rows, a list for each place among the classes."""
    if votes is None:
        return None
    n = votes.n[:rows].tolist()
    return {
        "classes": votes.classes[:rows].T.tolist(),
        "counts": votes.counts[:rows].T.tolist(),
        "n": n[0] if len(set(n)) == 1 else n,
    }


def _units(value: float, digits: int) -> int | None:
    """Return a number rounded down, in units of its last digit, which are shorter to write; None for -inf."""
    return int(rounded_down(value, digits).replace(".", "")) if isfinite(value) else None


def _refuted(run: RunPage, rows: int) -> dict[str, Any]:
    shown, found, picture = set(run.ids[:rows]), {}, 0
    for name, one in run.refuted.items():
        if name in shown:
            tile = None if one.tile is None else picture
            found[name] = {"radius": one.radius, "rival": one.rival, "sentence": one.sentence, "tile": tile}
        picture += one.tile is not None
    return found
