"""Orderings: monotone in both counts, one function, nested regions."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import ndtri

from buckler.bounds.ordering import (
    COLD,
    GUARD,
    NEAR,
    SMALLEST_Z,
    STEP,
    TIGHT,
    fill_boundary,
    profile,
    quantile_fit,
    reaches,
    settled,
    value,
)
from buckler.bounds.trinomial import PROBABILITY, QUANTILE
from buckler.types import FloatArray, MarginKind
from tests.balls import normal_cdf

MARGINS: list[MarginKind] = ["probability", "quantile"]


def outcomes(n: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
@pytest.mark.parametrize("n", [5, 60])
@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-12])
def test_likelihood_ratio_is_monotone_over_all_outcomes(kind: int, n: int, alpha: float) -> None:
    zz = float(ndtri(alpha)) ** 2
    table = np.full((n + 1, n + 1), np.nan)
    for a, b in outcomes(n):
        table[a, b] = value(kind, a, b, n, zz)
    assert not np.any(np.diff(table, axis=0) < 0)
    assert not np.any(np.diff(table, axis=1) > 0)


def plain_deviance(kind: int, y1: int, y2: int, n: int, L: float) -> float:
    """The profile deviance by brute force over a fine grid of the curve."""
    from scipy.special import ndtr

    shift = [0.5, 0.5, 0.5] if kind == PROBABILITY else [-0.25, 0.6, 0.6]
    a = np.array([y1, y2, n - y1 - y2]) + shift
    if kind == PROBABILITY:
        t = np.linspace(abs(L), 1, 400_001)[1:-1]
        q: FloatArray = np.array([(t + L) / 2, (t - L) / 2, 1 - t])
    else:
        t = np.linspace(-8, 0, 400_001)[1:-1]
        q = np.array([ndtr(t + L / 2), ndtr(t - L / 2), ndtr(-t - L / 2) - ndtr(t - L / 2)])
    return float(2 * np.min(np.sum(a[:, None] * np.log(a[:, None] / (a.sum() * q)), axis=0)))


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_profile_equals_brute_force(kind: int) -> None:
    for y1, y2, n, L in [(7, 2, 12, 0.1), (60, 10, 100, 0.5), (3, 40, 50, -0.6), (99, 1, 100, 0.7), (1, 0, 1, -0.9)]:
        deviance = profile(kind, y1, y2, n, L, -0.3)[0]
        assert deviance == pytest.approx(plain_deviance(kind, y1, y2, n, L), rel=1e-6)
        assert deviance == pytest.approx(profile(kind, y1, y2, n, L, -3.0)[0], rel=1e-12)


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_deviance_moves_more_in_a_step_than_rounding_can(kind: int) -> None:
    rng = np.random.default_rng(3)
    zz = float(ndtri(1e-3)) ** 2
    for n in (1, 100, 10_000, 1_000_000):
        for _ in range(20):
            x1, x2, _ = rng.multinomial(n, rng.dirichlet([1, 1, 1])).tolist()
            if kind == QUANTILE and x1 == 0:
                continue
            k = value(kind, x1, x2, n, zz)
            if k * STEP < -0.999999:
                continue
            assert reaches(kind, x1, x2, n, k, zz)
            assert not reaches(kind, x1, x2, n, k + 1, zz)
            steps = [profile(kind, x1, x2, n, (k + i) * STEP, -0.7)[0] for i in range(-3, 4)]
            assert np.all(np.diff(steps) < 0)


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_boundary_is_what_each_outcome_says_of_itself(kind: int) -> None:
    """The boundary is found with few evaluations and a convexity argument; here every outcome nearby is asked."""
    rng = np.random.default_rng(kind)
    lowest = 1 if kind == QUANTILE else 0
    for n in (5, 13, 60, 300, 5000):
        for _ in range(8):
            zz = float(rng.choice([0.25, 2.7, 9.55, 45.0]))
            x1, x2, _ = rng.multinomial(n, rng.dirichlet([1.0, 0.5, 0.7])).tolist()
            k = value(kind, x1, x2, n, zz)
            c = np.zeros(n + 1, dtype=np.int64)
            size = fill_boundary(kind, n, k, zz, c)
            for j in range(0, size, 1 + n // 200):
                assert reaches(kind, int(c[j]), j, n, k, zz)
                before = int(c[j - 1]) if j else lowest
                assert int(c[j]) == before or not reaches(kind, int(c[j]) - 1, j, n, k, zz)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("alpha", [0.3, 1e-3, 1e-12])
def test_a_region_holds_every_outcome_of_its_value_or_more(margin: MarginKind, alpha: float) -> None:
    # Whatever rounding does to the deviance: values need the guard to spare, regions do not (F3).
    n, kind = 14, PROBABILITY if margin == "probability" else QUANTILE
    zz = max(-float(ndtri(alpha)), SMALLEST_Z) ** 2
    every = [x for x in outcomes(n) if x[0] > 0 or margin == "probability"]
    values = {x: value(kind, *x, n, zz) for x in every}
    for x in every:
        inside = {y for y in every if reaches(kind, *y, n, values[x], zz)}
        assert {y for y in every if values[y] >= values[x]} <= inside
        needed = zz + GUARD * (n + 200)
        if reaches(kind, *x, n, values[x], zz):  # but for outcomes that reach no margin of the grid
            assert reaches(kind, *x, n, values[x], needed)
            assert not reaches(kind, *x, n, values[x] + 1, needed)


def test_the_fit_is_where_the_likelihood_is_largest() -> None:
    """To far more digits than decisions need: the slope changes its sign within 1e-9 of t, in ball arithmetic."""
    ctx.prec = 256
    rng = np.random.default_rng(6)
    for _ in range(150):
        n = int(10 ** rng.uniform(0.3, 6))
        counts = rng.multinomial(n, rng.dirichlet([0.7, 0.7, 0.7])) + np.array([0.75, 0.6, 0.6])
        a1, a2, a3 = counts.tolist()
        L = float(rng.uniform(-3.0, 3.0))
        t = float(quantile_fit(a1, a2, a3, L, COLD, TIGHT))

        def slope(at: arb, a: tuple[float, float, float] = (a1, a2, a3), L: float = L) -> arb:
            u, v = at + arb(L) / 2, at - arb(L) / 2
            f1, f2 = ((-x * x / 2).exp() / (2 * arb.pi()).sqrt() for x in (u, v))
            q1, q2 = normal_cdf(u), normal_cdf(v)
            return a[2] * (f1 + f2) / (1 - q1 - q2) - a[0] * f1 / q1 - a[1] * f2 / q2

        assert slope(arb(t * (1.0 + 1e-9))) < 0
        assert slope(arb(t * (1.0 - 1e-9))) > 0


def test_what_settles_a_column_is_the_tangent_and_the_parabola() -> None:
    """T7 in rational numbers, on both sides of each of its conditions."""
    rng, both = np.random.default_rng(7), set()
    for _ in range(20_000):
        n = int(rng.integers(5, 400))
        j = int(rng.integers(0, n // 2))
        y, zz = int(rng.integers(0, n - j + 1)), 9.0
        first = y + int(rng.integers(-6, 7))
        slope = float(rng.uniform(0.05, 3.0))
        deviance = zz - slope * (first - y - rng.uniform(-0.2, 1.2))
        ahead, behind = first - y, first - 1 - y
        far = max(abs(ahead), abs(behind)) + 1
        a1, a3 = y - far, n - y - j - far
        expected = a1 >= far and a3 >= far
        if expected:
            over = Fraction(deviance) + Fraction(slope) * ahead - Fraction(zz) - Fraction(NEAR)
            parabola = behind * behind * (Fraction(1, a1) + Fraction(1, a3))
            under = Fraction(deviance) + Fraction(slope) * behind + parabola - Fraction(zz) + Fraction(NEAR)
            if min(abs(over), abs(under)) < 1e-12:
                continue
            expected = over >= 0 and under < 0
        assert settled(y, first, j, n, deviance, slope, zz) == expected
        both.add(expected)
    assert both == {True, False}
