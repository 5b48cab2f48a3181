"""Points that an attack found -> refutations: judged on fresh draws, a pair at a time (T21, T22).

Points, rivals and their order are fixed before the first draw of the stream ``refutation``. Along the direction found,
votes of the attack's own stream show where the class loses; candidates lie beyond that, farthest first, and each is
tested until the first that fails: the last that passed is the refutation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from buckler.bounds.sign import log_wealth_of_votes
from buckler.certify.budget import after_price, price_of
from buckler.errors import InvalidInput, check_alpha, check_whole
from buckler.laws.grid import GridGaussian
from buckler.records import Claim
from buckler.refutations import PairTest, Refutation
from buckler.types import AnyArray, BoolArray, FloatArray, IntArray, Law

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack, Search

Points = npt.NDArray[np.float32]

COARSE, FINE = np.array([0.75, 0.9, 1.05, 1.2, 1.4]), np.array([0.94, 0.97, 1.0, 1.03, 1.06])
COARSE_DRAWS, FINE_DRAWS, COARSE_ROUNDS, NEAR = 256, 1024, 2, 0.1
"""Distances at which votes are counted, as shares of the one found; the least, in sigmas: heuristic, as the search."""

EXCESS = (0.4, 0.2, 0.1, 0.05, 0.035, 0.025, 0.018, 0.012, 0.008, 0.005)
"""Candidates: this much beyond the distance at which votes seem to tie."""

SEARCHED = frozenset({"gaussian", "grid"})
"""Laws whose points are searched for."""

REACH = 8.0
"""Distance up to which points are searched for, in sigmas, unless told."""

MAX_DRAWS = 20_000
"""Draws at a candidate, at most, unless told."""

FIRST_BATCH, GROWTH = 64, 4
"""Draws before the first look, and one more batch for each so many draws made."""

LOST = 2.5
"""A candidate is given up when the rival is behind by so many standard deviations."""


def votes_refute(test: PairTest, alpha: float) -> bool:
    """Return whether the votes at a candidate bear out a refutation at level alpha, or it claims none."""
    return not test.refuted or bool(log_wealth_of_votes(test.wins, test.losses) >= -np.log(check_alpha(alpha)))


class PairTests:
    """Any-time tests of several pairs (class, rival), one at each point: a ``Decider`` for ``sampling.adaptive``.

    **Guarantee.** Where the class has at least as much as the rival, ``passed`` with probability at most alpha (T21).
    """

    def __init__(self, labels: IntArray, rivals: IntArray, alpha: float, max_n: int) -> None:
        """Fix the pairs; each is given up after ``max_n`` draws."""
        self._labels, self._rivals = labels, rivals
        self._needed, self._max_n = -np.log(check_alpha(alpha)), check_whole("max_n", max_n, 1)
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
        self.passed[rows] |= log_wealth_of_votes(wins, losses) >= self._needed
        behind = wins - losses < -LOST * np.sqrt(wins + losses)
        self._given_up[rows] = ~self.passed[rows] & (behind | (self.n[rows] >= self._max_n))


class Attacked(Protocol):
    """What is attacked (``sampling.gradients``): looked at with gradients, asked for votes to search and judge by."""

    device: Any

    def look(self, points: Any, inputs: IntArray, pair: Any, block: int, draws: int) -> Any:
        """Return votes, scores and gradients: see ``evaluate.attacks.Looking``."""
        ...

    def count(self, points: Points, names: Sequence[str], n: int) -> IntArray:
        """Return the votes of so many draws at points, in the stream ``attack``."""
        ...

    def judge(self, points: Points, ids: Sequence[str], decider: PairTests) -> None:
        """Draw at points named by their inputs, in the stream ``refutation``, until all is decided."""
        ...


@dataclass(frozen=True, slots=True)
class Refuting:
    """How inputs are refuted: at which level, by at most how many draws a candidate, how far away, by which attack."""

    law: Law
    alpha: float = 1e-3
    max_n: int = MAX_DRAWS
    reach: float = np.inf
    value_range: tuple[float, float] | None = None
    attack: "Attack | None" = None

    def __post_init__(self) -> None:
        """Refuse a law whose norm the search does not know, and impossible levels and distances."""
        if self.law.name not in SEARCHED or self.law.norm != "l2":
            known = ", ".join(sorted(SEARCHED))
            raise InvalidInput(f"refutations are searched in l2 under {known} noise; got {self.law.describe()}")
        check_alpha(self.alpha)
        check_whole("max_n", self.max_n, 1)
        if not self.reach > 0.0:
            raise InvalidInput(f"max_radius must be above 0; got {self.reach}")

    def placed(self, points: Points) -> Points:
        """Return the points themselves, or the nearest ones of the law's grid."""
        if not isinstance(self.law, GridGaussian):
            return points
        steps = np.rint(points.astype(np.float64) / self.law.step)
        return self.law.values(steps if self.law.clip is None else np.clip(steps, 0, self.law.clip))

    def distances(self, points: Points, x: Points) -> FloatArray:
        """Return the l2 distances of points and inputs, rounded up; on a grid, of what the floats stand for."""
        if isinstance(self.law, GridGaussian):
            return distances_between(self.law.indices(points), self.law.indices(x)) * self.law.step * (1.0 + 1e-15)
        return distances_between(points, x)

    def refute(
        self,
        model: Attacked,
        ids: Sequence[str],
        x: Points,
        labels: IntArray,
        start: FloatArray,
        tick: Callable[[int], None] = lambda _: None,
    ) -> list[Refutation]:
        """Return the refutation of each input, searched from the distance ``start`` on, and judged on fresh draws.

        **Guarantee.** Each is false with probability at most ``alpha``, whatever the attack did (T22).
        """
        from buckler.evaluate.attacks import Search

        search = Search(
            model, x, labels, start, sigma=self.law.unit, reach=self.reach,
            value_range=self.value_range, attack=self.attack,
        )  # fmt: skip
        found = _Line(model, search, ids, labels, self)
        # A share of nothing is nothing: a tie near the input is looked for a little away from it.
        distances = np.clip(search.run(tick), min(NEAR * self.law.unit, self.reach), self.reach)
        for _ in range(COARSE_ROUNDS):
            distances, _ = found.tie(distances, COARSE, COARSE_DRAWS)
        tie, rivals = found.tie(distances, FINE, FINE_DRAWS)
        level = after_price(self.alpha, price_of(self.law, x[0].size, len(EXCESS) * self.max_n))
        if level == 0.0:
            raise InvalidInput(f"alpha {self.alpha:g} is spent by the drawing of {self.law.describe()} alone")
        tried: list[list[PairTest]] = [[] for _ in ids]
        best: list[Points | None] = [None for _ in ids]
        alive = np.ones(len(ids), dtype=np.bool_)
        for k, excess in enumerate(EXCESS):
            norms = tie * (1.0 + excess)
            # A class that loses at the input itself has one candidate, the input.
            rows = np.flatnonzero(alive & (norms <= self.reach) & ((tie > 0.0) | (k == 0)))
            if not rows.size:
                continue
            points = self.placed(search.points(rows, norms[rows]))
            near = (radii := self.distances(points, x[rows])) <= self.reach
            rows, points, radii = rows[near], points[near], radii[near]
            tests = PairTests(labels[rows], rivals[rows], level, self.max_n)
            model.judge(points, [ids[i] for i in rows.tolist()], tests)
            for row, i in enumerate(rows.tolist()):
                votes = (int(tests.n[row]), int(tests.wins[row]), int(tests.losses[row]))
                tried[i].append(PairTest(float(radii[row]), int(rivals[i]), *votes, bool(tests.passed[row])))
                best[i] = points[row] if tests.passed[row] else best[i]
                alive[i] = tests.passed[row]
        return [
            Refutation(
                id=name, label=int(label), point=point, alpha=self.alpha, law=self.law, tried=tuple(tests),
                radius=None if point is None else [t.radius for t in tests if t.refuted][-1],
                rival=None if point is None else tests[0].rival,
            )
            for name, label, point, tests in zip(ids, labels, best, tried, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Line:
    """Votes along the directions that a search found."""

    model: Attacked
    search: "Search"
    ids: Sequence[str]
    labels: IntArray
    how: Refuting

    def tie(self, distances: FloatArray, shares: FloatArray, n: int) -> tuple[FloatArray, IntArray]:
        """Return where the class and its strongest rival seem to tie, by a line through margins, and that rival."""
        ids, labels = self.ids, self.labels
        places, norms = np.repeat(np.arange(len(ids)), len(shares)), np.outer(distances, shares)
        names = [f"{ids[i]}/{share:g}" for i, share in zip(places.tolist(), np.tile(shares, len(ids)), strict=True)]
        points = self.how.placed(self.search.points(places, norms.ravel()))
        votes = self.model.count(points, names, n).reshape(len(ids), len(shares), -1)
        away = votes[:, len(shares) // 2 :].sum(axis=1)
        away[np.arange(len(ids)), labels] = -1
        rivals = away.argmax(axis=1)
        own, other = (np.take_along_axis(votes, c[:, None, None], axis=2)[..., 0] for c in (labels, rivals))
        margin = ndtri((own + 0.5) / (n + 1.0)) - ndtri((other + 0.5) / (n + 1.0))
        middle = shares - shares.mean()
        slope = (margin * middle).sum(axis=1) / (middle**2).sum()
        level = margin.mean(axis=1)
        # A line that does not fall says nothing: go to the end on which the sign of the margin lies.
        falling = slope < -1e-3
        root = shares.mean() - level / np.where(falling, slope, -1.0)
        root = np.where(falling, root, np.where(level > 0.0, shares[-1], shares[0]))
        lowest = 0.0 if n == COARSE_DRAWS else shares[0]
        return np.minimum(distances * np.clip(root, lowest, shares[-1]), self.how.reach), rivals


def to_refute(certificate: Claim, law: Law) -> tuple[int, float]:
    """Return the class and the radius of a certificate, or say why it cannot be refuted under this law."""
    if certificate.predicted is None:
        raise InvalidInput(f"certificate {certificate.id!r} is an abstention: it claims nothing to refute")
    if certificate.map != "hardmax":
        raise InvalidInput(f"certificate {certificate.id!r} is of {certificate.map} scores; votes alone can be refuted")
    if (certificate.law.name, dict(certificate.law.parameters)) != (law.name, dict(law.parameters)):
        raise InvalidInput(
            f"certificate {certificate.id!r} is for {certificate.law.describe()}, and this is {law.describe()}"
        )
    return certificate.predicted, certificate.radius


def distances_between(points: AnyArray, x: AnyArray) -> FloatArray:
    """Return the l2 distances of points and inputs, rounded up: differences of float32 are exact in float64, nearly."""
    apart = (points.astype(np.float64) - x.astype(np.float64)).reshape(len(x), -1)
    return np.asarray(np.sqrt((apart**2).sum(axis=1)) * (1.0 + 1e-12), dtype=np.float64)
