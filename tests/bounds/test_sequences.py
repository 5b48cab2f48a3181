"""The plug-in empirical-Bernstein sequence: compiled = reference, rounding, running maximum."""

import numpy as np
import pytest
from flint import arb, ctx

from buckler.bounds.sequences import _psi, sequence_lower, sequence_path
from buckler.types import FloatArray


def reference(x: FloatArray, alpha: float, anytime: bool) -> FloatArray:
    """The limits after each draw, straight from the definition."""
    n = len(x)
    i = np.arange(1, n + 1)
    mu = (0.5 + np.cumsum(x)) / (i + 1)
    s2 = (0.25 + np.cumsum((x - mu) ** 2)) / (i + 1)
    mu_before, s2_before = np.append(0.5, mu[:-1]), np.append(0.25, s2[:-1])
    spread = i * np.log(1.0 + i) if anytime else float(n)
    bet = np.minimum(0.5, np.sqrt(2.0 * np.log(1.0 / alpha) / (s2_before * spread)))
    v = 4.0 * (x - mu_before) ** 2
    psi = (-np.log1p(-bet) - bet) / 4.0
    return np.asarray((np.cumsum(bet * x) - np.log(1.0 / alpha) - np.cumsum(v * psi)) / np.cumsum(bet))


@pytest.mark.parametrize("anytime", [True, False])
@pytest.mark.parametrize("n", [1, 2, 30, 3000])
def test_compiled_equals_reference(n: int, anytime: bool) -> None:
    rng = np.random.default_rng(n)
    for x in (rng.random(n), rng.beta(0.1, 0.1, n), np.ones(n), (rng.random(n) < 0.97).astype(float)):
        limits = reference(x, 0.01, anytime)
        expected = max(0.0, min(limits.max(), x.mean()))
        found = float(sequence_lower(x, 0.01, anytime=anytime))
        assert found <= expected + 1e-15
        assert found == pytest.approx(expected, abs=1e-11)
        if anytime:
            running = np.maximum.accumulate(np.clip(limits, 0.0, 1.0))
            np.testing.assert_allclose(sequence_path(x, 0.01), running, atol=1e-11)


@pytest.mark.parametrize("bet", [1e-9, 1e-6, 1e-3, 0.0499, 0.0501, 0.2, 0.5])
def test_psi_is_rounded_up(bet: float) -> None:
    ctx.prec = 200
    true = (-(1 - arb(bet)).log() - arb(bet)) / 4
    assert arb(_psi(bet)) >= true
    assert _psi(bet) <= float(true.mid()) * (1.0 + 1e-12)


def test_limit_is_known_before_later_draws() -> None:
    rng = np.random.default_rng(5)
    x = rng.random(200)
    y = x.copy()
    y[120:] = rng.random(80)
    np.testing.assert_array_equal(sequence_path(x, 0.01)[:120], sequence_path(y, 0.01)[:120])
    assert sequence_path(x[:, None] * np.ones(3), 0.01).shape == (200, 3)


def test_a_fixed_horizon_is_tighter_in_the_mean() -> None:
    x = np.random.default_rng(6).beta(2.0, 1.0, size=(500, 100))
    assert sequence_lower(x, 1e-3, anytime=False).mean() > sequence_lower(x, 1e-3).mean()
