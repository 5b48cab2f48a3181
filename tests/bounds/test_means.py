"""Limits of means in closed form: exact formulas, the reference, columns and ranges; some of every limit."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from buckler.bounds import means
from buckler.bounds.betting import star_lower
from buckler.bounds.means import _psi, bernstein_lower, hoeffding_lower, sequence_lower
from buckler.errors import InvalidInput
from buckler.types import FloatArray
from tests.bounds.test_betting import LAWS

LIMITS: list[Callable[..., FloatArray]] = [hoeffding_lower, bernstein_lower, sequence_lower, star_lower]
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
        ([0.0, 1e-320], 0.05, 0.0, 1e-319, "by 1e-300"),
        ([0.5, 0.5], 0.05, -1e308, 1e308, "by 1e-300 to"),
        ([0.5, 0.5], 0.05, 0.0, np.inf, "high"),
        (["a", "b"], 0.05, 0.0, 1.0, "numbers"),
    ]
    for x, alpha, low, high, word in cases:
        with pytest.raises(InvalidInput, match=word):
            limit(x, alpha, low, high)


def test_bernstein_needs_two_draws() -> None:
    with pytest.raises(InvalidInput, match="at least 2 draws"):
        bernstein_lower([0.5], 0.05)
    for limit in (hoeffding_lower, sequence_lower, star_lower):
        assert 0.0 <= float(limit([1.0], 0.05)) <= 0.05


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-4.0, 1.0), (-1.0, 8.0)])
def test_the_allowance_is_in_units_of_the_larger_end(low: float, high: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made large, it is seen in every place: the limit itself, the ceiling, and the variance of Bernstein's (F7)."""
    slack, alpha, n = 1e-4, 0.05, 400
    scale, span, cost = max(-low, high), high - low, np.log(2.0 / alpha)
    middle = 0.5 * (low + high)
    x = np.full(n, middle)
    plain = {limit: float(limit(x, alpha, low, high)) for limit in (hoeffding_lower, sequence_lower)}
    monkeypatch.setattr(means, "LIMIT_SLACK", slack)
    for limit, before in plain.items():
        assert before - float(limit(x, alpha, low, high)) == pytest.approx(slack * scale, rel=1e-6)
    width = np.sqrt(2.0 * cost / n) * slack * span + 7.0 * span * cost / (3.0 * (n - 1))
    assert float(bernstein_lower(x, alpha, low, high)) == pytest.approx(middle - width - slack * scale, rel=1e-9)
    for limit in (hoeffding_lower, bernstein_lower, sequence_lower, star_lower):
        wide = np.full(200_000, middle)
        assert float(limit(wide, 0.999, low, high)) <= middle - slack * scale + 1e-12
    # A limit below the mean, and not by the ceiling: a quarter of the draws lie at the lower end.
    draws = np.tile([low, high, high, high], 500)
    found = float(star_lower(draws, alpha, low, high))
    monkeypatch.setattr(means, "LIMIT_SLACK", 0.0)
    assert float(star_lower(draws, alpha, low, high)) - found == pytest.approx(slack * scale, rel=1e-5)


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
