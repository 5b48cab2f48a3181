"""Results of runs -> the page of ``buckler report``: curves and histograms are made here, then handed over."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput
from buckler.evaluate.curves import certified_accuracy, certified_share, false_certificates
from buckler.evaluate.radii import radius_histogram, round_grid
from buckler.report.html import RunPage, Series, report_page
from buckler.report.sentences import guarantee, series_names
from buckler.report.thumbnails import tiles
from buckler.runs.results import Result, inputs_of, labels_from
from buckler.sampling.datasets import Dataset, open_dataset
from buckler.types import IntArray

CELLS = 150
"""Steps of the radius in a curve, about: fine enough for a screen."""

BARS = 24


def build_page(
    results: Sequence[Result],
    *,
    delta: float,
    data: str | None,
    title: str,
    class_names: Sequence[str] | None,
    command: str,
) -> str:
    """Return the page about these results; ``data`` brings pictures, and labels where a result has none."""
    names = run_names([result.path for result in results])
    pages, labels = [], []
    for name, result in zip(names, results, strict=True):
        dataset = None if data is None else _open(data, result)
        labels.append(result.labels if dataset is None else labels_from(dataset, result))
        pages.append(_run_page(name, result, labels[-1], dataset, delta, command))
    series = _series(names, results, labels, delta)
    return report_page(pages, series, title=title, class_names=class_names)


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or the whole of it where two end alike.

    >>> run_names([Path("a/evidence"), Path("b/evidence"), Path("c/d.parquet")])
    ['a/evidence', 'b/evidence', 'd.parquet']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput(f"every RUN must be another one; got {', '.join(map(str, paths))}")
    ends = [path.resolve().name for path in paths]
    return [end if ends.count(end) == 1 else str(path) for end, path in zip(ends, paths, strict=True)]


def _open(data: str, result: Result) -> Dataset:
    spec = result.spec or {}
    return open_dataset(
        data,
        labels=spec.get("labels"),
        resize=spec.get("resize"),
        crop=spec.get("crop"),
        value_range=tuple(spec.get("value_range", (0.0, 1.0))),
    )


def _series(
    names: Sequence[str], results: Sequence[Result], labels: Sequence[IntArray | None], delta: float
) -> list[Series]:
    groups = [(run, group) for run, result in enumerate(results) for group in result.groups]
    called = series_names(names, [(run, group[0]) for run, group in groups])
    top = max(certificate.radius for _, group in groups for certificate in group)
    top = top or max(group[0].sigma for _, group in groups)
    radii, edges = round_grid(top, CELLS), round_grid(top, BARS)
    # Accuracy and share are different things: where one run has no labels, the shares of all are compared.
    labelled = all(truth is not None for truth in labels)
    made = []
    for name, (run, group) in zip(called, groups, strict=True):
        truth = labels[run]
        if labelled and truth is not None:
            curve = certified_accuracy(group, truth, radii, delta=delta, name=name)
        else:
            curve = certified_share(group, radii, delta=delta, name=name)
        made.append(Series(name, run, group, curve, radius_histogram(group, truth, edges)))
    return made


def _run_page(
    name: str, result: Result, labels: IntArray | None, dataset: Dataset | None, delta: float, command: str
) -> RunPage:
    spec = result.spec or {}
    wrong = false_certificates(len(result.ids), max(group[0].alpha for group in result.groups), delta)
    model = f"The model {spec['model']}" if "model" in spec else "A model"
    sentence = guarantee(result.groups, model, str(spec.get("data", name)), delta, wrong)
    if result.planned > len(result.ids):
        sentence += f" The run is not finished: it has {len(result.ids):,} of {result.planned:,} inputs."
    if result.drawn is not None and result.drawn.sentence():
        sentence += f" {result.drawn.sentence()}"
    kinds = [group[0] for group in result.groups]
    facts: dict[str, dict[str, str]] = {
        "Certificates": {
            "method": _distinct(kind.method for kind in kinds),
            "alpha": _distinct(f"{kind.alpha:g}" for kind in kinds),
            "margin": _distinct(kind.margin_kind for kind in kinds),
            "radius": _distinct(kind.radius_kind for kind in kinds),
            "class": _distinct("given" if kind.n0 == 0 else f"selected on {kind.n0:,} draws" for kind in kinds),
            "scores": _distinct(
                kind.map if kind.temperature is None else f"{kind.map} at temperature {kind.temperature:g}"
                for kind in kinds
            ),
            "delta of the band": f"{delta:g}",
        },
        "Sampling": {key: _text(value) for key, value in spec.items()},
        "Model, data and specification": dict(result.origins),
        "Versions and device": {} if result.drawn is None else result.drawn.facts(),
    }
    pictures = None if dataset is None else tiles(inputs_of(dataset, result), dataset.low, dataset.high)
    return RunPage(name, sentence, result.ids, labels, facts, result.spec_toml, (*result.commands, command), pictures)


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _text(value: Any) -> str:
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
