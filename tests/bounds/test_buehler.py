"""Exact margin limits: proved in ball arithmetic, audited by enumeration, dominant, monotone."""

from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import exp

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaincinv, ndtri

from buckler.bounds import buehler
from buckler.bounds.binomial import distinct_rows
from buckler.bounds.buehler import (
    COLD,
    GUARD,
    MARGIN_STEP,
    NEAR,
    PLATEAU_TOLERANCE,
    SMALLEST_Z,
    TIGHT,
    buehler_lower,
    deviance_needed,
    edge_value,
    exact_margin_lower,
    fill_boundary,
    find_plateau,
    outcome_region,
    profile,
    quantile_fit,
    reaches_margin,
    region_boundary,
    region_limit,
    settled,
    value,
)
from buckler.bounds.supremum import log_excess
from buckler.bounds.trinomial import PROBABILITY, QUANTILE, curve_point, log_pmf, make_region, region_probability
from buckler.errors import InvalidInput
from buckler.types import FloatArray, IntArray, MarginKind
from tests.balls import margin_curve_point, normal_cdf
from tests.bounds.test_trinomial import ball_probability

MARGINS: list[MarginKind] = ["probability", "quantile"]
CODE = {"probability": PROBABILITY, "quantile": QUANTILE}


@cache
def all_outcomes(n: int) -> tuple[IntArray, IntArray]:
    x1, x2 = np.array([(a, b) for a in range(n + 1) for b in range(n + 1 - a)]).T
    return x1, x2


@cache
def all_limits(n: int, alpha: float, margin: MarginKind) -> FloatArray:
    return exact_margin_lower(*all_outcomes(n), n, alpha, margin)


def clopper_pearson_lower(k: IntArray, n: int, alpha: float) -> FloatArray:
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)


def bonferroni(x1: IntArray, x2: IntArray, n: int, alpha: float, margin: MarginKind) -> FloatArray:
    low, missing = clopper_pearson_lower(x1, n, alpha / 2), clopper_pearson_lower(n - x2, n, alpha / 2)
    return low + missing - 1.0 if margin == "probability" else ndtri(low) + ndtri(missing)


def top_class(x1: IntArray, n: int, alpha: float, margin: MarginKind) -> FloatArray:
    low = clopper_pearson_lower(x1, n, alpha)
    return 2.0 * low - 1.0 if margin == "probability" else 2.0 * ndtri(low)


def check_dominance(x1: IntArray, x2: IntArray, n: int, alpha: float, margin: MarginKind, limits: FloatArray) -> None:
    assert np.all(limits >= bonferroni(x1, x2, n, alpha, margin) - 1e-9)
    cohen = top_class(x1, n, alpha, margin)
    assert np.all(limits >= cohen - 0.01)
    edge = (x1 + x2 == n) & (x1 > 0)
    assert np.all(limits[edge] <= cohen[edge] + 1e-9)


@pytest.mark.parametrize(
    ("x1", "x2", "expected"), [(100, 0, 3.00095), (99, 1, 2.69852), (98, 2, 2.48268)], ids=["0", "1", "2"]
)
def test_reference_values(x1: int, x2: int, expected: float) -> None:
    assert buehler_lower(x1, x2, 100, 1e-3, "quantile") == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("n", "alpha"), [(20, 1e-3), (20, 0.05), (60, 1e-3), (100, 1e-3)])
def test_never_below_the_other_methods(n: int, alpha: float, margin: MarginKind) -> None:
    check_dominance(*all_outcomes(n), n, alpha, margin, all_limits(n, alpha, margin))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("n", [500, 5000])
def test_never_below_the_other_methods_at_random_outcomes(n: int, margin: MarginKind) -> None:
    rng = np.random.default_rng(n)
    p = rng.dirichlet([1.0, 0.5, 0.5], size=60)
    x = np.array([rng.multinomial(n, row) for row in p])
    x[:8, 1] += x[:8, 2]
    check_dominance(x[:, 0], x[:, 1], n, 1e-3, margin, exact_margin_lower(x[:, 0], x[:, 1], n, 1e-3, margin))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("n", "alpha"), [(20, 1e-3), (60, 1e-3)])
