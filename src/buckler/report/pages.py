"""The content of the page about results of runs: its curves, its facts, and its sentences with their guarantee."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from buckler.certificate import ENUMERATED_METHOD, Claim, ball
from buckler.certificates import Certificates
from buckler.errors import InvalidInput
from buckler.evaluate.curves import certified_accuracy, false_certificates, radius_histogram, round_grid
from buckler.evaluate.population import USUAL_RADII, PopulationAccuracy, population_accuracy
from buckler.report.html import LARGEST_TABLE, Page, RunPage, Series, confidence, report_page, tiles
from buckler.runs.results import Result, short_names
from buckler.types import AnyArray

CELLS = 150
"""About the number of steps of the radius in a curve: fine enough for a screen."""

BARS = 24

FEWEST_INPUTS = 50
"""Smallest number of inputs for which a limit for the population is shown: with fewer it says nothing of use."""

FOLDERS = re.compile(r"(?:\b[A-Za-z]:(?=[/\\]))?[^:]*[/\\](?=[^/\\])")
"""Pattern of the folders in a path, with a drive letter; text before another colon, the kind of a model, is kept."""


def build_page(
    results: Sequence[Result],
    *,
    title: str = "Certified robustness",
    delta: float = 1e-3,
    class_names: Sequence[str] | None = None,
    command: str | None = None,
    folder: Path | None = None,
    card: object = None,
) -> str:
    """Return the HTML page about some results of runs.

    The band of each curve holds with probability ``1 - delta``; pictures are those that the results bring.
    ``class_names`` are names in place of class numbers. ``command`` is the command that makes the page, which it shows.
    ``folder`` is where the page will be, for links to the files of the results; ``card`` is the entry of the board that
    the page is about.
    """
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta must be in the open interval (0, 1); got {delta}")
    _check_names(results, class_names)
    names = short_names([result.path for result in results])
    pages = [_run_page(name, result, delta, command, folder) for name, result in zip(names, results, strict=True)]
    made = _series(shortened(names), results, delta)
    said = promise([one.certificates for one in made], delta)
    return report_page(Page(pages, made, title, said, class_names, card))


def _population(result: Result, delta: float) -> PopulationAccuracy | None:
    """Return limits of the population's certified accuracy; None without votes of ``FEWEST_INPUTS`` inputs or more."""
    votes, noise = result.true_votes, result.groups[0].first.noise
    if votes is None or len(votes) < FEWEST_INPUTS:
        return None
    return population_accuracy(votes, np.zeros(len(votes)), USUAL_RADII * noise.unit, noise=noise, delta=delta)


def _check_names(results: Sequence[Result], class_names: Sequence[str] | None) -> None:
    """Raise InvalidInput for fewer names than classes."""
    if class_names is None:
        return
    groups = [group for result in results for group in result.groups]
    seen = [group.predicted for group in groups]
    seen += [group.labels for group in groups if group.labels is not None]
    largest = max(int(classes.max()) for classes in seen)
    if len(class_names) <= largest:
        raise InvalidInput(f"--classes must name at least {largest + 1} classes; got {len(class_names)}")


def _series(names: Sequence[str], results: Sequence[Result], delta: float) -> list[Series]:
    groups = [(run, group) for run, result in enumerate(results) for group in result.groups]
    kinds = [name for result in results for name in kinds_of([group.first for group in result.groups])]
    called = series_names(names, [run for run, _ in groups], kinds)
    top = max(float(group.radii.max()) for _, group in groups) or 1.0
    # Decisions are about radii fixed beforehand: the curve has its steps there.
    asked = sorted({radius for result in results for radius in result.asked})
    radii = np.array([0.0, *asked]) if all(result.asked for result in results) else round_grid(top, CELLS)
    edges = round_grid(top, BARS)
    # If one run has no labels, the shares certified of all runs are compared, not accuracies.
    labelled = all(group.labels is not None for _, group in groups)
    made = []
    for name, kind, (run, group) in zip(called, kinds, groups, strict=True):
        curve = certified_accuracy(group, group.labels if labelled else None, radii, delta=delta, name=name)
        made.append(Series(name, kind, run, group, curve, radius_histogram(group, group.labels, edges)))
    return made


def _run_page(name: str, result: Result, delta: float, command: str | None, folder: Path | None) -> RunPage:
    spec, ids = result.spec or {}, result.ids
    kinds = [group.first for group in result.groups]
    model = f"The model {brief(str(spec['model']))}" if "model" in spec else "A model"
    sentence = described(result.groups, model, brief(str(spec.get("data", name))))
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
    found = [one for one in result.refutations if one.radius is not None and one.point is not None]
    pictures: list[AnyArray] = []
    points: list[AnyArray] = []
    if (shown := result.pictures) is not None:
        pictures = tiles(shown.inputs, shown.low, shown.high, LARGEST_TABLE)
        points = tiles([one.point for one in found if one.point is not None], shown.low, shown.high)
    return RunPage(
        name=name,
        sentence=sentence,
        ids=ids,
        labels=result.labels,
        facts=facts,
        spec_toml=result.spec_toml,
        commands=result.commands if command is None else (*result.commands, command),
        tiles=pictures,
        votes=result.votes,
        refutations=found,
        points=points,
        file=result.path.name,
        link=None if folder is None else "./" + quote(relpath(result.path, folder)),
        population=_population(result, delta),
    )


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _text(value: Any) -> str:
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def kinds_of(members: Sequence[Claim]) -> list[str]:
    """Return a name for each group of certificates of one run, given one certificate of each group.

    A name is the method, then those settings that differ among the groups.
    """
    details = [
        ("margin_kind", "{} margin"),
        ("alpha", "alpha {:g}"),
        ("noise", "{}"),
        ("map", "{}"),
        ("temperature", "T {:g}"),
    ]
    names = []
    for member in members:
        parts = [member.method]
        for field, text in details:
            values = [getattr(other, field) for other in members]
            if any(value != values[0] for value in values) and (mine := getattr(member, field)) is not None:
                parts.append(text.format(mine.describe() if field == "noise" else mine))
        names.append(", ".join(parts))
    return names


