"""Tangents of the second margin: heights rounded up, inversion rounded down, slopes predictable."""

from itertools import product

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import ndtr, ndtri

from buckler.bounds.betting import NO_EARLIER, Pair, cells_limit
from buckler.certify.tangents import (
    LARGEST_REPORTED_MARGIN,
    MARGINS,
    SLOPES,
    best_slopes,
    estimate,
    heights,
    margin_from_height,
    means_of,
    predictable_slopes,
)
from buckler.types import FloatArray
from tests.balls import normal_cdf, normal_quantile


def test_height_is_never_below_the_exact_one() -> None:
    ctx.prec = 200
    margins = (1e-9, 1e-4, 0.03, 0.5, 1.0, 2.7, 6.0, 12.0, LARGEST_REPORTED_MARGIN)
    for margin, slope in product(margins, (1.0, 1.0001, 1.5, 4.0, 64.0)):
        t = -arb(slope).log() / arb(margin)
        true = normal_cdf(t + arb(margin) / 2) - arb(slope) * normal_cdf(t - arb(margin) / 2)
        found = float(heights(margin, slope))
        assert true <= arb(found) <= true + arb(3e-14) * (1.0 + slope), (margin, slope)


def test_candidate_means_leave_room_for_the_rounding_of_draws() -> None:
    ctx.prec = 200
    for margin in (1e-4, 0.5, 2.7, LARGEST_REPORTED_MARGIN):
        for slope, found in zip(SLOPES.tolist(), means_of(margin).tolist(), strict=True):
            c, half = arb(slope), arb(margin) / 2
            t = -c.log() / arb(margin)
            true = (normal_cdf(t + half) - c * normal_cdf(t - half) + c) / (1 + c)
            assert true + arb(1e-14) <= arb(found) <= true + arb(4e-14), (margin, slope)


def test_height_is_the_supremum_over_the_curve() -> None:
    b = np.append(np.linspace(1e-9, 1.0 - 1e-9, 20001), np.geomspace(1e-12, 1e-3, 2000))
    for margin, slope in product((0.0, 0.1, 1.0, 3.0), SLOPES[::3].tolist()):
        highest, found = float((ndtr(margin + ndtri(b)) - slope * b).max()), float(heights(margin, slope))
        assert found - 1e-3 <= highest <= found + 1e-12, (margin, slope)


def test_heights_rise_in_the_margin() -> None:
    margins = np.linspace(0.0, LARGEST_REPORTED_MARGIN, 500)
    for slope in SLOPES:
        assert (np.diff(heights(margins, slope)) >= -1e-15).all()


def test_the_inverse_is_rounded_down() -> None:
    rng = np.random.default_rng(0)
    for slope in SLOPES:
        value = rng.uniform(-0.5, 1.0, 200)
        margin = margin_from_height(value, slope)
        proved = margin > -np.inf
        assert (heights(margin[proved], slope) <= value[proved]).all()
        inside = proved & (margin < LARGEST_REPORTED_MARGIN - 1e-6)
        assert (heights(margin[inside] + 1e-9, slope) >= value[inside]).all()
        assert (value[~proved] < float(heights(0.0, slope))).all()
    assert margin_from_height(-0.1, 1.0) == -np.inf


def test_theorem_three_on_random_truths() -> None:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(3, 0.5), size=5000)
    truth = ndtri(p[:, 0]) - ndtri(p[:, 1])
    for slope in SLOPES:
        assert (margin_from_height(p[:, 0] - slope * p[:, 1], slope) <= truth + 1e-9).all()


def test_the_best_slope_touches_at_the_truth() -> None:
    top, other = 0.6, 0.1
    best = np.exp(0.5 * (ndtri(other) ** 2 - ndtri(top) ** 2))
    found = margin_from_height(top - best * other, best)
    assert float(found) == pytest.approx(ndtri(top) - ndtri(other), abs=1e-7)


