"""Recorded evidence -> the margin's lower limit of every input, by sound methods and by those that are not.

What ``certify`` does ends in certificates, which an unsound method must not reach. Comparing methods needs their bare
numbers: here they are, with the class each is about and whether it is a limit at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from buckler.certify.counts import limits_of_counts
from buckler.certify.margins import margin as margin_of
from buckler.certify.method import Method, Votes
from buckler.certify.published import (
    published_bonferroni_lower,
    published_margin_lower,
    published_scores_margin_lower,
)
from buckler.certify.published.continuous import PublishedLimit
from buckler.certify.registry import find
from buckler.certify.scores import limits_of_scores, top_class
from buckler.errors import InvalidInput, check_choice
from buckler.records import Counts, Scores
from buckler.runs.certify import CertifiedClass, certified_class_of
from buckler.runs.store.evidence import Evidence
from buckler.types import FloatArray, IntArray, MarginKind

PUBLISHED = ("published", "cited", "baseline")
"""The paper's ways from scores to a limit, before the slash: its variable Z with the width that it prints, the same
with the width of the theorem it cites, and the Bonferroni baseline (its Algorithm 3) with the latter."""

TOLERANCE = 1e-3
"""Of the paper's bisection, its epsilon: a tenth of what separates two points of its curves."""

AT_ONCE = 250_000
"""Scores that the paper's limits are computed from in one go: more would not fit a processor's cache."""


def _estimate(votes: Votes, _: float, margin: MarginKind) -> FloatArray:
    return margin_of(margin, votes.top / votes.n, votes.runner_up / votes.n)


