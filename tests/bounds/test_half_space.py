"""E-values against a half-space: the supremum in ball arithmetic, means of factors, divergences by brute force."""

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from buckler.bounds.evalues import check_distribution, distance_to_half_space, half_space_mixture, half_space_supremum
from buckler.errors import InvalidInput
from buckler.types import FloatArray

MARGINS = [0.0, 1e-9, 0.01, 0.3, 0.6826894921370859, 0.99, 1.0 - 1e-12, 1.0]

factors = st.lists(st.floats(0.0, 50.0), min_size=3, max_size=3)
margins = st.floats(0.0, 1.0)


def corners(L: float) -> list[tuple[arb, arb, arb]]:
    one, gap = arb(1), arb(L)
    edge = (one + gap) / 2, (one - gap) / 2, arb(0)
    return [(arb(0), one, arb(0)), (arb(0), arb(0), one), edge, (gap, arb(0), one - gap)]


@given(factors, margins)
def test_supremum_is_never_below_the_exact_one(a: list[float], L: float) -> None:
    found = arb(float(half_space_supremum(a, L)))
    means = [sum((arb(x) * q for x, q in zip(a, corner, strict=True)), arb(0)) for corner in corners(L)]
    assert all(not found < mean for mean in means)
    largest = max(float(mean.mid()) for mean in means)
    assert largest < 1e-250 or float(found.mid()) <= largest * (1.0 + 1e-12)


@given(factors, margins, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_member_of_the_null_has_a_larger_mean(a: list[float], L: float, u: float, w: float) -> None:
    q = np.array([u * w, u * (1.0 - w), 1.0 - u])
    if q[0] - q[1] <= L:
        assert (q * a).sum() <= half_space_supremum(a, L) * (1.0 + 1e-15)


@pytest.mark.parametrize("L", MARGINS)
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
    distance = float(distance_to_half_space(p, L))
    assert 0.5 * distance**2 == pytest.approx(best, abs=1e-6)
    assert (distance > 0.0) == (not inside) or best < 1e-12


def test_bad_margins_are_named() -> None:
    for L in (-0.1, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="L must be"):
            half_space_mixture(L)
    with pytest.raises(InvalidInput, match="p must sum to one"):
        check_distribution([0.5, 0.1, 0.1])
