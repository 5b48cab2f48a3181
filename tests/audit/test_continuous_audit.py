"""Coverage of the limits from scores: seeded simulation, exact enumeration, planted bugs.

The margin's truth is known where rows are drawn from a few points of the simplex. Replicates of the first margin
suffice to see a miss rate of 1.3 alpha (8,000 at .05, 40,000 at .01). For the betting limit it is asked only whether
each rival's limit passes the truth, by a search that ends there: this pays for the replicates. That the public
function misses no more often than this is tested first.
"""

from collections.abc import Callable, Iterable
from itertools import product
from math import inf

import numpy as np
import pytest
from scipy.special import ndtri, softmax
from scipy.stats import binom

from buckler.bounds.betting import MEANS, NO_EARLIER, Pair, cells_limit, follow, plain, star_lower
from buckler.bounds.means import bernstein_lower, hoeffding_lower, sequence_lower
from buckler.certify import scores
from buckler.certify.scores import LIMITS
from buckler.certify.tangents import MARGINS, SLOPES, margin_from_height, predictable_slopes
from buckler.types import FloatArray, IntArray, Limit, MarginKind
from tests.simulation import first_by_default, judge, score_margin_lower, simulate_misses

Noise = Callable[[np.random.Generator, int, int], FloatArray]


def bernoulli(p: float) -> tuple[Noise, float]:
    return lambda rng, n, size: (rng.random((n, size)) < p).astype(np.float64), p


def two_points(low: float, high: float, p: float) -> tuple[Noise, float]:
    return lambda rng, n, size: np.where(rng.random((n, size)) < p, high, low), high * p + low * (1.0 - p)


HOSTILE: dict[str, tuple[Noise, float]] = {
    "mostly high": two_points(0.0, 0.99, 0.98),
    "bernoulli .001": bernoulli(0.001),
    "bernoulli .05": bernoulli(0.05),
    "bernoulli .5": bernoulli(0.5),
    "bernoulli .95": bernoulli(0.95),
    "bernoulli .999": bernoulli(0.999),
    "mostly low": two_points(0.01, 1.0, 0.02),
    "rare bottom": two_points(0.5, 0.55, 0.9),
    "beta(.1, .1)": (lambda rng, n, size: rng.beta(0.1, 0.1, (n, size)), 0.5),
    "beta(5, .2)": (lambda rng, n, size: rng.beta(5.0, 0.2, (n, size)), 5.0 / 5.2),
    "constant": (lambda _, n, size: np.full((n, size), 0.3), 0.3),
}


@pytest.mark.parametrize("n", [20, 100, 500])
@pytest.mark.parametrize("law", first_by_default(HOSTILE))
@pytest.mark.parametrize("limit", LIMITS)
def test_mean_limits_hold_at_five_percent(limit: Limit, law: str, n: int) -> None:
    draw, truth = HOSTILE[law]
    size = 8000 if n < 500 or limit != "star" else 3000
    misses = simulate_misses(lambda x: LIMITS[limit](x, 0.05, 0.0, 1.0), draw, truth, n, size, seed=n)
    assert judge(*misses, 0.05).passed, misses


@pytest.mark.parametrize("n", first_by_default([100, 20, 500]))
@pytest.mark.parametrize("law", first_by_default(["mostly high", "bernoulli .95", "bernoulli .5", "beta(.1, .1)"]))
def test_betting_limits_hold_at_one_percent(law: str, n: int) -> None:
    # Whether the limit passes the truth, without its last digits: the search stops at a ceiling.
    draw, truth = HOSTILE[law]

    def above(x: FloatArray) -> FloatArray:
        rows = np.ascontiguousarray(x.T)
        return np.array([cells_limit(plain(row), MEANS, 0.01, truth) >= truth for row in rows], dtype=np.float64)

    misses = simulate_misses(above, draw, 0.5, n, 20000 if n < 500 else 10000, seed=n)
    assert judge(*misses, 0.01).passed, misses


@pytest.mark.parametrize("law", first_by_default(["mostly high", "bernoulli .95"]))
@pytest.mark.parametrize("limit", [hoeffding_lower, bernstein_lower, sequence_lower])
def test_closed_forms_hold_at_one_percent(limit: Callable[..., FloatArray], law: str) -> None:
    draw, truth = HOSTILE[law]
    misses = simulate_misses(lambda x: limit(x, 0.01), draw, truth, 100, 40000, seed=1)
    assert judge(*misses, 0.01).passed, misses


