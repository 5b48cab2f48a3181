"""Build the page about results of runs: curves, histograms and facts from the certificates."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from buckler.certificate import rounded_up
from buckler.certificates import arrays_of
from buckler.errors import InvalidInput
from buckler.evaluate.bracket import BracketCurve, bracket_curve
from buckler.evaluate.curves import certified_curve, radius_histogram, round_grid
from buckler.evaluate.population import USUAL_RADII, PopulationAccuracy, population_accuracy
from buckler.report.html import LARGEST_TABLE, report_page
from buckler.report.payload import Refuted, RunPage, Series
from buckler.report.sentences import brief, described, kinds_of, promise, series_names, shortened
from buckler.report.thumbnails import tiles
from buckler.runs.results import Result, short_names

CELLS = 150
"""Steps of the radius in a curve, about: fine enough for a screen."""

BARS = 24

FEWEST_INPUTS = 50
"""With fewer inputs a limit for the population says nothing of use."""


def build_page(
    results: Sequence[Result],
    *,
    title: str = "Certified robustness",
    delta: float = 1e-3,
    class_names: Sequence[str] | None = None,
    command: str | None = None,
    folder: Path | None = None,
) -> str:
    """Return the page about these results, with the command that made it if there was one.

    The band of each curve holds with probability ``1 - delta``; pictures are those that the results bring. ``folder``
    is where the page will be, for links to the files of the results.
    """
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta must be in the open interval (0, 1); got {delta}")
    _check_names(results, class_names)
    names = short_names([result.path for result in results])
    pages = [
        replace(_run_page(name, result, delta, command, folder), population=_population(result, delta))
        for name, result in zip(names, results, strict=True)
    ]
    made = _series(shortened(names), results, delta)
    said = promise([one.certificates for one in made], delta)
    bracket = _bracket(results[0]) if len(results) == 1 else None
    return report_page(pages, made, title=title, promise=said, class_names=class_names, bracket=bracket)


def _population(result: Result, delta: float) -> PopulationAccuracy | None:
    """Return limits of the population's certified accuracy, or None where the result brings no votes for them."""
    votes, noise = result.true_votes, result.groups[0].certificates[0].noise
    if votes is None or len(votes) < FEWEST_INPUTS:
        return None
    return population_accuracy(votes, np.zeros(len(votes)), USUAL_RADII * noise.unit, noise=noise, delta=delta)


def _bracket(result: Result) -> BracketCurve | None:
    """Return certified and refuted accuracy, or None without refutations or labels."""
    far = [one.radius for one in result.refutations if one.radius is not None]
    if not far or result.labels is None:
        return None
    return bracket_curve(result.groups[0], result.refutations, round_grid(max(far), CELLS))


def _check_names(results: Sequence[Result], class_names: Sequence[str] | None) -> None:
    """Raise InvalidInput for fewer names than classes."""
    if class_names is None:
        return
    groups = [group for result in results for group in result.groups]
    seen = [arrays_of(group.certificates).predicted for group in groups]
    seen += [group.labels for group in groups if group.labels is not None]
    largest = max(int(classes.max()) for classes in seen)
    if len(class_names) <= largest:
        raise InvalidInput(f"--classes must name at least {largest + 1} classes; got {len(class_names)}")


def _series(names: Sequence[str], results: Sequence[Result], delta: float) -> list[Series]:
    groups = [(run, group) for run, result in enumerate(results) for group in result.groups]
    arrays = [arrays_of(group.certificates) for _, group in groups]
    kinds = [name for result in results for name in kinds_of([group.certificates[0] for group in result.groups])]
    called = series_names(names, [run for run, _ in groups], kinds)
    top = max(float(one.radii.max()) for one in arrays) or 1.0
    # Decisions are about radii fixed beforehand: the curve has its steps there.
    asked = sorted({radius for result in results for radius in result.asked})
    radii = np.array([0.0, *asked]) if all(result.asked for result in results) else round_grid(top, CELLS)
    edges = round_grid(top, BARS)
    # If one run has no labels, the shares certified of all runs are compared, not accuracies.
    labelled = all(group.labels is not None for _, group in groups)
    made = []
    for name, kind, (run, group), one in zip(called, kinds, groups, arrays, strict=True):
        curve = certified_curve(replace(group, certificates=one), radii, delta=delta, name=name, use_labels=labelled)
        made.append(Series(name, kind, run, one, curve, radius_histogram(one, group.labels, edges)))
    return made


def _run_page(name: str, result: Result, delta: float, command: str | None, folder: Path | None) -> RunPage:
    spec, ids = result.spec or {}, result.ids
    kinds = [group.certificates[0] for group in result.groups]
    model = f"The model {brief(str(spec['model']))}" if "model" in spec else "A model"
    groups = [arrays_of(group.certificates) for group in result.groups]
    sentence = described(groups, model, brief(str(spec.get("data", name))))
    if result.planned > len(ids):
        sentence += f" The run is not finished: it has {len(ids):,} of {result.planned:,} inputs."
    if result.caution:
        sentence += f" {result.caution}"
    facts: dict[str, dict[str, str]] = {
        "Certificates": {
            "method": _distinct(kind.method for kind in kinds),
            "alpha": _distinct(f"{kind.alpha:g}" for kind in kinds),
            "margin": _distinct(kind.margin_kind for kind in kinds),
            "class": _distinct(kind.class_from for kind in kinds),
            "scores": _distinct(
                kind.map if kind.temperature is None else f"{kind.map} at temperature {kind.temperature:g}"
                for kind in kinds
            ),
            "delta of the band": f"{delta:g}",
        },
        "Sampling": {key: _text(value) for key, value in spec.items()},
        "Model, data and specification": dict(result.origins),
        "Versions and device": dict(result.environment),
    }
    shown = result.pictures
    pictures = None if shown is None else tiles(shown.inputs, shown.low, shown.high, LARGEST_TABLE)
    commands = result.commands if command is None else (*result.commands, command)
    return RunPage(
        name, sentence, ids, result.labels, facts, result.spec_toml, commands, pictures, result.votes, _refuted(result),
        result.path.name, None if folder is None else "./" + quote(relpath(result.path, folder)),
    )  # fmt: skip


def _refuted(result: Result) -> dict[str, Refuted]:
    """Return the refutations by id, with a picture of the point where inputs have pictures."""
    made = {}
    for one in result.refutations:
        if one.radius is not None and one.rival is not None and one.point is not None:
            shown = result.pictures
            tile = None if shown is None else tiles([one.point], shown.low, shown.high)[0]
            words = str(one).removeprefix(f"{one.id}: ")
            made[one.id] = Refuted(rounded_up(one.radius, 4), one.rival, words, tile)
    return made


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _text(value: Any) -> str:
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