def _printed(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    return published_margin_lower(votes.top, votes.runner_up, votes.n, alpha=alpha, margin=margin, tolerance=TOLERANCE)


OF_VOTES = {
    "estimate": Method("estimate", "votes", _estimate, "the margin of the frequencies, no limit"),
    "published": Method("published", "votes", _printed, "the paper's method as printed, at its epsilon"),
}
"""Ways from votes to a number that are no limits; the registry's ``published`` searches finer than the paper."""


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Lower limits ``low`` of the margin of class ``chosen``, one an input; no guarantee unless ``sound``."""

    method: str
    sound: bool
    alpha: float
    n: int
    low: FloatArray
    chosen: IntArray
    labels: IntArray


def is_sound(method: str, margin: MarginKind) -> bool:
    """Whether a method's number is a lower limit at level alpha of this margin.

    The paper's Z has a mean of at most the first margin, so there any valid width will do: those of the theorems, and
    the printed one of the sequence, which wherever it is not vacuous is the wider. For the second margin none will.
    """
    rule, slash, _ = method.partition("/")
    if slash and rule in PUBLISHED:
        return rule == "baseline" or (margin == "probability" and method != "published/bernstein")
    return method not in OF_VOTES and find(method).sound


class Recorded:
    """A run read once, and asked for many limits."""

    def __init__(self, evidence: Evidence) -> None:
        """Take the evidence; files are read, and checked, at the first question that needs them."""
        self.evidence = evidence
        self._votes: dict[int, tuple[Counts, Counts | None]] = {}
        self._made: dict[tuple[int, float], list[Drawn]] = {}
        self._known: dict[tuple[object, ...], dict[tuple[int, int], float]] = {}

    @cached_property
    def labels(self) -> IntArray:
        """The true classes; a run without them cannot be compared with the paper."""
        found = self.evidence.counts()[2]
        if found is None:
            raise InvalidInput(f"{str(self.evidence.root)!r} has no labels: its data had none")
        return found

    def answers(self, n: int, temperature: float | None) -> bool:
        """Whether this run holds the votes (temperature None) or the scores of n draws."""
        spec = self.evidence.spec
        if temperature is None:
            return n in spec.checkpoints
        return n <= spec.kept_draws and (
            spec.scores == "logits" or (spec.scores == "softmax" and (spec.temperature or 1.0) == temperature)
        )

    def limits(
        self,
        method: str,
        *,
        margin: MarginKind,
        n: int,
        alpha: float,
        certified_class: CertifiedClass = "label",
        temperature: float | None = None,
    ) -> Limits:
        """Return the limits by one method, from votes, or from softmax scores if there is a temperature.

        **Guarantee.** Where ``sound``: each is above the margin of its class with probability at most ``alpha``.

        Votes: a name of ``certify.registry``. Scores: ``combine/limit`` as in ``certify.continuous``, or one of
        ``PUBLISHED`` with ``/sequence`` or ``/bernstein``. ``estimate`` is the plain margin of the means, no limit.
        """
        check_choice("class", certified_class, ("label", "selection"))
        if temperature is None:
            low, chosen = self._from_votes(method, margin, n, alpha, certified_class)
        else:
            low, chosen = self._from_scores(method, margin, n, alpha, certified_class, temperature)
        return Limits(method, is_sound(method, margin), alpha, n, low, chosen, self.labels)

    def _from_votes(
        self, method: str, margin: MarginKind, n: int, alpha: float, certified_class: CertifiedClass
    ) -> tuple[FloatArray, IntArray]:
        if n not in self._votes:
            self._votes[n] = self.evidence.counts(n)[:2]
        counts, selection = self._votes[n]
        by_label = certified_class_of(self.evidence.spec, certified_class) == "label"
        found = limits_of_counts(
            counts,
            OF_VOTES.get(method) or find(method, "votes"),
            alpha=alpha,
            margin=margin,
            label=self.labels if by_label else None,
            selection=None if by_label else selection,
        )
        return found.low, found.chosen

    def _from_scores(
        self,
        method: str,
        margin: MarginKind,
        n: int,
        alpha: float,
        certified_class: CertifiedClass,
        temperature: float,
    ) -> tuple[FloatArray, IntArray]:
        if not self.answers(n, temperature):
            raise InvalidInput(f"{str(self.evidence.root)!r} does not hold {n} draws of softmax at {temperature:g}")
        given = self._scores(n, temperature)
        found = [drawn.label if certified_class == "label" else drawn.selected for drawn in given]
        classes = [chosen for chosen in found if chosen is not None]
        if len(classes) < len(given):
            raise InvalidInput(f"{str(self.evidence.root)!r} has no class by {certified_class}")
        # The selected class is the label for most inputs, and tables and figures ask the same questions.
        known = self._known.setdefault((method, margin, n, alpha, temperature), {})
        new = [question for question in enumerate(classes) if question not in known]
        lows = _limits([(given[i], chosen) for i, chosen in new], method, margin, alpha)
        known.update(zip(new, lows, strict=True))
        return np.array([known[question] for question in enumerate(classes)]), np.array(classes, dtype=np.int64)

    def _scores(self, n: int, temperature: float) -> list["Drawn"]:
        key = (n, temperature)
        if key not in self._made:
            heat = temperature if self.evidence.spec.scores == "logits" else None
            self._made[key] = [
                Drawn(scores, selection, label, None if selection is None else int(top_class(selection)[0]))
                for scores, selection, label in self.evidence.scores(n, temperature=heat)
            ]
        return self._made[key]


class Drawn(NamedTuple):
    """One input's scores, those of its selection draws, and its two classes, where there are any."""

    scores: Scores
    selection: Scores | None
    label: int | None
    selected: int | None


def _limits(given: Sequence[tuple[Drawn, int]], method: str, margin: MarginKind, alpha: float) -> list[float]:
    """Return a limit for each input and the class that it is about."""
    rule, _, kind = method.partition("/")
    if rule not in PUBLISHED:
        return [_limit(drawn, chosen, method, margin, alpha) for drawn, chosen in given]
    lower = published_bonferroni_lower if rule == "baseline" else published_scores_margin_lower
    limit: PublishedLimit = "sequence" if kind == "sequence" else "bernstein"
    found: list[float] = []
    step = max(1, AT_ONCE // given[0][0].scores.values.size) if given else 1
    for start in range(0, len(given), step):
        part = given[start : start + step]
        rows = np.stack([_full(drawn.scores) for drawn, _ in part])
        positions = [drawn.scores.columns[0].tolist().index(chosen) for drawn, chosen in part]
        classes, cited = part[0][0].scores.num_classes, rule != "published"
        lows = lower(rows, positions, alpha=alpha, margin=margin, limit=limit, corrected=cited, num_classes=classes)
        found += lows.tolist()
    return found


def _limit(drawn: Drawn, chosen: int, method: str, margin: MarginKind, alpha: float) -> float:
    if method == "estimate":
        means = drawn.scores.values[0].mean(axis=0)
        position = drawn.scores.columns[0].tolist().index(chosen)
        return float(margin_of(margin, means[position], np.delete(means, position).max()))
    found = limits_of_scores(
        drawn.scores,
        find(method, "scores"),
        alpha=alpha,
        margin=margin,
        label=[chosen],
        selection=drawn.selection,
    )
    return float(found.low[0])


def _full(scores: Scores) -> FloatArray:
    """Return rows of all classes, as the paper's estimator wants them, with its maximum over classes.

    Where columns were left out, what they hold beside their maximum is spread evenly over the classes that are left:
    none of them exceeds that maximum, as none did before. One column stands for all of those.
    """
    rows: FloatArray = scores.values[0]
    left = scores.num_classes - rows.shape[1]
    if left == 0:
        return rows
    spread = np.maximum(0.0, 1.0 - rows.sum(axis=1, keepdims=True)) / left
    return np.asarray(np.hstack([rows, spread]))
