"""Limits at numbers of draws too large to enumerate, for one pair of any number of classes.

A limit ``low(top, runner_up, n)`` that never rises with ``runner_up`` is at most ``low(X_A, X_j, n)`` for each rival j,
and the margin is that of the closest one. So its miss probability is at most that of ``low(X_A, X_j, n) >
margin(p_A, p_j)``, a sum over two counts of the trinomial (A, j, all the rest). If the limit also never falls as
``top`` rises, the outcomes that miss fill columns ``{x1 >= c(x2)}``: the boundary of a level is found with a few
evaluations a column, and its probability is a sum of binomial tails. Both are SciPy's here: what is audited is not its
own judge.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import betainc

from buckler.certify.votes import vote_margin_lower
from buckler.evaluate.audit import LARGEST_MARGIN, curve_pair, multinomial_pmf, nearest_shift, outcomes
from buckler.types import FloatArray, IntArray, MarginKind

Limit = Callable[[IntArray, IntArray], FloatArray]
"""Counts of the class and of the runner-up -> lower limits of the margin between the two."""

LIMIT_ROUNDING = 1e-8
"""How far, relative to ``1 + |limit|``, rounding may let neighbouring limits be out of order."""


def boundary(limit: Limit, level: float, n: int) -> IntArray:
    """Return ``c``: in column ``x2 = j`` the outcomes with ``x1 >= c[j]`` have a limit above ``level``.

    ``c[j] = n - j + 1`` where there are none. All columns are bisected together; a limit that has outcomes beside the
    boundary, or at an end of a column, on the wrong side fails: of such a limit the audit would prove nothing.
    """
    j = np.arange(n + 1)
    low, high = np.full(n + 1, -1), n - j + 1
    while (open_ := np.flatnonzero(high - low > 1)).size:
        middle = (low[open_] + high[open_]) // 2
        inside = limit(middle, j[open_]) > level
        high[open_[inside]], low[open_[~inside]] = middle[inside], middle[~inside]
    doubt = LIMIT_ROUNDING * (1.0 + abs(level))
    for x1, misses in ((high, True), (n - j, True), (high - 1, False), (np.zeros_like(high), False)):
        there = (x1 >= 0) & (x1 <= n - j) & ((x1 >= high) if misses else (x1 < high))
        lows = limit(x1[there], j[there])
        assert (lows >= level - doubt if misses else lows <= level + doubt).all()
    return high


def probability(n: int, p1: float, p2: float, c: IntArray) -> float:
    """Return ``P(X1 >= c[X2])`` of a trinomial: for each x2 a binomial probability times a binomial tail."""
    reach = 12.0 * np.sqrt(n * p2 * (1.0 - p2)) + 100.0  # further columns hold less than 1e-30
    j = np.arange(max(0, int(n * p2 - reach)), min(n, int(n * p2 + reach)) + 1)
    level, left = c[j], n - j
    tails = np.where(level <= 0, 1.0, 0.0)
    some = (level > 0) & (level <= left)
    share = min(1.0, p1 / (1.0 - p2)) if p2 < 1.0 else 0.0
    tails[some] = betainc(level[some], left[some] - level[some] + 1.0, share)
    # Weights by the ratios of neighbours, made to sum to one: gammaln would lose the digits that large n leaves.
    logs = np.cumsum(np.log((n - j[:-1]) * max(p2, 1e-300) / ((j[:-1] + 1.0) * max(1.0 - p2, 1e-300))))
    weights = np.exp(np.append(0.0, logs) - logs.max(initial=0.0))
    return float(weights @ tails / weights.sum())


def spread_outcomes(n: int, count: int) -> IntArray:
    """Return ``count`` or fewer different outcomes ``[k, 2]`` all over the simplex: its edges, and a lattice inside."""
    place = np.arange(count) * 0.6180339887498949 % 1.0  # fractions of the golden ratio fill any interval evenly
    share = (np.arange(count) + 0.5) / count
    top = np.rint(n * np.where(place < 0.75, 1.0 - share**2, share)).astype(np.int64)
    top[0] = n
    kind = np.arange(count) % 4  # none for the rival, all that is left, and two lots in between
    rival = np.rint((n - top) * np.select([kind == 0, kind == 1], [0.0, 1.0], place)).astype(np.int64)
    return np.unique(np.stack([top, np.minimum(rival, n - top)], axis=1), axis=0)


def worst_miss(limit: Limit, kind: MarginKind, n: int, points: int = 12, jumps: int = 10) -> float:
    """Return the worst miss probability found, of truths just below the values of ``jumps`` outcomes."""

    def miss(level: float, shifts: FloatArray, c: IntArray) -> tuple[float, float]:
        beyond = kind == "probability" and level > 1.0
        p1, p2 = (np.ones(1), np.zeros(1)) if beyond else curve_pair(kind, level, shifts)
        return max((probability(n, float(a), float(b), c), float(a)) for a, b in zip(p1, p2, strict=True))

    seen = spread_outcomes(n, jumps)
    values = np.unique(limit(seen[:, 0], seen[:, 1]))
    worst = 0.0
    for value in values[values > (-1.0 if kind == "probability" else -np.inf)]:  # no margin is lower than these
        below = float(min(value, LARGEST_MARGIN) - 1e-9 * (1.0 + min(abs(value), LARGEST_MARGIN)))
        c = boundary(limit, below, n)
        found, top = miss(below, np.linspace(0.0, 1.0, points), c)
        if found > worst:
            near = nearest_shift(kind, below, np.array([top]))
            worst = max(found, miss(below, np.clip(near + np.linspace(-1.0, 1.0, 81) / points, 0.0, 1.0), c)[0])
    return worst


def limit_of(method: str, kind: MarginKind, n: int, alpha: float) -> Limit:
    return lambda top, runner_up: vote_margin_lower(
        top, runner_up, np.full(top.shape, n), alpha=alpha, margin=kind, method=method
    )


@pytest.mark.parametrize("n", [1, 2, 3, 17, 60])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_boundaries_of_a_pair_are_those_of_every_outcome(kind: MarginKind, n: int) -> None:
    limit = limit_of("bonferroni", kind, n, 0.05)
    for level in (-2.0, -0.6, -0.1, 0.05, 0.4, 0.8, 3.0):
        c = boundary(limit, level, n)
        for x2 in range(n + 1):
            x1 = np.arange(n - x2 + 1)
            np.testing.assert_array_equal(limit(x1, np.full_like(x1, x2)) > level, x1 >= c[x2])
        counts = outcomes(3, n)
        plain = float(multinomial_pmf(counts, np.array([[0.5, 0.2, 0.3]]))[0] @ (counts[:, 0] >= c[counts[:, 1]]))
        assert probability(n, 0.5, 0.2, c) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize(("method", "n"), [("exact", 300), ("bonferroni", 1000), ("top_class", 5000)])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_a_pair_of_any_number_of_classes(method: str, kind: MarginKind, n: int) -> None:
    alpha = 0.01
    limit = limit_of(method, kind, n, alpha)
    assert 0.4 * alpha < worst_miss(limit, kind, n) <= alpha * (1.0 + 1e-9)
    # Planted bug: five votes too many for the class.
    assert worst_miss(lambda top, rival: limit(np.minimum(top + 5, n - rival), rival), kind, n) > 3.0 * alpha
