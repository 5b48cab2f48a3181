"""Sequential limits of scores: limits of a margin that hold at every number of draws at once, and when to stop.

Only the predictable plug-in confidence sequence holds so (T13, T18c). Betting limits aim their stakes at a number of
draws, and the other closed forms hold at one number: these are refused by name.
"""

from collections.abc import Sequence

import numpy as np

from buckler.bounds.betting import SLACK, earlier_moments, sequence_lower
from buckler.certificate import ABSTAINED
from buckler.certificates import Certificates
from buckler.certify import budget
from buckler.certify.ladder import patience
from buckler.certify.predictions import ScoreWinner
from buckler.certify.settings import ChosenClass, Settings, make_certificates
from buckler.certify.tangents import SLOPES, best_slopes, heights, margin_from_height
from buckler.errors import InvalidInput, check_label, check_whole
from buckler.types import BoolArray, FloatArray, IntArray

SEQUENCE = "pairwise/sequence"
FIRST_BATCH = 64
GROWTH = 4
"""Later batches are a fourth of the draws so far. Heuristic: affects the number of draws, not validity."""


class ScoreTest:
    """Sequential limits of the margins of several inputs, renewed as scores come in.

    **Guarantee.** For each input, the probability that the limit *ever* exceeds the margin of its class is at most
    ``settings.alpha``: any-time, for independent draws in the order they were made, with labels, if any, and settings
    fixed beforehand. Any stopping keeps it (T18c). Without labels the class is the leader in mean score, and it
    certifies only once the winner's test has rejected every other class (T18d).

    Drawing ends for an input at the largest of ``radii``, at a ``precision`` relative to the radius that the mean
    scores give, or at ``max_n``. Slopes for the quantile margin come from the ``earlier`` scores ``[inputs, n0, m]`` of
    separate draws; without these they are 1.
    """

    def __init__(
        self,
        settings: Settings,
        inputs: int,
        num_classes: int,
        *,
        max_n: int,
        labels: IntArray | None = None,
        radii: Sequence[float] = (),
        precision: float | None = None,
        earlier: FloatArray | None = None,
    ) -> None:
        if settings.method.name != SEQUENCE:
            raise InvalidInput(
                f"method must be {SEQUENCE!r} for scores until decided, the one that holds at every number of draws; "
                f"got {settings.method.name!r}, which holds at a number fixed beforehand"
            )
        self._settings, self._radii, self._precision = settings, tuple(radii), precision
        self._max_n = check_whole("max_n", max_n, 1)
        self._winner: ScoreWinner | None = None
        self._level, self._share = settings.level, 0.0
        if labels is None:
            self._share = budget.winner_share(settings.level)
            self._level = budget.rest(settings.level, self._share)
            self._winner = ScoreWinner(inputs, num_classes, alpha=self._share)
            self._labels: IntArray = np.zeros(inputs, dtype=np.int64)
        else:
            self._labels = check_label(labels, num_classes, inputs, "labels")
        self._n0 = 0 if earlier is None else earlier.shape[1]
        self._draws: list[list[FloatArray]] = [[] for _ in range(inputs)]
        self.n: IntArray = np.zeros(inputs, dtype=np.int64)
        self._best: FloatArray = np.full((inputs, num_classes - 1), -np.inf)
        self._open: BoolArray = np.ones(inputs, dtype=np.bool_)
        self._slopes: FloatArray = np.ones((inputs, num_classes - 1))
        if settings.margin == "quantile" and earlier is not None:
            for i, rows in enumerate(earlier):
                a, rivals = self._split(i, rows)
                moments = np.stack([earlier_moments(a, rival) for rival in rivals])
                self._slopes[i] = SLOPES[best_slopes(moments, self._max_n, self._level)]

    @property
    def undecided(self) -> IntArray:
        """The inputs for which more draws are wanted."""
        return np.flatnonzero(self._open)

    def batch_size(self, n: int) -> int:
        """Return how many draws to make next after ``n``, never beyond ``max_n``."""
        return min(max(FIRST_BATCH, n // GROWTH), self._max_n - n)

    def _split(self, row: int, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        by_class = np.ascontiguousarray(scores.T, dtype=np.float64)
        return by_class[self._labels[row]], np.delete(by_class, self._labels[row], axis=0)

    def update(self, row: int, scores: FloatArray) -> None:
        """Add the scores ``[draws, m]`` of one input's next draws, and renew its limit."""
        self.n[row] += len(scores)
        self._draws[row].append(np.asarray(scores, dtype=np.float32))
        won = True
        if self._winner is not None:
            self._winner.update(row, scores)
            answer = int(self._winner.answers[row])
            won = answer != ABSTAINED
            label = answer if won else int(self._winner.leaders[row])
            if label != self._labels[row]:
                self._labels[row], self._best[row] = label, -np.inf
        a, rivals = self._split(row, np.concatenate(self._draws[row]))
        slopes = self._slopes[row]
        means = np.empty(len(rivals))
        for c in np.unique(slopes):
            at = slopes == c
            columns = np.clip(a - c * rivals[at], -c, 1.0).T
            means[at] = sequence_lower(columns, self._level, -float(c), 1.0) - SLACK * (1.0 + c)
        low = means if self._settings.margin == "probability" else margin_from_height(means, slopes)
        self._best[row] = np.maximum(self._best[row], low)
        if self.n[row] >= self._max_n or self._stops(row, a, rivals, won):
            self._open[row] = False
            self._draws[row] = []

    def _stops(self, row: int, a: FloatArray, rivals: FloatArray, won: bool) -> bool:
        """Return whether enough is certified, or the next radius looks out of reach. Any rule is valid."""
        noise, slopes = self._settings.noise, self._slopes[row]
        kind = self._settings.margin
        certified = noise.radius(float(self._best[row].min()), kind)
        if certified > 0.0 and not won:
            return False
        draws = a - slopes[:, None] * rivals
        mean, deviation, n = draws.mean(axis=1), draws.std(axis=1), a.size
        if self._precision is not None:
            quantile = self._settings.margin == "quantile"
            likely = noise.radius(float((margin_from_height(mean, slopes) if quantile else mean).min()), kind)
            return certified > 0.0 and certified >= (1.0 - self._precision) * likely
        above = [radius for radius in self._radii if radius > certified]
        if not above:
            return True
        margin = noise.margin(above[0], kind)
        needed = heights(margin, slopes) if self._settings.margin == "quantile" else np.full(len(rivals), margin)
        width = deviation * np.sqrt(-2.0 * np.log(self._level) / self._max_n)
        return bool((mean + patience(n) * np.maximum(deviation, 1.0 / n) / np.sqrt(n) < needed + width).any())

    def certificates(self, rows: slice, ids: Sequence[str]) -> Certificates:
        """Return the certificates of some inputs as they stand."""
        classes = self._labels[rows]
        if self._winner is not None:
            classes = self._winner.answers[rows]
        n0 = np.full(len(classes), self._n0, dtype=np.int64)
        chosen = ChosenClass(classes, n0, self._level, self._share)
        return make_certificates(self._settings, chosen, self._best[rows].min(axis=1), self.n[rows], ids)
