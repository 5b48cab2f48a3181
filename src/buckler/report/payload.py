"""What is on the page, and what its script reads of it: curves and histograms as JSON, inputs packed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from buckler.evaluate.bracket import BracketCurve
from buckler.evaluate.curves import Curve, Histogram
from buckler.records import Certificate
from buckler.report.charts import accuracy_chart, bracket_chart, histogram_chart, looks
from buckler.report.plots import radius_axis
from buckler.report.rows import Refuted, columns, digits_of, votes_of
from buckler.report.sentences import explained
from buckler.report.thumbnails import Sheet
from buckler.results import TopVotes
from buckler.rounding import rounded_down
from buckler.types import AnyArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve: the certificates of one run by one method, and what was computed from them.

    ``kind`` is the method, with what tells it from others of its run; curves of one kind are switched together.
    """

    name: str
    kind: str
    run: int
    certificates: Sequence[Certificate]
    curve: Curve
    histogram: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class RunPage:
    """What the page says about a run: a sentence with its guarantee, its inputs, and facts under headings.

    ``refuted`` has, by id, a point near an input at which the smoothed classifier does not predict its class.
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

    @property
    def pictures(self) -> list[AnyArray]:
        """The pictures of its inputs, then those of the points that refute."""
        return [*(self.tiles or ()), *(one.tile for one in self.refuted.values() if one.tile is not None)]


class Content(NamedTuple):
    """What is to be on the page."""

    runs: Sequence[RunPage]
    series: Sequence[Series]
    title: str
    promise: str
    class_names: Sequence[str] | None
    bracket: BracketCurve | None = None


def kinds(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Return the kinds of curves, each with what it does; the first of every run is shown before anything is asked."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for one in series:
        kind = found.setdefault(one.kind, {"name": one.kind, "shown": False})
        kind["words"] = explained(one.certificates[0].method)
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
    }
    if (curve := content.bracket) is not None:
        norm = series[0].curve.norm
        axis = f"distance r ({norm})" if norm else "distance r"
        made["charts"]["bracket"] = bracket_chart("accuracy", axis, float(curve.radii[-1]))
        columns = {"radius": curve.radii, "certified": curve.certified, "refuted": curve.refuted, "known": curve.known}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        made["bracket"] = [dict(zip(columns, row, strict=True)) for row in rows]
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
        "digits": digits_of(max(certificate.radius for certificate in one.certificates)),
        "margin_kind": one.certificates[0].margin_kind,
    }


def rows_of(content: Content, rows: int) -> dict[str, Any]:
    """Return what is packed: the inputs of each run, and the columns of each series, one kind of column after another.

    So laid out, columns of two methods, which are much alike, are near enough for the compression to see it.
    """
    made = [
        columns(one.certificates[:rows], digits_of(max(certificate.radius for certificate in one.certificates)))
        for one in content.series
    ]
    return {
        "runs": [
            {
                "ids": list(run.ids[:rows]),
                "labels": None if run.labels is None else run.labels[:rows].tolist(),
                "votes": votes_of(run.votes, rows),
                "refuted": _refuted(run, rows),
            }
            for run in content.runs
        ],
        "series": {name: [one[name] for one in made] for name in made[0]},
    }


def _refuted(run: RunPage, rows: int) -> dict[str, Any]:
    shown, found, picture = set(run.ids[:rows]), {}, 0
    for name, one in run.refuted.items():
        if name in shown:
            tile = None if one.tile is None else picture
            found[name] = {"radius": one.radius, "rival": one.rival, "sentence": one.sentence, "tile": tile}
        picture += one.tile is not None
    return found
