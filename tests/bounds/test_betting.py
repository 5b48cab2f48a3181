"""Limits by cells: equal to a plain reference, in which every candidate holds stakes of its own, made from the past."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri_exp

from buckler.bounds import betting
from buckler.bounds.betting import (
    BEYOND,
    CAP,
    COARSE_CELL,
    COARSE_PACE,
    DOUBT,
    DROPPED_BELOW,
    FINE_CELL,
    HAZARDS,
    MEANS,
    MOST_CELLS,
    NO_EARLIER,
    OPENING,
    PACE,
    PRIOR,
    Candidates,
    Game,
    Pair,
    cells_limit,
    cut_cell,
    earlier_moments,
    follow,
    hazard,
    largest_rejected,
    last_goal,
    lowest_cell,
    plain,
    star_lower,
    wealth_goal,
    wealth_of,
)
from buckler.bounds.binomial import clopper_pearson_lower
from buckler.certify.tangents import LARGEST_REPORTED_MARGIN, MARGINS, SLOPES
from buckler.types import FloatArray

ALPHA = 0.02
DRAWS = arrays(np.float64, st.integers(1, 80), elements=st.floats(0.0, 1.0))
LAWS: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "uniform": lambda rng, n: rng.random(n),
    "near one-hot": lambda rng, n: rng.beta(0.1, 0.1, n),
    "rare loss": lambda rng, n: (rng.random(n) < 0.97).astype(float),
    "rare gain": lambda rng, n: (rng.random(n) < 0.03).astype(float),
    "narrow": lambda rng, n: 0.7 + 0.01 * rng.random(n),
    "constant": lambda _, n: np.ones(n),
    "a turn for the worse": lambda rng, n: np.where(np.arange(n) < n // 3, 0.9, 0.2) + 0.1 * rng.random(n),
}


def limit(
    y: FloatArray, ceiling: float = 1.0, earlier: FloatArray = NO_EARLIER, coarse: bool = False, uniform: float = 1.0
) -> float:
    return cells_limit(plain(y)._replace(earlier=earlier), MEANS, ALPHA, ceiling, uniform, coarse=coarse)


class Bettor:
    """One candidate and its stakes: draw by draw, from the draws before it and the cell that the candidate lies in."""

    def __init__(self, pair: Pair, candidates: Candidates, value: float, *, coarse: bool = False) -> None:
        a, b, slopes, index, earlier = pair
        k = int(np.searchsorted(candidates.values, value))  # above node k - 1, and not above node k
        table, means = candidates.table, candidates.means_of(value)
        c = slopes[index]
        self.y, self.n, self.goal = (a - c * b + c) / (1.0 + c), a.size, wealth_goal(ALPHA, a.size)
        self.index, self.table, self.means, self.stakes = index, table, means, list[float]()
        self.low, self.high = -1 if candidates is MARGINS else 0, len(table) - 1
        pace, fineness = (COARSE_PACE, COARSE_CELL) if coarse else (PACE, FINE_CELL)
        stake, due, log_goal = 0.0, 0, np.log(self.goal) + BEYOND
        opening = cutting = max(1, self.n // OPENING)
        for i in range(self.n):
            slope = float(c[i])
            before = (a[:i] - slope * b[:i] + slope) / (1.0 + slope)
            count, s1, s2, s3 = moments_of(earlier, slope) + power_sums(before) + PRIOR * np.array([1.0, 0.5, 0.5, 0.5])
            mean = s1 / count
            deviation = np.sqrt(max(s2 / count - mean**2, 1e-12))
            if i == cutting:
                cutting, due = cutting * (4 if coarse else 2), i
                history = self.wealth(self.table[self.high], i)
                if i == opening or (history.min() > 1e-200 and history.max() < self.goal):
                    error, doubt = deviation / np.sqrt(self.n), DOUBT * deviation * np.sqrt(1.0 / count + 1.0 / self.n)
                    bottom = max(mean - doubt - 4.0 * error - log_goal / self.n, 0.0)
                    top = min(mean + doubt - 2.5 * error, 1.0)
                    self.narrow(
                        k, bottom, top, max(fineness * error * self.n / i, (top - bottom) / MOST_CELLS), index[i]
                    )
            if i >= due or (i and index[i] != index[i - 1]):
                due = i + 1 + i // pace
                history = self.wealth(self.table[self.high], i)
                price = -log_goal + (np.log(max(history[-1], 1e-300)) if i >= opening else 0.0)
                if i >= opening and (history.max() >= self.goal or history.min() < 1e-200):
                    self.stakes += [0.0] * (self.n - i)
                    break
                reach = hazard(min(price, -1e-15), HAZARDS) / np.sqrt(self.n - i)
                skewness = (s3 / count - 3.0 * mean * s2 / count + 2.0 * mean**3) / deviation**3
                stake = reach / deviation * min(max(1.0 + skewness * reach / 6.0, 0.2), 1.5)
                if price <= -log_goal - DROPPED_BELOW:
                    stake = 0.0
            self.stakes.append(stake)

    def narrow(self, k: int, bottom: float, top: float, width: float, s: int) -> None:
        """Keep the part of the cell in which the candidate lies."""
        column, last = self.table[:, s], len(self.table) - 1
        under = int(np.searchsorted(column, bottom, side="right")) - 1
        over = min(int(np.searchsorted(column, top, side="right")), last)
        left, right = min(max(self.low, under), self.high), max(min(self.high, over), self.low)
        edges = {self.low, self.high, left}
        if right > left:
            parts = min(int((column[right] - column[max(left, 0)]) / width) + 1, right - left)
            edges |= {left + (right - left) * p // parts for p in range(parts + 1)}
        self.low = max(edge for edge in edges if edge < k)
        self.high = min(edge for edge in edges if edge >= k)

    def wealth(self, means: FloatArray, upto: int | None = None) -> FloatArray:
        """Return the wealth of a candidate with these means at the stakes so far."""
        stop = self.n if upto is None else upto
        m = means[self.index[:stop]]
        factors = 1.0 + np.minimum(self.stakes[:stop], CAP / m) * (self.y[:stop] - m)
        return np.asarray(np.cumprod(np.append(1.0, factors)), dtype=np.float64)

    def verdict(self, uniform: float = 1.0) -> bool | None:
        """Return whether the candidate is rejected; None if that hangs on the last digits."""
        wealth = self.wealth(self.means)
        best = max(wealth.max(), wealth[-1] / uniform) / self.goal
        return None if abs(best - 1.0) < 1e-6 else bool(best >= 1.0)


def power_sums(y: FloatArray) -> FloatArray:
    return np.array([y.size, y.sum(), (y**2).sum(), (y**3).sum()])


def moments_of(earlier: FloatArray, c: float) -> FloatArray:
    """Return the power sums of y behind a earlier."""
    count, z = earlier[0], earlier[1] - c * earlier[2]
    zz = earlier[3] - 2 * c * earlier[4] + c**2 * earlier[5]
    zzz = earlier[6] - 3 * c * earlier[7] + 3 * c**2 * earlier[8] - c**3 * earlier[9]
    shifted = [z + c * count, zz + 2 * c * z + c**2 * count, zzz + 3 * c * zz + 3 * c**2 * z + c**3 * count]
    return np.array([count, *(total / (1.0 + c) ** power for power, total in enumerate(shifted, 1))])


def bettor(y: FloatArray, m: float, earlier: FloatArray = NO_EARLIER, coarse: bool = False) -> Bettor:
    """Return the bettor for a candidate mean of a plain variable."""
    return Bettor(plain(y)._replace(earlier=earlier), MEANS, m, coarse=coarse)


@pytest.mark.parametrize(("coarse", "uniform"), [(False, 1.0), (True, 1.0), (False, 0.3), (True, 0.01)])
def test_the_limit_is_the_end_of_what_the_reference_rejects(coarse: bool, uniform: float) -> None:
    for (law, draw), n in product(LAWS.items(), (1, 2, 7, 40, 150)):
        y = draw(np.random.default_rng(n), n)
        found = limit(y, coarse=coarse, uniform=uniform)
        for m in np.linspace(1e-6, found - 1e-6, 25 if found > 1e-5 else 0):
            assert bettor(y, m, coarse=coarse).verdict(uniform) is not False, (law, n, m)
        above = found + 1e-8  # further above there may be rejected candidates again: the limit is below the first hole
        if above < 1.0:
            assert bettor(y, above, coarse=coarse).verdict(uniform) is not True, (law, n)


def test_the_stakes_of_the_last_cell_are_those_of_the_reference() -> None:
    """And the wealth against the limit, multiplied out exactly from the candidate's own stakes, reaches 1/alpha."""
    ctx.prec = 300
    for law, draw in LAWS.items():
        y, goal = draw(np.random.default_rng(8), 150), wealth_goal(ALPHA, 150)
        cell = lowest_cell(
            Game(plain(y), MEANS.table, goal, goal, HAZARDS, False), 0, MEANS.values.size - 1, np.ones(1)
        )
        assert not cell.above, law
        expected = bettor(y, float(MEANS.values[cell.high])).stakes
        stakes = np.repeat(cell.stakes, np.diff(cell.starts, append=150))
        np.testing.assert_allclose(stakes, expected, rtol=1e-6, atol=1e-9, err_msg=law)
        y = draw(np.random.default_rng(3), 200)
        low = limit(y) - 1e-12  # not on an edge between two cells
        if low <= 0.0:
            continue
        m, total, most = arb(low), arb(1), arb(0)
        for value, stake in zip(y.tolist(), bettor(y, low).stakes, strict=True):
            total *= 1 + min(arb(float(stake)), arb(CAP) / m, key=lambda ball: float(ball.mid())) * (arb(value) - m)
            most = total if float(total.mid()) > float(most.mid()) else most
        assert float((most * arb(ALPHA)).mid()) > 1.0 - 1e-9, law  # stakes of kernel and reference differ by rounding


