"""Scores until decided: limits of a margin that hold at every number of draws at once, and when to stop.

Only the predictable plug-in sequence holds so (T13, T18c). Betting limits aim their stakes at a number of draws, and
the other closed forms hold at one number: these are refused by name.
"""

from dataclasses import dataclass, field

import numpy as np

from buckler.bounds.betting import earlier_moments
from buckler.bounds.bounded import SLACK, sequence_lower
from buckler.certify.ladder import patience
from buckler.certify.make_certificates import MarginLimits, Terms
from buckler.certify.tangents import SLOPES, best_slopes, heights, margin_from_height
from buckler.errors import InvalidInput, check_label, check_whole_array
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

SEQUENCE = "pairwise/sequence"
FIRST_BATCH = 64
GROWTH = 4
"""Later batches are a fourth of the draws so far. Heuristic: affects the number of draws, not validity."""


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """What is to be certified by scores, and when to stop: at the largest of ``radii``, or at a ``precision``.

    ``precision`` is a share of the radius that the mean scores give.
    """

    terms: Terms
    n0: int
    max_n: int
    radii: tuple[float, ...] = ()
    precision: float | None = None
    level: float = field(init=False)

    def __post_init__(self) -> None:
        """Take the allowance for drawing from alpha, and refuse a limit that is not any-time."""
        name = self.terms.method.name
        if name != SEQUENCE:
            raise InvalidInput(
                f"method must be {SEQUENCE!r} for scores until decided, the one that holds at every number of draws; "
                f"{name!r} holds at a number fixed beforehand"
            )
        object.__setattr__(self, "level", self.terms.level)


class ScoreTest:
    """Limits of the margins of several inputs, renewed as scores come in.

    **Guarantee.** For each input, the probability that the limit *ever* exceeds the margin of its label is at most
    ``plan.terms.alpha``: any-time, for independent draws in the order they were made, with labels, slopes and plan
    fixed beforehand. Any stopping keeps it (T18c).

    Slopes for the second margin come from the ``earlier`` scores ``[inputs, n0, m]`` of separate draws, once.
    """

    def __init__(self, plan: ScorePlan, labels: ArrayLike, num_classes: int, earlier: FloatArray | None = None) -> None:
        self.plan = plan
        given = check_whole_array("labels", labels)
        self._labels = check_label(given, num_classes, given.size, "labels")
        inputs = given.size
        self._draws: list[list[FloatArray]] = [[] for _ in range(inputs)]
        self.n: IntArray = np.zeros(inputs, dtype=np.int64)
        self._best: FloatArray = np.full((inputs, num_classes - 1), -np.inf)
        self._open: BoolArray = np.ones(inputs, dtype=np.bool_)
        self._slopes: FloatArray = np.ones((inputs, num_classes - 1))
        if plan.terms.margin == "quantile" and earlier is not None:
            for i, rows in enumerate(earlier):
                a, rivals = self._split(i, rows)
                moments = np.stack([earlier_moments(a, rival) for rival in rivals])
                self._slopes[i] = SLOPES[best_slopes(moments, plan.max_n, plan.level)]

    @property
    def undecided(self) -> IntArray:
        """The inputs for which more draws are wanted."""
        return np.flatnonzero(self._open)

    def batch_size(self, n: int) -> int:
        """Return how many draws to make next after ``n``, never beyond ``max_n``."""
        return min(max(FIRST_BATCH, n // GROWTH), self.plan.max_n - n)

    def _split(self, row: int, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        by_class = np.ascontiguousarray(scores.T, dtype=np.float64)
        return by_class[self._labels[row]], np.delete(by_class, self._labels[row], axis=0)

    def update(self, row: int, scores: FloatArray) -> None:
        """Add the scores ``[draws, m]`` of one input's next draws, and renew its limit."""
        self.n[row] += len(scores)
        self._draws[row].append(np.asarray(scores, dtype=np.float32))
        a, rivals = self._split(row, np.concatenate(self._draws[row]))
        slopes = self._slopes[row]
        means = np.empty(len(rivals))
        for c in np.unique(slopes):
            at = slopes == c
            columns = np.clip(a - c * rivals[at], -c, 1.0).T
            means[at] = sequence_lower(columns, self.plan.level, -float(c), 1.0) - SLACK * (1.0 + c)
        low = means if self.plan.terms.margin == "probability" else margin_from_height(means, slopes)
        self._best[row] = np.maximum(self._best[row], low)
        if self.n[row] >= self.plan.max_n or self._stops(row, a, rivals):
            self._open[row] = False
            self._draws[row] = []

    def _stops(self, row: int, a: FloatArray, rivals: FloatArray) -> bool:
        """Return whether enough is certified, or the next radius looks out of reach. Any rule is valid."""
        law, kind, slopes = self.plan.terms.law, self.plan.terms.margin, self._slopes[row]
        certified = law.radius(float(self._best[row].min()), kind)
        draws = a - slopes[:, None] * rivals
        mean, deviation, n = draws.mean(axis=1), draws.std(axis=1), a.size
        if self.plan.precision is not None:
            quantile = self.plan.terms.margin == "quantile"
            likely = law.radius(float((margin_from_height(mean, slopes) if quantile else mean).min()), kind)
            return certified > 0.0 and certified >= (1.0 - self.plan.precision) * likely
        above = [radius for radius in self.plan.radii if radius > certified]
        if not above:
            return True
        margin = law.margin(above[0], kind)
        needed = heights(margin, slopes) if self.plan.terms.margin == "quantile" else np.full(len(rivals), margin)
        width = deviation * np.sqrt(-2.0 * np.log(self.plan.level) / self.plan.max_n)
        return bool((mean + patience(n) * np.maximum(deviation, 1.0 / n) / np.sqrt(n) < needed + width).any())

    def limits(self, rows: range, ids: tuple[str, ...]) -> MarginLimits:
        """Return the limits of some inputs as they stand."""
        where = slice(rows.start, rows.stop)
        count = len(rows)
        return MarginLimits(
            ids, self._labels[where], self._best[where].min(axis=1), self.n[where],
            np.full(count, self.plan.n0, dtype=np.int64),
        )  # fmt: skip