def test_monotone_in_counts(n: int, alpha: float, margin: MarginKind) -> None:
    table = np.full((n + 1, n + 1), np.nan)
    table[all_outcomes(n)] = all_limits(n, alpha, margin)
    with np.errstate(invalid="ignore"):
        assert not np.any(np.diff(table, axis=0) < -1e-9)
        assert not np.any(np.diff(table, axis=1) > 1e-9)


@pytest.mark.parametrize("margin", MARGINS)
def test_mostly_monotone_in_alpha(margin: MarginKind) -> None:
    for x1, x2, n in [(70, 10, 100), (40, 40, 100), (95, 0, 100), (12, 3, 20), (800, 100, 1000)]:
        limits = [buehler_lower(x1, x2, n, a, margin) for a in np.geomspace(1e-12, 0.5, 25)]
        assert np.all(np.diff(limits) >= -1e-9)


def test_the_limit_need_not_rise_with_alpha() -> None:
    """The likelihood ratio orders outcomes by alpha too; each limit is valid for its own."""
    assert buehler_lower(2, 2, 9, 2.1e-3, "quantile") < buehler_lower(2, 2, 9, 1.9e-3, "quantile") - 0.1


def misses(n: int, margin: MarginKind, limits: FloatArray, truths: list[tuple[float, float]]) -> float:
    """Return the largest probability, over truths, that the limit lies above the true margin."""
    x1, x2 = all_outcomes(n)
    worst = 0.0
    for q1, q2 in truths:
        theta = q1 - q2 if margin == "probability" else float(ndtri(q1) - ndtri(q2))
        over = limits > theta
        worst = max(
            worst, sum(exp(log_pmf(n, a, b, q1, q2, 1 - q1 - q2)) for a, b in zip(x1[over], x2[over], strict=True))
        )
    return worst


