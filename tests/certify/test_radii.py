"""Radii: closed forms, order, rounding down."""

import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from buckler.certify.radii import default_radius, radius_from_margin
from buckler.errors import InvalidInput
from buckler.types import RadiusKind
from tests.balls import normal_cdf


def test_closed_forms() -> None:
    assert radius_from_margin(2.0, 0.25, "R2") == pytest.approx(0.25, rel=1e-14)
    assert radius_from_margin(0.5, 1.0, "R1") == pytest.approx(0.6266570686577501, rel=1e-14)
    assert radius_from_margin(0.5, 1.0, "R1+") == pytest.approx(0.6744897501960817, rel=1e-14)
    assert radius_from_margin(0.5, 1.0, "R1", lipschitz=0.1) == pytest.approx(0.5 / (2**0.5 * 0.1), rel=1e-14)
    assert radius_from_margin(0.5, 1.0, "R1", lipschitz=9.0) == radius_from_margin(0.5, 1.0, "R1")


@given(low=st.floats(1e-9, 1.0, exclude_max=True), sigma=st.floats(1e-3, 10))
def test_order_and_rounding(low: float, sigma: float) -> None:
    first, better = radius_from_margin(low, sigma, "R1"), radius_from_margin(low, sigma, "R1+")
    assert 0.0 < first <= better * (1 + 1e-6)  # at margins near 1e-9 the rounding of 1 + low is all there is
    assert arb(first) < arb(sigma) * (arb.pi() / 2).sqrt() * arb(low)
    assert arb(radius_from_margin(low, sigma, "R2")) < arb(sigma) * arb(low) / 2
    # Phi(R1+ / sigma) <= (1 + low) / 2
    assert normal_cdf(arb(better) / arb(sigma)) <= (1 + arb(low)) / 2


@pytest.mark.parametrize("low", [0.0, -1.0, float("-inf")])
@pytest.mark.parametrize("kind", ["R1", "R1+", "R2"])
def test_no_margin_no_radius(low: float, kind: str) -> None:
    assert radius_from_margin(low, 1.0, kind) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["R1", "R1+", "R2"])
def test_the_smallest_margins_have_no_negative_radius(kind: RadiusKind) -> None:
    for low in (5e-324, 1e-323, 1e-310, 1e-300):
        for sigma in (1e-3, 0.5, 10.0):
            assert radius_from_margin(low, sigma, kind) >= 0.0


def test_defaults_and_refusals() -> None:
    assert (default_radius("quantile"), default_radius("probability")) == ("R2", "R1+")
    with pytest.raises(InvalidInput, match="sigma"):
        radius_from_margin(1.0, 0.0, "R2")
    with pytest.raises(InvalidInput, match="lipschitz"):
        radius_from_margin(1.0, 1.0, "R2", lipschitz=1.0)
