"""The plug-in empirical-Bernstein sequence: compiled = reference, rounding, running maximum."""

import numpy as np
import pytest
from flint import arb, ctx

from buckler.bounds.bounded import _psi, sequence_lower
from buckler.types import FloatArray


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


@pytest.mark.parametrize("n", [1, 2, 30, 3000])
def test_compiled_equals_reference(n: int) -> None:
    rng = np.random.default_rng(n)
    for x in (rng.random(n), rng.beta(0.1, 0.1, n), np.ones(n), (rng.random(n) < 0.97).astype(float)):
        limits = reference(x, 0.01)
        expected = max(0.0, min(limits.max(), x.mean()))
        found = float(sequence_lower(x, 0.01))
        assert found <= expected + 1e-15
        assert found == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("bet", [1e-9, 1e-6, 1e-3, 0.0499, 0.0501, 0.2, 0.5])
def test_psi_is_rounded_up(bet: float) -> None:
    ctx.prec = 200
    true = (-(1 - arb(bet)).log() - arb(bet)) / 4
    assert arb(_psi(bet)) >= true
    assert _psi(bet) <= float(true.mid()) * (1.0 + 1e-12)


def test_the_limit_is_a_running_maximum() -> None:
    """More draws never lower it, but for the ceiling at the mean: what was proved stays proved."""
    x = np.sort(np.random.default_rng(5).random(200))
    limits = [float(sequence_lower(x[:n], 0.01)) for n in range(1, 201)]
    assert (np.diff(limits) >= 0.0).all()
    assert sequence_lower(x[:, None] * np.ones(3), 0.01).shape == (3,)