def hardest_truths(margin: MarginKind, limits: FloatArray, many: int) -> list[tuple[float, float]]:
    """Truths just below each attained limit, where a miss is likeliest, along the whole curve."""
    finite = np.unique(limits[np.isfinite(limits) & (limits > (-0.999 if margin == "probability" else -6))])
    shape = (
        [0.003, 0.1, 0.4, 0.8, 0.97, 0.9999] if margin == "probability" else [-3.0, -1.6, -0.8, -0.3, -0.05, -0.0005]
    )
    picked = finite[:: max(1, finite.size // many)] - 1e-9
    return [curve_point(CODE[margin], float(b), t)[:2] for b in picked for t in shape]


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("n", "alpha"), [(12, 0.1), (20, 0.05), (20, 1e-3)])
def test_audit_by_enumeration(n: int, alpha: float, margin: MarginKind) -> None:
    limits = all_limits(n, alpha, margin)
    worst = misses(n, margin, limits, hardest_truths(margin, limits, 60))
    assert worst <= alpha
    assert worst > 0.8 * alpha


@pytest.mark.parametrize("margin", MARGINS)
def test_audit_catches_regions_that_do_not_nest(margin: MarginKind) -> None:
    """Planted bug: the region of each outcome holds those with as many votes and no more for the rival."""
    x1, x2 = all_outcomes(12)
    pairs = zip(x1.tolist(), x2.tolist(), strict=True)
    limits = np.array([region_limit(np.full(b + 1, a, dtype=np.int64), 12, 0.05, margin, 0.0) for a, b in pairs])
    assert misses(12, margin, limits, hardest_truths(margin, limits, 40)) > 0.05


def likelihood_ratio_limit(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    """Return the limit under the likelihood-ratio ordering alone, ties not broken."""
    if x1 == 0 and margin == "quantile":
        return -np.inf
    k = value(CODE[margin], x1, x2, n, deviance_needed(alpha))
    return region_limit(region_boundary(CODE[margin], n, k, deviance_needed(alpha)), n, alpha, margin, 0.0)


def first_of_its_plateau(x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> float:
    """Return a limit with the planted bug: every outcome of a plateau is ordered as if it were the plateau's first."""
    k = value(CODE[margin], x1, x2, n, deviance_needed(alpha))
    for edge in range(1, n + 1) if x1 else ():
        plateau = find_plateau(edge, n, alpha, margin)
        high = value(CODE[margin], edge, n - edge, n, deviance_needed(alpha))
        if plateau is not None and plateau.low <= k <= high:
            c = np.full(max(plateau.inner.size, x2 + 1), n, dtype=np.int64)
            c[: plateau.inner.size] = plateau.inner
            c[: x2 + 1] = np.minimum(c[: x2 + 1], x1)
            return region_limit(c, n, alpha, margin, plateau.top)
    return buehler_lower(x1, x2, n, alpha, margin)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("n", "alpha"), [(12, 0.1), (20, 1e-3), (60, 1e-3)])
def test_ordering_plateaus_again_only_raises_limits(n: int, alpha: float, margin: MarginKind) -> None:
    x1, x2 = all_outcomes(n)
    pairs = zip(x1.tolist(), x2.tolist(), strict=True)
    plain = np.array([likelihood_ratio_limit(a, b, n, alpha, margin) for a, b in pairs])
    limits = all_limits(n, alpha, margin)
    assert np.all(limits >= plain - PLATEAU_TOLERANCE)
    assert np.mean(limits > plain + 1e-4) > 0.05
    edge = x1 + x2 == n
    assert np.allclose(limits[edge & (x1 > 0)], plain[edge & (x1 > 0)], atol=2 * PLATEAU_TOLERANCE)


@pytest.mark.parametrize("margin", MARGINS)
def test_audit_catches_a_plateau_whose_outcomes_are_all_first(margin: MarginKind) -> None:
    n, alpha = 20, 0.05
    pairs = zip(*(each.tolist() for each in all_outcomes(n)), strict=True)
    limits = np.array([first_of_its_plateau(a, b, n, alpha, margin) for a, b in pairs])
    assert np.all(limits >= all_limits(n, alpha, margin) - 1e-7)
    assert misses(n, margin, limits, hardest_truths(margin, limits, 60)) > 1.05 * alpha


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("n", "alpha"), [(1, 0.05), (2, 0.5), (13, 1e-3), (40, 0.05)])
def test_regions_are_up_closed_and_nest(margin: MarginKind, n: int, alpha: float) -> None:
    regions = []
    for x1, x2 in zip(*(each.tolist() for each in all_outcomes(n)), strict=True):
        c, _ = outcome_region(x1, x2, n, alpha, margin)
        assert np.all(np.diff(c) >= 0)
        assert np.all(c <= n - np.arange(c.size))
        full = np.full(n + 1, n + 1)
        full[: c.size] = c
        assert full[x2] <= x1, "an outcome lies in its own region"
        regions.append(full)
    regions.sort(key=lambda c: int(np.maximum(n + 1 - np.arange(n + 1) - c, 0).sum()))
    for small, large in pairwise(regions):
        assert np.all(large <= np.maximum(small, 0))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("n", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 0.4])