def test_the_audit_sees_a_miss_rate_of_1_3_alpha() -> None:
    for alpha, size in ((0.05, 8000), (0.01, 40000)):
        seen = next(k for k in range(size) if not judge(k, size, alpha).passed)
        assert binom.sf(seen - 1, size, 1.3 * alpha) > 0.4


def half_as_wide(x: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (hoeffding_lower(x, 0.05) + x.mean(axis=0)))


def without_its_last_term(x: FloatArray) -> FloatArray:
    return np.asarray(bernstein_lower(x, 0.05) + 7.0 * np.log(2.0 / 0.05) / (3.0 * (len(x) - 1)))


def deviations_not_taken_four_times(x: FloatArray) -> FloatArray:
    i, price = np.arange(1, len(x) + 1)[:, None], np.log(1.0 / 0.05)
    means = (0.5 + np.cumsum(x, axis=0)) / (i + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2, axis=0)) / (i + 1)
    before = [np.vstack([np.full_like(x[:1], start), each[:-1]]) for start, each in ((0.5, means), (0.25, variances))]
    bets = np.minimum(0.5, np.sqrt(2.0 * price / (before[1] * i * np.log(1.0 + i))))
    costs = price + np.cumsum((x - before[0]) ** 2 * (-np.log1p(-bets) - bets) / 4.0, axis=0)
    return np.asarray(((np.cumsum(bets * x, axis=0) - costs) / np.cumsum(bets, axis=0)).max(axis=0))


@pytest.mark.parametrize(
    ("limit", "bug", "law", "n"),
    [
        (hoeffding_lower, half_as_wide, "bernoulli .5", 100),
        (bernstein_lower, without_its_last_term, "mostly high", 100),
        (sequence_lower, deviations_not_taken_four_times, "bernoulli .5", 500),
    ],
)
def test_planted_bugs_of_closed_forms_are_caught(
    limit: Callable[..., FloatArray], bug: Callable[[FloatArray], FloatArray], law: str, n: int
) -> None:
    draw, truth = HOSTILE[law]
    assert judge(*simulate_misses(lambda x: limit(x, 0.05), draw, truth, n, 4000, seed=n), 0.05).passed
    assert not judge(*simulate_misses(bug, draw, truth, n, 4000, seed=n), 0.05).passed


def logits(m: int, temperature: float, tie: bool, gap: float = 1.0) -> tuple[Noise, FloatArray]:
    """Softmax rows with class 0 ahead; with ``tie``, two rivals swap as runner-up from draw to draw."""

    def draw(rng: np.random.Generator, n: int, size: int) -> FloatArray:
        z = rng.normal(size=(size, n, m))
        z[:, :, 0] += gap * max(1.0, temperature) ** 0.5
        if tie and m > 2:
            first = rng.random((size, n)) < 0.5
            z[:, :, 1] += np.where(first, 2.0, -2.0)
            z[:, :, 2] += np.where(first, -2.0, 2.0)
        return np.asarray(softmax(z / temperature, axis=2))

    mean = draw(np.random.default_rng(10**6), 4000, 100).mean(axis=(0, 1))
    return draw, mean


SOFT = [(3, 0.1, True), (2, 0.01, False), (3, 1.0, True), (10, 1.0, False), (10, 10.0, True), (100, 0.1, False)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("m", "temperature", "tie"), first_by_default(SOFT[:4]))
def test_first_margins_hold(m: int, temperature: float, tie: bool, limit: Limit) -> None:
    draw, mean = logits(m, temperature, tie)
    truth = mean[0] - mean[1:].max()
    label = np.zeros(500, dtype=np.int64)
    misses = simulate_misses(
        lambda x: score_margin_lower(x, label[: len(x)], 0.05, "probability", limit),
        draw,
        truth + 2e-3,
        50,
        500,
        seed=m,
        batch=500,
    )
    assert judge(*misses, 0.05).passed, misses


@pytest.mark.parametrize(("m", "temperature", "tie"), first_by_default(SOFT))
@pytest.mark.parametrize("n", [20, 100])
def test_default_first_margin_holds_with_many_replicates(m: int, temperature: float, tie: bool, n: int) -> None:
    draw, mean = logits(m, temperature, tie)
    truth = mean[0] - mean[1:].max()
    size = 8000 if m <= 3 else 2000 if m == 10 else 200
    misses = simulate_misses(
        lambda x: score_margin_lower(x, np.zeros(len(x), dtype=np.int64), 0.05),
        draw,
        truth + 2e-3,
        n,
        size,
        seed=n,
        batch=500,
    )
    assert judge(*misses, 0.05).passed, misses