def series_names(run_names: Sequence[str], runs: Sequence[int], kinds: Sequence[str]) -> list[str]:
    """Return the shortest names that tell the curves of a page apart, by the run of each and by its kind.

    ``runs[i]`` is the position of curve i's run in ``run_names``, and ``kinds[i]`` its kind (``kinds_of``).

    >>> series_names(["a", "b"], [0, 1], ["exact", "exact"]), series_names(["a"], [0], ["exact"])
    (['a', 'b'], ['exact'])
    """
    several, one_kind = len(set(runs)) > 1, len(set(kinds)) == 1
    pairs = [(run_names[run], kind) for run, kind in zip(runs, kinds, strict=True)]
    return [", ".join(((run,) if several else ()) + (() if several and one_kind else (kind,))) for run, kind in pairs]


def shortened(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all of them begin or end with.

    >>> shortened(["cifar10-sigma0.25-counts", "cifar10-sigma0.50-counts"])
    ['sigma0.25', 'sigma0.50']
    >>> shortened(["run", "run-2"]), shortened(["alone-here"])
    (['run', 'run-2'], ['alone-here'])
    """
    words = [re.findall(r"[^-_ /]+|[-_ /]", name) for name in names]
    for _ in range(2):  # from the front, then from the back
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
        words = [parts[shared:][::-1] for parts in words]
    short = ["".join(parts).strip("-_ /") for parts in words]
    return short if len(names) > 1 and all(short) and len(set(short)) == len(names) else list(names)


def brief(name: str) -> str:
    """Return the name of a model or of data without the folders of its path.

    >>> brief("resnet110:/home/me/nets/a.safetensors"), brief("C:\\\\data\\\\x.npz"), brief("mymodels:make")
    ('resnet110:a.safetensors', 'x.npz', 'mymodels:make')
    """
    return FOLDERS.sub("", name)


def promise(groups: Sequence[Certificates], delta: float) -> str:
    """Return in words what every certificate in ``groups`` guarantees, and what all of one method together do.

    The latter holds with probability ``1 - delta``.
    """
    alpha, noise = max(group.first.alpha for group in groups), groups[0].first.noise
    sizes = dict.fromkeys((len(group), group.first.alpha) for group in groups)
    wrong = [f"{false_certificates(size, level, delta):,} of {size:,}" for size, level in sizes if level]
    risk = (
        f"is wrong with probability at most {alpha:g} over its draws of noise. With probability at least "
        f"{confidence(delta)}, no more than {' or '.join(wrong)} certificates of a run by one method are wrong: that "
        "is the shaded band"
    )
    return (
        f"Each certificate says that the smoothed classifier, not the model itself, predicts one class {ball(noise)}, "
        f"around the input, and "
        f"{risk if alpha else 'is exact: no error probability is left'}."
    )


def described(groups: Sequence[Certificates], model: str, data: str) -> str:
    """Return in words what was certified in one run; ``groups`` holds the certificates of each method.

    ``model`` and ``data`` are their names.
    """
    total = len(groups[0])
    draws = min(int(group.n.min()) for group in groups), max(int(group.n.max()) for group in groups)
    count = f"{draws[0]:,} draws" if draws[0] == draws[1] else f"{draws[0]:,} to {draws[1]:,} draws"
    noise = " or ".join(dict.fromkeys(group.first.noise.describe() for group in groups))
    other = sorted({n0 for group in groups for n0 in np.unique(group.n0).tolist()} - {0})
    given = any(group.first.n0 == 0 and group.first.winner_alpha == 0.0 for group in groups)
    ways = ["fixed beforehand (a given label)"] if given else []
    ways += ["the winner of the same draws"] if any(group.first.winner_alpha for group in groups) else []
    ways += [f"selected on {' or '.join(f'{n0:,}' for n0 in other)} other draws"] if other else []
    size = f"{total:,} input{'' if total == 1 else 's'}"
    if all(group.first.method == ENUMERATED_METHOD for group in groups):
        return (
            f"{model}, smoothed by {noise}, was certified on {size} of {data}, from all {draws[0]:,} copies of each, "
            "which are all there are: they name the class, nothing was left to chance, and there is no band."
        )
    return (
        f"{model}, smoothed by {noise}, was certified on {size} of {data}, with {count} each; the class was "
        f"{' or '.join(ways)}."
    )
