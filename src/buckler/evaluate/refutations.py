"""Points that an attack found -> refutations, judged on fresh draws (T21, T22); with certificates, both sides.

Points, rivals and their order are fixed before the first draw of the stream ``refutation``. Along the direction found,
votes of the attack's own stream show where the class loses; candidates lie beyond that, farthest first, and each is
tested until the first that fails: the last that passed is the refutation. The test is of one pair of classes at each
point, and looks after every batch of draws.

With probability at least ``1 - delta`` at most ``false_certificates(N, alpha, delta)`` brackets of N inputs are wrong,
abstentions among the N (T19, T22): refutations inside of certified balls, more often than that, mean that something is
broken, not bad luck.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from buckler.bounds.binomial import log_wealth_of_votes, tail_of_votes
from buckler.certificate import Bracket, Claim, PairTest, Refutation
from buckler.certificates import Certificates
from buckler.certify.budget import after_drawing, split_alpha
from buckler.errors import InvalidInput, check_alpha, check_float_array, check_positive, check_whole
from buckler.evaluate.curves import false_certificates
from buckler.noise.grid import GridGaussian
from buckler.types import AnyArray, ArrayLike, BoolArray, FloatArray, IntArray, Noise

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack, Search

Points = npt.NDArray[np.float32]

COARSE_OFFSETS, FINE_OFFSETS = np.array([-0.5, -0.25, 0.0, 0.25, 0.5]), np.array([-0.12, -0.06, 0.0, 0.06, 0.12])
COARSE_DRAWS, FINE_DRAWS, COARSE_ROUNDS = 256, 8192, 2
"""Offsets, in sigmas from the distance that the attack found, at which votes are counted along its direction, and the
draws at each; number of coarse counts before the fine one. Heuristic, as all of the search."""

CANDIDATE_MARGINS = (1.0, 0.5, 0.25, 0.13, 0.07, 0.04, 0.022, 0.0)
"""Candidates for a refutation are the points along a direction at which the rival leads the class by these quantile
margins, as estimated. Each is about half of the one before, and takes four times its draws; the least above 0 is what
``CANDIDATE_DRAWS`` can tell from 0. 0 is for classes that lose at the input itself. Heuristic."""

FLATTEST = 0.35
"""Lower clamp of the estimated slope of the quantile margin along a direction, as a share of the steepest possible,
``2 / sigma``."""

SEARCHED = frozenset({"gaussian", "grid"})
"""Names of the noises under which refutations can be searched."""

SEARCH_BATCHES = 4
"""Largest number of batches of noisy copies that a step of the search fills. Heuristic: affects speed, not validity."""

SEARCH_REACH = 8.0
"""Default of the largest distance searched, in sigmas."""

CANDIDATE_DRAWS = 200_000
"""Default of the largest number of draws at a candidate."""

JUDGED = 1.25
"""Expected draws for testing all of an input's candidates, in multiples of ``max_n``, the most for one candidate.
Measured on CIFAR-10; affects the progress bar alone."""

FIRST_LOOK_DRAWS, LOOK_BATCH_DIVISOR = 64, 4
"""Draws of the first batch at a candidate, and the divisor of the draws made that gives the next batch. Heuristic: the
test is valid after any batch."""

HOPEFUL = 3.0
"""Standard deviations added to the rival's share of the pair's votes so far: a candidate is given up if that sum, held
to the last draw, would not refute. The number falls to 0 with the draws left. Heuristic: giving up refutes nothing."""

CAUSES = (
    "the usual causes: sigma or radius in other units than the model's input (0 to 255 against 0 to 1), normalisation "
    "outside of the model, another dtype or device, another model, or a bound that does not hold"
)


def votes_refute(test: PairTest, alpha: float) -> bool:
    """Return whether a recorded test of a point claims no refutation, or its votes bear it out at level ``alpha``."""
    # The number of the last draw is not recorded, so assume that the final test was run.
    return not test.refuted or bool(pairs_refuted(test.wins, test.losses, True, check_alpha(alpha)))


def pairs_refuted(wins: ArrayLike, losses: ArrayLike, last: ArrayLike, alpha: float) -> BoolArray:
    """Return for each pair (class, rival) whether its votes show that the rival is likelier than the class.

    ``wins`` are the rival's votes, ``losses`` the class's, ``last`` whether the number of draws is the largest allowed,
    fixed beforehand: only then a final test is taken too, beside the any-time one.

    **Guarantee.** Where the rival is no likelier, this is ever true, asked after every draw, with probability at most
    alpha: half of it is for the any-time test and half for the final test (T17, T21).
    """
    share = split_alpha(alpha, 2)
    final = np.asarray(last) & (tail_of_votes(wins, losses) <= share)
    return np.asarray((log_wealth_of_votes(wins, losses) >= -np.log(share)) | final, dtype=np.bool_)


class PairTests:
    """Any-time tests of whether a rival is likelier than a class, one pair (class, rival) at each of several points.

    ``passed[point]`` says that it is shown; a point is undecided until that, or until it is given up: after ``max_n``
    draws, or once it looks hopeless. Points are named by their row number. A ``Decider`` for ``sampling.engine``.

    **Guarantee.** A point whose class is at least as likely as the rival is ever ``passed`` with probability at most
    ``alpha`` (T21).
    """

    def __init__(self, labels: IntArray, rivals: IntArray, alpha: float, max_n: int) -> None:
        """Start without draws: the pair of point i is class ``labels[i]`` and ``rivals[i]``."""
        self.labels, self.rivals = labels, rivals
        self.alpha, self.max_n = check_alpha(alpha), check_whole("max_n", max_n, 1)
        self.n: IntArray = np.zeros(len(labels), dtype=np.int64)
        self.wins, self.losses = self.n.copy(), self.n.copy()
        self.passed: BoolArray = np.zeros(len(labels), dtype=np.bool_)
        self._given_up = self.passed.copy()

    @property
    def undecided(self) -> IntArray:
        """Row numbers of the undecided points, in rising order."""
        return np.flatnonzero(~self.passed & ~self._given_up)

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws to make next at each of the points ``rows``."""
        return np.minimum(np.maximum(FIRST_LOOK_DRAWS, self.n[rows] // LOOK_BATCH_DIVISOR), self.max_n - self.n[rows])

    def update(self, rows: IntArray, counts: IntArray) -> None:
        """Add the votes ``counts[row, class]`` of the next draws at the points ``rows``, and test their pairs."""
        self.n[rows] += counts.sum(axis=1)
        self.wins[rows] += counts[np.arange(len(rows)), self.rivals[rows]]
        self.losses[rows] += counts[np.arange(len(rows)), self.labels[rows]]
        wins, losses = self.wins[rows], self.losses[rows]
        last = self.n[rows] >= self.max_n
        self.passed[rows] |= pairs_refuted(wins, losses, last, self.alpha)
        votes = np.maximum(wins + losses, 1)
        made = self.n[rows] / self.max_n
        share = wins / votes + HOPEFUL * (1.0 - made) * 0.5 / np.sqrt(votes)
        lost = (2.0 * share - 1.0) * np.sqrt(votes / made) < -ndtri(split_alpha(self.alpha, 2))
        self._given_up[rows] = ~self.passed[rows] & (lost | last)


class Attacked(Protocol):
    """Protocol of a smoothed model under attack: gives gradients, and votes for the search and for the final tests."""

    device: Any

    def look(self, points: Any, inputs: IntArray, pair: Any, block: int, draws: int) -> Any:
        """Run the model on ``draws`` noisy copies of each point, and return three tensors as ``Estimates``.

        They are the copies' ``votes`` and mean ``scores``, both ``[points, classes]``, and the ``gradient`` at each
        point of its rival's mean score minus its class's. ``points`` is a tensor, ``inputs`` the number of the input
        that each belongs to, ``pair``, ``[points, 2]``, its (class, rival); ``block`` numbers calls, for fresh noise.
        """

    def count(self, points: Points, names: Sequence[str], n: int) -> Generator[int, None, IntArray]:
        """Yield the numbers of draws made, and return the votes ``[points, classes]`` of ``n`` draws at each point.

        The noise is that of the stream ``attack``, which the final tests do not use, at the points called ``names``.
        """

    def judge(self, points: Points, ids: Sequence[str], decider: PairTests) -> Iterator[int]:
        """Draw at points until ``decider`` has decided all of them, and yield the numbers of draws made.

        The noise is fresh: that of the stream ``refutation``, at points called by the ``ids`` of their inputs.
        """


class Composition:
    """A router with the classifiers that it chooses among, as one model under attack.

    The search runs on one of the classifiers; each point that it finds is tested on the router and on the classifier
    that the router chooses there, whose number is the point's level. Level and rival of a point are fixed before the
    draws that test it. It is refuted if the router is shown to choose that level there, and that level's classifier to
    prefer the rival, both at alpha (T36a). Another choice than at the input refutes nothing: both classifiers may
    predict the same class.
    """

    def __init__(self, router: Attacked, experts: Sequence[Attacked], searched: int, levels: dict[str, int]) -> None:
        """Hold the parts: ``searched`` is the number of the expert that is searched, ``levels`` a dict to be filled.

        It gets the level of each input's points, by the input's name.
        """
        self.router, self.experts, self.levels = router, experts, levels
        self.device, self.look, self.count = (getattr(experts[searched], name) for name in ("device", "look", "count"))

    def judge(self, points: Points, ids: Sequence[str], decider: PairTests) -> Iterator[int]:
        """Test the pair and the router's choice at each point, and yield the draws; a point passes if both tests do."""
        new = [i for i, name in enumerate(ids) if name not in self.levels]
        if new:
            names = [ids[i] for i in new]
            votes = yield from self.router.count(points[new], [f"{name}/level" for name in names], FINE_DRAWS)
            self.levels.update(zip(names, votes.argmax(axis=1).tolist(), strict=True))
        chosen = np.array([self.levels[name] for name in ids])
        for level, expert in enumerate(self.experts):
            rows = np.flatnonzero(chosen == level)
            if rows.size:
                pairs = PairTests(decider.labels[rows], decider.rivals[rows], decider.alpha, decider.max_n)
                yield from expert.judge(points[rows], [ids[i] for i in rows.tolist()], pairs)
                decider.n[rows], decider.wins[rows], decider.losses[rows] = pairs.n, pairs.wins, pairs.losses
                decider.passed[rows] = pairs.passed
        for shift in range(1, len(self.experts)):
            other = (chosen + shift) % len(self.experts)
            choice = PairTests(other, chosen, decider.alpha, decider.max_n)
            yield from self.router.judge(points, ids, choice)
            decider.passed &= choice.passed


def check_searched(noise: Noise) -> None:
    """Raise InvalidInput unless refutations can be searched under the noise: one of ``SEARCHED``, its norm l2."""
    if noise.name not in SEARCHED or noise.norm != "l2":
        known = " or ".join(sorted(SEARCHED))
        way = "; divide the inputs by the scale, and multiply by it inside of the model"
        raise InvalidInput(
            f"refutations are searched in l2, under {known} noise of one sigma; got {noise.describe()}"
            + (way if noise.norm == "scaled l2" else "")
        )


def reach_of(noise: Noise, max_radius: float | None, within: float | None) -> float:
    """Return the distance up to which refutations are searched for: ``max_radius``, by default 8 sigma, or ``within``.

    ``within`` is a claimed radius, and only points inside of the claimed ball are searched then: the radius itself
    counts where the noise certifies closed balls. The two cannot be given together.
    """
    if within is None:
        return SEARCH_REACH * noise.unit if max_radius is None else max_radius
    if max_radius is not None:
        raise InvalidInput(f"max_radius must be left out with within; got {max_radius} and {within}")
    claimed = check_positive("within", within)
    return claimed if noise.closed else float(np.nextafter(claimed, 0.0))


@dataclass(frozen=True, slots=True)
class RefutationSettings:
    """How refutations are searched and tested: points near an input where another class is shown to be likelier.

    Each refutation errs with probability at most ``alpha``, by at most ``max_n`` draws at each candidate point that
    ``attack`` (None: the default) leads to, at a distance of at most ``reach``, with values in ``value_range``. With
    ``first`` the search ends at the first candidate that passes; nearer ones are not tried then.
    """

    noise: Noise
    alpha: float = 1e-3
    max_n: int = CANDIDATE_DRAWS
    reach: float = np.inf
    value_range: tuple[float, float] | None = None
    attack: "Attack | None" = None
    first: bool = False

    def __post_init__(self) -> None:
        check_searched(self.noise)
        check_alpha(self.alpha)
        check_whole("max_n", self.max_n, 1)
        if not self.reach > 0.0:
            raise InvalidInput(f"max_radius must be above 0; got {self.reach}")

    @property
    def draws(self) -> float:
        """Forecast of the number of draws that one input takes, search and tests together."""
        looks = 0 if self.attack is None else self.attack.looks
        line = len(COARSE_OFFSETS) * COARSE_ROUNDS * COARSE_DRAWS + len(FINE_OFFSETS) * FINE_DRAWS
        return looks + line + JUDGED * self.max_n

    def inputs_at_once(self, rows: int) -> int:
        """Return how many inputs a step of the search takes together, where a batch is ``rows`` noisy copies."""
        looks = 1 if self.attack is None else self.attack.searches * self.attack.draws
        return max(1, SEARCH_BATCHES * rows // looks)

    def placed(self, points: Points) -> Points:
        """Return the points themselves, or the nearest ones on the grid of a noise that has one."""
        if not isinstance(self.noise, GridGaussian):
            return points
        return self.noise.values(np.rint(points.astype(np.float64) / self.noise.step))

    def distances(self, points: Points, x: Points) -> FloatArray:
        """Return the l2 distance of each point from its input ``x``, rounded up; on a grid, in exact grid steps."""
        if isinstance(self.noise, GridGaussian):
            return distances_between(self.noise.indices(points), self.noise.indices(x)) * self.noise.step
        return distances_between(points, x)

    def refute(
        self, model: Attacked, ids: Sequence[str], x: Points, labels: IntArray, start: FloatArray
    ) -> Generator[int, None, list[Refutation]]:
        """Yield the draws made, and return a ``Refutation`` for each input, found or not.

        A refutation is a point near the input ``x[i]``, called ``ids[i]``, at which the smoothed classifier is shown
        not to predict class ``labels[i]``. The search begins at distance ``start[i]`` from it.

        **Guarantee.** Each is false with probability at most ``alpha``, whatever the attack did (T22).
        """
        from buckler.evaluate.attacks import DecoupledAttack, Search

        search = Search(
            model, x, labels, start, sigma=self.noise.unit, reach=self.reach,
            value_range=self.value_range,
        )  # fmt: skip
        tie = yield from (DecoupledAttack() if self.attack is None else self.attack).run(search)
        for _ in range(COARSE_ROUNDS):
            tie, _, _ = yield from _tie(search, ids, labels, self, tie, COARSE_OFFSETS, COARSE_DRAWS)
        tie, rivals, steepness = yield from _tie(search, ids, labels, self, tie, FINE_OFFSETS, FINE_DRAWS)
        level = after_drawing(self.alpha, self.noise)
        tried: list[list[PairTest]] = [[] for _ in ids]
        best: list[Points | None] = [None for _ in ids]
        alive = np.ones(len(ids), dtype=np.bool_)
        for margin in CANDIDATE_MARGINS:
            norms = tie + margin / steepness
            rows = np.flatnonzero(alive & (norms <= self.reach) & ((margin > 0.0) | (tie == 0.0)))
            points = self.placed(search.points(rows, norms[rows]))
            near = (radii := self.distances(points, x[rows])) <= self.reach
            rows, points, radii = rows[near], points[near], radii[near]
            if not rows.size:
                continue
            tests = PairTests(labels[rows], rivals[rows], level, self.max_n)
            yield from model.judge(points, [ids[i] for i in rows.tolist()], tests)
            for row, i in enumerate(rows.tolist()):
                votes = (int(tests.n[row]), int(tests.wins[row]), int(tests.losses[row]))
                tried[i].append(PairTest(float(radii[row]), int(rivals[i]), *votes, bool(tests.passed[row])))
                best[i] = points[row] if tests.passed[row] else best[i]
                alive[i] = tests.passed[row] and not self.first
        return [
            Refutation(
                id=name, label=int(label), point=point, alpha=self.alpha, noise=self.noise, tried=tuple(tests),
                radius=None if point is None else [t.radius for t in tests if t.refuted][-1],
                rival=None if point is None else tests[0].rival,
            )
            for name, label, point, tests in zip(ids, labels, best, tried, strict=True)
        ]  # fmt: skip


def _tie(
    search: "Search",
    ids: Sequence[str],
    labels: IntArray,
    how: RefutationSettings,
    distances: FloatArray,
    offsets: FloatArray,
    n: int,
) -> Generator[int, None, tuple[FloatArray, IntArray, FloatArray]]:
    """Yield the draws made; return where class and strongest rival seem to tie, the rival, and the margin's slope.

    From a line through the margins of votes at some ``offsets``, in sigmas, from each distance along the directions
    that the search found.
    """
    norms = np.maximum(distances[:, None] + how.noise.unit * offsets, 0.0)
    places = np.repeat(np.arange(len(ids)), len(offsets))
    names = [f"{ids[i]}/{offset:g}" for i, offset in zip(places.tolist(), np.tile(offsets, len(ids)), strict=True)]
    counted = yield from search.model.count(how.placed(search.points(places, norms.ravel())), names, n)
    votes = counted.reshape(len(ids), len(offsets), -1)
    away = votes[:, len(offsets) // 2 :].sum(axis=1)
    away[np.arange(len(ids)), labels] = -1
    rivals = away.argmax(axis=1)
    own, other = (np.take_along_axis(votes, c[:, None, None], axis=2)[..., 0] for c in (labels, rivals))
    margin = ndtri((own + 0.5) / (n + 1.0)) - ndtri((other + 0.5) / (n + 1.0))
    middle = norms - norms.mean(axis=1, keepdims=True)
    slope = -(margin * middle).sum(axis=1) / np.maximum((middle**2).sum(axis=1), 1e-300)
    steepness = np.clip(slope, FLATTEST * 2.0 / how.noise.unit, 2.0 / how.noise.unit)
    root = norms.mean(axis=1) + margin.mean(axis=1) / steepness
    return np.clip(root, 0.0, np.minimum(norms[:, -1] + how.noise.unit, how.reach)), rivals, steepness


def to_refute(certificate: Claim, noise: Noise) -> tuple[int, float]:
    """Return the class and the radius that a certificate claims; raise InvalidInput if it cannot be refuted.

    It can if it is no abstention, is of votes, and is for this very ``noise``.
    """
    if certificate.predicted is None:
        raise InvalidInput(f"certificate {certificate.id!r} is an abstention: it claims nothing to refute")
    if certificate.map != "hardmax":
        raise InvalidInput(f"certificate {certificate.id!r} is of {certificate.map} scores; votes alone can be refuted")
    if (certificate.noise.name, dict(certificate.noise.parameters)) != (noise.name, dict(noise.parameters)):
        raise InvalidInput(
            f"certificate {certificate.id!r} is for {certificate.noise.describe()}, and this is {noise.describe()}"
        )
    return check_whole("predicted", certificate.predicted, 0), certificate.radius


def distances_between(points: AnyArray, x: AnyArray) -> FloatArray:
    """Return the l2 distance of each point from the input in the same row of ``x``, rounded up; computed in float64."""
    apart = points.astype(np.float64) - x.astype(np.float64)
    return np.asarray(np.sqrt((apart**2).sum(axis=tuple(range(1, apart.ndim)))) * (1.0 + 1e-12), dtype=np.float64)


def alarm(brackets: Sequence[Bracket], inputs: int, delta: float) -> str | None:
    """Return a warning text if more refutations lie inside of certified balls than chance allows, and else None.

    ``brackets`` are pairs of a certificate and a refutation of one input, ``inputs`` the number of inputs that were to
    be certified, those that abstained included: which are attacked depends on the draws, and where all abstain but by
    error, all that are certified are false.

    **Guarantee.** If every certificate and every refutation keeps its promise, a warning comes with probability at
    most ``delta``, inputs being drawn for independently (T22).
    """
    inside = [bracket for bracket in brackets if bracket.contradicts]
    check_whole("inputs", inputs, len(brackets))
    if not inside:
        return None
    allowed = false_certificates(inputs, min(max(b.alpha for b in brackets), 0.999), delta)
    if len(inside) <= allowed:
        return None
    first = inside[0].refutation
    return (
        f"ALARM: {len(inside)} of {len(brackets)} certificates are contradicted by refutations inside of their balls, "
        f"and chance allows {allowed}, of {inputs} inputs; the first is {first.id!r}, certified to "
        f"{inside[0].certified:.4g}, refuted at {first.radius:.4g}; {CAUSES}"
    )


@dataclass(frozen=True, slots=True, eq=False)
class BracketCurve:
    """Share of a run's inputs that are right within each of ``radii``: at least ``certified``, at most ``refuted``.

    For ``attacked`` of the ``inputs`` refutations were searched.
    """

    radii: FloatArray
    certified: FloatArray
    refuted: FloatArray
    attacked: int
    inputs: int

    @property
    def known(self) -> FloatArray:
        """Certified accuracy that holds from each radius up to the next one: that at the next, for the last its own."""
        return np.append(self.certified[1:], self.certified[-1:])


def bracket_curve(certificates: Certificates, refutations: Sequence[Refutation], radii: ArrayLike) -> BracketCurve:
    """Return the ``BracketCurve`` of certificates with known labels and refutations of some of them, at each radius.

    An input counts in ``certified`` at radius r if its true class is certified to r. It does not count in ``refuted``
    if another class is certified, or if its true class is refuted at a distance of at most r; inputs that were not
    attacked, or not certified at all, count in it.
    """
    if certificates.labels is None:
        raise InvalidInput("labels must be known to tell accuracy; this run has none")
    r = check_float_array("radii", radii)
    found: Mapping[str, Refutation] = {made.id: made for made in refutations}
    certified, refuted = np.zeros_like(r), np.zeros_like(r)
    for certificate, label in zip(certificates, certificates.labels.tolist(), strict=True):
        if certificate.predicted is not None and certificate.predicted != label:
            continue
        made = found.get(certificate.id)
        lost = made is not None and made.radius is not None and made.label == label
        refuted += r < (made.radius if lost else np.inf)  # type: ignore[union-attr,operator]
        certified += (r <= certificate.radius) & (not certificate.abstained)
    total = len(certificates)
    return BracketCurve(r, certified / total, refuted / total, sum(c.id in found for c in certificates), total)