@pytest.mark.parametrize(("m", "temperature", "tie"), first_by_default(SOFT[:4]))
def test_second_margins_hold(m: int, temperature: float, tie: bool) -> None:
    draw, mean = logits(m, temperature, tie)
    truth = float(ndtri(mean[0]) - ndtri(mean[1:].max()))
    misses = simulate_misses(
        lambda x: score_margin_lower(x, np.zeros(len(x), dtype=np.int64), 0.05, "quantile"),
        draw,
        truth + 1e-2,
        60,
        400,
        seed=m,
        batch=200,
    )
    assert judge(*misses, 0.05).passed, misses


@pytest.mark.parametrize(("top", "other"), first_by_default([(0.6, 0.1), (0.5, 0.4), (0.9, 0.02), (0.97, 0.03)]))
def test_adaptive_slopes_reject_the_true_margin_rarely(top: float, other: float) -> None:
    # One-hot rows are the extreme points: against the single rival, count how often the truth itself is rejected.
    n, alpha = 100, 0.05
    truth = float(ndtri(top) - ndtri(other))
    size = 5000
    u = np.random.default_rng(4).random((size, n))
    a, b = (u < top).astype(np.float64), (u > 1.0 - other).astype(np.float64)
    misses = 0
    for i in range(size):
        index = predictable_slopes(a[i], b[i : i + 1], np.zeros((1, NO_EARLIER.size)), alpha)[0]
        pair = Pair(a[i], b[i], SLOPES, index, NO_EARLIER)
        misses += cells_limit(pair, MARGINS, alpha, truth) >= truth
    assert judge(misses, size, alpha).passed, misses


@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_one_hot_rows_by_enumeration(alpha: float) -> None:
    # Every sequence of n votes among three classes: the miss probability is a sum, not an estimate.
    n, m = 7, 3
    votes = np.array(list(product(range(m), repeat=n)))
    rows = np.eye(m)[votes]
    counts = np.stack([(votes == k).sum(axis=1) for k in range(m)], axis=1)
    label = np.zeros(len(rows), dtype=np.int64)
    first = score_margin_lower(rows, label, alpha)
    second = score_margin_lower(rows, label, alpha, "quantile")
    rng = np.random.default_rng(0)
    truths = np.concatenate([rng.dirichlet(np.full(m, 0.6), 300), [[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.4, 0.3, 0.3]]])
    for p in truths:
        chance = np.prod(p**counts, axis=1)
        theta = p[0] - p[1:].max()
        assert chance[first > theta].sum() <= alpha
        if p[0] > 0.0 and p[1:].max() > 0.0:
            theta = ndtri(p[0]) - ndtri(p[1:].max())
            assert chance[second > theta].sum() <= alpha
    assert first.max() > 0.0


@pytest.mark.parametrize("limit", [star_lower, sequence_lower, hoeffding_lower])
def test_binary_draws_by_enumeration(limit: Callable[..., FloatArray]) -> None:
    n, alpha = 12, 0.1
    draws = np.array(list(product((0.0, 1.0), repeat=n))).T
    lows, ones = limit(draws, alpha), draws.sum(axis=0)
    for p in np.linspace(0.02, 0.98, 49):
        assert (p**ones * (1.0 - p) ** (n - ones))[lows > p].sum() <= alpha


def test_a_bet_that_peeks_is_caught() -> None:
    # Planted bug: the stake of a draw is doubled or dropped after seeing that very draw.
    n, alpha, truth = 100, 0.05, 0.5
    x = (np.random.default_rng(5).random((8000, n)) < truth).astype(np.float64)
    stake = np.sqrt(2.0 * np.log(1.0 / alpha) / (n * 0.25))
    honest = np.cumprod(1.0 + stake * (x - truth), axis=1).max(axis=1)
    peeking = np.cumprod(1.0 + stake * np.where(x > truth, 1.1, 0.9) * (x - truth), axis=1).max(axis=1)
    assert judge(int((honest >= 1.0 / alpha).sum()), 8000, alpha).passed
    assert not judge(int((peeking >= 1.0 / alpha).sum()), 8000, alpha).passed