def test_the_limit_of_a_margin_is_the_end_of_what_the_reference_rejects() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 150))
        p = rng.dirichlet([4.0, 0.5, 0.3][: 2 + seed % 2] if seed % 3 else [8.0, 0.05, 0.3], n)
        a, b = np.ascontiguousarray(p[:, 0]), np.ascontiguousarray(p[:, 1])
        index = np.repeat(rng.integers(0, len(SLOPES) // 2, 4), -(-n // 4))[:n]  # a slope that changes on the way
        pair = Pair(a, b, SLOPES, index, earlier_moments(a[:20], b[:20]) if seed % 2 else NO_EARLIER)
        u = 1.0 if seed < 6 else 0.2
        found = cells_limit(pair, MARGINS, ALPHA, 8.0, u)
        for margin in np.linspace(0.0, found - 1e-7, 12) if found > 0.0 else ():
            assert Bettor(pair, MARGINS, margin).verdict(u) is not False, (seed, margin)
        if found < 8.0:
            assert Bettor(pair, MARGINS, max(found + 1e-7, 0.0)).verdict(u) is not True, seed
        low = cells_limit(pair, MARGINS, ALPHA, 0.3, u)
        assert low == pytest.approx(min(found, 0.3), abs=3e-9), seed


def test_residual_in_ball_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    # The wealth against the returned limit, multiplied out exactly from the stakes of its cell, does reach 1/alpha, or
    # uniform/alpha after the last draw.
    ctx.prec = 300
    alpha, cells = 0.04, list[Any]()

    def kept(*arguments: Any) -> Any:
        cells.append(lowest_cell(*arguments))
        return cells[-1]

    monkeypatch.setattr(betting, "lowest_cell", kept)
    tried = 0
    for (law, draw), n, uniform in product(LAWS.items(), (1, 5, 300), (1.0, 0.3)):
        low = cells_limit(plain(draw(np.random.default_rng(n), n)), MEANS, alpha, 1.0, uniform)
        cell = cells[-1]
        if cell.above or low <= (0.0 if cell.low < 0 else MEANS.values[cell.low]):
            continue  # the last cell rejects nothing itself
        stakes = np.repeat(cell.stakes, np.diff(cell.starts, append=n))
        m, wealth, most, tried = arb(low), arb(1), arb(0), tried + 1
        for y, stake in zip(cell.y.tolist(), stakes.tolist(), strict=True):
            wealth *= 1 + min(arb(stake), arb(CAP) / m, key=lambda ball: float(ball.mid())) * (arb(y) - m)
            most = wealth if float(wealth.mid()) > float(most.mid()) else most
        assert most >= 1 / arb(alpha) or wealth >= arb(uniform) / arb(alpha), (law, n, uniform)
    assert tried >= 10


@given(y=DRAWS, share=st.floats(0.01, 0.99), uniform=st.sampled_from([1.0, 0.1]))
@settings(max_examples=80, deadline=None)
def test_a_ceiling_changes_nothing_below_it(y: FloatArray, share: float, uniform: float) -> None:
    full = limit(y, uniform=uniform)
    assert limit(y, share, uniform=uniform) == pytest.approx(min(full, share), abs=2.0 * MEANS.tolerance)


def test_a_ceiling_just_above_the_limit_does_not_raise_it() -> None:
    """A tenth of a standard error above, where the ceiling's cell is one of many: its own bets are what counts."""
    for seed in range(10):
        y = np.random.default_rng(seed).random(1000)
        full = limit(y)
        for share in (0.1, 0.3):
            found = limit(y, full + share * float(y.std()) / 1000**0.5)
            assert found == pytest.approx(full, abs=2.0 * MEANS.tolerance), (seed, share)


@given(y=DRAWS, cut=st.integers(0, 79), other=st.floats(0.0, 1.0), m=st.floats(0.01, 0.99))
@settings(max_examples=40, deadline=None)
def test_stakes_are_predictable(y: FloatArray, cut: int, other: float, m: float) -> None:
    changed = y.copy()
    changed[cut:] = other
    assert bettor(y, m).stakes[: cut + 1] == bettor(changed, m).stakes[: cut + 1]


TABLE: FloatArray = np.linspace(0.0, 1.0, 1001)[:, None]


@given(
    low=st.integers(-1, 999), size=st.integers(1, 1000), bottom=st.integers(-1, 1000), reach=st.integers(0, 1000),
    width=st.floats(1e-3, 1.0),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_parts_make_up_the_cell(low: int, size: int, bottom: int, reach: int, width: float) -> None:
    high, top = min(low + size, 1000), min(bottom + reach, 1000)
    ends = cut_cell(low, high, (bottom, top), width, TABLE, 0)
    assert ends[-1] == high
    edges = np.append(low, ends)
    assert (np.diff(edges) > 0).all()
    inside = (edges[:-1] >= bottom) & (edges[1:] <= top)
    assert (np.diff(edges)[inside] <= 1000.0 * width + 1.0).all()


def test_the_table_of_hazards() -> None:
    for price in (-1e-4, -0.01, -0.3, -1.0, -6.9, -50.0, -200.0, -700.0):
        d = ndtri_exp(price)
        exact = np.exp(-0.5 * d**2 - 0.5 * np.log(2.0 * np.pi) - price)
        assert hazard(price, HAZARDS) == pytest.approx(exact, rel=0.02 if price > -1e-3 else 3e-3)


def test_draws_seen_beforehand_help_and_may_be_anything() -> None:
    rng = np.random.default_rng(4)
    y, earlier = 0.7 + 0.05 * rng.random(100), 0.7 + 0.05 * rng.random(100)
    nothing = np.zeros(100)
    right, wrong = earlier_moments(earlier, nothing), earlier_moments(np.tile([0.0, 1.0], 50), nothing)
    helped, misled = limit(y, earlier=right), limit(y, earlier=wrong)
    assert helped > limit(y) > misled
    for found, earlier in ((helped, right), (misled, wrong)):
        assert bettor(y, found - 1e-8, earlier).verdict() is not False
        assert bettor(y, found + 1e-8, earlier).verdict() is not True


def test_limits_come_near_those_of_the_central_limit_theorem() -> None:
    # The distance from the truth relative to the central limit theorem's.
    x = np.random.default_rng(5).beta(2.0, 1.0, (400, 60))
    normal = np.median(2.0 / 3.0 - x.mean(axis=0) + 3.09 * x.std(axis=0) / 20.0)
    assert 0.95 < np.median(2.0 / 3.0 - star_lower(x, 1e-3)) / normal < 1.12


def test_any_number_of_draws() -> None:
    for n in (*range(1, 70), 127, 128, 129, 1023, 4097, 100_003):
        y = np.random.default_rng(n).beta(3.0, 1.0, n)
        assert 0.0 <= limit(y) <= y.mean() + 1e-9, n
        assert limit(np.zeros(n)) == 0.0, n
        # n ones: nobody can do better than (1 + CAP (1 - m)/m)^n against m, or than alpha^(1/n) with all at stake.
        assert limit(np.ones(n)) <= ALPHA ** (1.0 / n), n


@given(x=DRAWS, u=st.floats(0.01, 1.0), less=st.floats(0.01, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_smaller_uniform_number_gives_no_smaller_limit(x: FloatArray, u: float, less: float) -> None:
    at_u, at_less = float(star_lower(x, 0.05, uniform=u)), float(star_lower(x, 0.05, uniform=u * less))
    assert float(star_lower(x, 0.05)) - 1e-9 <= at_u <= at_less + 1e-9 <= x.mean() + 1e-9


def test_one_hot_rows_reach_nine_tenths_of_clopper_pearson() -> None:
    # Draws of -1 and 1: the margin of a two-class vote. Orders are shuffled; the mean over them is compared.
    n, rng = 500, np.random.default_rng(15)
    for top in (1.0, 0.999, 0.97, 0.9, 0.75):
        k = round(n * top)
        orders = np.stack([rng.permutation(np.append(np.ones(k), -np.ones(n - k))) for _ in range(60)], axis=1)
        ours = star_lower(orders, 1e-3, -1.0, 1.0).mean()
        theirs = 2.0 * float(clopper_pearson_lower(k, n, 1e-3)) - 1.0
        assert 0.9 * theirs <= ours <= theirs, top


def test_large_n() -> None:
    x = np.random.default_rng(16).beta(2.0, 1.0, 1_000_000)
    oracle = x.mean() - 3.0902 * x.std() / 1000.0
    assert oracle - 0.3 * (x.mean() - oracle) < float(star_lower(x, 1e-3)) < x.mean()


def test_tiny_alpha_is_served() -> None:
    assert 0.0 <= float(star_lower(np.ones(100), 1e-200)) < 1e-2
    assert float(star_lower(np.ones(2000), 1e-200)) > 0.6


def test_a_wealth_that_is_lost_stays_lost() -> None:
    """Far down, where numbers keep no digits, a loss would be rounded away, and the wealth rise again from there."""
    y = np.append(np.zeros(3000), np.ones(3000))
    m, stake, goal = 0.4, 1.0, 20.0
    assert 3000 * np.log(1.0 - m) + 3000 * np.log(2.0 - m) < 0.0, "the exact wealth never comes back to one"
    rounded = 1.0
    for value in y:
        rounded *= 1.0 + stake * (value - m)
    assert rounded > goal, "the input needs it"
    assert follow(y, stake, m, 1.0, goal) == 0.0
    index = np.zeros(y.size, dtype=np.int64)
    assert wealth_of(y, np.arange(y.size), index, np.full(y.size, stake), np.array([m]), goal) == 0.0


@pytest.mark.parametrize("nodes", [[0.0, 0.5], [0.0, 1.0]])
def test_the_goal_after_the_last_draw_is_met_by_a_wealth_equal_to_it(
    nodes: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draw of 1, all at stake, against one half: the end of a cell, or a candidate inside of one."""
    candidates = MEANS._replace(values=np.array(nodes), table=np.array(nodes)[:, None])
    reached = 1.0 + CAP / 0.5 * (1.0 - 0.5)
    for last, rejected in ((reached, True), (np.nextafter(reached, 4.0), False)):
        monkeypatch.setattr(betting, "last_goal", lambda *_, last=last: last)
        assert (cells_limit(plain(np.ones(1)), candidates, 0.25, 0.5) == 0.5) == rejected


@given(y=DRAWS)
@settings(max_examples=60, deadline=None)
def test_wealth_falls_in_the_candidate(y: FloatArray) -> None:
    """At the same stakes, so that bisection inside of a cell leaps over nothing (T14)."""
    n = len(y)
    stakes, index = np.random.default_rng(n).exponential(2.0, n), np.zeros(n, dtype=np.int64)
    candidates = np.linspace(0.01, 1.0, 60)[:, None]
    wealth = np.array([wealth_of(y, np.arange(n), index, stakes, m, np.inf) for m in candidates])
    assert (wealth >= 0.0).all()
    assert (np.diff(wealth) <= 1e-9 * wealth[:-1]).all()


def test_the_largest_rejected_candidate_is_found_wherever_it_lies() -> None:
    """Wherever the rejected ones end: not above, and no lower than the tolerance; the first known to be so or not."""
    for candidates, top in ((MEANS, 1.0), (MARGINS, LARGEST_REPORTED_MARGIN)):
        for end in (0.0, 1e-6, 0.3, 0.999, 1.0, 1.5, 7.0, 16.0):
            most = candidates.means_of(end)
            for low in (candidates.nothing, min(0.5 * end, 0.5 * top)):
                found = largest_rejected(lambda means: bool((means <= most).all()), candidates, low, top)  # noqa: B023
                assert min(end, top) - candidates.tolerance <= found <= end, (top, end, low)
        assert largest_rejected(lambda _: False, candidates, candidates.nothing, top) == candidates.nothing


def test_the_goal_after_the_last_draw_is_rounded_up_and_never_above_the_other() -> None:
    for goal, uniform in ((1000.0, 0.3), (20.0, 1.0), (1e9, 1 / 3), (50.000000001, 0.1)):
        last = last_goal(goal, uniform)
        assert Fraction(uniform) * Fraction(goal) <= Fraction(last) <= Fraction(goal)
        assert last <= uniform * goal * (1.0 + 1e-15)
