"""Sample until decided: votes in, decisions out, at whatever time the evidence suffices.

One object follows a group of inputs up the same ladder of radii. A scheduler asks ``batch_sizes``, draws that many
noisy copies of each input, hands their votes to ``update`` and goes on while inputs are undecided. Why it may stop at
any time is T16, why a whole ladder costs no more than one radius T18.
"""

from math import inf
from threading import Lock

import numpy as np

from buckler.certify.decision import Decided
from buckler.certify.ladder import Ladder
from buckler.certify.make_certificates import issue_target
from buckler.errors import InvalidInput, check_label, check_whole, check_whole_array, show
from buckler.types import ArrayLike, BoolArray, Decision, FloatArray, IntArray

FIRST_BATCH = 16
"""Clear failures, the commonest, are known after these."""

SMALLEST_BATCH = 4
FINEST = 16
COARSEST = 4
"""Later batches lie between a sixteenth and a fourth of the draws so far, near to what certifying still takes."""


class AnytimeTest:
    """How far up a ladder of radii each of several inputs gets, decided as draws come in.

    **Guarantee.** For each input, the probability that a radius is *ever* certified on whose ball, in the law's norm,
    the smoothed prediction is not constantly the label is at most ``ladder.alpha``: any-time, for independent draws in
    the order they were made, with labels and ladder fixed beforehand. Batches of any size keep it, as does giving up at
    any moment for any reason.

    A radius is certified once all those below it are, and every other class has been overcome at it: the e-value of
    each class reached the level at some look, not all at the same one, or the exam was passed at draw ``exam_n``. The
    class of the smallest margin is fixed and unknown; if its margin is at most the radius', its own e-value or the exam
    must err (see ``Ladder``; theory T16 to T18). There is no division over classes.

    One thread may ask how inputs stand while another hands over votes: an answer is of before or after them.

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
        self._precise: BoolArray = np.zeros(inputs, dtype=np.bool_)
        self._whole = Lock()

    @property
    def n(self) -> IntArray:
        """Draws used so far, for each input."""
        return self._n.copy()

    @property
    def undecided(self) -> IntArray:
        """The inputs for which more draws are wanted."""
        return np.flatnonzero(~self._hopeless & ~self._precise & (self._rung < len(self.ladder)))

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next for each of these inputs: 0 once decided, never beyond ``max_n``.

        The draws end at ``exam_n`` before they go on beyond it.
        """
        n, open_ = self._n[rows], np.isin(rows, self.undecided)
        rung = np.minimum(self._rung[rows], len(self.ladder) - 1)
        # No run of votes for the label can certify with fewer draws than this; it may be beyond any whole number.
        least = np.ceil(np.minimum(self._lacking[rows] / self.ladder.fastest[rung], 2.0**62)).astype(np.int64)
        low = np.maximum(SMALLEST_BATCH, -(-n // FINEST))
        high = np.maximum(FIRST_BATCH, n // COARSEST)
        end = np.where(n < self.ladder.exam_n, self.ladder.exam_n, self.ladder.max_n)
        wanted = np.minimum(np.maximum(low, np.minimum(least, high)), end - n)
        return np.asarray(np.where(open_, wanted, 0), dtype=np.int64)

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Add the votes ``counts[row, class]`` of these inputs' next draws, all of them, and decide what follows."""
        with self._whole:
            where, votes = self._checked(rows, counts)
            self._votes[where] += votes
            self._n[where] += votes.sum(axis=1)
            self._climb(where)

    def restore(self, row: int, before: Decided) -> None:
        """Put an input where an earlier test with the same ladder left it, perhaps with fewer draws in ``max_n``.

        **Guarantee.** That of the whole, over all tests together, if all have the same radii, alpha and ``exam_n``. The
        votes are looked at again, as they were: the exam is not taken again at another draw (T17).
        """
        votes = np.zeros(self._classes, dtype=np.int64)
        fits = before.label == self._labels[row] and max(k for k, _ in before.votes) < self._classes
        if not fits or self._n[row] or before.certificate.n > self.ladder.max_n:
            raise InvalidInput(
                f"before must be of this input, of at most {self.ladder.max_n} draws; got {show(before)}"
            )
        rung, ladder, made = len(before.certified_at), self.ladder, before.certificate
        radius = ladder.radii[rung - 1] if 0 < rung <= len(ladder) else 0.0
        same = (made.alpha, made.law, made.margin_kind) == (
            ladder.alpha, ladder.law, ladder.margin,
        )  # fmt: skip
        if made.radius != radius or not same or (before.by_exam and ladder.exam_n not in before.certified_at):
            raise InvalidInput(f"before must be of the same radii, alpha, law, margin and exam; got {show(before)}")
        for k, count in before.votes:
            votes[k] = count
        self._votes[row], self._n[row], self._rung[row] = votes, votes.sum(), rung
        self._certified_at[row, :rung], self._by_exam[row] = before.certified_at, before.by_exam
        bits = np.unpackbits(np.frombuffer(before.overcome, dtype=np.uint8), count=self._classes).astype(np.bool_)
        self._overcome[row] |= bits
        self._precise[row] = before.decision == "precise"
        if rung < len(self.ladder) and not self._precise[row]:
            self._climb(np.array([row]))

    def _climb(self, where: IntArray) -> None:
        """Look at these inputs, and again at those that pass a rung; mark those that are to be drawn no more."""
        while where.size:
            passed, by_exam = self._look(where)
            self._stop(where[~passed])
            up = where[passed]
            self._certified_at[up, self._rung[up]] = self._n[up]
            self._by_exam[up] += by_exam[passed]
            # Before the rung: wherever an interrupt comes, no class stands as overcome at a rung that it was not.
            self._overcome[up] = False
            self._overcome[up, self._labels[up]] = True
            self._rung[up] += 1
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
        """Return which inputs pass their rung, and which of those by the exam alone."""
        n, rung, votes = self._n[rows], self._rung[rows], self._votes[rows]
        top = votes[np.arange(len(rows)), self._labels[rows]]
        open_ = ~self._overcome[rows]
        wealth = np.where(open_, self.ladder.wealth(rung, top, np.zeros_like(top), n)[:, None], inf)
        row, rival = np.nonzero(open_ & (votes > 0))
        wealth[row, rival] = self.ladder.wealth(rung[row], top[row], votes[row, rival], n[row])
        self._lacking[rows] = self.ladder.needed - wealth.min(axis=1)
        self._overcome[rows] |= wealth >= self.ladder.needed
        by_wealth = self._overcome[rows].all(axis=1)
        by_exam = ~by_wealth & (n == self.ladder.exam_n)
        by_exam[by_exam] = self.ladder.passes_exam(rung[by_exam], top[by_exam])
        return by_wealth | by_exam, by_exam

    def _stop(self, rows: IntArray) -> None:
        """Mark those of these inputs, just looked at, whose rung looks out of reach or that are precise enough."""
        n, rung, votes, ladder = self._n[rows], self._rung[rows], self._votes[rows], self.ladder
        top = votes[np.arange(len(rows)), self._labels[rows]]
        hardest = np.where(self._overcome[rows], -1, votes).max(axis=1)
        lost = n == ladder.max_n
        maybe = np.flatnonzero(~lost)
        maybe = maybe[ladder.exam_out_of_reach(rung[maybe], top[maybe], n[maybe])]
        three = np.stack([top, hardest, n - top - hardest], axis=1)[maybe]
        lost[maybe] = ladder.out_of_reach(rung[maybe], three, self._lacking[rows[maybe]])
        self._hopeless[rows] = lost
        self._precise[rows] = ~lost & ladder.precise_enough(rung, top, hardest, n)

    def decided(self, row: int, id: str, n0: int = 0) -> Decided:  # noqa: A002  (the record's own name for it)
        """Return how one input stands: the certificate of the largest radius certified so far, or an abstention.

        ``n0`` is the size of the separate selection sample that chose the label; 0 if it was given.
        """
        with self._whole:
            return self._standing(row, id, n0)

    def _standing(self, row: int, name: str, n0: int) -> Decided:
        label, rung, ladder = int(self._labels[row]), int(self._rung[row]), self.ladder
        certificate = issue_target(
            ladder.law,
            ladder.radii[rung - 1] if rung else 0.0,
            id=name,
            label=label if rung else None,
            alpha=ladder.alpha,
            n=check_whole("the number of draws", int(self._n[row]), 1),
            n0=check_whole("n0", n0, 0),
            kind=ladder.margin,
        )
        decision: Decision = "hopeless" if self._hopeless[row] else "precise" if self._precise[row] else "undecided"
        return Decided(
            certificate,
            label,
            "certified" if rung == len(ladder) else decision,
            tuple((int(k), int(self._votes[row, k])) for k in np.flatnonzero(self._votes[row])),
            tuple(self._certified_at[row, :rung].tolist()),
            int(self._by_exam[row]),
            b"" if rung == len(ladder) else np.packbits(self._overcome[row]).tobytes(),
        )
