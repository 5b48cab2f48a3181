"""Numbers for people are rounded down, exactly."""

from decimal import Decimal
from fractions import Fraction
from math import nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckler.certificate import rounded_down


def test_one_ulp_below_a_short_decimal() -> None:
    for k in range(1, 40_000):
        below = nextafter(k / 1e4, 0.0)
        shown = rounded_down(below, 4)
        assert Decimal(shown) < Decimal(below), k
        assert shown == f"{(k - 1) // 10_000}.{(k - 1) % 10_000:04d}"


@given(value=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(0, 12))
def test_never_more_than_the_value(value: float, digits: int) -> None:
    shown = rounded_down(value, digits)
    assert float(shown) <= value
    assert Fraction(repr(value)) - Fraction(shown) < Fraction(1, 10**digits)


@given(k=st.integers(0, 10**7), digits=st.integers(0, 7))
def test_what_has_so_few_digits_is_shown_as_it_is(k: int, digits: int) -> None:
    assert Decimal(rounded_down(k / 10**digits, digits)) == Decimal(k).scaleb(-digits)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.000"), (-0.0, "0.000"), (1e23, "1" + "0" * 23 + ".000"), (5e-324, "0.000"), (-1e-9, "-0.001")],
)
def test_ends(value: float, shown: str) -> None:
    assert rounded_down(value) == shown


def test_what_is_not_finite_is_named() -> None:
    assert [rounded_down(float(text)) for text in ("inf", "-inf", "nan")] == ["inf", "-inf", "nan"]
