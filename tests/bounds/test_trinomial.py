"""Region probabilities: the kernel against its plain reference and against ball arithmetic."""

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import betainc, gammaln, xlogy

from buckler.bounds.buehler import outcome_region
from buckler.bounds.trinomial import (
    LARGEST_SUBTRACTED,
    PROBABILITY,
    QUANTILE,
    RELATIVE_ERROR,
    Trinomial,
    at_most_one,
    corner,
    curve_point,
    log_pmf,
    make_region,
    region_probabilities,
    region_probability,
    unscaled,
    without_rival,
)
from buckler.types import IntArray, MarginKind
from tests.balls import margin_curve_point


def sloped_boundary(n: int, q1: float, q2: float, z: float, slope: float) -> IntArray:
    j = np.arange(n + 1)
    c = np.maximum(np.ceil(n * q1 + 0.4 * z * np.sqrt(n) + slope * (j - n * q2)), 0).astype(np.int64)
    empty = c > n - j
    return np.ascontiguousarray(c[: int(np.argmax(empty)) if empty.any() else n + 1])


def whole(q1: float, q2: float) -> Trinomial:
    """Return the trinomial whose third cell is what the other two leave."""
    return Trinomial(q1, q2, max(1.0 - q1 - q2, 0.0))


def region_probability_reference(n: int, q1: float, q2: float, c: IntArray) -> float:
    """Return the probability of the region column by column with SciPy's special functions."""
    j = np.arange(c.size)
    low = np.maximum(c, 0)
    log_column = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1) + xlogy(j, q2) + (n - j) * np.log1p(-q2)
    tails = np.where(low == 0, 1.0, betainc(np.maximum(low, 1), n - j - low + 1, min(q1 / (1.0 - q2), 1.0)))
    return float(np.sum(np.exp(log_column) * tails))


def ball_probability(n: int, p1: arb, p2: arb, p3: arb, c: IntArray) -> arb:
    """Sum the columns that matter in ball arithmetic, radii included; the others are far below double precision.

    One incomplete beta function starts the recurrence; the balls carry whatever its steps lose.
    """
    d, q2 = p1 + p3, float(p2)
    spread = 14 * np.sqrt(n * q2 * (1 - q2)) + 60
    low, j = max(0, int(n * q2 - spread)), min(c.size - 1, int(n * q2 + spread))
    if j < low:
        return arb(0)

    def log_choose(m: int, k: int) -> arb:
        return arb(m + 1).lgamma() - arb(k + 1).lgamma() - arb(m - k + 1).lgamma()

    level = int(c[j])
    weight = (log_choose(n, j) + j * p2.log() + (n - j) * d.log()).exp()
    column = weight * (p1 / d).beta_lower(arb(level), arb(n - j - level + 1), regularized=True) if level else weight
    log_single = log_choose(n, j) + j * p2.log() + log_choose(n - j, level - 1) if level else arb(0)
    single = (log_single + (level - 1) * p1.log() + (n - j - level + 1) * p3.log()).exp() if level else arb(0)
    total = column
    while j > low:
        column = (column + single * p1 / d) * d * j / (p2 * (n - j + 1))
        single = single * p3 * j / (p2 * (n - j - level + 2))
        j -= 1
        while level > c[j]:
            column += single
            level -= 1
            single = single * p3 * level / (p1 * (n - j - level + 1))
        total += column
    return total


def test_kernel_equals_reference() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(10 ** rng.uniform(0, 4))
        q1, q2, _ = rng.dirichlet([0.5, 0.5, 0.5])
        c = sloped_boundary(n, q1, q2, rng.uniform(0, 4), rng.uniform(0, 2))
        plain = region_probability_reference(n, q1, q2, c) if c.size else 0.0
        assert region_probability(make_region(n, c), whole(q1, q2), 1e-30) == pytest.approx(plain, rel=1e-9, abs=1e-28)


