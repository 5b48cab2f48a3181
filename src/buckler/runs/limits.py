"""Recorded evidence -> the margin's lower limit of every input, by sound methods and by those that are not.

What ``certify`` does ends in certificates, which an unsound method must not reach. Comparing methods needs their bare
numbers: here they are, with the class each is about and whether it is a limit at all.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from buckler.certify import continuous, discrete
from buckler.certify.margins import margin as margin_of
from buckler.certify.methods import METHODS
from buckler.certify.published import (
    published_bonferroni_lower,
    published_margin_lower,
    published_scores_margin_lower,
)
from buckler.certify.published.continuous import PublishedLimit
from buckler.certify.scores import split_method, top_class
from buckler.errors import InvalidInput, check_choice
from buckler.records import Scores
from buckler.runs.grid import CertifiedClass
from buckler.runs.store.evidence import Evidence
from buckler.types import FloatArray, IntArray, MarginKind

PUBLISHED = ("published", "cited", "baseline")
"""The paper's ways from scores to a limit, before the slash: its variable Z with the width that it prints, the same
with the width of the theorem it cites, and the Bonferroni baseline (its Algorithm 3) with the latter."""

TOLERANCE = 1e-3
"""Of the paper's bisection, its epsilon: a tenth of what separates two points of its curves."""


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
    rule = method.partition("/")[0]
    if "/" in method and rule in PUBLISHED:
        return rule == "baseline" or (margin == "probability" and method != "published/bernstein")
    return method != "estimate" and ("/" in method or METHODS[method].sound)


class Recorded:
    """A run read once, and asked for many limits."""

    def __init__(self, evidence: Evidence) -> None:
        """Take the evidence; files are read, and checked, at the first question that needs them."""
        self.evidence = evidence
        self._made: dict[tuple[int, float], list[tuple[Scores, Scores | None, int | None]]] = {}
        self._known: dict[tuple[object, ...], float] = {}

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

        Votes: a name of ``certify.methods``. Scores: ``combine/limit`` as in ``certify.continuous``, or one of
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
        counts, selection, _ = self.evidence.counts(n)
        chosen = self.labels
        if certified_class == "selection":
            if selection is None:
                raise InvalidInput(f"{str(self.evidence.root)!r} has no selection draws (n0 = 0)")
            chosen = selection.values.argmax(axis=1)
        rows = np.arange(len(chosen))
        others = counts.values.copy()
        others[rows, chosen] = -1
        top, runner_up = counts.values[rows, chosen], others.max(axis=1)
        if method == "estimate":
            return margin_of(margin, top / n, runner_up / n), chosen
        if method == "published":
            return published_margin_lower(top, runner_up, n, alpha=alpha, margin=margin, tolerance=TOLERANCE), chosen
        check_choice("method", method, tuple(METHODS))
        low = discrete.margin_lower(
            top, runner_up, n, alpha=alpha, margin=margin, method=METHODS[method].name, num_classes=counts.num_classes
        )
        return low, chosen

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
        lows, classes = [], []
        for i, (scores, selection, label) in enumerate(self._scores(n, temperature)):
            if certified_class == "label" and label is not None:
                chosen = label
            elif certified_class == "selection" and selection is not None:
                chosen = int(top_class(selection)[0])
            else:
                raise InvalidInput(f"{str(self.evidence.root)!r} has no class by {certified_class}")
            # The selected class is the label for most inputs, and tables and figures ask the same questions.
            question = (i, chosen, method, margin, n, alpha, temperature)
            if question not in self._known:
                self._known[question] = _limit(scores, selection, chosen, method, margin, alpha)
            lows.append(self._known[question])
            classes.append(chosen)
        return np.array(lows), np.array(classes, dtype=np.int64)

    def _scores(self, n: int, temperature: float) -> list[tuple[Scores, Scores | None, int | None]]:
        key = (n, temperature)
        if key not in self._made:
            heat = temperature if self.evidence.spec.scores == "logits" else None
            self._made[key] = list(self.evidence.scores(n, temperature=heat))
        return self._made[key]


def _limit(
    scores: Scores, selection: Scores | None, label: int, method: str, margin: MarginKind, alpha: float
) -> float:
    columns = scores.columns[0].tolist()
    position = columns.index(label)
    if method == "estimate":
        means = scores.values[0].mean(axis=0)
        return float(margin_of(margin, means[position], np.delete(means, position).max()))
    rule, _, kind = method.partition("/")
    if rule in PUBLISHED:
        limit_kind: PublishedLimit = "sequence" if kind == "sequence" else "bernstein"
        rows, cited = _full(scores), rule != "published"
        if rule == "baseline":
            return published_bonferroni_lower(
                rows, position, alpha=alpha, margin=margin, limit=limit_kind, corrected=cited
            )
        found = published_scores_margin_lower(
            rows, position, alpha=alpha, margin=margin, limit=limit_kind, corrected=cited
        )
        return float(found)
    combine, limit = split_method(method)
    # A sample that is not used must not change the limit that a baseline gives.
    earlier = selection if combine == "pairwise" else None
    return float(continuous.margin_lower(scores, [label], alpha, margin, combine, limit, earlier)[0])


def _full(scores: Scores) -> FloatArray:
    """Return whole rows, as the paper's estimator wants them, with its maximum over classes and their number.

    Where columns were left out, what they hold beside their maximum is spread evenly over the classes that are left:
    none of them exceeds that maximum, as none did before.
    """
    rows: FloatArray = scores.values[0]
    left = scores.num_classes - rows.shape[1]
    if left == 0:
        return rows
    spread = np.maximum(0.0, 1.0 - rows.sum(axis=1, keepdims=True)) / left
    return np.asarray(np.hstack([rows, np.broadcast_to(spread, (len(rows), left))]))
