"""Betting limits: predictable stakes, monotone wealth, no holes, exact residuals, the reference."""

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

from buckler.bounds import betting
from buckler.bounds.betting import (
    CAP,
    MEANS,
    NO_EARLIER,
    PACE,
    PRIOR,
    Bets,
    Pair,
    _psi,
    bernstein_lower,
    betting_lower,
    deviation,
    earlier_moments,
    hoeffding_lower,
    largest_rejected,
    last_goal,
    path_limit,
    plain,
    plug_in_bets,
    rejects,
    sequence_lower,
    wealth_goal,
)
from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.star import follow, star_lower
from buckler.certify.tangents import LARGEST_REPORTED_MARGIN, MARGINS
from buckler.errors import InvalidInput
from buckler.types import FloatArray

SLOPES = np.array([1.0, 2.0, 4.0])
DRAWS = arrays(np.float64, st.integers(1, 60), elements=st.floats(0.0, 1.0))


def plain_plan(x: FloatArray, alpha: float) -> Bets:
    return plug_in_bets(plain(x), -np.log(alpha))


def reference_stakes(x: FloatArray, alpha: float) -> FloatArray:
    """The stakes of a plain variable, from their description."""
    n, due, stakes = len(x), 0, np.empty(len(x))
    for i in range(n):
        if i >= due:
            due = i + 1 + i // PACE
            variance = (PRIOR * 0.25 + (i * x[:i].var() if i else 0.0)) / (PRIOR + i)
            stake = np.sqrt(-2.0 * np.log(alpha) / (n * variance))
        stakes[i] = stake
    return stakes


def reference_wealth(path: Bets, m: float) -> FloatArray:
    return np.asarray(np.cumprod(1.0 + np.minimum(path.stakes, CAP / m) * (path.y - m)), dtype=np.float64)


LAWS: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "uniform": lambda rng, n: rng.random(n),
    "near one-hot": lambda rng, n: rng.beta(0.1, 0.1, n),
    "rare loss": lambda rng, n: (rng.random(n) < 0.97).astype(float),
    "narrow": lambda rng, n: 0.7 + 0.01 * rng.random(n),
    "constant": lambda _, n: np.ones(n),
}


def test_compiled_stakes_equal_reference() -> None:
    for (law, draw), n in product(LAWS.items(), (1, 2, 10, 100, 400)):
        x = draw(np.random.default_rng(n), n)
        found, expected = plain_plan(x, 1e-3).stakes, reference_stakes(x, 1e-3)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8, err_msg=f"{law}, n = {n}")


def test_limit_of_a_path_equals_a_search_on_the_reference_wealth() -> None:
    """And there is no hole below it: every candidate there is rejected."""
    for law, draw in LAWS.items():
        x = draw(np.random.default_rng(7), 150)
        path, goal = plain_plan(x, 1e-2), wealth_goal(1e-2, 150)
        low, high = 0.0, 1.0
        while high - low > 1e-12:
            m = 0.5 * (low + high)
            low, high = (m, high) if reference_wealth(path, m).max() >= 100.0 else (low, m)
        found = path_limit(plain(x), MEANS, 1e-2, 1.0)
        assert low - 1e-9 <= found <= low + 1e-12, law
        assert float(betting_lower(x, 1e-2)) == pytest.approx(min(found, x.mean()), abs=1e-9), law
        assert all(rejects(path, np.array([m]), goal) for m in np.linspace(1e-6, found, 500)), law


def test_residual_in_ball_arithmetic() -> None:
    # The wealth against the returned limit, multiplied out exactly from the stakes as they are, does reach 1/alpha, or
    # uniform/alpha after the last draw.
    ctx.prec = 300
    alpha = 0.04
    for (law, draw), n, uniform in product(LAWS.items(), (1, 5, 300), (1.0, 0.3)):
        x = draw(np.random.default_rng(n), n)
        path, low = plain_plan(x, alpha), path_limit(plain(x), MEANS, alpha, 1.0, uniform)
        if low == 0.0:
            continue
        m, wealth, most = arb(low), arb(1), arb(0)
        for y, stake in zip(path.y.tolist(), path.stakes.tolist(), strict=True):
            wealth *= 1 + min(arb(stake), arb(CAP) / m, key=lambda ball: float(ball.mid())) * (arb(y) - m)
            most = wealth if float(wealth.mid()) > float(most.mid()) else most
        assert most >= 1 / arb(alpha) or wealth >= arb(uniform) / arb(alpha), (law, n, uniform)


