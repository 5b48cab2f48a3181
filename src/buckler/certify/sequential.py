"""Draw until decided: sequential tests of votes (``AnytimeTest``) and sequential limits of scores (``ScoreTest``).

A scheduler asks for batch sizes, draws that many noisy copies of each input, hands their votes or scores to ``update``
and goes on while inputs are undecided. Drawing may stop at any time (T16), and a ladder of radii costs no more alpha
than one radius (T18). Of the limits of scores only the predictable plug-in confidence sequence holds at every number of
draws (T13, T18c): the betting limits aim their stakes at one, the other closed forms hold at one, and these are refused
by name.
"""

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf, log, log1p, log10
from threading import Lock
from typing import get_args

import numpy as np
from scipy.special import log_ndtr

from buckler.bounds.betting import earlier_moments
from buckler.bounds.means import LIMIT_SLACK, sequence_lower
from buckler.certificate import ABSTAINED, ANYTIME, Certificate
from buckler.certificates import Certificates
from buckler.certify import budget
from buckler.certify.ladder import HORIZONS, WORTH, Ladder, gain
from buckler.certify.predictions import PredictionTest, ScoreWinner
from buckler.certify.settings import ChosenClass, Settings, make_certificates
from buckler.certify.tangents import SLOPES, best_slopes, heights, margin_from_height
from buckler.errors import BucklerWarning, InvalidInput, check_choice, check_label, check_whole, check_whole_array, show
from buckler.types import ArrayLike, BoolArray, Decision, FloatArray, IntArray, Label

FIRST_BATCH_DRAWS = 16
"""Draws of an input's first batch of votes: it shows the commonest inputs, clear failures, to be such."""

SMALLEST_BATCH_DRAWS = 4
FINE_BATCH_DIVISOR = 32
COARSE_BATCH_DIVISOR = 4
"""Smallest later batch of votes, and divisors of the draws so far: a later batch has between a 32nd and a fourth of
them, and within these limits the number of draws that certifying still takes."""

SEQUENCE = "pairwise/sequence"
FIRST_SCORE_DRAWS = 64
"""Draws of an input's first batch of scores; a later batch has a fourth of the draws so far."""


@dataclass(frozen=True, slots=True)
class Decided:
    """State of the sequential test of one input: its certificate so far, and the votes behind it.

    ``label`` is the class that is certified. ``decision`` is ``certified`` (every radius is), ``given up`` (the next
    radius looks out of reach), ``precise`` (the certified radius is as close to the estimate as was asked) or
    ``undecided`` (drawing was stopped from outside; the certificate holds all the same). ``votes`` are pairs (class,
    votes) of every class that got any. ``certified_at`` holds, for each radius passed, lowest first, the number of
    draws at which it was; the last ``by_final_test`` of them passed by the final test, the others by e-values.
    ``radii`` and ``final_n`` are those of the ladder. ``overcome`` marks the classes whose e-values have reached their
    level at the next radius, one bit a class; ``bets`` is the state of the winner's test. These four serve to resume.
    """

    certificate: Certificate
    label: Label
    decision: Decision
    votes: tuple[tuple[int, int], ...]
    certified_at: tuple[int, ...]
    by_final_test: int = 0
    radii: tuple[float, ...] = field(default=(), compare=False)
    overcome: bytes = field(default=b"", repr=False)
    bets: bytes = field(default=b"", repr=False)
    final_n: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        check_choice("decision", self.decision, get_args(Decision))
        n, looks = self.certificate.n, (0, *self.certified_at, self.certificate.n)
        if not isinstance(self.label, str):
            check_whole("label", self.label, 0)
        if self.certificate.predicted not in {None, self.label}:
            raise InvalidInput(f"label must be the class predicted; got {self.label}")
        counts = [check_whole("votes", count, 1) for _, count in self.votes]
        if sum(counts) != n or len({check_whole("votes", k, 0) for k, _ in self.votes}) != len(counts):
            raise InvalidInput(f"votes must be of different classes and those of {n} draws; got {show(self.votes)}")
        if list(looks) != sorted(looks) or 0 in self.certified_at:
            raise InvalidInput(f"certified_at must rise within 1 and {n}; got {show(self.certified_at)}")
        if not self.certified_at and not self.certificate.abstained:
            raise InvalidInput("certified_at must name a draw for a certificate with a radius; got none")
        check_whole("by_final_test", self.by_final_test, 0, len(self.certified_at))


