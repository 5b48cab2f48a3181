"""A folder of recorded runs: which of them can answer a question of the paper, and the limits that each gives.

Folders are called ``DATA-sigma...``, and what comes before ``-sigma`` says which data a run is about. Everything else
is read from the runs themselves: sigma, draws, temperature. A run that is not finished is left out and named.

Certificates must not come of an unsound method. Comparing methods needs their bare numbers: here they are, with whether
each is a limit at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from buckler.certify.methods import Method
from buckler.errors import InvalidInput
from buckler.evaluate.curves import Curve, margin_accuracy
from buckler.paper.estimators import is_limit
from buckler.paper.printed import ALPHA
from buckler.runs.certify import limits_of_evidence
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.folder import MANIFEST
from buckler.types import ArrayLike, FloatArray, MarginKind


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLimits:
    """Lower limits ``low``, at level ``ALPHA``, of margins of inputs' true labels; no guarantee unless ``sound``."""

    low: FloatArray
    sound: bool

    def curve(self, margins: ArrayLike, name: str = "") -> Curve:
        """Return as a ``Curve`` called ``name`` the share of inputs whose limit reaches each of ``margins``."""
        right = np.ones(self.low.shape, dtype=np.bool_)
        return margin_accuracy(self.low, right, margins, alpha=ALPHA, sound=self.sound, name=name)


def answers(run: Evidence, n: int, temperature: float | None) -> bool:
    """Return whether a recorded run holds the votes of n draws, or with a temperature their softmax scores at it."""
    spec = run.spec
    if temperature is None:
        return n in spec.checkpoints
    return n <= spec.kept_draws and (
        spec.scores == "logits" or (spec.scores == "softmax" and (spec.temperature or 1.0) == temperature)
    )


def recorded_limits(
    run: Evidence, methods: Sequence[Method], margin: MarginKind, n: int, temperature: float | None
) -> list[RecordedLimits]:
    """Return, by each of ``methods``, lower limits of the margins of all inputs of a run, from their first n draws.

    They rest on votes if ``temperature`` is None, else on softmax scores at it. **Guarantee.** Where ``sound``: each is
    above the margin of the true label with probability at most ``ALPHA``.
    """
    if not answers(run, n, temperature):
        what = "votes" if temperature is None else f"softmax scores at temperature {temperature:g}"
        raise InvalidInput(f"{str(run.root)!r} does not hold {n} draws of {what}")
    found = limits_of_evidence(
        run, methods, alpha=ALPHA, margin=margin, n=n, certified_class="label",
        temperature=temperature if run.spec.scores == "logits" else None,
    )  # fmt: skip
    made = zip(methods, found.answers, strict=True)
    return [RecordedLimits(one.low, is_limit(method, margin)) for method, (_, one) in made]


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The finished runs of the folder ``root`` by name, and the names of those that are not finished."""

    root: Path
    runs: dict[str, Evidence]
    unfinished: tuple[str, ...]

    def of(self, data: str) -> list[Evidence]:
        """Return the runs on the data set ``data`` ("cifar10") under Gaussian noise, the fewest draws first."""
        named = [run for name, run in self.runs.items() if name.partition("-sigma")[0] == data]
        mine = [run for run in named if "noise" not in run.spec.as_dict()]
        return sorted(mine, key=lambda run: (run.spec.n, run.root.name))

    def find(self, data: str, sigma: float, n: int, temperature: float | None) -> Evidence | None:
        """Return the run of the fewest draws that answers a question about ``data`` at ``sigma``, or None.

        It must hold the votes of n draws, or with a temperature their softmax scores at it.
        """
        return next((run for run in self.of(data) if run.spec.sigma == sigma and answers(run, n, temperature)), None)

    def nearest_truth(self, data: str, sigma: float, least: int) -> Evidence | None:
        """Return the run on ``data`` at ``sigma`` with the most draws of each input, or None if under ``least``."""
        mine = [run for run in self.of(data) if run.spec.sigma == sigma and run.spec.n >= least]
        return mine[-1] if mine else None

    def sigmas(self, data: str) -> tuple[float, ...]:
        """Return the sigmas of the runs on ``data``, in rising order."""
        return tuple(sorted({run.spec.sigma or 0.0 for run in self.of(data)}))


def open_library(root: Path) -> Library:
    """Return the runs in the folder ``root``, each in a folder of its own; raise InvalidInput if none is finished."""
    folders = sorted(path.parent for path in root.glob(f"*/{MANIFEST}")) if root.is_dir() else []
    found = {folder.name: open_evidence(folder) for folder in folders}
    runs = {name: run for name, run in found.items() if run.complete}
    unfinished = tuple(name for name in found if name not in runs)
    if not runs:
        also = f", {', '.join(unfinished)} not being finished" if unfinished else ""
        raise InvalidInput(
            f"evidence must be a folder that holds finished runs, called DATA-sigma...; {str(root)!r} has none{also}"
        )
    return Library(root, runs, unfinished)
