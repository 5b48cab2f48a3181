"""Sample until decided: votes in, decisions out, at whatever time the evidence suffices.

One object follows a group of inputs up the same ladder of radii. A scheduler asks ``batch_sizes``, draws that many
noisy copies of each input, hands their votes to ``update`` and goes on while inputs are undecided. Why it may stop at
any time is T16, why a whole ladder costs no more than one radius T18.
"""

from dataclasses import dataclass
from math import inf
from typing import get_args

import numpy as np

from buckler.certify.issue import issue_target
from buckler.certify.ladder import Ladder
from buckler.errors import InvalidInput, check_choice, check_label, check_whole, check_whole_array, show
from buckler.records import Certificate
from buckler.types import ArrayLike, BoolArray, Decision, FloatArray, IntArray

FIRST_BATCH = 16
"""Clear failures, the commonest, are known after these."""

SMALLEST_BATCH = 4
FINEST = 16
COARSEST = 2
"""Later batches lie between a sixteenth and a half of the draws so far, near to what certifying still takes."""


@dataclass(frozen=True, slots=True)
class Decided:
    """How one input ended, or stands: its certificate, and the votes and looks behind it.

    ``votes`` are pairs (class, votes) of every class that got any. ``certified_at`` holds, for each radius that is
    certified, lowest first, the number of draws at which it was; the last ``by_exam`` of them were certified by the
    exam at draw ``max_n``, the others by e-values.
    """

    certificate: Certificate
    label: int
    decision: Decision
    votes: tuple[tuple[int, int], ...]
    certified_at: tuple[int, ...]
    by_exam: int = 0

    def __post_init__(self) -> None:
        """Refuse fields that contradict one another."""
        check_choice("decision", self.decision, get_args(Decision))
        n, looks = self.certificate.n, (0, *self.certified_at, self.certificate.n)
        if self.certificate.predicted not in {None, check_whole("label", self.label, 0)}:
            raise InvalidInput(f"label must be the class predicted; got {self.label}")
        counts = [check_whole("votes", count, 1) for _, count in self.votes]
        if sum(counts) != n or len({check_whole("votes", k, 0) for k, _ in self.votes}) != len(counts):
            raise InvalidInput(f"votes must be of different classes and those of {n} draws; got {show(self.votes)}")
        if list(looks) != sorted(looks) or 0 in self.certified_at:
            raise InvalidInput(f"certified_at must rise within 1 and {n}; got {show(self.certified_at)}")
        if bool(self.certified_at) == self.certificate.abstained:
            raise InvalidInput("certified_at must hold a look if and only if a radius is certified")
        check_whole("by_exam", self.by_exam, 0, len(self.certified_at))


