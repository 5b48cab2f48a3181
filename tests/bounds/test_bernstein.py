"""Polynomials below a step: proved by ball arithmetic, lowered by what they are over, and sharp enough to be of use."""

from itertools import pairwise

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtr

from buckler.bounds.bernstein import (
    ALLOWANCE,
    DEPTH,
    LARGEST_DEGREE,
    below_step,
    binomial_pmf,
    fitted_pmf,
    lowered_below_step,
    proved_excess,
    subdivide,
)
from buckler.errors import InvalidInput
from buckler.types import FloatArray

NO_COUNTS = np.zeros(0, dtype=np.int64)
THRESHOLDS = [0.5, 0.6, float(ndtr(1.0)), float(ndtr(2.0))]


def cut_in_balls(coefficients: list[arb], t: arb) -> tuple[list[arb], list[arb]]:
    left, right, row = [], [], coefficients
    while row:
        left.append(row[0])
        right.append(row[-1])
        row = [(1 - t) * a + t * b for a, b in pairwise(row)]
    return left, right[::-1]


def maximum_in_balls(coefficients: list[arb], goal: float) -> bool:
    """Return whether the polynomial is proved to be at most ``goal`` on its interval."""
    waiting = [(coefficients, 0)]
    while waiting:
        piece, depth = waiting.pop()
        if all(c <= goal for c in piece):
            continue
        if piece[0] > goal or piece[-1] > goal or depth > 30:
            return False
        waiting += [(half, depth + 1) for half in cut_in_balls(piece, arb(0.5))]
    return True


def below_in_balls(h: FloatArray, t: float) -> bool:
    left, right = cut_in_balls([arb(float(v)) for v in h], arb(t))
    return maximum_in_balls(left, 0.0) and maximum_in_balls(right, 1.0)