@pytest.mark.parametrize("n", [1, 10, 1000, 100_000])
def test_ball_arithmetic_agrees(n: int) -> None:
    ctx.prec = 300
    rng = np.random.default_rng(n)
    for _ in range(4):
        q1, q2, _ = (0.98 * rng.dirichlet([1, 1, 1]) + 0.02 / 3).tolist()
        c = sloped_boundary(n, q1, q2, 3.0, rng.uniform(0, 2))
        if c.size == 0:
            continue
        exact = float(ball_probability(n, arb(q1), arb(q2), 1 - arb(q1) - arb(q2), c))
        computed = region_probability(make_region(n, c), whole(q1, q2), 1e-30)
        assert abs(computed - exact) <= 0.01 * RELATIVE_ERROR * exact + 1e-29


def test_steep_boundaries_do_not_overflow() -> None:
    # At n = 1e5 the boundary rises by thousands per column near x2 = 0.
    n = 100_000
    c, L = outcome_region(95_000, 2_000, n, 1e-3, "quantile")
    for t in (-0.5, -1.5, -1.8, -2.5, -4.0):
        q = curve_point(QUANTILE, L, t)
        expected = region_probability_reference(n, q.q1, q.q2, c)
        assert region_probability(make_region(n, c), q, 1e-18) == pytest.approx(expected, rel=1e-8, abs=1e-17)


def test_monotone_in_both_cells() -> None:
    region = make_region(200, sloped_boundary(200, 0.5, 0.2, 2.0, 0.7))
    steps = np.linspace(0.01, 0.6, 40)
    rising = [region_probability(region, whole(q, 0.2), 1e-20) for q in steps]
    falling = [region_probability(region, whole(0.3, q), 1e-20) for q in steps]
    assert np.all(np.diff(rising) >= 0)
    assert np.all(np.diff(falling) <= 0)


def test_pmf_sums_to_one() -> None:
    n = 30
    total = sum(np.exp(log_pmf(n, a, b, 0.5, 0.2, 0.3)) for a in range(n + 1) for b in range(n + 1 - a))
    assert total == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("q2", [1e-10, 1e-20, 1e-40, 1e-300])
def test_a_rival_that_hardly_exists_hides_nothing(q2: float) -> None:
    """Columns above the mean underflow one after the other; the column that holds the mass must still be counted."""
    c = np.ones(1000, dtype=np.int64)
    assert region_probability(make_region(1000, c), whole(1e-3, q2), 1e-15) == pytest.approx(
        0.6323045752290359, rel=1e-11
    )


def test_no_number_proves_nothing() -> None:
    assert at_most_one(float("nan")) == 1.0
    assert at_most_one(float("inf")) == 1.0
    assert at_most_one(0.5) == 0.5


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("n", [1, 5, 60, 1000, 30_000])
def test_many_points_at_once_are_as_one_by_one(n: int, margin: MarginKind) -> None:
    rng = np.random.default_rng(n)
    kind, drop = (QUANTILE, 1e-20) if margin == "quantile" else (PROBABILITY, 1e-20)
    for count in (1, 15, 16, 17, 40):
        x1, x2, _ = rng.multinomial(n, rng.dirichlet([1.0, 0.5, 0.5])).tolist()
        c, L = outcome_region(x1, x2, n, 1e-3, margin)
        region = make_region(n, c)
        near = rng.uniform(-0.2, 0.2, count)
        t = np.minimum(near - rng.uniform(0, 3), 0.0) if kind == QUANTILE else np.clip(near + rng.uniform(), 0.01, 1.0)
        q = np.array([curve_point(kind, float(np.clip(L, -0.99, 0.99)) if kind == PROBABILITY else L, s) for s in t])
        many = np.full(count + 1, np.nan)
        region_probabilities(region, q, drop, many)
        alone = np.array([region_probability(region, Trinomial(*row), drop) for row in q.tolist()])
        np.testing.assert_allclose(many[:count], alone, rtol=1e-9, atol=4 * drop)
        assert np.isnan(many[count])


