"""A folder of recorded runs: which of them can answer a question of the paper, and the limits that each gives.

Folders are called ``DATA-sigma...``, and what comes before ``-sigma`` says which data a run is about. Everything else
is read from the runs themselves: sigma, draws, temperature. A run that is not finished is left out and named.

What ``runs.certify`` does ends in certificates, which an unsound method must not reach. Comparing methods needs their
bare numbers: here they are, with the class each is about and whether it is a limit at all.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from buckler.certify.methods import Method
from buckler.certify.scores import Scores, largest_mean_class, limits_of_scores
from buckler.certify.settings import Softmax, make_settings
from buckler.errors import InvalidInput
from buckler.evaluate.curves import Curve, margin_accuracy
from buckler.paper.estimators import is_limit
from buckler.runs.certify import CertifiedClass, certified_class_of, limits_of_evidence, needed
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.runs.store.folder import MANIFEST
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLimits:
    """A lower limit ``low`` of the margin of class ``chosen`` for each input; without a guarantee unless ``sound``."""

    low: FloatArray
    chosen: IntArray
    labels: IntArray
    alpha: float
    sound: bool

    def curve(self, margins: ArrayLike, name: str = "") -> Curve:
        """Return the share of inputs that are right and whose limit reaches each margin."""
        right = self.chosen == self.labels
        return margin_accuracy(self.low, right, margins, alpha=self.alpha, sound=self.sound, name=name)


class Recorded:
    """A run of a ``Library``: reads its scores once and computes limits from them for many settings."""

    def __init__(self, evidence: Evidence) -> None:
        """Take the evidence; files are read, and checked, at the first question that needs them."""
        self.evidence = evidence
        self._drawn: dict[tuple[int, float], list[tuple[Scores, Scores | None]]] = {}
        self._known: dict[tuple[object, ...], float] = {}

    @cached_property
    def labels(self) -> IntArray:
        """The true classes; a run without them cannot be compared with the paper."""
        return needed(self.evidence.counts()[2])

    def answers(self, n: int, temperature: float | None) -> bool:
        """Return whether the run holds, of n draws, votes (temperature None) or softmax scores at this temperature."""
        spec = self.evidence.spec
        if temperature is None:
            return n in spec.checkpoints
        return n <= spec.kept_draws and (
            spec.scores == "logits" or (spec.scores == "softmax" and (spec.temperature or 1.0) == temperature)
        )

    def limits(
        self,
        method: Method,
        alpha: float,
        margin: MarginKind,
        n: int | None,
        certified_class: CertifiedClass,
        temperature: float | None,
    ) -> RecordedLimits:
        """Return the limits by one method, from the first n draws: of votes, or of softmax scores at a temperature.

        **Guarantee.** Where ``sound``: each is above the margin of its class with probability at most alpha.
        """
        if method.reads == "votes":
            found = limits_of_evidence(
                self.evidence, [method], alpha=alpha, margin=margin, n=n, certified_class=certified_class
            ).answers[0][1]
            low, chosen = found.low, found.chosen.classes
        else:
            low, chosen = self._from_scores(method, alpha, margin, n, certified_class, temperature)
        return RecordedLimits(low, chosen, self.labels, alpha, is_limit(method, margin))

    def _from_scores(
        self,
        method: Method,
        alpha: float,
        margin: MarginKind,
        n: int | None,
        certified_class: CertifiedClass,
        temperature: float | None,
    ) -> tuple[FloatArray, IntArray]:
        if n is None or temperature is None or not self.answers(n, temperature):
            raise InvalidInput(f"{str(self.evidence.root)!r} does not hold {n} draws of softmax at {temperature}")
        by_label = certified_class_of(self.evidence.spec, certified_class) == "label"
        lows, classes = [], []
        spec = self.evidence.spec
        settings = make_settings(
            noise=spec.noise, alpha=alpha, method=method, margin=margin, scores=Softmax(temperature), seed=spec.seed
        )
        for i, (scores, selection) in enumerate(self._scores(n, temperature)):
            chosen = int(self.labels[i]) if by_label or selection is None else int(largest_mean_class(selection)[0])
            # The selected class is the label for most inputs, and tables and figures ask the same questions.
            key = (method, alpha, margin, n, temperature, i, chosen)
            if key not in self._known:
                _, low, _ = limits_of_scores(scores, settings, labels=[chosen], selection=selection)
                self._known[key] = float(low[0])
            lows.append(self._known[key])
            classes.append(chosen)
        return np.array(lows), np.array(classes, dtype=np.int64)

    def _scores(self, n: int, temperature: float) -> list[tuple[Scores, Scores | None]]:
        if (n, temperature) not in self._drawn:
            chosen = temperature if self.evidence.spec.scores == "logits" else None
            self._drawn[n, temperature] = [
                (scores, selection) for scores, selection, _ in self.evidence.scores(n, temperature=chosen)
            ]
        return self._drawn[n, temperature]


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The finished runs of a folder by name, and the names of those that are not finished."""

    root: Path
    runs: dict[str, Recorded]
    unfinished: tuple[str, ...]

    def of(self, data: str) -> list[Recorded]:
        """Return the runs about these data under Gaussian noise, the fewest draws first."""
        runs = {name: run for name, run in self.runs.items() if "noise" not in run.evidence.spec.as_dict()}
        mine = [run for name, run in runs.items() if name.partition("-sigma")[0] == data]
        return sorted(mine, key=lambda run: (run.evidence.spec.n, run.evidence.root.name))

    def find(self, data: str, sigma: float, n: int, temperature: float | None) -> Recorded | None:
        """Return the smallest run that holds n votes, or n draws of softmax scores, at this sigma."""
        for run in self.of(data):
            if run.evidence.spec.sigma == sigma and run.answers(n, temperature):
                return run
        return None

    def nearest_truth(self, data: str, sigma: float, least: int) -> Recorded | None:
        """Return the run with the most draws at this sigma, if each input has at least ``least``; else None."""
        mine = [run for run in self.of(data) if run.evidence.spec.sigma == sigma and run.evidence.spec.n >= least]
        return mine[-1] if mine else None

    def sigmas(self, data: str) -> tuple[float, ...]:
        """Return the sigmas that were drawn, in rising order."""
        return tuple(sorted({run.evidence.spec.sigma or 0.0 for run in self.of(data)}))


def open_library(root: Path) -> Library:
    """Return the runs in a folder; a folder without a finished run raises InvalidInput."""
    folders = sorted(path.parent for path in root.glob(f"*/{MANIFEST}")) if root.is_dir() else []
    found = {folder.name: open_evidence(folder) for folder in folders}
    runs = {name: Recorded(evidence) for name, evidence in found.items() if evidence.complete}
    unfinished = tuple(name for name in found if name not in runs)
    if not runs:
        also = f", {', '.join(unfinished)} not being finished" if unfinished else ""
        raise InvalidInput(
            f"evidence must be a folder that holds finished runs, called DATA-sigma...; {str(root)!r} has none{also}"
        )
    return Library(root, runs, unfinished)