class AnytimeTest:
    """Any-time test of votes that certifies the rising radii of a ``Ladder``, one after another, at several inputs.

    An input is undecided, and more draws should be made, until all radii are certified, or the next one looks out of
    reach, or the certified one is precise enough, or ``ladder.max_n`` draws are made. Inputs are named by their row
    number.

    **Guarantee.** For each input, the probability that a radius is *ever* certified on whose ball, in the noise's norm,
    the smoothed prediction is not constantly the input's class is at most ``ladder.alpha``: any-time, for independent
    draws in the order they were made, with the ladder, and the labels if there are any, fixed beforehand. Batches of
    any size keep it, as does giving up at any moment for any reason.

    A radius is certified once all those below it are, and every other class has been overcome at it: the e-value
    against each has reached the level after some batch, not all after the same one, or the final test was passed at
    draw ``final_n``. The class of the smallest margin is fixed and unknown; if its margin is at most the radius', its
    own e-value or the final test must err (see ``Ladder``; theory T16 to T18). There is no division over classes.

    Without labels the class is the leader in votes, and it certifies only once the winner's test (``PredictionTest``)
    has rejected every other class (T18d); until then an input that passed a radius stays undecided. If the leader
    changes before, the votes of all draws are tested again for the new one.

    One thread may call ``decided`` while another calls ``update``: it returns the state of before or after the votes.

    >>> from buckler.noise import Gaussian
    >>> test = AnytimeTest(Ladder((0.25, 0.5), Gaussian(0.5)), [0], num_classes=10)
    >>> while test.undecided.size:
    ...     votes = np.zeros((1, 10), dtype=np.int64)
    ...     votes[0, 0] = test.batch_sizes(test.undecided)[0]
    ...     test.update(test.undecided, votes)
    >>> decided = test.decided(0, "image 7")
    >>> decided.decision, decided.certificate.radius, decided.certified_at
    ('certified', 0.5, (23, 52))
    """

    def __init__(self, ladder: Ladder, labels: ArrayLike | int, num_classes: int) -> None:
        """Start without draws; ``labels`` is a class for each input, or the number of inputs if ``ladder.winner``."""
        self.ladder = ladder
        self._classes = check_whole("num_classes", num_classes, 2)
        if ladder.winner:
            inputs = check_whole("labels", labels, 1)
            self._labels: IntArray = np.zeros(inputs, dtype=np.int64)
            self._winner = PredictionTest(inputs, num_classes, alpha=ladder.winner_alpha, max_n=ladder.max_n)
        else:
            given = check_whole_array("labels", labels, low=-(2**62))
            self._labels = check_label(given, self._classes, given.size, "labels")
            inputs = len(self._labels)
        self._votes: IntArray = np.zeros((inputs, self._classes), dtype=np.int64)
        self._n: IntArray = np.zeros(inputs, dtype=np.int64)
        # The rung of an input is the position of its next radius, the number of radii passed. Which classes are
        # overcome, and the log wealth that the smallest e-value among the others lacks, are of that rung.
        self._rung: IntArray = np.zeros(inputs, dtype=np.int64)
        self._overcome: BoolArray = np.zeros((inputs, self._classes), dtype=np.bool_)
        self._open_rung(np.arange(inputs))
        self._lacking: FloatArray = np.full(inputs, ladder.needed)
        self._certified_at: IntArray = np.zeros((inputs, len(ladder)), dtype=np.int64)
        self._by_final: IntArray = np.zeros(inputs, dtype=np.int64)
        self._given_up: BoolArray = np.zeros(inputs, dtype=np.bool_)
        self._precise: BoolArray = np.zeros(inputs, dtype=np.bool_)
        self._whole = Lock()  # held while votes are added, so that ``decided`` never sees half of them

    @property
    def n(self) -> IntArray:
        """Number of draws so far of each input."""
        return self._n.copy()

    @property
    def undecided(self) -> IntArray:
        """Row numbers of the undecided inputs, in rising order."""
        wanted = ~self._given_up & ~self._precise & (self._rung < len(self.ladder))
        if self.ladder.winner:  # a radius is passed, and the class is not known to be the winner yet
            wanted |= (self._rung > 0) & (self._winner.answers == ABSTAINED) & (self._n < self.ladder.max_n)
        return np.flatnonzero(wanted)

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next for each of the inputs ``rows``: 0 unless it is undecided.

        No batch goes beyond ``max_n`` draws, nor across ``final_n``: one ends there before the next goes on.
        """
        n, open_ = self._n[rows], np.isin(rows, self.undecided)
        rung = np.minimum(self._rung[rows], len(self.ladder) - 1)
        # No run of votes for the label can certify with fewer draws than this; it may be beyond any whole number.
        least = np.ceil(np.minimum(self._lacking[rows] / self.ladder.fastest[rung], 2.0**62)).astype(np.int64)
        low = np.maximum(SMALLEST_BATCH_DRAWS, -(-n // FINE_BATCH_DIVISOR))
        high = np.maximum(FIRST_BATCH_DRAWS, n // COARSE_BATCH_DIVISOR)
        end = np.where(n < self.ladder.final_n, self.ladder.final_n, self.ladder.max_n)
        wanted = np.minimum(np.maximum(low, np.minimum(least, high)), end - n)
        return np.asarray(np.where(open_, wanted, 0), dtype=np.int64)

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Add the votes ``counts[row, class]`` of the next draws of the inputs ``rows``, and test the next radii."""
        with self._whole:
            where, votes = self._checked(rows, counts)
            if self.ladder.winner:
                betting = np.isin(where, self._winner.undecided)
                self._winner.update(where[betting], votes[betting])
            self._votes[where] += votes
            self._n[where] += votes.sum(axis=1)
            if self.ladder.winner:
                self._follow(where)
            self._climb(where[self._rung[where] < len(self.ladder)])

    def _checked(self, rows: ArrayLike, counts: ArrayLike) -> tuple[IntArray, IntArray]:
        """Return rows and votes as arrays; raise InvalidInput unless they may be added to undecided inputs."""
        where, votes = check_whole_array("rows", rows), check_whole_array("counts", counts)
        if votes.shape != (where.size, self._classes):
            raise InvalidInput(
                f"counts must have shape [{where.size}, {self._classes}], one row for each of the rows and a column "
                f"for each class; got shape {list(votes.shape)}"
            )
        if (empty := where[votes.sum(axis=1) == 0]).size:
            raise InvalidInput(f"counts must hold at least one draw of each input; got none of input {empty[0]}")
        if len(set(where.tolist())) != where.size or not np.isin(where, self.undecided).all():
            raise InvalidInput(f"rows must be different inputs that are undecided; got {show(where.tolist(), 60)}")
        if (most := int((self._n[where] + votes.sum(axis=1)).max(initial=0))) > self.ladder.max_n:
            raise InvalidInput(f"counts must stay within max_n = {self.ladder.max_n} draws; got {most}")
        return where, votes

    def _follow(self, where: IntArray) -> None:
        """Make the winner, or the leader while there is none, the class of each input; a new class starts at rung 0."""
        answers = self._winner.answers[where]
        leaders = np.where(answers == ABSTAINED, self._votes[where].argmax(axis=1), answers)
        changed = where[leaders != self._labels[where]]
        self._labels[where] = leaders
        self._rung[changed], self._by_final[changed], self._certified_at[changed] = 0, 0, 0
        self._open_rung(changed)
        self._given_up[changed] = False

    def _open_rung(self, where: IntArray) -> None:
        """Note that no class but their own is overcome yet at the rung of these inputs."""
        self._overcome[where] = False
        self._overcome[where, self._labels[where]] = True

    def _climb(self, where: IntArray) -> None:
        """Look at these inputs, and again at those that pass a rung; mark those that are to be drawn no more."""
        while where.size:
            passed, by_final = self._look(where)
            self._stop(where[~passed])
            up = where[passed]
            self._certified_at[up, self._rung[up]] = self._n[up]
            self._by_final[up] += by_final[passed]
            # Before the rung: wherever an interrupt comes, no class stands as overcome at a rung that it was not.
            self._open_rung(up)
            self._rung[up] += 1
            # What certified one radius may certify the next one too.
            where = up[self._rung[up] < len(self.ladder)]

    def _look(self, rows: IntArray) -> tuple[BoolArray, BoolArray]:
        """Note which classes are overcome; return which inputs pass their rung, and which by the final test alone."""
        n, rung, votes = self._n[rows], self._rung[rows], self._votes[rows]
        top = votes[np.arange(len(rows)), self._labels[rows]]
        open_ = ~self._overcome[rows]
        wealth = np.where(open_, self.ladder.wealth(rung, top, np.zeros_like(top), n)[:, None], inf)
        row, rival = np.nonzero(open_ & (votes > 0))
        wealth[row, rival] = self.ladder.wealth(rung[row], top[row], votes[row, rival], n[row])
        self._lacking[rows] = self.ladder.needed - wealth.min(axis=1)
        self._overcome[rows] |= wealth >= self.ladder.needed
        by_wealth = self._overcome[rows].all(axis=1)
        by_final = ~by_wealth & (n == self.ladder.final_n)
        hardest = np.where(self._overcome[rows], -1, votes).max(axis=1)
        at = by_final.copy()
        by_final[at] = self.ladder.passes_final_test(rung[at], top[at], hardest[at], self._classes)
        return by_wealth | by_final, by_final

    def _stop(self, rows: IntArray) -> None:
        """Mark those of these inputs, just looked at, whose rung looks out of reach or that are precise enough."""
        n, rung, votes, ladder = self._n[rows], self._rung[rows], self._votes[rows], self.ladder
        top = votes[np.arange(len(rows)), self._labels[rows]]
        hardest = np.where(self._overcome[rows], -1, votes).max(axis=1)
        lost = n == ladder.max_n
        maybe = np.flatnonzero(~lost)
        three = np.stack([top, hardest, n - top - hardest], axis=1)[maybe]
        lost[maybe] = ladder.out_of_reach(rung[maybe], three, self._lacking[rows[maybe]])
        self._given_up[rows] = lost
        self._precise[rows] = ~lost & ladder.precise_enough(rung, top, hardest, n)

    def restore(self, row: int, before: Decided) -> None:
        """Put the input in row ``row``, not drawn yet, where an earlier test left it: its state was ``before``.

        The earlier test had the same ladder, but for a ``max_n`` that may have been smaller.

        **Guarantee.** That of the class, over all tests together, if all have the same radii, alpha and ``final_n``.
        The votes are tested again, as they were: the final test is not taken again at another draw (T17).
        """
        made, ladder, rung = before.certificate, self.ladder, len(before.certified_at)
        if self._n[row] or made.n > ladder.max_n or max(k for k, _ in before.votes) >= self._classes:
            raise InvalidInput(f"before must be of this input, of at most {ladder.max_n} draws; got {show(before)}")
        if not ladder.winner and before.label != self._labels[row]:
            raise InvalidInput(f"before must be of class {self._labels[row]}; got class {before.label}")
        asked = {
            "radii": (before.radii, ladder.radii), "alpha": (made.alpha, ladder.alpha),
            "winner_alpha": (made.winner_alpha, ladder.winner_alpha), "noise": (made.noise, ladder.noise),
            "margin": (made.margin_kind, ladder.margin), "final_n": (before.final_n, ladder.final_n),
        }  # fmt: skip
        for name, (theirs, ours) in asked.items():
            if theirs != ours:
                raise InvalidInput(f"before must be of a test with {name} {show(ours)}; got {show(theirs)}")
        votes = np.zeros(self._classes, dtype=np.int64)
        for k, count in before.votes:
            votes[k] = count
        if ladder.winner:
            self._winner.restore(row, votes, before.bets)
            self._labels[row] = before.label
            self._open_rung(np.array([row]))
        self._votes[row], self._n[row], self._rung[row] = votes, votes.sum(), rung
        self._certified_at[row, :rung], self._by_final[row] = before.certified_at, before.by_final_test
        bits = np.unpackbits(np.frombuffer(before.overcome, dtype=np.uint8), count=self._classes).astype(np.bool_)
        self._overcome[row] |= bits
        self._precise[row] = before.decision == "precise"
        if rung < len(self.ladder) and not self._precise[row]:
            self._climb(np.array([row]))

    def decided(self, row: int, id: str, n0: int = 0, seed: int | None = None) -> Decided:  # noqa: A002
        """Return the state of the input in row ``row``, with its certificate of the largest radius certified so far.

        The certificate, an abstention if there is no such radius, names the input ``id``. ``n0`` is the number of
        separate draws that chose its label, 0 for none, and ``seed`` that of the noise, if it is known.
        """
        with self._whole:
            return self._standing(row, id, n0, seed)

    def _standing(self, row: int, name: str, n0: int, seed: int | None) -> Decided:
        label, rung, ladder = int(self._labels[row]), int(self._rung[row]), self.ladder
        won = not ladder.winner or int(self._winner.answers[row]) == label
        radius = ladder.radii[rung - 1] if rung and won else 0.0
        certificate = Certificate(
            id=name,
            predicted=label if radius else None,
            radius=radius,
            margin_kind=ladder.margin,
            margin=ladder.noise.margin(radius, ladder.margin) if radius else -inf,
            alpha=ladder.alpha,
            n=check_whole("the number of draws", int(self._n[row]), 1),
            n0=check_whole("n0", n0, 0),
            winner_alpha=ladder.winner_alpha,
            noise=ladder.noise,
            map="hardmax",
            temperature=None,
            method=ANYTIME,
            seed=seed,
        )
        under_way = bool(np.isin(row, self.undecided))
        decision: Decision = "undecided" if under_way else "precise" if self._precise[row] else "given up"
        return Decided(
            certificate,
            label,
            "certified" if rung == len(ladder) and won else decision,
            tuple((int(k), int(self._votes[row, k])) for k in np.flatnonzero(self._votes[row])),
            tuple(self._certified_at[row, :rung].tolist()),
            int(self._by_final[row]),
            ladder.radii,
            b"" if rung == len(ladder) else np.packbits(self._overcome[row]).tobytes(),
            self._winner.state(row) if ladder.winner else b"",
            ladder.final_n,
        )