@given(x=DRAWS, u=st.floats(0.01, 1.0), less=st.floats(0.01, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_smaller_uniform_number_gives_no_smaller_limit(x: FloatArray, u: float, less: float) -> None:
    for lower in (star_lower, betting_lower):
        at_u, at_less = float(lower(x, 0.05, uniform=u)), float(lower(x, 0.05, uniform=u * less))
        assert float(lower(x, 0.05)) - 1e-9 <= at_u <= at_less + 1e-9 <= x.mean() + 1e-9


@given(a=DRAWS, seed=st.integers(0, 99), cut=st.integers(0, 59))
@settings(max_examples=40, deadline=None)
def test_stakes_are_predictable(a: FloatArray, seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    n = len(a)
    b, index = rng.random(n), rng.integers(0, 3, n)
    changed, moved = b.copy(), index.copy()
    changed[cut:] = rng.random(max(0, n - cut))
    moved[cut + 1 :] = 0
    before = plug_in_bets(Pair(a, b, SLOPES, index, NO_EARLIER), 5.0).stakes
    after = plug_in_bets(Pair(a, changed, SLOPES, moved, NO_EARLIER), 5.0).stakes
    np.testing.assert_array_equal(before[: cut + 1], after[: cut + 1])
    assert (before >= 0.0).all()


@given(x=DRAWS)
@settings(max_examples=60, deadline=None)
def test_wealth_falls_in_the_candidate(x: FloatArray) -> None:
    path = plain_plan(x, 0.01)
    wealths = np.array([reference_wealth(path, m) for m in np.linspace(0.01, 1.0, 60)])
    assert (wealths >= 0.0).all()
    assert (np.diff(wealths, axis=0) <= 1e-9 * wealths[:-1]).all()


def test_draws_seen_beforehand_are_used_and_may_be_anything() -> None:
    x, nothing = 0.7 + 0.01 * np.random.default_rng(14).random(100), np.zeros(50)
    helped, plainly, misled = (
        path_limit(plain(x)._replace(earlier=earlier), MEANS, 1e-3, 1.0)
        for earlier in (earlier_moments(x[:50], nothing), NO_EARLIER, earlier_moments(np.tile([0.0, 1.0], 25), nothing))
    )
    assert helped > plainly > misled


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
    for limit in (star_lower, betting_lower):
        assert oracle - 0.3 * (x.mean() - oracle) < float(limit(x, 1e-3)) < x.mean()


def test_tiny_alpha_is_served() -> None:
    assert 0.0 <= float(star_lower(np.ones(100), 1e-200)) < 1e-2
    assert float(star_lower(np.ones(2000), 1e-200)) > 0.6


def test_stakes_of_a_pair_are_those_of_its_variable() -> None:
    """Sums of a and b, earlier ones included, give the deviation that y itself has, whatever the slope."""
    rng = np.random.default_rng(17)
    n, log_goal = 90, 5.0
    a, b, before = rng.random(n), rng.beta(0.5, 3.0, n), rng.random((2, 25))
    index = np.repeat([0, 2, 1], 30)
    made = plug_in_bets(Pair(a, b, SLOPES, index, earlier_moments(before[0], before[1])), log_goal)
    np.testing.assert_allclose(made.y, (a - SLOPES[index] * b + SLOPES[index]) / (1.0 + SLOPES[index]), rtol=1e-14)
    for i in range(PACE):  # renewed after every draw
        c = SLOPES[index[i]]
        seen = (np.append(before[0], a[:i]) - c * np.append(before[1], b[:i]) + c) / (1.0 + c)
        spread = np.sqrt((0.25 * PRIOR + seen.size * seen.var()) / (PRIOR + seen.size))
        assert made.stakes[i] == pytest.approx(np.sqrt(2.0 * log_goal / n) / spread, rel=1e-9)
    assert deviation(0.0, 0.0, 0.0, 1.0) == pytest.approx(0.5)


def test_a_wealth_that_is_lost_stays_lost() -> None:
    """Far down, where numbers keep no digits, a loss would be rounded away, and the wealth rise again from there."""
    y = np.append(np.zeros(3000), np.ones(3000))
    m, stake, goal = 0.4, 1.0, 20.0
    assert 3000 * np.log(1.0 - m) + 3000 * np.log(2.0 - m) < 0.0, "the exact wealth never comes back to one"
    rounded = 1.0
    for value in y:
        rounded *= 1.0 + stake * (value - m)
    assert rounded > goal, "the input needs it"
    bets = Bets(y, np.full(y.size, stake), np.zeros(y.size, dtype=np.int64))
    assert not rejects(bets, np.array([m]), goal)
    assert follow(y, stake, m, 1.0, goal) == 0.0
    assert largest_rejected(bets, MEANS, m, 1.0, goal) == m


LIMITS: list[Callable[..., FloatArray]] = [hoeffding_lower, bernstein_lower, sequence_lower, betting_lower, star_lower]
TWO_OR_MORE = arrays(np.float64, st.integers(2, 40), elements=st.floats(0.0, 1.0))
every_limit = pytest.mark.parametrize("limit", LIMITS, ids=lambda f: f.__name__)


def exact(x: FloatArray, alpha: float, low: float, high: float) -> tuple[arb, arb]:
    """Hoeffding's and Maurer and Pontil's limits as balls."""
    ctx.prec = 200
    n = len(x)
    values = [arb(float(v)) for v in x]
    mean = sum(values, arb(0)) / n
    variance = sum(((v - mean) ** 2 for v in values), arb(0)) / (n - 1)
    span, cost = arb(high) - arb(low), (2 / arb(alpha)).log()
    hoeffding = mean - span * ((1 / arb(alpha)).log() / (2 * n)).sqrt()
    bernstein = mean - (2 * variance * cost / n).sqrt() - 7 * span * cost / (3 * (n - 1))
    return hoeffding, bernstein


def test_closed_forms_never_exceed_the_exact_formula() -> None:
    ranges = (0.0, 1.0), (-1.0, 1.0), (-64.0, 1.0), (1000.0, 1000.5)
    for n, alpha, (low, high) in product((2, 17, 1000), (0.5, 1e-3, 1e-12), ranges):
        rng = np.random.default_rng(n)
        x = np.clip(low + (high - low) * (0.99 + 0.01 * rng.random(n)), low, high)
        for limit, true in zip((hoeffding_lower, bernstein_lower), exact(x, alpha, low, high), strict=True):
            found, case = float(limit(x, alpha, low, high)), (limit.__name__, n, alpha, low, high)
            assert arb(found) <= true or found == low, case
            assert found >= float(true.mid()) - 1e-11 * max(abs(low), abs(high), 1.0) or found == low, case


def test_the_logarithm_of_maurer_and_pontil_is_of_two_over_alpha() -> None:
    # With ln(1/alpha), as sometimes printed, the limit is larger than the theorem allows: another statement.
    x = np.random.default_rng(0).random(200)
    cost = np.log(1.0 / 0.05)
    printed = x.mean() - np.sqrt(2.0 * x.var(ddof=1) * cost / 200) - 7.0 * cost / (3.0 * 199)
    cost = np.log(2.0 / 0.05)
    theorem = x.mean() - np.sqrt(2.0 * x.var(ddof=1) * cost / 200) - 7.0 * cost / (3.0 * 199)
    ours = float(bernstein_lower(x, 0.05))
    assert ours == pytest.approx(theorem, abs=1e-12)
    assert printed > ours + 0.005


@given(x=TWO_OR_MORE, alpha=st.sampled_from([0.3, 0.05, 1e-3]))
@settings(max_examples=30, deadline=None)
def test_no_more_than_the_mean_and_no_less_than_the_range(x: FloatArray, alpha: float) -> None:
    for limit in LIMITS:
        assert 0.0 <= float(limit(x, alpha)) <= max(0.0, x.mean()), limit.__name__


@every_limit
def test_columns_ranges_levels_and_constants(limit: Callable[..., FloatArray]) -> None:
    """Columns are judged alone, limits shift and scale with the draws, and fall with alpha."""
    x = np.random.default_rng(1).random((50, 7))
    together = limit(x, 0.01)
    assert together.shape == (7,)
    assert together.dtype == np.float64
    np.testing.assert_array_equal(together, [limit(x[:, j], 0.01) for j in range(7)])
    assert limit(x[:, 0], 0.01).shape == ()
    x = np.random.default_rng(2).beta(2.0, 0.5, size=(80, 5))
    np.testing.assert_allclose(limit(3.0 * x - 1.0, 0.01, -1.0, 2.0), 3.0 * limit(x, 0.01) - 1.0, atol=1e-8)
    x = np.random.default_rng(3).beta(5.0, 1.0, size=300)
    lows = [float(limit(x, alpha)) for alpha in (0.2, 0.05, 1e-3, 1e-6, 1e-12)]
    assert lows == sorted(lows, reverse=True)
    assert lows[0] > 0.7
    assert float(limit(np.zeros(50), 0.01)) == 0.0
    assert float(limit(np.full(50, -1.0), 0.01, -1.0, 1.0)) == -1.0
    # No valid limit passes alpha^(1/n) when every draw is at the top of the range.
    assert float(limit(np.ones(50), 0.01)) <= 0.01 ** (1 / 50)


@every_limit
def test_bad_input_is_refused(limit: Callable[..., FloatArray]) -> None:
    cases: list[tuple[object, float, float, float, str]] = [
        ([0.5, np.nan], 0.05, 0.0, 1.0, "finite"),
        ([0.0, 1.0, 1.5], 0.05, 0.0, 1.0, "draw 2"),
        ([0.0, 1.0, -0.1], 0.05, 0.0, 1.0, "draw 2"),
        ([], 0.05, 0.0, 1.0, "x must have shape"),
        (np.zeros((2, 2, 2)), 0.05, 0.0, 1.0, "shape"),
        ([0.5, 0.5], 0.0, 0.0, 1.0, "alpha"),
        ([0.5, 0.5], 1.0, 0.0, 1.0, "alpha"),
        ([0.5, 0.5], 0.05, 1.0, 0.0, "low must be below high"),
        ([0.5, 0.5], 0.05, 0.0, np.inf, "high"),
        (["a", "b"], 0.05, 0.0, 1.0, "numbers"),
    ]
    for x, alpha, low, high, word in cases:
        with pytest.raises(InvalidInput, match=word):
            limit(x, alpha, low, high)


def test_bernstein_needs_two_draws() -> None:
    with pytest.raises(InvalidInput, match="at least 2 draws"):
        bernstein_lower([0.5], 0.05)
    for limit in (hoeffding_lower, sequence_lower, betting_lower, star_lower):
        assert 0.0 <= float(limit([1.0], 0.05)) <= 0.05


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-4.0, 1.0), (-1.0, 8.0)])
def test_the_allowance_is_in_units_of_the_larger_end(low: float, high: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made large, it is seen in every place: the limit itself, the ceiling, and the variance of Bernstein's (F7)."""
    slack, alpha, n = 1e-4, 0.05, 400
    scale, span, cost = max(-low, high), high - low, np.log(2.0 / alpha)
    middle = 0.5 * (low + high)
    x = np.full(n, middle)
    plain = {limit: float(limit(x, alpha, low, high)) for limit in (hoeffding_lower, sequence_lower)}
    monkeypatch.setattr(betting, "LIMIT_SLACK", slack)
    for limit, before in plain.items():
        assert before - float(limit(x, alpha, low, high)) == pytest.approx(slack * scale, rel=1e-6)
    width = np.sqrt(2.0 * cost / n) * slack * span + 7.0 * span * cost / (3.0 * (n - 1))
    assert float(bernstein_lower(x, alpha, low, high)) == pytest.approx(middle - width - slack * scale, rel=1e-9)
    for limit in (hoeffding_lower, bernstein_lower, sequence_lower, betting_lower, star_lower):
        wide = np.full(200_000, middle)
        assert float(limit(wide, 0.999, low, high)) <= middle - slack * scale + 1e-12
    for limit in (betting_lower, star_lower):
        # A limit below the mean, and not by the ceiling: a quarter of the draws lie at the lower end.
        draws = np.tile([low, high, high, high], 500)
        found = float(limit(draws, alpha, low, high))
        monkeypatch.setattr(betting, "LIMIT_SLACK", 0.0)
        assert float(limit(draws, alpha, low, high)) - found == pytest.approx(slack * scale, rel=1e-5)
        monkeypatch.setattr(betting, "LIMIT_SLACK", slack)


def reference(x: FloatArray, alpha: float) -> FloatArray:
    """The limits after each draw, straight from the definition."""
    n = len(x)
    i = np.arange(1, n + 1)
    mu = (0.5 + np.cumsum(x)) / (i + 1)
    s2 = (0.25 + np.cumsum((x - mu) ** 2)) / (i + 1)
    mu_before, s2_before = np.append(0.5, mu[:-1]), np.append(0.25, s2[:-1])
    bet = np.minimum(0.5, np.sqrt(2.0 * np.log(1.0 / alpha) / (s2_before * i * np.log(1.0 + i))))
    v = 4.0 * (x - mu_before) ** 2
    psi = (-np.log1p(-bet) - bet) / 4.0
    return np.asarray((np.cumsum(bet * x) - np.log(1.0 / alpha) - np.cumsum(v * psi)) / np.cumsum(bet))


def test_compiled_equals_reference() -> None:
    for (law, draw), n in product(LAWS.items(), (1, 2, 30, 3000)):
        x = draw(np.random.default_rng(n), n)
        limits = reference(x, 0.01)
        expected = max(0.0, min(limits.max(), x.mean()))
        found = float(sequence_lower(x, 0.01))
        assert found <= expected + 1e-15, (law, n)
        assert found == pytest.approx(expected, abs=1e-11), (law, n)


def test_psi_is_rounded_up() -> None:
    ctx.prec = 200
    for bet in (1e-9, 1e-6, 1e-3, 0.0499, 0.0501, 0.2, 0.5):
        true = (-(1 - arb(bet)).log() - arb(bet)) / 4
        assert true <= arb(_psi(bet)) <= true * (1 + arb(1e-12)), bet


def test_the_limit_is_a_running_maximum() -> None:
    """More draws never lower it, but for the ceiling at the mean: what was proved stays proved."""
    x = np.sort(np.random.default_rng(5).random(200))
    limits = [float(sequence_lower(x[:n], 0.01)) for n in range(1, 201)]
    assert (np.diff(limits) >= 0.0).all()
    assert sequence_lower(x[:, None] * np.ones(3), 0.01).shape == (3,)


def test_the_goal_after_the_last_draw_is_met_by_a_wealth_equal_to_it() -> None:
    one, index = np.ones(1), np.zeros(1, dtype=np.int64)
    half = np.array([0.5])
    bets = Bets(one, one, index)  # wealth 1 + 1 (1 - 1/2) against one half, exactly
    assert rejects(bets, half, 3.0, 1.5)
    assert not rejects(bets, half, 3.0, np.nextafter(1.5, 2.0))
    assert largest_rejected(bets, MEANS, 0.0, 1.0, 3.0, 1.5) >= 0.5
    assert largest_rejected(bets, MEANS, 0.0, 1.0, 3.0, np.nextafter(1.5, 2.0)) < 0.5


def test_the_largest_rejected_candidate_is_found_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the rejected ones end: not above, and no lower than the tolerance; the first known to be so or not."""
    nothing: Any = None
    for candidates, top in ((MEANS, 1.0), (MARGINS, LARGEST_REPORTED_MARGIN)):
        for end in (0.0, 1e-6, 0.3, 0.999, 1.0, 1.5, 7.0, 16.0):
            most = candidates.means_of(end)
            monkeypatch.setattr(betting, "rejects", lambda _, means, *__, most=most: bool((means <= most).all()))
            for low in (candidates.nothing, min(0.5 * end, 0.5 * top)):
                found = largest_rejected(nothing, candidates, low, top, 3.0)
                assert min(end, top) - candidates.tolerance <= found <= end, (top, end, low)
        monkeypatch.setattr(betting, "rejects", lambda *_: False)
        assert largest_rejected(nothing, candidates, candidates.nothing, top, 3.0) == candidates.nothing


def test_the_goal_after_the_last_draw_is_rounded_up_and_never_above_the_other() -> None:
    for goal, uniform in ((1000.0, 0.3), (20.0, 1.0), (1e9, 1 / 3), (50.000000001, 0.1)):
        last = last_goal(goal, uniform)
        assert Fraction(uniform) * Fraction(goal) <= Fraction(last) <= Fraction(goal)
        assert last <= uniform * goal * (1.0 + 1e-15)
