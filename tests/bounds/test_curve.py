"""Points of the margin curve: as close to ball arithmetic as the account of floating error assumes."""

import numpy as np
import pytest
from flint import ctx

from buckler.bounds.trinomial import LARGE, PROBABILITY, QUANTILE, corner, curve_point, without_rival
from tests.balls import margin_curve_point

ROUNDOFF = 2.0**-53


def test_normal_cells_err_as_assumed() -> None:
    """Relative errors of tails up to (10 + 3 x^2) roundoffs; of the rest twice that of 1 - q2 where q2 is large."""
    ctx.prec = 300
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(4000):
        L, t = rng.uniform(-20.0, 12.0), -(10 ** rng.uniform(-6.0, 0.8))
        found = curve_point(QUANTILE, L, t)
        true = margin_curve_point(True, L, t)
        x, v = t + 0.5 * L, t - 0.5 * L
        allowed1, allowed2 = (10.0 + 3.0 * x * x) * ROUNDOFF, (10.0 + 3.0 * v * v) * ROUNDOFF
        error1, error2 = (abs(float((found[i] - true[i]) / true[i])) for i in (0, 1))
        assert error1 <= allowed1
        assert error2 <= allowed2
        worst = max(worst, error1 / allowed1)
        gap = abs(float(found.q3 - true[2]))
        if found.q2 > LARGE:
            assert gap <= 2.0 * allowed2 * float(1 - true[1])
            assert abs(float(without_rival(found) / (1 - true[1]) - 1)) <= 4.0 * allowed2
        else:
            assert gap <= allowed1 * found.q1 + allowed2 * found.q2 + ROUNDOFF
    assert worst > 0.05, "the account is not idle"


@pytest.mark.parametrize("L", [-1.0 + 1e-15, -1.0 + 1e-9, -0.6, -0.1, 0.0, 0.3, 0.999999])
def test_cells_of_the_probability_margin(L: float) -> None:
    ctx.prec = 300
    for t in (0.0, 1e-9, 0.3, 0.999, 1.0):
        found, true = curve_point(PROBABILITY, L, t), margin_curve_point(False, L, t)
        for i in range(2):
            assert abs(float(found[i] - true[i])) <= 4.0 * ROUNDOFF * float(abs(true[i]))
        gap = abs(float(found.q3 - true[2]))
        assert gap <= 4.0 * ROUNDOFF * (float(1 - true[1]) if found.q2 > LARGE else 1.0)


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_a_corner_bounds_its_piece(kind: int) -> None:
    for L in (-0.9, -0.2, 0.0, 0.5):
        a, b = (0.2, 0.6) if kind == PROBABILITY else (-1.5, -0.2)
        q = corner(kind, L, a, b)
        assert q.q1 == curve_point(kind, L, b).q1
        assert q.q2 == curve_point(kind, L, a).q2
        assert sum(q) == pytest.approx(1.0, abs=1e-15)
    assert corner(QUANTILE, -3.0, -np.inf, -1.0).q2 == 0.0
