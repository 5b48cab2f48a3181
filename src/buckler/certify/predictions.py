"""Tests of which class the smoothed classifier predicts: the winner's test of a certificate, and ``predict``.

- ``predicted_class(counts, alpha=)``: votes of fixed n -> class or -1; Cohen's PREDICT (T18a).
- ``PredictionTest``: votes until decided (T18b).
- ``winner_of_scores(scores, alpha=)``, ``ScoreWinner``: the same from scores, fixed n or until decided (T18b).
"""

import numpy as np

from buckler.bounds.binomial import STAKES, clopper_pearson_lower, distinct_rows, log_wealth_of_votes
from buckler.bounds.evalues import log_needed
from buckler.certificate import ABSTAINED
from buckler.certify import budget
from buckler.errors import InvalidInput, check_counts, check_whole, check_whole_array, show
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

FIRST_PREDICTION_DRAWS = 16
PREDICTION_BATCH_DIVISOR = 8
"""Draws of an input's first batch; a later batch has an eighth of its draws so far. Heuristic: affects the number of
draws, not validity."""


def predicted_class(counts: ArrayLike, *, alpha: float = 1e-3) -> IntArray:
    """Return the class that the smoothed classifier predicts at each input, from ``counts[inputs, classes]``, or -1.

    -1 comes back where the votes do not show it.

    **Guarantee.** For each row, the probability that a class is returned which is not the smoothed classifier's is at
    most ``alpha``, over a number of draws fixed beforehand. The top class is returned if its votes against the
    runner-up's pass a two-sided binomial test at alpha: nothing is paid for having looked which class is on top (T18a).

    >>> predicted_class([[60, 40, 0], [90, 10, 0]])
    array([-1,  0])
    """
    votes = np.atleast_2d(check_counts("counts", counts))
    first, second = np.sort(votes, axis=1)[:, :-3:-1].T
    sure = clopper_pearson_lower(first, first + second, budget.split_alpha(alpha, 2)) >= 0.5
    return np.asarray(np.where(sure, votes.argmax(axis=1), ABSTAINED), dtype=np.int64)