class AnytimeTest:
    """How far up a ladder of radii each of several inputs gets, decided as draws come in.

    **Guarantee.** For each input, the probability that a radius is *ever* certified on whose open l2 ball the smoothed
    prediction is not constantly the label is at most ``ladder.alpha``: any-time, for independent draws in the order
    they were made, with labels and ladder fixed beforehand. Batches of any size keep it, as does giving up at any
    moment for any reason.

    A radius is certified once all those below it are, and every other class has been overcome at it: the e-value of
    each class reached the level at some look, not all at the same one, or the exam was passed at draw ``max_n``. The
    class of the smallest margin is fixed and unknown; if its margin is at most the radius', its own e-value or the exam
    must err (see ``Ladder``). There is no division over classes.

    >>> test = AnytimeTest(Ladder((0.25, 0.5), sigma=0.5), labels=[0], num_classes=10)
    >>> while test.undecided.size:
    ...     votes = np.zeros((1, 10), dtype=np.int64)
    ...     votes[0, 0] = test.batch_sizes(test.undecided)[0]
    ...     test.update(test.undecided, votes)
    >>> decided = test.decided(0, "image 7")
    >>> decided.decision, decided.certificate.radius, decided.certified_at
    ('certified', 0.5, (24, 55))
    """

    def __init__(self, ladder: Ladder, labels: ArrayLike, num_classes: int) -> None:
        """Start without draws; ``labels`` is one class for each input."""
        self.ladder = ladder
        self._classes = check_whole("num_classes", num_classes, 2)
        given = check_whole_array("labels", labels, low=-(2**62))
        self._labels = check_label(given, self._classes, given.size, "labels")
        inputs = len(self._labels)
        self._votes: IntArray = np.zeros((inputs, self._classes), dtype=np.int64)
        self._n: IntArray = np.zeros(inputs, dtype=np.int64)
        self._rung: IntArray = np.zeros(inputs, dtype=np.int64)
        self._overcome: BoolArray = np.zeros((inputs, self._classes), dtype=np.bool_)
        self._overcome[np.arange(inputs), self._labels] = True
        self._lacking: FloatArray = np.full(inputs, ladder.needed)
        self._certified_at: IntArray = np.zeros((inputs, len(ladder)), dtype=np.int64)
        self._by_exam: IntArray = np.zeros(inputs, dtype=np.int64)
        self._hopeless: BoolArray = np.zeros(inputs, dtype=np.bool_)

    @property
    def n(self) -> IntArray:
        """Draws used so far, for each input."""
        return self._n.copy()

    @property
    def undecided(self) -> IntArray:
        """The inputs for which more draws are wanted."""
        return np.flatnonzero(~self._hopeless & (self._rung < len(self.ladder)))

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next for each of these inputs: 0 once decided, never beyond ``max_n``."""
        n, open_ = self._n[rows], np.isin(rows, self.undecided)
        rung = np.minimum(self._rung[rows], len(self.ladder) - 1)
        # No run of votes for the label can certify with fewer draws than this; it may be beyond any whole number.
        least = np.ceil(np.minimum(self._lacking[rows] / self.ladder.fastest[rung], 2.0**62)).astype(np.int64)
        low = np.maximum(SMALLEST_BATCH, -(-n // FINEST))
        high = np.maximum(FIRST_BATCH, n // COARSEST)
        wanted = np.minimum(np.maximum(low, np.minimum(least, high)), self.ladder.max_n - n)
        return np.asarray(np.where(open_, wanted, 0), dtype=np.int64)

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Add the votes ``counts[row, class]`` of these inputs' next draws, all of them, and decide what follows."""
        where, votes = self._checked(rows, counts)
        self._votes[where] += votes
        self._n[where] += votes.sum(axis=1)
        while where.size:
            passed, by_exam = self._look(where)
            up = where[passed]
            self._certified_at[up, self._rung[up]] = self._n[up]
            self._by_exam[up] += by_exam[passed]
            self._rung[up] += 1
            self._overcome[up] = False
            self._overcome[up, self._labels[up]] = True
            # What certified one radius may certify the next one too.
            where = up[self._rung[up] < len(self.ladder)]

    def _checked(self, rows: ArrayLike, counts: ArrayLike) -> tuple[IntArray, IntArray]:
        where, votes = check_whole_array("rows", rows), check_whole_array("counts", counts)
        if votes.shape != (where.size, self._classes) or (votes.sum(axis=-1) == 0).any():
            raise InvalidInput(
                f"counts must be a vote count for each of {where.size} inputs and {self._classes} classes, with at "
                f"least one draw each; got shape {votes.shape}"
            )
        if len(set(where.tolist())) != where.size or not np.isin(where, self.undecided).all():
            raise InvalidInput("counts must be of different inputs that are undecided; got others")
        if (most := int((self._n[where] + votes.sum(axis=1)).max(initial=0))) > self.ladder.max_n:
            raise InvalidInput(f"counts must stay within max_n = {self.ladder.max_n} draws; got {most}")
        return where, votes

    def _look(self, rows: IntArray) -> tuple[BoolArray, BoolArray]:
        """Return which inputs pass their rung, and which of those by the exam alone; the hopeless are marked."""
        n, rung, votes = self._n[rows], self._rung[rows], self._votes[rows]
        top = votes[np.arange(len(rows)), self._labels[rows]]
        open_ = ~self._overcome[rows]
        hardest = np.where(open_, votes, -1).max(axis=1)
        wealth = np.where(open_, self.ladder.wealth(rung, top, np.zeros_like(top), n)[:, None], inf)
        row, rival = np.nonzero(open_ & (votes > 0))
        wealth[row, rival] = self.ladder.wealth(rung[row], top[row], votes[row, rival], n[row])
        self._overcome[rows] |= wealth >= self.ladder.needed
        self._lacking[rows] = lacking = self.ladder.needed - wealth.min(axis=1)
        spent = n == self.ladder.max_n
        by_wealth = self._overcome[rows].all(axis=1)
        passed = by_wealth | (spent & self.ladder.passes_exam(rung, top))
        lost = ~passed & spent
        maybe = np.flatnonzero(~passed & ~spent)
        maybe = maybe[self.ladder.exam_out_of_reach(rung[maybe], top[maybe], n[maybe])]
        three = np.stack([top, hardest, n - top - hardest], axis=1)[maybe]
        lost[maybe] = self.ladder.out_of_reach(rung[maybe], three, lacking[maybe])
        self._hopeless[rows[lost]] = True
        return passed, passed & ~by_wealth

    def decided(self, row: int, id: str, n0: int = 0) -> Decided:  # noqa: A002  (the record's own name for it)
        """Return how one input stands: the certificate of the largest radius certified so far, or an abstention.

        ``n0`` is the size of the separate selection sample that chose the label; 0 if it was given.
        """
        label, rung, ladder = int(self._labels[row]), int(self._rung[row]), self.ladder
        certificate = issue_target(
            ladder.law,
            ladder.radii[rung - 1] if rung else 0.0,
            id=id,
            label=label if rung else None,
            alpha=ladder.alpha,
            n=check_whole("the number of draws", int(self._n[row]), 1),
            n0=check_whole("n0", n0, 0),
        )
        decision: Decision = "hopeless" if self._hopeless[row] else "certified" if rung == len(ladder) else "undecided"
        return Decided(
            certificate,
            label,
            decision,
            tuple((int(k), int(self._votes[row, k])) for k in np.flatnonzero(self._votes[row])),
            tuple(self._certified_at[row, :rung].tolist()),
            int(self._by_exam[row]),
        )