MOST_CHECKED = 1_000_000
"""Largest number of draws up to which ``warn_of_short_ladder`` searches for the fewest that can certify."""


def warn_of_short_ladder(ladder: Ladder, num_classes: int) -> None:
    """Warn if a ladder's ``max_n`` draws cannot certify one of its radii, and say how many it takes.

    Of a ladder for a precision only the first radius is checked, since the user asked for none of them.
    """
    asked = ladder.radii[:1] if ladder.precision is not None else ladder.radii
    if _reached(ladder.max_n, replace(ladder, radii=asked[-1:], precision=None), num_classes):
        return
    rung = _reached(ladder.max_n, replace(ladder, radii=asked, precision=None), num_classes)
    if rung == len(asked):
        return
    first = replace(ladder, radii=asked[rung : rung + 1], precision=None)
    draws = range(MOST_CHECKED + 1)
    enough = bisect_left(draws, 1, min(ladder.max_n, MOST_CHECKED), key=lambda k: _reached(k, first, num_classes))
    margin = ladder.noise.margin(asked[rung], ladder.margin)
    # Unanimous draws certify only if top^n <= alpha, top being the class's probability where the radius is just false.
    log_top = float(log_ndtr(margin / 2.0)) if ladder.margin == "quantile" else log1p((margin - 1.0) / 2.0)
    many = "no number of draws is enough"
    if log_top < 0.0:
        needed = max(log(ladder.alpha) / log_top, MOST_CHECKED)
        many = f"it takes more than 10^{floor(log10(needed))}"
    warnings.warn(
        f"max_n = {ladder.max_n} draws cannot certify radius {asked[rung]:g} at alpha = {ladder.alpha:g}, even if "
        f"all are of one class: {f'max_n must be at least {enough}' if enough in draws else many}",
        BucklerWarning,
        stacklevel=3,
    )


