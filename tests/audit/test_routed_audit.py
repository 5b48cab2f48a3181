"""A noise for each input: exact error probabilities of the composition over every outcome (T36), and of refutations by
simulation and behind planes (T36a).

The truth is a pair of half-spaces. The router's smoothed choice ends at distance R, beyond which the other classifier
says another class, and the chosen classifier's prediction ends at distance R'; so the composition predicts one class
within min(R, R') and no further.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import buckler
from buckler.certificate import Certificate
from buckler.certify.budget import routed_level
from buckler.certify.composition import compose
from buckler.certify.votes import certify_votes
from buckler.evaluate.refutations import Composition, PairTests
from buckler.types import FloatArray, IntArray

ROUTER_SIGMA, SIGMA = 1.0, 0.5


class Outcome(NamedTuple):
    """What is certified from one outcome of router and classifier: level, class and radius; radius 0 is nothing."""

    level: int
    label: int
    radius: float


Rule = Callable[[Certificate, Certificate, Certificate], Outcome]
"""The router's certificate and those of the classifiers of levels 0 and 1 -> what is certified."""


def composed(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    if router.predicted is None:
        return Outcome(0, 0, 0.0)
    level = int(router.predicted)
    one = compose(router, (first, second)[level], 0.1)
    return Outcome(level, -1 if one.predicted is None else int(one.predicted), one.radius)


def with_a_default_level(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    """Planted bug: where the router abstains, level 0 is taken, with the classifier's own radius."""
    if router.predicted is not None:
        return composed(router, first, second)
    return Outcome(0, -1 if first.predicted is None else int(first.predicted), first.radius)


def chosen_without_smoothing(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    """Planted bug: the level is read off the input itself, so that only the classifier's radius is certified."""
    del router, second
    return Outcome(0, -1 if first.predicted is None else int(first.predicted), first.radius)


def worst_error(rule: Rule, n: int, n_router: int, alpha: float) -> float:
    """Return the largest probability, over truths, that a false radius or class is certified."""
    level = routed_level(alpha)
    votes = [np.stack([np.arange(k + 1), k - np.arange(k + 1)], axis=1) for k in (n_router, n)]
    routers = certify_votes(votes[0], sigma=ROUTER_SIGMA, alpha=level)
    firsts = certify_votes(votes[1], sigma=SIGMA, alpha=level)
    second = certify_votes([[0, n]], sigma=SIGMA, alpha=level)[0]  # beyond the router's plane every copy has class 1
    made = [[rule(router, first, second) for first in firsts] for router in routers]
    levels = np.array([[one.level for one in row] for row in made])
    labels = np.array([[one.label for one in row] for row in made])
    radii = np.array([[one.radius for one in row] for row in made])
    worst = 0.0
    for reach in truths(routers.radii):
        for far in truths(firsts.radii):
            false = (radii > 0.0) & ((levels == 1) | (labels == 1) | (radii > min(reach, far)))
            p = binom.pmf(np.arange(n_router + 1), n_router, ndtr(reach / ROUTER_SIGMA))
            q = binom.pmf(np.arange(n + 1), n, ndtr(far / SIGMA))
            worst = max(worst, float(p @ false @ q))
    return worst


def truths(radii: FloatArray) -> list[float]:
    """Return distances at which a limit is just false, and next to a tie."""
    return [0.0, 1e-6, 0.01, *(np.unique(radii[radii > 0.0]) - 1e-9)]


@pytest.mark.parametrize(("n", "n_router", "alpha"), [(40, 40, 0.05), (25, 50, 0.1), (50, 20, 0.1)])
def test_the_error_of_the_composition_is_at_most_alpha(n: int, n_router: int, alpha: float) -> None:
    error = worst_error(composed, n, n_router, alpha)
    assert 0.5 * alpha < error <= alpha * (1.0 + 1e-9)


@pytest.mark.parametrize("bug", [with_a_default_level, chosen_without_smoothing])
def test_planted_bugs_are_found(bug: Rule) -> None:
    assert worst_error(bug, 40, 40, 0.05) > 0.25


def test_the_level_pays_for_a_winners_test_beside_it() -> None:
    for alpha in (0.1, 1e-3, 1e-9):
        assert 0.9 * alpha < routed_level(alpha) * 1.1 <= alpha * (1.0 + 1e-15)


POINTS, ALPHA = 20_000, 0.05


class Drawn:
    """A part of a composition whose votes have the same shares at every point."""

    device: Any = None
    look: Any = None

    def __init__(self, shares: Sequence[float], rng: np.random.Generator) -> None:
        self.shares, self.rng = shares, rng

    def count(self, points: Any, names: Sequence[str], n: int) -> Generator[int, None, IntArray]:
        del names
        yield n
        return self.rng.multinomial(n, self.shares, size=len(points))

    def judge(self, points: Any, ids: Sequence[str], decider: Any) -> Iterator[int]:
        del points, ids
        while (rows := decider.undecided).size:
            sizes = decider.batch_sizes(rows)
            decider.update(rows, self.rng.multinomial(sizes, self.shares))
            yield int(sizes.sum())


class ByAnotherLevel(Composition):
    """Planted bug: a point is refuted because the router chooses another level there, whatever that level predicts."""

    def judge(self, points: Any, ids: Sequence[str], decider: PairTests) -> Iterator[int]:
        yield from super().judge(points, ids, decider)
        own = np.zeros(len(ids), dtype=np.int64)
        choice = PairTests(own, own + 1, decider.alpha, decider.max_n)
        yield from self.router.judge(points, ids, choice)
        decider.passed |= choice.passed


class WithoutTheRouter(Composition):
    """Planted bug: the classifier that was searched is judged, and the router is taken to choose its level."""

    def __init__(self, router: Any, experts: Any, searched: int, levels: dict[str, int]) -> None:
        super().__init__(router, experts, searched, levels)
        self.own = experts[searched]

    def judge(self, points: Any, ids: Sequence[str], decider: PairTests) -> Iterator[int]:
        yield from self.own.judge(points, ids, decider)


SURELY, TIE = (0.01, 0.99), (0.5, 0.5)
TRUTHS = {
    "the router ties": (TIE, (0.99, 0.01), SURELY),
    "the classifier of the level ties": (SURELY, SURELY, TIE),
    "another level, the same class": (SURELY, SURELY, (0.99, 0.01)),
    "the level is not chosen": ((0.99, 0.01), (0.99, 0.01), SURELY),
}
"""Shares of the levels, and of the classes under either: class 0 is predicted, so refuting it is false."""


def refuted(kind: type[Composition], router: Any, *experts: Any) -> int:
    """Return at how many points class 0 is refuted, level 1 and class 1 being fixed beforehand."""
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(POINTS)]
    parts = [Drawn(shares, rng) for shares in experts]
    tests = PairTests(np.zeros(POINTS, dtype=np.int64), np.ones(POINTS, dtype=np.int64), ALPHA, 200)
    composition, points = kind(Drawn(router, rng), parts, 1, dict.fromkeys(ids, 1)), np.zeros((POINTS, 1), np.float32)
    for _ in composition.judge(points, ids, tests):
        pass
    return int(tests.passed.sum())


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_false_refutation_of_the_composition_has_probability_at_most_alpha(truth: str) -> None:
    assert refuted(Composition, *TRUTHS[truth]) <= binom.isf(1e-6, POINTS, ALPHA)
    assert refuted(Composition, (0.2, 0.8), TIE, (0.2, 0.8)) > 0.99 * POINTS


@pytest.mark.parametrize("bug", [ByAnotherLevel, WithoutTheRouter])
def test_planted_bugs_of_refutations_are_found(bug: type[Composition]) -> None:
    assert max(refuted(bug, *truth) for truth in TRUTHS.values()) > 0.9 * POINTS


@pytest.mark.parametrize("kind", [Composition, ByAnotherLevel, WithoutTheRouter])
def test_no_refutation_lies_nearer_than_where_the_composition_changes(
    kind: type[Composition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level 0 ends at distance 0.7, where it predicts class 1 up to distance 1; level 1 does up to distance 1.5."""
    torch = pytest.importorskip("torch")

    def below(value: float) -> Any:
        line = torch.nn.Linear(1, 2)
        with torch.no_grad():
            line.weight.copy_(torch.tensor([[-1.0], [1.0]]))
            line.bias.copy_(torch.tensor([value, -value]))
        return line

    def levels(batch: Any) -> Any:
        return torch.stack([batch[:, 0] - 0.3, 0.3 - batch[:, 0]], dim=1)

    class Router(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, batch: Any) -> Any:
            return levels(batch)

    monkeypatch.setattr("buckler.evaluate.refutations.Composition", kind)
    routed = buckler.Routed(buckler.Smoothed(Router(), 0.1, 2), {0.25: below(0.0), 0.5: below(-0.5)}, 2)
    made = routed.refute([[1.0]], labels=[1], attack=buckler.DecoupledAttack(2, 30, 16), alpha=1e-6, max_n=20_000)
    if kind is Composition:
        assert made[0].radius is None
    else:
        assert made[0].radius is not None
        assert 1.0 < made[0].radius < 1.3