def moments(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.array([[a.size, a.sum(), b.sum(), a @ a, a @ b, b @ b]])


def test_chosen_slopes_are_damped_and_grow_with_knowledge() -> None:
    assert best_slopes(np.zeros((1, 6)), 100, 1e-3)[0] == 0
    rng = np.random.default_rng(2)
    a, b = np.clip(rng.normal(0.5, 0.05, 10000), 0, 1), np.clip(rng.normal(0.05, 0.02, 10000), 0, 1)
    few, many = best_slopes(moments(a[:5], b[:5]), 10000, 1e-3)[0], best_slopes(moments(a, b), 10000, 1e-3)[0]
    ideal = np.exp(0.5 * (ndtri(0.05) ** 2 - ndtri(0.5) ** 2))
    assert few < many
    assert abs(SLOPES[many] / ideal - 1.0) < 0.5


def test_slopes_are_predictable() -> None:
    for cut in (0, 15, 16, 17, 40, 99):
        rng = np.random.default_rng(cut)
        p = rng.dirichlet([8.0, 1.0, 1.0], size=100)
        q = p.copy()
        q[cut:] = rng.dirichlet([1.0, 1.0, 1.0], size=100 - cut)
        before, after = (
            predictable_slopes(np.ascontiguousarray(x[:, 0]), np.ascontiguousarray(x[:, 1:].T), np.zeros((2, 6)), 0.01)
            for x in (p, q)
        )
        np.testing.assert_array_equal(before[:, : cut + 1], after[:, : cut + 1], err_msg=f"cut {cut}")


def test_nothing_proved_is_minus_infinity() -> None:
    half = np.full(50, 0.5)
    pair = Pair(half, half, SLOPES, np.zeros(50, dtype=np.int64), NO_EARLIER)
    assert cells_limit(pair, MARGINS, 0.01, LARGEST_REPORTED_MARGIN) == -np.inf


def test_estimates_at_the_ends_are_numbers() -> None:
    ones, zeros = np.ones(5), np.zeros((1, 5))
    assert estimate(ones, zeros)[0] == np.inf
    assert estimate(np.zeros(5), zeros)[0] == -np.inf


def test_estimates_are_rounded_down() -> None:
    """By what is stated, so that neither the rounding of a mean nor that of a quantile can lift them (F9)."""
    ctx.prec = 200
    rng = np.random.default_rng(4)
    for top, other in ((0.6, 0.3), (0.97, 0.01), (0.5, 0.499), (0.2, 0.7)):
        a, rival = np.clip(rng.normal([[top], [other]], 0.01, (2, 500)), 0.0, 1.0)
        exact = normal_quantile(float(a.mean())) - normal_quantile(float(rival.mean()))
        given_up = float(exact - arb(float(estimate(a, rival[None])[0]))) / (1.0 + abs(float(exact)))
        assert 0.9e-13 < given_up < 1.1e-13


def test_the_chosen_slope_predicts_the_largest_margin() -> None:
    """One row at a time, from the description: Bernstein's limit of each slope less an error, turned into a margin."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        size, n, alpha = int(rng.integers(0, 300)), int(rng.integers(50, 5000)), float(rng.choice([0.05, 1e-3]))
        p, q, r, s = rng.uniform([0.5, 0.5, 0.1, 0.1], [9.0, 9.0, 3.0, 3.0]).tolist()
        a, b = rng.beta(p, q, size), 0.5 * rng.beta(r, s, size)
        count, half = size + 2.0, [[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
        # Two imagined draws of mean 1/2 and variance 1/4, uncorrelated: the four corners, half a draw each.
        values, weights = np.concatenate([[a, b], half], axis=1), np.append(np.ones(size), np.full(4, 0.5))
        mean = values @ weights / count
        spread = (values - mean[:, None]) * weights @ (values - mean[:, None]).T / count
        price = -np.log(alpha) / n
        expected = []
        for c in SLOPES:
            deviation = np.sqrt(max(spread[0, 0] - 2 * c * spread[0, 1] + c * c * spread[1, 1], 0.0))
            low = mean[0] - c * mean[1] - deviation * (np.sqrt(2 * price) + count**-0.5) - (1 + c) * price / 3
            expected.append(float(margin_from_height(low, c)) if low > 0.0 else low)
        chosen = int(best_slopes(moments(a, b), n, alpha)[0])
        assert expected[chosen] >= max(expected) - 1e-4