def _reached(max_n: int, ladder: Ladder, num_classes: int) -> int:
    """Return how many radii at most ``max_n`` draws certify that are all of one class."""
    test = AnytimeTest(replace(ladder, max_n=max_n, final_n=0), 1 if ladder.winner else [0], num_classes)
    while (rows := test.undecided).size:
        test.update(rows, test.batch_sizes(rows)[:, None] * np.eye(1, num_classes, dtype=np.int64))
    return len(test.decided(0, "trial").certified_at)


class ScoreTest:
    """Any-time lower limits of the margins of several inputs from scores, and certificates from them.

    **Guarantee.** For each input, the probability that the limit *ever* exceeds the margin of its class is at most
    ``settings.alpha``: any-time, for independent draws in the order they were made, with labels, if any, and settings
    fixed beforehand. Any stopping keeps it (T18c). Without labels the class is the leader in mean score, and it
    certifies only once the winner's test (``ScoreWinner``) has rejected every other class (T18d).

    An input is undecided, and more draws should be made, until it is certified to the largest of ``radii``, or the next
    one looks out of reach, or, with ``precision``, its certified radius is within that share of the one that its mean
    scores give (radii then count for nothing), or ``max_n`` draws are made. Inputs are named by their row number.
    Slopes for the quantile margin (``tangents``) come from the ``earlier`` scores ``[inputs, n0, classes]`` of separate
    draws; without these they are 1.
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
        """Row numbers of the undecided inputs, in rising order."""
        return np.flatnonzero(self._open)

    def batch_size(self, n: int) -> int:
        """Return how many draws to make next for an input with ``n`` draws, never beyond ``max_n``."""
        return min(max(FIRST_SCORE_DRAWS, n // COARSE_BATCH_DIVISOR), self._max_n - n)

    def _split(self, row: int, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the input's class, and those of each other class, one a row."""
        by_class = np.ascontiguousarray(scores.T, dtype=np.float64)
        return by_class[self._labels[row]], np.delete(by_class, self._labels[row], axis=0)

    def update(self, row: int, scores: FloatArray) -> None:
        """Add the ``scores[draws, classes]`` of the next draws of the input in row ``row``, and renew its limit."""
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
            means[at] = sequence_lower(columns, self._level, -float(c), 1.0) - LIMIT_SLACK * (1.0 + c)
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
        # A limit after all draws asks for their mean distance; what is left to be drawn must bring it there (T13).
        scale = np.maximum(deviation, 1.0 / n)
        distance = ((mean - needed) / scale)[:, None]
        more = np.minimum(n * HORIZONS, float(self._max_n - n))
        wanted = (np.sqrt(-2.0 * np.log(self._level) * (n + more)) - n * distance) / more
        return not gain(distance, np.asarray(float(n)), wanted, more, WORTH * self._max_n).any(axis=1).all()

    def certificates(self, rows: slice, ids: Sequence[str]) -> Certificates:
        """Return the certificates that the draws so far give a slice of the inputs, which are called ``ids``."""
        classes = self._labels[rows]
        if self._winner is not None:
            classes = self._winner.answers[rows]
        n0 = np.full(len(classes), self._n0, dtype=np.int64)
        chosen = ChosenClass(classes, n0, self._level, self._share)
        return make_certificates(self._settings, chosen, self._best[rows].min(axis=1), self.n[rows], ids)