def test_sorting_the_draws_is_caught() -> None:
    # Planted bug: draws are sorted first, so that the limit would not depend on their order; bets then know what comes.
    x = np.random.default_rng(7).beta(0.5, 0.5, (100, 4000))
    tidy = np.sort(x, axis=0)[::-1]
    assert judge(int((star_lower(x, 0.05) > 0.5).sum()), 4000, 0.05).passed
    assert not judge(int((star_lower(tidy, 0.05) > 0.5).sum()), 4000, 0.05).passed


def test_maxima_of_two_halves_added_are_caught() -> None:
    # Planted bug: averaging the running maxima of two wealths, instead of the wealths at one draw.
    n, alpha, size = 600, 0.2, 20000
    rng = np.random.default_rng(6)
    halves = [np.cumprod(1.0 + 0.3 * (rng.random((size, n)) - 0.5) * 2.0, axis=1) for _ in range(2)]
    together = 0.5 * (halves[0] + halves[1]).max(axis=1)
    added = 0.5 * (halves[0].max(axis=1) + halves[1].max(axis=1))
    assert judge(int((together >= 1.0 / alpha).sum()), size, alpha).passed
    assert not judge(int((added >= 1.0 / alpha).sum()), size, alpha).passed


def test_the_cap_keeps_wealth_positive() -> None:
    for m in (0.01, 0.5, 0.99):
        assert 0.0099 <= follow(np.zeros(1), 1e9, m, 1.0, inf) <= 0.0101


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
    combine: Callable[[Iterable[bool]], bool] = all,
) -> bool:
    """Return whether the pairwise betting limit of one replicate passes the truth; ``all`` takes the smallest limit."""
    a = np.ascontiguousarray(x[:, label])
    rivals = np.ascontiguousarray(np.delete(x, label, axis=1).T)
    index = np.zeros(rivals.shape, dtype=np.int64)
    slopes, candidates, top = np.ones(1), MEANS, (1.0 + truth) / 2.0
    if margin == "quantile":
        index = predictable_slopes(a, rivals, np.tile(NO_EARLIER, (len(rivals), 1)), alpha)
        slopes, candidates, top = SLOPES, MARGINS, truth

    def passes(rival: FloatArray, steps: IntArray) -> bool:
        return cells_limit(Pair(a, rival, slopes, steps, NO_EARLIER), candidates, alpha, top) >= top

    return combine(passes(rival, index[j]) for j, rival in enumerate(rivals))


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("law", LAWS)
def test_passing_the_truth_is_what_the_shortcut_says(law: str, margin: MarginKind) -> None:
    label, truth = truth_of(law, margin)
    x = draws(law, 60, 150, seed=7)
    for alpha in (0.3, 0.05):
        lows = score_margin_lower(x, np.full(len(x), label), alpha, margin)
        short = np.array([missed(rows, label, truth, margin, alpha) for rows in x])
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
    misses = sum(missed(rows, label, truth, margin, alpha) for rows in x)
    assert judge(misses, replicates, alpha).passed, misses / replicates


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_planted_bug_the_largest_limit_over_rivals(margin: MarginKind) -> None:
    """The largest in place of the smallest limit: the weakest rival answers for all, and that is caught."""
    label, truth = truth_of("votes", margin)
    x = draws("votes", 100, 500, seed=3)
    misses = sum(missed(rows, label, truth, margin, 0.05, combine=any) for rows in x)
    assert not judge(misses, len(x), 0.05).passed, misses / len(x)


@pytest.mark.parametrize("limit", LIMITS)
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


@pytest.mark.parametrize("limit", ["sequence", "bernstein", "hoeffding"])
def test_closed_forms_of_the_second_margin_hold(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slopes from separate draws; a margin that is doubled on its way from the mean is caught."""
    label, truth = truth_of("votes", "quantile")
    x, before, labels = draws("votes", 400, 400, seed=4), draws("votes", 50, 400, seed=5), np.full(400, label)

    def misses() -> int:
        return int((score_margin_lower(x, labels, 0.05, "quantile", limit, before) > truth).sum())

    assert judge(misses(), 400, 0.05).passed
    monkeypatch.setattr(scores, "margin_from_height", lambda mean, c: 2.0 * margin_from_height(mean, c))
    assert not judge(misses(), 400, 0.05).passed