def test_points_far_from_one_another_and_sums_that_overflow() -> None:
    steep = np.array([0, 500], dtype=np.int64)  # 500 steps in one column, each by a factor of about 1e30 at q1 = 1e-30
    for c in (sloped_boundary(1000, 0.3, 0.3, 2.0, 1.0), steep):
        region = make_region(1000, c)
        pairs = [(0.3, 0.3), (1e-30, 0.3), (0.3, 1e-30), (0.9, 1e-12), (0.3, 1e-3)]
        many = np.empty(5)
        region_probabilities(region, np.array([whole(*pair) for pair in pairs]), 1e-20, many)
        alone = [region_probability(region, whole(*pair), 1e-20) for pair in pairs]
        np.testing.assert_allclose(many, alone, rtol=1e-8, atol=1e-19)


@pytest.mark.parametrize("drop", [1e-2, 1e-4, 1e-8])
def test_mass_that_is_dropped_is_added(drop: float) -> None:
    """Never below the exact probability, however much is dropped, and above it by ``2 drop`` at most (ball sums)."""
    rng, needed = np.random.default_rng(7), 0
    for _ in range(150):
        n = int(10 ** rng.uniform(1, 3.5))
        q1, q2, _ = rng.dirichlet([0.7, 0.7, 0.7])
        c = sloped_boundary(n, q1, q2, rng.uniform(-1, 3), rng.uniform(0, 2))
        if c.size == 0:
            continue
        q, region = whole(q1, q2), make_region(n, c)
        exact = float(ball_probability(n, arb(q.q1), arb(q.q2), 1 - arb(q.q1) - arb(q.q2), c))
        out = np.empty(1)
        region_probabilities(region, np.array([q]), drop, out)
        for found in (region_probability(region, q, drop), float(out[0])):
            assert exact * (1.0 - 1e-9) <= found <= exact * (1.0 + 1e-9) + 2.0 * drop
        needed += region_probability(region, q, drop) > exact * (1.0 + 1e-9) + 0.01 * drop
    assert needed > 10, "mass was dropped"


@pytest.mark.parametrize("shifts", [0, 3, 240])
def test_a_scale_that_lies_deep_is_taken_from_above(shifts: int) -> None:
    """Beyond ``3 n`` a log scale may be off by six roundoffs of what is beyond, and that much is added (F2)."""
    ctx.prec = 200
    for n in (1, 50):
        for end in (-40.0, -3.0, 0.0):
            scale = end - shifts * 600 * float(np.log(2.0))
            exact = (arb(scale) + shifts * 600 * arb(2).log()).exp()
            excess = 6 * arb(2) ** -53 * max(-scale - 3.0 * n, 0.0)
            found = arb(float(unscaled(1.0, scale, float(shifts), n))) / exact
            rounding = arb(4e-16) * (1 + abs(scale))
            assert found >= (excess - rounding).exp() * (1 - arb(1e-15))
            assert found <= (excess + rounding).exp() * (1 + arb(1e-15))
    # Where it matters: 240 shifts down it is seven times what rounding of the exponent does.
    assert 6.0 * 2.0**-53 * 1e5 > 5e-11


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
        if found.q2 > LARGEST_SUBTRACTED:
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
        assert gap <= 4.0 * ROUNDOFF * (float(1 - true[1]) if found.q2 > LARGEST_SUBTRACTED else 1.0)


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_a_corner_bounds_its_piece(kind: int) -> None:
    for L in (-0.9, -0.2, 0.0, 0.5):
        a, b = (0.2, 0.6) if kind == PROBABILITY else (-1.5, -0.2)
        q = corner(kind, L, a, b)
        assert q.q1 == curve_point(kind, L, b).q1
        assert q.q2 == curve_point(kind, L, a).q2
        assert sum(q) == pytest.approx(1.0, abs=1e-15)
    assert corner(QUANTILE, -3.0, -np.inf, -1.0).q2 == 0.0
