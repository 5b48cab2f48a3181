"""Coverage of the margin limits where the truth is known exactly: rows drawn from a few points of the simplex.

Replicates of the first margin suffice to see a miss rate of 1.3 alpha (8,000 at .05, 40,000 at .01). For the betting
limits it is asked only whether each rival's limit passes the truth, by a search that ends there or, where one path
serves all candidates, by one product: this pays for the replicates. That the public function misses no more often than
this is tested first.
"""

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtri

from buckler.bounds.betting import MEANS, NO_EARLIER, Pair, plug_in_bets, rejects, wealth_goal
from buckler.bounds.star import cells_limit
from buckler.certify.scores import score_margin_lower
from buckler.certify.tangents import MARGINS, SLOPES, means_of, predictable_slopes
from buckler.types import FloatArray, IntArray, Limit, MarginKind
from tests.simulation import first_by_default, judge

LAWS: dict[str, tuple[FloatArray, FloatArray]] = {
    "votes": (np.eye(3), np.array([0.6, 0.3, 0.1])),
    "two classes": (np.array([[0.999, 0.001], [0.02, 0.98]]), np.array([0.85, 0.15])),
    "a runner-up that swaps": (
        np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.9, 0.05, 0.05]]),
        np.array([0.4, 0.4, 0.2]),
    ),
    "rarely wrong": (np.array([[0.97, 0.02, 0.01], [0.0, 1.0, 0.0]]), np.array([0.98, 0.02])),
    "ten classes": (
        np.random.default_rng(3).dirichlet(np.full(10, 0.3), 12)[:, np.argsort(-np.arange(10) % 7)],
        np.full(12, 1.0 / 12.0),
    ),
}


def truth_of(law: str, margin: MarginKind) -> tuple[int, float]:
    points, weights = LAWS[law]
    mean = weights @ points
    top = int(mean.argmax())
    rival = np.delete(mean, top).max()
    return top, float(mean[top] - rival if margin == "probability" else ndtri(mean[top]) - ndtri(rival))


def draws(law: str, n: int, replicates: int, seed: int) -> FloatArray:
    points, weights = LAWS[law]
    return np.asarray(points[np.random.default_rng(seed).choice(len(weights), (replicates, n), p=weights)])


def missed(
    x: FloatArray,
    label: int,
    truth: float,
    margin: MarginKind,
    alpha: float,
    star: bool,
    combine: Callable[[Iterable[bool]], bool] = all,
) -> bool:
    """Return whether the pairwise betting limit of one replicate passes the truth; ``all`` takes the smallest limit."""
    n = len(x)
    a = np.ascontiguousarray(x[:, label])
    rivals = np.ascontiguousarray(np.delete(x, label, axis=1).T)
    goal, price = wealth_goal(alpha, n), -np.log(alpha)
    index = np.zeros(rivals.shape, dtype=np.int64)
    slopes, means = np.ones(1), np.array([(1.0 + truth) / 2.0])
    if margin == "quantile":
        index = predictable_slopes(a, rivals, np.tile(NO_EARLIER, (len(rivals), 1)), alpha)
        slopes, means = SLOPES, means_of(truth)

    def passes(rival: FloatArray, steps: IntArray) -> bool:
        pair = Pair(a, rival, slopes, steps, NO_EARLIER)
        if not star:
            return rejects(plug_in_bets(pair, price), means, goal)
        candidates, top = (MARGINS, truth) if margin == "quantile" else (MEANS, float(means[0]))
        return cells_limit(pair, candidates, alpha, top) >= top

    return combine(passes(rival, index[j]) for j, rival in enumerate(rivals))


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("law", LAWS)
def test_passing_the_truth_is_what_the_shortcut_says(law: str, margin: MarginKind) -> None:
    label, truth = truth_of(law, margin)
    x = draws(law, 60, 150, seed=7)
    for alpha, star in product((0.3, 0.05), (True, False)):
        limit: Limit = "star" if star else "betting"
        lows = score_margin_lower(x, np.full(len(x), label), alpha, margin, limit=limit)
        short = np.array([missed(rows, label, truth, margin, alpha, star) for rows in x])
        # The public limit is lowered by rounding and never above the estimate, so it may only miss less.
        assert not (lows > truth)[~short].any()
        assert ((lows > truth) == short).mean() > 0.9


@pytest.mark.parametrize(
    ("alpha", "n", "replicates"), first_by_default([(0.05, 100, 8000), (0.05, 20, 8000), (0.01, 100, 40000)])
)
@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("law", first_by_default(["rarely wrong", "votes"]))
def test_pairwise_bets_hold(law: str, margin: MarginKind, alpha: float, n: int, replicates: int) -> None:
    label, truth = truth_of(law, margin)
    if margin == "quantile":
        replicates = min(replicates // 4, 3000)  # slopes chosen step by step cost more than the bets themselves
    x = draws(law, n, replicates, seed=n)
    misses = sum(missed(rows, label, truth, margin, alpha, star=True) for rows in x)
    assert judge(misses, replicates, alpha).passed, misses / replicates


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_planted_bug_the_largest_limit_over_rivals(margin: MarginKind) -> None:
    """The largest in place of the smallest limit: the weakest rival answers for all, and that is caught."""
    label, truth = truth_of("votes", margin)
    x = draws("votes", 100, 500, seed=3)
    misses = sum(missed(rows, label, truth, margin, 0.05, star=True, combine=any) for rows in x)
    assert not judge(misses, len(x), 0.05).passed, misses / len(x)


@pytest.mark.parametrize("limit", ["star", "betting", "sequence", "bernstein", "hoeffding"])
def test_every_limit_holds(limit: Limit) -> None:
    law = "a runner-up that swaps"
    label, truth = truth_of(law, "probability")
    x = draws(law, 20, 8000, seed=1)
    misses = int((score_margin_lower(x, np.full(len(x), label), 0.05, "probability", limit) > truth).sum())
    assert judge(misses, len(x), 0.05).passed, misses / len(x)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_ten_classes_hold(margin: MarginKind) -> None:
    label, truth = truth_of("ten classes", margin)
    x = draws("ten classes", 100, 1500, seed=2)
    lows = score_margin_lower(x, np.full(len(x), label), 0.05, margin)
    misses = int((lows > truth).sum())
    assert judge(misses, len(x), 0.05).passed, misses / len(x)
