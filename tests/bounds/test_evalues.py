"""E-values: the supremum of either margin in ball arithmetic, means under the null, divergences by brute force."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from buckler.bounds import evalues
from buckler.bounds.evalues import (
    Mixture,
    distance_to_half_space,
    distance_to_null,
    half_space_mixture,
    half_space_supremum,
    log_factors,
    null_supremum,
    tangent_mixture,
)
from buckler.errors import InvalidInput
from buckler.types import FloatArray
from tests.balls import normal_cdf

MARGINS = [0.0, 1e-9, 0.01, 0.3, 1.0, 2.563, 5.0, 7.5, 20.0]

factors = st.lists(st.floats(0.0, 50.0), min_size=3, max_size=3)
margins = st.one_of(st.just(0.0), st.floats(1e-12, 9.0))


def boundary(L: float, points: int = 400) -> FloatArray:
    """Extreme points of the null: the curve, densely, and the two corners."""
    t = -np.concatenate([np.linspace(0.0, 6.0 + L, points), np.geomspace(1e-9, 1.0, 60)])
    low = ndtr(t - L / 2)
    curve = np.stack([ndtr(t + L / 2), low, np.maximum(ndtr(-t - L / 2) - low, 0.0)], axis=-1)
    return np.vstack([curve, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])


def mean_at(values: list[arb], L: float, t: arb) -> arb:
    first, second = normal_cdf(t + arb(L) / 2), normal_cdf(t - arb(L) / 2)
    return values[0] * first + values[1] * second + values[2] * (1 - first - second)


def exact_supremum(a: list[float], L: float) -> arb:
    """The supremum by the cases of the docstring, in ball arithmetic."""
    a1, a2, a3 = map(arb, a)
    corners = [max(a[1], a[2])]
    if a[0] <= a[2]:
        return arb(corners[0])
    c = (a3 - a2) / (a1 - a3)
    if c <= 1:
        curve = mean_at([a1, a2, a3], L, arb(0))
    elif L == 0.0:
        curve = a3
    else:
        curve = mean_at([a1, a2, a3], L, -c.log() / arb(L))
    return max(curve, arb(corners[0])) if not curve.overlaps(arb(corners[0])) else curve.union(arb(corners[0]))


@given(factors, margins)
def test_supremum_is_never_below_the_exact_one(a: list[float], L: float) -> None:
    found, exact = arb(float(null_supremum(a, L))), exact_supremum(a, L)
    assert not found < exact
    assert exact < 1e-250 or found / exact - 1 < 1e-12


def test_the_allowance_for_rounding_is_a_hundred_times_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalues, "SUPREMUM_ROUNDING", 0.0)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        a = (rng.gamma(0.7, 1.0, 3) * 10.0 ** rng.uniform(-2, 1, 3)).tolist()
        L = float(10.0 ** rng.uniform(-6, 1))
        assert arb(float(null_supremum(a, L))) / exact_supremum(a, L) - 1 > -1e-15


@pytest.mark.parametrize(
    ("a", "where"),
    [
        ((1.0, 2.0, 0.5), "all of the mass on the second class"),
        ((0.5, 1.0, 2.0), "all of the mass on neither"),
        ((1.0, 1.0, 1.0), "everywhere"),
        ((3.0, 1.0, 2.0), "slope 1"),
        ((3.0, 2.5, 2.0), "slope below 0: the vertex"),
        ((3.0, 9.0, 2.0), "slope below -1: the second class"),
        ((3.0, 1.5, 2.0), "slope between 0 and 1: the vertex"),
        ((3.0, 0.1, 2.0), "slope above 1: the curve"),
        ((1.0, 0.0, 0.999), "a slope of a thousand"),
        ((1.0, 0.0, 0.0), "slope 0"),
        ((0.0, 0.0, 0.0), "nothing"),
    ],
)
@pytest.mark.parametrize("L", MARGINS)
def test_every_sign_case_against_the_extreme_points(a: tuple[float, float, float], where: str, L: float) -> None:
    brute = float((boundary(L, 4000) @ np.array(a)).max())
    found = float(null_supremum(a, L))
    assert brute <= found <= brute * (1 + 1e-5) + 2e-300, where


@given(factors, margins)
def test_any_factors_have_mean_at_most_one(a: list[float], L: float) -> None:
    logs = [arb(float(x)).exp() for x in log_factors(a, null_supremum(a, L))]
    for t in (0.0, -1e-9, -0.01, -0.3, -1.0, -2.5, -6.0):
        assert not mean_at(logs, L, arb(t)) > 1
    assert not logs[1] > 1
    assert not logs[2] > 1


@pytest.mark.parametrize("L", MARGINS)
def test_every_component_of_the_mixture_has_mean_at_most_one(L: float) -> None:
    mixture = tangent_mixture(L)
    means = boundary(L) @ np.exp(mixture.logs.T)
    assert means.max() <= 1.0 + 1e-15
    # Not wasteful either: each ray touches the boundary at its own point.
    assert means[:-2].max(axis=0).min() > 1.0 - 1e-4
    assert np.exp(mixture.log_weights).sum() <= 1.0
    for g in range(0, len(mixture.logs), 37):
        values = [arb(float(x)).exp() for x in mixture.logs[g]]
        for t in (*np.linspace(-3.0 - L, 0.0, 15), -0.25 * (g // 30)):
            assert not mean_at(values, L, arb(float(t))) > 1


def test_without_the_division_a_poor_projection_has_a_mean_above_one() -> None:
    L, p = 1.0, np.array([0.8, 0.1, 0.1])
    t = -0.3
    q = np.array([ndtr(t + L / 2), ndtr(t - L / 2), 1 - ndtr(t + L / 2) - ndtr(t - L / 2)])
    assert (boundary(L) @ (p / q)).max() > 1.1
    assert (boundary(L) @ np.exp(log_factors(p / q, null_supremum(p / q, L)))).max() <= 1.0


def test_wealth_matches_a_sum_of_products_in_ball_arithmetic() -> None:
    mixture = tangent_mixture(1.0)
    for x in [(0, 0, 0), (9, 0, 0), (70, 10, 20), (69_000, 30_000, 1_000), (70_500, 29_400, 100), (0, 0, 100_000)]:
        total = sum(
            (
                (arb(float(w)) + sum((k * arb(float(u)) for k, u in zip(x, f, strict=True)), arb(0))).exp()
                for w, f in zip(mixture.log_weights, mixture.logs, strict=True)
            ),
            arb(0),
        )
        found = float(mixture.log_wealth(x[0], x[1], sum(x)))
        # The logs carry 1e-14 of themselves for the rounding of the products; here only the final sum is at stake.
        scale = max(1.0, float(np.abs(np.array(x) * mixture.logs).sum(axis=1).max()))
        assert abs(found - float(total.log())) <= 1e-11 + 1e-14 * scale


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 400), st.floats(0.0, 6.0))
def test_wealth_falls_with_votes_for_the_rival_and_rises_with_votes_for_the_label(
    x1: int, x2: int, x3: int, L: float
) -> None:
    wealth = tangent_mixture(round(L, 1)).log_wealth
    n = x1 + x2 + x3
    assert wealth(x1, x2 + 1, n) <= wealth(x1, x2, n) + 1e-9
    assert wealth(x1 + 1, x2, n) >= wealth(x1, x2, n) - 1e-9


def test_arrays_broadcast_and_equal_their_scalars() -> None:
    mixture = tangent_mixture(1.0)
    many = mixture.log_wealth([[10], [20]], [0, 1, 2], 30)
    assert many.shape == (2, 3)
    for i, x1 in enumerate((10, 20)):
        for j in range(3):
            assert many[i, j] == pytest.approx(float(mixture.log_wealth(x1, j, 30)), rel=1e-12)


@pytest.mark.parametrize("L", [0.0, 0.2, 1.0, 2.5])
def test_divergences_match_a_dense_search(L: float) -> None:
    truths = np.random.default_rng(3).dirichlet([1.0, 0.6, 0.6], 60)
    curve = boundary(L, 20_000)[:-2]
    with np.errstate(divide="ignore"):
        dense = np.array([(p * np.log(p / curve)).sum(axis=1).min() for p in truths])
    above = ndtri(truths[:, 0]) - ndtri(truths[:, 1]) > L
    distance = distance_to_null(truths, L)
    assert ((distance > 0) == above).all()
    assert np.allclose(0.5 * distance**2, dense, rtol=2e-3, atol=2e-5)
    assert (0.5 * distance**2 <= dense + 1e-9).all()


def test_binary_limit_of_the_theory() -> None:
    growth = 0.5 * distance_to_null(np.array([0.99, 0.01, 0.0]), 2 * ndtri(0.9)) ** 2
    assert np.log(1000) / growth == pytest.approx(96.84, abs=0.01)


def test_power_is_near_the_limit_in_the_binary_case() -> None:
    mixture, rng = tangent_mixture(2 * float(ndtri(0.9))), np.random.default_rng(0)
    x1 = np.cumsum(rng.random((200, 250)) < 0.99, axis=1)
    n = np.broadcast_to(np.arange(1, 251), x1.shape)
    reached = mixture.log_wealth(x1, n - x1, n) >= np.log(1000)
    stops = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, 251)
    assert np.median(stops) <= 125


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidInput, match="L must be at least 0"):
        tangent_mixture(-0.1)
    with pytest.raises(InvalidInput, match="a must hold three"):
        null_supremum([1.0, 2.0], 1.0)
    with pytest.raises(InvalidInput, match="n must be at least"):
        Mixture(np.zeros((1, 3)), np.zeros(1)).log_wealth(3, 3, 5)


@pytest.mark.parametrize("supremum", [null_supremum, half_space_supremum])
def test_factors_where_numbers_end(supremum: Callable[[list[float], float], FloatArray]) -> None:
    """The smallest numbers there are: half of one is no number, and would be rounded to none."""
    for a in ([5e-324, 0.0, 0.0], [1e-323, 0.0, 0.0], [1e-310, 0.0, 0.0]):
        assert Fraction(float(supremum(a, 0.0))) >= Fraction(a[0]) / 2


HALF_SPACE_MARGINS = [0.0, 1e-9, 0.01, 0.3, 0.6826894921370859, 0.99, 1.0 - 1e-12, 1.0]

half_space_margins = st.floats(0.0, 1.0)


def corners(L: float) -> list[tuple[arb, arb, arb]]:
    one, gap = arb(1), arb(L)
    edge = (one + gap) / 2, (one - gap) / 2, arb(0)
    return [(arb(0), one, arb(0)), (arb(0), arb(0), one), edge, (gap, arb(0), one - gap)]


@given(factors, half_space_margins)
def test_half_space_supremum_is_never_below_the_exact_one(a: list[float], L: float) -> None:
    found = arb(float(half_space_supremum(a, L)))
    means = [sum((arb(x) * q for x, q in zip(a, corner, strict=True)), arb(0)) for corner in corners(L)]
    assert all(not found < mean for mean in means)
    largest = max(float(mean.mid()) for mean in means)
    assert largest < 1e-250 or float(found.mid()) <= largest * (1.0 + 1e-12)


@given(factors, half_space_margins, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_member_of_the_null_has_a_larger_mean(a: list[float], L: float, u: float, w: float) -> None:
    q = np.array([u * w, u * (1.0 - w), 1.0 - u])
    if q[0] - q[1] <= L:
        assert (q * a).sum() <= half_space_supremum(a, L) * (1.0 + 1e-15)


@pytest.mark.parametrize("L", HALF_SPACE_MARGINS)
def test_every_factor_of_the_mixture_has_a_mean_of_at_most_one(L: float) -> None:
    mixture = half_space_mixture(L)
    for logs in mixture.logs:
        for corner in corners(L):
            assert sum((arb(x).exp() * q for x, q in zip(logs.tolist(), corner, strict=True)), arb(0)) <= 1
    assert np.exp(mixture.log_weights).sum() <= 1.0
    # Not by being vacuous: below a margin of one, votes for the label gain.
    assert L >= 1.0 - 1e-12 or (mixture.logs[:, 0] > 0.0).any()


@pytest.mark.parametrize("L", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("p", [(0.9, 0.05, 0.05), (0.5, 0.1, 0.4), (0.2, 0.7, 0.1), (0.95, 0.0, 0.05), (1.0, 0.0, 0.0)])
def test_divergences_match_a_search_over_the_boundary(L: float, p: tuple[float, float, float]) -> None:
    s = np.linspace(L, 1.0, 200_001)
    q: FloatArray = np.stack([(s + L) / 2, (s - L) / 2, 1.0 - s], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(np.array(p) > 0.0, p * np.log(p / q), 0.0).sum(axis=-1).min()
    inside = p[0] - p[1] <= L
    distance = float(distance_to_half_space(np.array(p), L))
    assert 0.5 * distance**2 == pytest.approx(best, abs=1e-6)
    assert (distance > 0.0) == (not inside) or best < 1e-12


def test_bad_margins_are_named() -> None:
    for L in (-0.1, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="L must be"):
            half_space_mixture(L)
