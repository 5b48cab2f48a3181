"""Margin limits from counts: values known in closed form, properties, bad input."""

from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from buckler.certify.discrete import margin_lower
from buckler.certify.margins import margin_from_limits
from buckler.certify.registry import sound_methods
from buckler.errors import InvalidInput
from buckler.types import MarginKind
from tests.balls import normal_cdf

MARGINS: tuple[MarginKind, ...] = ("probability", "quantile")
SOUND = [method.name for method in sound_methods()]


def test_top_class_matches_the_closed_form() -> None:
    low = 0.001 ** (1 / 100)
    assert float(margin_lower(100, 0, 100, method="top_class")) == pytest.approx(3.00095005, abs=1e-8)
    assert float(margin_lower(100, 0, 100, method="top_class", margin="probability")) == pytest.approx(2 * low - 1)
    # Without a vote nothing is known: the margin's lowest value, rounded down once.
    assert float(margin_lower(0, 0, 9, method="top_class", margin="probability")) == np.nextafter(-1.0, -np.inf)
    assert float(margin_lower(0, 0, 9, method="top_class")) == -np.inf


def test_bonferroni_all_is_bonferroni_at_a_smaller_level() -> None:
    wide = margin_lower(80, 5, 100, method="bonferroni_all", num_classes=10)
    assert float(wide) == float(margin_lower(80, 5, 100, alpha=2e-4, method="bonferroni"))


@given(a=st.floats(1e-12, 1 - 1e-12), b=st.floats(1e-12, 1 - 1e-12))
def test_limits_round_down(a: float, b: float) -> None:
    """``Phi(z + low) < a`` at some z with ``Phi(z) >= b``, by ball arithmetic: so low is below the exact margin."""
    low = float(margin_from_limits("quantile", a, b))
    z = float(ndtri(b))
    z += 1e-15 * abs(z)
    assert normal_cdf(arb(z)) >= arb(b)
    assert normal_cdf(arb(z) + arb(low)) <= arb(a)
    assert arb(float(margin_from_limits("probability", a, b))) < arb(a) - arb(b)


@pytest.mark.parametrize("kind", MARGINS)
@pytest.mark.parametrize("method", SOUND)
def test_monotone_in_every_argument(kind: MarginKind, method: str) -> None:
    rng = np.random.default_rng(1)
    for n in (7, 60, 1000):
        top = rng.integers(0, n, 40)
        other = np.array([rng.integers(0, n - t) for t in top])

        def low(x1: Any, x2: Any, alpha: float = 0.01, n: int = n) -> Any:
            return margin_lower(x1, x2, n, alpha=alpha, margin=kind, method=method, num_classes=5)

        base = low(top, other)
        rounding = 1e-12  # a limit found by search may differ in its last digits where two outcomes share it
        assert (low(np.minimum(top + 1, n - other), other) >= base - rounding).all()
        assert (low(top, np.minimum(other + 1, n - top)) <= base + rounding).all()
        if method != "exact":  # whose ordering of outcomes depends on alpha: a limit may fall as alpha rises
            assert (low(top, other, alpha=0.02) >= base - rounding).all()
        assert base.tolist() == [float(low(int(a), int(b))) for a, b in zip(top, other, strict=True)]


@pytest.mark.parametrize("method", SOUND)
def test_top_below_runner_up_proves_nothing(method: str) -> None:
    assert (margin_lower([10, 0], [90, 100], 100, method=method, num_classes=3) <= 0).all()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"top": 60, "runner_up": 50}, "top \\+ runner_up must be at most n"),
    ({"n": 0}, "n must"),
    ({"top": 1.5}, "top must"),
    ({"top": float("nan")}, "top must"),
    ({"top": [1, 2], "runner_up": [1, 2, 3]}, "broadcast"),
    ({"runner_up": -1}, "runner_up must"),
    ({"alpha": 0.0}, "alpha must"),
    ({"alpha": 1.0}, "alpha must"),
    ({"alpha": float("nan")}, "alpha must"),
    ({"alpha": "small"}, "alpha must"),
    ({"margin": "third"}, "margin must"),
    ({"method": "magic"}, "method must"),
    ({"method": "bonferroni_all"}, "num_classes must"),
]


@pytest.mark.parametrize(("change", "named"), BAD)
def test_bad_input_is_named(change: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {"top": 50, "runner_up": 10, "n": 100, "method": "bonferroni"}
    margin_lower(**good)
    with pytest.raises(InvalidInput, match=named):
        margin_lower(**good | change)
