"""The smoothed classifier in use: which class it predicts at an input, or an abstention, from votes.

``predicted_class`` is Cohen's PREDICT, from a fixed number of draws; ``PredictionTest`` draws until decided.
"""

from math import log

import numpy as np

from buckler.bounds.binomial import clopper_pearson_lower, distinct
from buckler.bounds.sign_test import log_wealth_of_votes
from buckler.certify import budget
from buckler.certify.ladder import LOG_ROUNDING
from buckler.errors import InvalidInput, check_alpha, check_counts, check_whole, check_whole_array
from buckler.types import ArrayLike, BoolArray, IntArray

ABSTAINED = -1
"""The class of an input for which nothing is predicted."""

FIRST_BATCH = 16
GROWTH = 8
"""Later batches are an eighth of the draws so far. Heuristic: affects the number of draws, not validity."""


def predicted_class(counts: ArrayLike, *, alpha: float = 1e-3) -> IntArray:
    """Return the predicted class of each row of counts ``[inputs, m]``, or -1 where it abstains.

    **Guarantee.** For each row, the probability that a class is returned which is not the smoothed classifier's is at
    most ``alpha``, over a number of draws fixed beforehand. The top class is returned if its votes against the
    runner-up's pass a two-sided binomial test at alpha: nothing is paid for having looked which class is on top (T18a).

    >>> predicted_class([[60, 40, 0], [90, 10, 0]])
    array([-1,  0])
    """
    votes = np.atleast_2d(check_counts("counts", counts))
    first, second = np.sort(votes, axis=1)[:, :-3:-1].T
    sure = clopper_pearson_lower(first, first + second, budget.split(alpha, 2)) >= 0.5
    return np.asarray(np.where(sure, votes.argmax(axis=1), ABSTAINED), dtype=np.int64)


class PredictionTest:
    """Which class the smoothed classifier predicts at each of several inputs, decided as draws come in.

    **Guarantee.** For each input, the probability that a class which is not the smoothed classifier's is *ever* the
    answer is at most ``alpha``: any-time, for independent draws in the order they were made (T18b).

    Every class is tested for being the prediction, by betting that the class that led before the batch gets more votes
    than it. What is left when all others are rejected is the answer. The first batch only shows who leads.

    >>> test = PredictionTest(1, num_classes=3)
    >>> while test.undecided.size:
    ...     size = test.batch_sizes(test.undecided)[0]
    ...     test.update(test.undecided, [[size - size // 8, size // 8, 0]])
    >>> test.n, test.answers
    (array([48]), array([0]))
    """

    def __init__(self, inputs: int, num_classes: int, *, alpha: float = 1e-3, max_n: int = 100_000) -> None:
        shape = check_whole("inputs", inputs, 1), check_whole("num_classes", num_classes, 2)
        self._needed = -log(check_alpha(alpha)) * (1.0 + LOG_ROUNDING) + LOG_ROUNDING
        self._max_n = check_whole("max_n", max_n, 1)
        self._votes: IntArray = np.zeros(shape, dtype=np.int64)
        self._wins: IntArray = np.zeros(shape, dtype=np.int64)
        self._losses: IntArray = np.zeros(shape, dtype=np.int64)
        self._rejected: BoolArray = np.zeros(shape, dtype=np.bool_)

    @property
    def n(self) -> IntArray:
        """Draws used so far, for each input."""
        return np.asarray(self._votes.sum(axis=1), dtype=np.int64)

    @property
    def undecided(self) -> IntArray:
        """The inputs for which more draws are wanted."""
        return np.flatnonzero((np.logical_not(self._rejected).sum(axis=1) > 1) & (self.n < self._max_n))

    @property
    def answers(self) -> IntArray:
        """The predicted class of each input, -1 while or where there is none."""
        left = np.logical_not(self._rejected)
        return np.asarray(np.where(left.sum(axis=1) == 1, left.argmax(axis=1), ABSTAINED), dtype=np.int64)

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next for each of these inputs, never beyond ``max_n``."""
        n = self.n[rows]
        wanted = np.minimum(np.maximum(FIRST_BATCH, n // GROWTH), self._max_n - n)
        return np.asarray(np.where(np.isin(rows, self.undecided), wanted, 0), dtype=np.int64)

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Add the votes ``counts[row, class]`` of these inputs' next draws, all of them, and decide what follows."""
        where, votes = check_whole_array("rows", rows), check_whole_array("counts", counts)
        if votes.shape != (where.size, self._votes.shape[1]) or not np.isin(where, self.undecided).all():
            raise InvalidInput("counts must be the votes of each class for inputs that are undecided; got others")
        before = self._votes[where]
        led = before.sum(axis=1) > 0
        order = np.argsort(-before, axis=1, kind="stable")[:, :2]
        # Against the leader the runner-up is backed, against everyone else the leader.
        backed = np.where(np.arange(votes.shape[1]) == order[:, :1], order[:, 1:], order[:, :1])
        self._wins[where] += np.where(led[:, None], np.take_along_axis(votes, backed, axis=1), 0)
        self._losses[where] += np.where(led[:, None], votes, 0)
        self._votes[where] += votes
        pairs, place = distinct(self._wins[where], self._losses[where])
        enough: BoolArray = np.asarray(log_wealth_of_votes(pairs[:, 0], pairs[:, 1]) >= self._needed)
        self._rejected[where] |= enough[place]