class PredictionTest:
    """Any-time test of which class the smoothed classifier predicts at each of several inputs, fed with votes.

    **Guarantee.** For each input, the probability that a class which is not the smoothed classifier's is *ever* the
    answer is at most ``alpha``: any-time, for independent draws in the order they were made (T18b).

    Every class is tested for being the prediction, by betting that the class that led before the batch gets more votes
    than it. The class that is left once all others are rejected is the answer. The first batch only shows which class
    leads. An input is undecided while several classes are left and it has fewer than ``max_n`` draws.

    >>> test = PredictionTest(1, num_classes=3)
    >>> while test.undecided.size:
    ...     size = test.batch_sizes(test.undecided)[0]
    ...     test.update(test.undecided, [[size - size // 8, size // 8, 0]])
    >>> test.n, test.answers
    (array([48]), array([0]))
    """

    def __init__(self, inputs: int, num_classes: int, *, alpha: float = 1e-3, max_n: int = 100_000) -> None:
        shape = check_whole("inputs", inputs, 1), check_whole("num_classes", num_classes, 2)
        self._needed = log_needed(alpha)
        self._max_n = check_whole("max_n", max_n, 1)
        self._votes: IntArray = np.zeros(shape, dtype=np.int64)
        self._wins: IntArray = np.zeros(shape, dtype=np.int64)
        self._losses: IntArray = np.zeros(shape, dtype=np.int64)
        self._rejected: BoolArray = np.zeros(shape, dtype=np.bool_)

    @property
    def n(self) -> IntArray:
        """Number of draws so far of each input."""
        return np.asarray(self._votes.sum(axis=1), dtype=np.int64)

    @property
    def undecided(self) -> IntArray:
        """Row numbers of the inputs with several classes left and fewer than ``max_n`` draws, in rising order."""
        return np.flatnonzero((np.logical_not(self._rejected).sum(axis=1) > 1) & (self.n < self._max_n))

    @property
    def answers(self) -> IntArray:
        """The class shown to be predicted at each input, or -1 while none is."""
        left = np.logical_not(self._rejected)
        return np.asarray(np.where(left.sum(axis=1) == 1, left.argmax(axis=1), ABSTAINED), dtype=np.int64)

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next for each of the inputs ``rows``: 0 unless it is undecided."""
        n = self.n[rows]
        wanted = np.minimum(np.maximum(FIRST_PREDICTION_DRAWS, n // PREDICTION_BATCH_DIVISOR), self._max_n - n)
        return np.asarray(np.where(np.isin(rows, self.undecided), wanted, 0), dtype=np.int64)

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Add the votes ``counts[row, class]`` of the next draws of the inputs ``rows``, and reject classes."""
        where, votes = check_whole_array("rows", rows), check_whole_array("counts", counts)
        if votes.shape != (where.size, self._votes.shape[1]) or not np.isin(where, self.undecided).all():
            raise InvalidInput(
                f"counts must have shape [{where.size}, {self._votes.shape[1]}], one row for each of the rows, "
                f"which must be undecided; got shape {list(votes.shape)} for rows {show(where.tolist(), 60)}"
            )
        before = self._votes[where]
        led = before.sum(axis=1) > 0
        order = np.argsort(-before, axis=1, kind="stable")[:, :2]
        # Against the leader the runner-up is backed, against everyone else the leader.
        backed = np.where(np.arange(votes.shape[1]) == order[:, :1], order[:, 1:], order[:, :1])
        self._wins[where] += np.where(led[:, None], np.take_along_axis(votes, backed, axis=1), 0)
        self._losses[where] += np.where(led[:, None], votes, 0)
        self._votes[where] += votes
        pairs, place = distinct_rows(self._wins[where], self._losses[where])
        enough: BoolArray = np.asarray(log_wealth_of_votes(pairs[:, 0], pairs[:, 1]) >= self._needed)
        self._rejected[where] |= enough[place]

    def state(self, row: int) -> bytes:
        """Return the bets on the input in row ``row`` as bytes, for ``restore``."""
        return np.stack([self._wins[row], self._losses[row], self._rejected[row]]).astype("<i8").tobytes()

    def restore(self, row: int, votes: IntArray, state: bytes) -> None:
        """Put the input in row ``row``, not drawn yet, where an earlier test at the same ``alpha`` left it.

        ``votes[classes]`` are all its votes, and ``state`` is what the earlier test's ``state`` returned.
        """
        saved = np.frombuffer(state, dtype="<i8")
        if saved.size != 3 * self._votes.shape[1] or self._votes[row].any():
            raise InvalidInput(
                f"state must hold 3 numbers for each of {self._votes.shape[1]} classes, for an input without draws; "
                f"got {saved.size} numbers and {self._votes[row].sum()} draws"
            )
        wins, losses, rejected = saved.reshape(3, -1)
        if (wins < 0).any() or (losses < 0).any() or (losses > votes).any() or not np.isin(rejected, (0, 1)).all():
            raise InvalidInput("state must hold at most the votes of the input, and 0 or 1 for each class; it does not")
        self._votes[row], self._wins[row], self._losses[row] = votes, wins, losses
        self._rejected[row] = rejected.astype(np.bool_)


SCORES_AT_A_TIME = 1 << 22
"""Most numbers that ``ScoreWinner`` computes at once from new scores. Heuristic: affects memory alone."""

LOG_ERROR = 2.0**-50
"""Relative error of each draw's term in a sum of logarithms, by which the sum is lowered: an ulp for each of two
roundings, doubled."""