def test_values_rise_along_the_edge(margin: MarginKind, n: int, alpha: float) -> None:
    """Plateaus are told apart by the values of edge outcomes, which are found by bisection (F3)."""
    edge = [edge_value(x1, n, alpha, margin) for x1 in range(n + 1)]
    assert np.all(np.diff(edge) >= 0)
    assert np.all(np.diff(edge[n // 2 :]) > 0)


@given(st.integers(1, 14), st.floats(1e-6, 0.5), st.tuples(*[st.floats(0.01, 1.0)] * 3), st.sampled_from(MARGINS))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_audit_at_random(n: int, alpha: float, weights: tuple[float, float, float], margin: MarginKind) -> None:
    q1, q2, _ = (w / sum(weights) for w in weights)
    limits = exact_margin_lower(*all_outcomes(n), n, alpha, margin)
    assert misses(n, margin, limits, [(q1, q2)]) <= alpha


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(
    ("n", "alpha", "fractions"),
    [
        (1, 0.5, (1.0, 0.0)),
        (7, 1e-12, (0.8, 0.1)),
        (100, 1e-3, (0.7, 0.1)),
        (1000, 1e-12, (0.9, 0.03)),
        (5000, 0.5, (0.5, 0.4)),
        (20_000, 1e-3, (0.99, 0.004)),
        (100_000, 1e-3, (0.95, 0.002)),
    ],
)
def test_residual_in_ball_arithmetic(n: int, alpha: float, fractions: tuple[float, float], margin: MarginKind) -> None:
    ctx.prec = 300
    x1, x2 = round(fractions[0] * n), round(fractions[1] * n)
    L = buehler_lower(x1, x2, n, alpha, margin)
    c, _ = outcome_region(x1, x2, n, alpha, margin)
    region = make_region(n, c)
    grid = np.linspace(0.001, 1.0 - 1e-9, 300) if margin == "probability" else -np.geomspace(1e-6, 5.0, 300)
    values = np.array([region_probability(region, curve_point(CODE[margin], L, float(t)), 1e-25) for t in grid])
    assert values.max() <= alpha
    order = np.argsort(values)[::-1]
    for t in grid[order[:4]]:
        assert ball_probability(n, *margin_curve_point(margin == "quantile", L, float(t)), c) <= arb(alpha)


CORNER = [(n, alpha) for n in (520, 10_000, 1_000_000) for alpha in (1e-12, 1e-9, 5e-9)]


@pytest.mark.parametrize(("n", "alpha"), CORNER)
@pytest.mark.parametrize("margin", MARGINS)
def test_one_vote_against_all_in_ball_arithmetic(n: int, alpha: float, margin: MarginKind) -> None:
    """Where q2 is within a roundoff of 1: the limit of (1, n - 1) is at least missed when that outcome itself comes."""
    ctx.prec = 300
    L = buehler_lower(1, n - 1, n, alpha, margin)
    worst = arb(0)
    for t in (0.0, -0.01, -0.1, -1.0, -3.0) if margin == "quantile" else (1.0, 0.99, 0.9, 0.5, 0.1):
        q1, q2, _ = margin_curve_point(margin == "quantile", L, t)
        worst = max(worst, n * q1 * q2 ** (n - 1))
    assert worst <= alpha
    if margin == "quantile":
        assert -17.8 < L < -10.8
        assert worst > 0.9 * alpha, "and nothing is given away"


@pytest.mark.parametrize(("n", "alpha"), [(520, 1e-12), (10_000, 1e-12), (10_000, 5e-9), (100_000, 1e-10)])
@pytest.mark.parametrize("margin", MARGINS)
def test_few_votes_against_many_in_ball_arithmetic(n: int, alpha: float, margin: MarginKind) -> None:
    ctx.prec = 300
    curve = -np.geomspace(1e-9, 4.0, 9) if margin == "quantile" else np.linspace(1e-9, 1.0 - 1e-9, 9)
    for x1, x2 in [(1, n - 1), (1, n - 2), (2, n - 2), (1, n - 10), (3, n - 5), (0, n - 1)]:
        c, _ = outcome_region(x1, x2, n, alpha, margin)
        assert c[x2] <= x1, "a region holds its outcome"
        L = buehler_lower(x1, x2, n, alpha, margin)
        if (-1.0 if margin == "probability" else -np.inf) == L:
            continue  # nothing is claimed
        for t in curve:
            assert ball_probability(n, *margin_curve_point(margin == "quantile", L, float(t)), c) <= arb(alpha)


def test_limit_is_close_to_the_infimum() -> None:
    # Raising the limit by a hair must break the level somewhere on the curve: nothing is given away.
    for margin, span in (("probability", np.linspace(0, 1, 4001)), ("quantile", -np.geomspace(1e-7, 6, 4001))):
        for x1, x2 in [(70, 10), (60, 30), (90, 1), (100, 0), (30, 40)]:
            L = buehler_lower(x1, x2, 100, 1e-3, margin) + 1e-5  # type: ignore[arg-type]
            region = make_region(100, outcome_region(x1, x2, 100, 1e-3, margin)[0])  # type: ignore[arg-type]
            assert max(region_probability(region, curve_point(CODE[margin], L, float(t)), 1e-20) for t in span) > 1e-3


def complex_point(kind: int, L: float, t: complex) -> tuple[complex, complex]:
    from scipy.special import wofz

    def normal(z: complex) -> complex:
        return complex(0.5 * wofz(-1j * z / np.sqrt(2)) * np.exp(-0.5 * z * z))

    if kind == PROBABILITY:
        return max(L, 0) + 0.5 * (1 - abs(L)) * t, max(-L, 0) + 0.5 * (1 - abs(L)) * t
    return normal(t + L / 2), normal(t - L / 2)


@pytest.mark.parametrize("kind", [PROBABILITY, QUANTILE])
def test_moduli_stay_below_their_bound(kind: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(2000):
        L, half = rng.uniform(-1, 1) * (0.99 if kind == PROBABILITY else 5), 10 ** rng.uniform(-5, -0.5)
        middle = rng.uniform(0, 1) if kind == PROBABILITY else -(10 ** rng.uniform(-4, 0.7))
        inside, best = log_excess(kind, L, middle - 1.25 * half, middle + 1.25 * half, 0.75 * half)
        angle = rng.uniform(0, 2 * np.pi)
        t = complex(middle + 1.25 * half * np.cos(angle), 0.75 * half * np.sin(angle))
        q1, q2 = complex_point(kind, L, t)
        assert np.log(abs(q1) + abs(q2) + abs(1 - q1 - q2)) <= best + 1e-13
        assert inside >= best
        assert L >= 0 or inside == np.inf


@pytest.mark.parametrize("margin", MARGINS)
def test_complex_probability_stays_below_its_share_of_the_supremum(margin: MarginKind) -> None:
    """On the ellipse of a piece ``|P|`` is at most ``exp(n * inside)`` times the supremum along the real curve."""
    n, kind, rng = 40, CODE[margin], np.random.default_rng(6)
    y1, y2 = all_outcomes(n)
    choose = np.array([exp(log_pmf(n, a, b, 0.3, 0.3, 0.4)) for a, b in zip(y1, y2, strict=True)])
    choose /= 0.3**y1 * 0.3**y2 * 0.4 ** (n - y1 - y2)
    sharpest = 0.0
    for x1, x2 in [(30, 5), (20, 19), (38, 0), (12, 3), (25, 14), (6, 1)]:
        L = max(buehler_lower(x1, x2, n, 0.05, margin), 0.0)
        c, _ = outcome_region(x1, x2, n, 0.05, margin)
        region, full = make_region(n, c), np.append(c, np.full(n + 1 - c.size, n + 1))
        over = y1 >= full[y2]
        grid = np.linspace(0, 1, 2001) if kind == PROBABILITY else -np.geomspace(1e-6, 8, 2001)
        supremum = max(region_probability(region, curve_point(kind, L, float(t)), 1e-20) for t in grid)
        for _ in range(150):
            half = 10 ** rng.uniform(-2.5, -0.5)
            middle = rng.uniform(0, 1) if kind == PROBABILITY else -(10 ** rng.uniform(-2, 0.5))
            inside, _ = log_excess(kind, L, middle - 1.25 * half, middle + 1.25 * half, 0.75 * half)
            angle = rng.uniform(0, 2 * np.pi)
            t = complex(middle + 1.25 * half * np.cos(angle), 0.75 * half * np.sin(angle))
            q1, q2 = complex_point(kind, L, t)
            value = abs(np.sum(choose[over] * q1 ** y1[over] * q2 ** y2[over] * (1 - q1 - q2) ** (n - y1 - y2)[over]))
            if inside < 10.0:
                assert np.log(value / supremum) <= n * inside + 1e-4
                sharpest = max(sharpest, np.log(value / supremum) - n * inside)
    assert sharpest > -0.1


def test_vectorised_equals_scalar_and_broadcasts() -> None:
    limits = exact_margin_lower([[70], [60]], [10, 20, 10], 100, 1e-3)
    assert limits.shape == (2, 3)
    assert limits[1, 1] == buehler_lower(60, 20, 100, 1e-3, "quantile")
    assert limits[0, 0] == limits[0, 2]
    assert exact_margin_lower(70, 10, 100, 1e-3).shape == ()


@pytest.mark.parametrize("margin", MARGINS)
def test_many_outcomes_are_bit_for_bit_as_one_by_one(margin: MarginKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated, in any order, on several threads, remembered or not."""
    rng = np.random.default_rng(11)
    n = rng.choice([40, 41, 300], 900)
    x1 = rng.binomial(n, 0.7)
    x2 = rng.binomial(n - x1, 0.6)
    expected = [
        buehler_lower(a, b, m, 1e-3, margin) for a, b, m in zip(x1.tolist(), x2.tolist(), n.tolist(), strict=True)
    ]
    for threads in (1, 3):
        monkeypatch.setattr(buehler, "usable_cores", lambda threads=threads: threads)
        buehler._remembered.cache_clear()
        assert exact_margin_lower(x1, x2, n, 1e-3, margin).tolist() == expected
        assert exact_margin_lower(x1[::-1], x2[::-1], n[::-1], 1e-3, margin).tolist() == expected[::-1]


def test_rows_too_large_for_one_number_are_told_apart() -> None:
    big = 2**40
    rows, where = distinct_rows(np.array([[big, 1], [big, 1]]), np.array([[1, big], [2, big]]))
    assert rows.tolist() == [[1, big], [big, 1], [big, 2]]
    assert where.tolist() == [[1, 0], [2, 0]]


def test_extremes() -> None:
    assert buehler_lower(0, 0, 10, 0.05, "quantile") == -np.inf
    assert buehler_lower(0, 10, 10, 0.05, "probability") == -1.0
    for n in (1, 1_000_000):
        expected = 2 * 0.5 ** (1 / n) - 1
        assert buehler_lower(n, 0, n, 0.5, "probability") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((60, 50, 100, 0.05), "top"),
        ((1.5, 0, 10, 0.05), "top"),
        ((1, 0, 0, 0.05), "n"),
        ((1, 0, 2_000_000, 0.05), "n"),
        ((1, 0, 10, 1.0), "alpha"),
        ((1, 0, 10, 1e-13), "alpha"),
        ((1, 0, 10, 0.05, "third"), "margin"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        exact_margin_lower(*arguments)  # type: ignore[arg-type]


def test_a_region_without_its_outcome_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions that end one column, or one outcome, before what was seen are refused."""
    for c, held in (([5, 6], False), ([5, 6, 9], False), ([5, 6, 8], True)):
        monkeypatch.setattr(buehler, "outcome_region", lambda *_, c=c: (np.array(c, dtype=np.int64), 0.0))
        if held:
            assert buehler_lower(8, 2, 12, 0.05, "quantile") < 1.0
        else:
            with pytest.raises(ArithmeticError, match="does not hold that outcome"):
                buehler_lower(8, 2, 12, 0.05, "quantile")


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
            if k * MARGIN_STEP < -0.999999:
                continue
            assert reaches_margin(kind, x1, x2, n, k, zz)
            assert not reaches_margin(kind, x1, x2, n, k + 1, zz)
            steps = [profile(kind, x1, x2, n, (k + i) * MARGIN_STEP, -0.7)[0] for i in range(-3, 4)]
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
                assert reaches_margin(kind, int(c[j]), j, n, k, zz)
                before = int(c[j - 1]) if j else lowest
                assert int(c[j]) == before or not reaches_margin(kind, int(c[j]) - 1, j, n, k, zz)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("alpha", [0.3, 1e-3, 1e-12])
def test_a_region_holds_every_outcome_of_its_value_or_more(margin: MarginKind, alpha: float) -> None:
    # Whatever rounding does to the deviance: values need the guard to spare, regions do not (F3).
    n, kind = 14, PROBABILITY if margin == "probability" else QUANTILE
    zz = max(-float(ndtri(alpha)), SMALLEST_Z) ** 2
    every = [x for x in outcomes(n) if x[0] > 0 or margin == "probability"]
    values = {x: value(kind, *x, n, zz) for x in every}
    for x in every:
        inside = {y for y in every if reaches_margin(kind, *y, n, values[x], zz)}
        assert {y for y in every if values[y] >= values[x]} <= inside
        needed = zz + GUARD * (n + 200)
        if reaches_margin(kind, *x, n, values[x], zz):  # but for outcomes that reach no margin of the grid
            assert reaches_margin(kind, *x, n, values[x], needed)
            assert not reaches_margin(kind, *x, n, values[x] + 1, needed)


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