@pytest.mark.parametrize("t", THRESHOLDS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_polynomial_is_below_the_step_by_balls(n: int, t: float) -> None:
    h = below_step(n, t, fitted_pmf(NO_COUNTS, n), 1000, 1e-3)
    assert below_in_balls(h, t)


@pytest.mark.parametrize("over", [1e-9, 1e-6, 1e-3])
def test_balls_find_a_polynomial_that_is_above(over: float) -> None:
    h = below_step(40, 0.9, fitted_pmf(NO_COUNTS, 40), 1000, 1e-3)
    # The largest value on [0, t] is below 0 by no more than the allowance and EXCESS_TOLERANCE, so 1e-6 is above.
    assert not below_in_balls(h + over + 1e-6, 0.9)


def test_values_of_a_polynomial_of_degree_1000_by_balls() -> None:
    t = float(ndtr(1.0))
    h = below_step(1000, t, fitted_pmf(NO_COUNTS, 1000), 10_000, 1e-3)
    points = np.concatenate([[t, np.nextafter(t, 2.0)], np.linspace(t - 0.06, t, 40), np.linspace(t, 1.0, 20)])
    for p in points:
        assert value_in_balls(h, float(p)) <= (1.0 if p > t else 0.0)


def value_in_balls(h: FloatArray, p: float) -> arb:
    """Return an enclosure of the polynomial's value from its terms, in place of de Casteljau's rule."""
    if p == 1.0:
        return arb(float(h[-1]))
    n, total, term = h.size - 1, arb(0), (1 - arb(p)) ** (h.size - 1)
    for k, value in enumerate(h):
        total += term * float(value)
        term = term * (n - k) / (k + 1) * arb(p) / (1 - arb(p))
    return total


@pytest.mark.parametrize("t", [0.3, 0.5, float(ndtr(2.0))])
def test_rounding_of_cuts_stays_below_the_allowance(t: float) -> None:
    """The worst path of a chain of cuts, with the account of F12: 3 n u of the largest coefficient a cut."""
    n, chain = 120, 10
    h = np.random.default_rng(0).uniform(-2.0, 2.0, n + 1)
    floats, balls = subdivide(h[None], t)[0], cut_in_balls([arb(float(v)) for v in h], arb(t))[0]
    for step in range(chain):
        floats, balls = subdivide(floats, 0.5)[step % 2], cut_in_balls(balls, arb(0.5))[step % 2]
    worst = max(abs(b - float(f)) for b, f in zip(balls, floats[0], strict=True))
    assert worst <= 3 * n * 2.0**-53 * 2.0 * (chain + 1)
    assert 3 * LARGEST_DEGREE * 2.0**-53 * (DEPTH + 1) < ALLOWANCE / 5


COEFFICIENTS = arrays(np.float64, st.integers(2, 30), elements=st.floats(-2.0, 2.0))


@settings(max_examples=60, deadline=None)
@given(COEFFICIENTS, st.floats(0.05, 0.95))
def test_lowered_polynomial_is_below_and_loses_no_more_than_it_must(h: FloatArray, t: float) -> None:
    lowered = lowered_below_step(h, t)
    points = np.unique(np.append(np.sin(np.linspace(0.0, np.pi / 2, 4001)) ** 2, t))
    over = binomial_pmf(h.size - 1, points) @ h - (points > t)
    lost = h - lowered
    assert np.ptp(lost) < 1e-12
    assert lost[0] >= max(float(over.max()), 0.0) - 1e-12
    assert lost[0] <= max(float(over.max()), 0.0) + 1e-4  # the grid misses the maximum by less


@given(COEFFICIENTS)
@settings(max_examples=40, deadline=None)
def test_both_sides_of_a_cut_are_the_polynomial(h: FloatArray) -> None:
    left, right = subdivide(h[None], 0.3)
    p = np.linspace(0.0, 1.0, 11)
    law = binomial_pmf(h.size - 1, p)
    np.testing.assert_allclose(law @ left[0], binomial_pmf(h.size - 1, 0.3 * p) @ h, atol=1e-12)
    np.testing.assert_allclose(law @ right[0], binomial_pmf(h.size - 1, 0.3 + 0.7 * p) @ h, atol=1e-12)


def test_excess_over_a_rising_line_is_found() -> None:
    """p^2 less p/2 has its largest value, 1/2, at 1; less p it is below 0 inside, and 0 at both ends."""
    square = np.array([[0.0, 0.0, 1.0]])
    half = proved_excess(square, lambda a, _: (0.5 * a, np.full(a.size, 0.5)))
    assert 0.5 <= half <= 0.5 + 1e-6
    assert 0.0 <= proved_excess(square, lambda a, _: (a, np.ones(a.size))) <= 1e-6


def test_more_draws_and_more_inputs_are_sharper() -> None:
    """Mean less three standard errors under the law that h was made for: near the truth at 1,000 draws."""
    t, found = float(ndtr(1.0)), []
    truth = 1.0 - np.arcsin(np.sqrt(t)) / (np.pi / 2)
    for n in (10, 40, 160, 1000):
        law = fitted_pmf(NO_COUNTS, n)
        h = below_step(n, t, law, 10_000, 1e-3)
        mean = float(law @ h)
        found.append(mean - 3.09 * np.sqrt((law @ (h - mean) ** 2) / 10_000))
    assert found == sorted(found)
    assert found[1] > 0.6 * truth
    assert truth - 0.035 < found[-1] < truth


def test_law_is_fitted_to_the_pilot() -> None:
    counts = np.random.default_rng(0).binomial(40, 0.9, 3000)
    law = fitted_pmf(counts, 40)
    assert law.sum() == pytest.approx(1.0)
    assert law @ np.arange(41) == pytest.approx(counts.mean(), abs=1.0)
    flat = fitted_pmf(NO_COUNTS, 40)
    assert flat.sum() == pytest.approx(1.0)
    assert flat == pytest.approx(flat[::-1])


@pytest.mark.parametrize("n", [0, 1001])
def test_number_of_draws_is_checked(n: int) -> None:
    with pytest.raises(InvalidInput, match="n, the draws of each input"):
        below_step(n, 0.9, np.full(n + 1, 1.0), 100, 0.1)
    with pytest.raises(InvalidInput, match="n, the draws of each input"):
        lowered_below_step(np.zeros(n + 1), 0.9)