class ScoreWinner:
    """Any-time test of which class has the largest expected score at each of several inputs, fed with scores.

    **Guarantee.** For each input, the probability that a class whose expected score is not the largest is *ever* the
    answer is at most ``alpha``: any-time, for independent draws in the order they were made (T18b).

    Each class k is tested for having the largest one by bets that the class j that led before the draw has a larger
    score: products of ``1 + stake (X_j - X_k)``, averaged over fixed stakes. If k has the largest, each factor has mean
    at most 1. The class that is left once all others are rejected is the answer. The first draw only shows which class
    leads.
    """

    def __init__(self, inputs: int, num_classes: int, *, alpha: float) -> None:
        self._needed = log_needed(alpha)
        self._sums: FloatArray = np.zeros((inputs, num_classes))
        self._wealth: FloatArray = np.zeros((inputs, STAKES.size, num_classes))
        self._error: FloatArray = np.zeros(inputs)
        self._n: IntArray = np.zeros(inputs, dtype=np.int64)
        self._rejected: BoolArray = np.zeros((inputs, num_classes), dtype=np.bool_)

    @property
    def answers(self) -> IntArray:
        """The class shown to have the largest expected score at each input, or -1 while none is."""
        left = np.logical_not(self._rejected)
        return np.asarray(np.where(left.sum(axis=1) == 1, left.argmax(axis=1), ABSTAINED), dtype=np.int64)

    @property
    def leaders(self) -> IntArray:
        """The class with the largest sum of scores so far, of each input."""
        return np.asarray(self._sums.argmax(axis=1), dtype=np.int64)

    def update(self, row: int, scores: FloatArray) -> None:
        """Add the scores ``[draws, classes]`` of the next draws of the input in row ``row``, and reject classes."""
        size = max(2, SCORES_AT_A_TIME // (STAKES.size * scores.shape[1]))
        for start in range(0, len(scores), size):
            self._bet(row, np.asarray(scores[start : start + size], dtype=np.float64))

    def _bet(self, row: int, values: FloatArray) -> None:
        before = self._sums[row] + np.cumsum(values, axis=0) - values
        self._sums[row] += values.sum(axis=0)
        skip = 1 if self._n[row] == 0 else 0
        self._n[row] += len(values)
        if len(values) == skip:
            return
        order = np.argpartition(-before[skip:], 1, axis=1)[:, :2]
        ahead = np.take_along_axis(before[skip:], order, axis=1)
        order = np.where((ahead[:, :1] >= ahead[:, 1:]), order, order[:, ::-1])
        classes = np.arange(values.shape[1])
        backed = np.where(classes == order[:, :1], order[:, 1:], order[:, :1])
        gains = np.clip(np.take_along_axis(values[skip:], backed, axis=1) - values[skip:], -1.0, 1.0)
        # A difference of two scores is rounded by at most an ulp of 1, which moves a logarithm by 20 times as much.
        gains -= 2.0**-52
        peak = np.zeros((STAKES.size, len(gains), values.shape[1]))
        for s, stake in enumerate(STAKES.tolist()):
            logs = np.log1p(stake * gains)
            peak[s] = self._wealth[row, s] + np.cumsum(logs, axis=0)
            self._wealth[row, s] = peak[s, -1]
        highest = peak.max(axis=0)
        mean = highest + np.log(np.exp(peak - highest).mean(axis=0))
        self._error[row] += np.abs(np.log1p(-STAKES[0])) * len(gains) * LOG_ERROR * self._n[row]
        enough = (mean - self._error[row] - 1e-12 * (1.0 + np.abs(highest)) >= self._needed).any(axis=0)
        self._rejected[row] |= enough


def winner_of_scores(scores: FloatArray, *, alpha: float) -> IntArray:
    """Return the class with the largest expected score at each input, from ``scores[inputs, draws, classes]``, or -1.

    -1 comes back where the scores do not show it.

    **Guarantee.** For each input, another class than that of the largest expected score is returned with probability at
    most ``alpha`` (T18b).

    >>> winner_of_scores(np.tile([[0.7, 0.2, 0.1]], (1, 60, 1)), alpha=1e-3)
    array([0])
    """
    test = ScoreWinner(len(scores), scores.shape[-1], alpha=alpha)
    for row, values in enumerate(scores):
        test.update(row, values)
    return test.answers
