"""Votes at a point that was fixed before -> whether a rival has more of them than the class there (T17, T21).

One pair of classes at each point, looked at after every batch of draws.
"""

import numpy as np
from scipy.special import ndtri

from buckler.bounds.binomial import log_wealth_of_votes, tail_of_votes
from buckler.certificate import PairTest
from buckler.certify.budget import split
from buckler.errors import check_alpha, check_whole
from buckler.types import ArrayLike, BoolArray, IntArray

FIRST_BATCH, GROWTH = 64, 4
"""Draws before the first look, and then a batch of one for each so many draws made; heuristic: any look is valid."""

HOPEFUL = 3.0
"""A candidate is given up when the rival's share so far, and so many standard deviations, would not do by the end; the
number falls to 0 with the draws that are left. Heuristic: giving up refutes nothing."""


def votes_refute(test: PairTest, alpha: float) -> bool:
    """Return whether the votes at a candidate bear out a refutation at level alpha, or it claims none."""
    # The last draw is not on record, so any may have been: what was refuted passes.
    return not test.refuted or bool(pairs_refuted(test.wins, test.losses, True, check_alpha(alpha)))


def pairs_refuted(wins: ArrayLike, losses: ArrayLike, last: ArrayLike, alpha: float) -> BoolArray:
    """Return which pairs are refuted by their votes: at any draw, or by a final test at the last, fixed beforehand.

    **Guarantee.** Looked at after every draw, an untrue pair is ever refuted with probability at most alpha: half of it
    is for the any-time test and half for the final test (T17, T21).
    """
    share = split(alpha, 2)
    final = np.asarray(last) & (tail_of_votes(wins, losses) <= share)
    return np.asarray((log_wealth_of_votes(wins, losses) >= -np.log(share)) | final, dtype=np.bool_)


class PairTests:
    """Any-time tests of several pairs (class, rival), one at each point: a ``Decider`` for ``sampling.engine``.

    **Guarantee.** Where the class has at least as much as the rival, ``passed`` with probability at most alpha (T21).
    """

    def __init__(self, labels: IntArray, rivals: IntArray, alpha: float, max_n: int) -> None:
        """Fix the pairs; each is given up after ``max_n`` draws."""
        self._labels, self._rivals = labels, rivals
        self._alpha, self._max_n = check_alpha(alpha), check_whole("max_n", max_n, 1)
        self.n: IntArray = np.zeros(len(labels), dtype=np.int64)
        self.wins, self.losses = self.n.copy(), self.n.copy()
        self.passed: BoolArray = np.zeros(len(labels), dtype=np.bool_)
        self._given_up = self.passed.copy()

    @property
    def undecided(self) -> IntArray:
        """The points that want more draws."""
        return np.flatnonzero(~self.passed & ~self._given_up)

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws each wants next."""
        return np.minimum(np.maximum(FIRST_BATCH, self.n[rows] // GROWTH), self._max_n - self.n[rows])

    def update(self, rows: IntArray, counts: IntArray) -> None:
        """Take the votes of these next draws."""
        self.n[rows] += counts.sum(axis=1)
        self.wins[rows] += counts[np.arange(len(rows)), self._rivals[rows]]
        self.losses[rows] += counts[np.arange(len(rows)), self._labels[rows]]
        wins, losses = self.wins[rows], self.losses[rows]
        last = self.n[rows] >= self._max_n
        self.passed[rows] |= pairs_refuted(wins, losses, last, self._alpha)
        votes = np.maximum(wins + losses, 1)
        made = self.n[rows] / self._max_n
        share = wins / votes + HOPEFUL * (1.0 - made) * 0.5 / np.sqrt(votes)
        lost = (2.0 * share - 1.0) * np.sqrt(votes / made) < -ndtri(split(self._alpha, 2))
        self._given_up[rows] = ~self.passed[rows] & (lost | last)
