"""The lemmas behind the proved supremum, each by itself: growth on the ellipse, interpolants, their ceilings, the walk.

The results that rest on them can be right while a lemma is false, since interpolants are far more accurate than their
bound says; so each is held against what it claims, in ball arithmetic or on a grid."""

from math import ceil, inf, log, pi
from typing import Any

import numpy as np
import pytest
from flint import acb, arb, ctx
from numpy.polynomial import chebyshev

from buckler.bounds import supremum
from buckler.bounds.buehler import buehler_lower, outcome_region
from buckler.bounds.supremum import DROP, INTERPOLANT_ROUNDING, log_excess, log_growth, polynomial_ceiling
from buckler.bounds.trinomial import (
    PROBABILITY,
    QUANTILE,
    RELATIVE_ERROR,
    Region,
    corner,
    curve_bottom,
    curve_point,
    curve_top,
    make_region,
    region_probability,
)
from buckler.types import FloatArray, MarginKind
from tests.balls import normal_cdf

KINDS = [PROBABILITY, QUANTILE]
MARGINS: dict[int, MarginKind] = {PROBABILITY: "probability", QUANTILE: "quantile"}
RHO = 2
ANGLES = np.linspace(0.0, 2.0 * pi, 32, endpoint=False)


def cells(kind: int, L: float, t: complex) -> tuple[acb, acb, acb]:
    """Return enclosures of the three cells at a complex parameter (T5)."""
    at, low = acb(t.real, t.imag), arb(L)
    if kind == QUANTILE:
        root = arb(2).sqrt()
        q1, q2 = (-(at + low / 2) / root).erfc() / 2, (-(at - low / 2) / root).erfc() / 2
    else:
        shared = (1 - abs(low)) * at / 2
        q1, q2 = (low + shared, shared) if L > 0 else (shared, shared - low)
    return q1, q2, 1 - q1 - q2


def log_sum_of_moduli(kind: int, L: float, t: complex) -> float:
    return float(sum((abs(q) for q in cells(kind, L, t)), arb(0)).log().mid())


def on_rectangle(a: float, b: float, u: float) -> list[complex]:
    """Return the corners of the set of T9a, and points of its upper edge, where the modulus is largest."""
    return [complex(x, u) for x in np.linspace(a, b, 9)] + [complex(a, 0.5 * u), complex(b, 0.5 * u)]


def on_ellipse(b: float, half: float) -> list[complex]:
    """Return points of the Bernstein ellipse of parameter RHO around ``[b - 2 half, b]``."""
    across, up = half * (RHO + 1 / RHO) / 2, half * (RHO - 1 / RHO) / 2
    return [complex(b - half + across * np.cos(angle), up * np.sin(angle)) for angle in ANGLES]


def pieces(kind: int, many: int, seed: int) -> list[tuple[float, float, float]]:
    """Return margins, right ends and half widths of pieces whose ellipses lie inside of the curve."""
    rng = np.random.default_rng(seed)
    found: list[tuple[float, float, float]] = []
    while len(found) < many:
        L, half = rng.uniform(-1, 1) * (0.99 if kind == PROBABILITY else 6.0), 10 ** rng.uniform(-3, 0.3)
        b = rng.uniform(0, 1) if kind == PROBABILITY else -(10 ** rng.uniform(-1.5, 0.6))
        if b + 0.25 * half < curve_top(kind) and b - 2.25 * half > curve_bottom(kind):
            found.append((L, b, half))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_moduli_over_the_whole_set_stay_below_their_bound(kind: int) -> None:
    ctx.prec = 128
    closest = inf
    for L, b, half in pieces(kind, 250, 1):
        a, top, u = b - 2.25 * half, b + 0.25 * half, 0.75 * half
        inside, best = log_excess(kind, L, a, top, u)
        worst = max(log_sum_of_moduli(kind, L, t) for t in on_rectangle(a, top, u))
        assert worst <= best * (1.0 + 1e-12) + 1e-14
        assert inside >= best
        assert L >= 0 or inside == inf
        closest = min(closest, best / worst)
    assert closest < 1.5, "the bound is not idle"


def growth_as_in_the_theory(kind: int, L: float, a: float, b: float, u: float) -> tuple[float, float]:
    """T9a, statement by statement, in ball arithmetic: the bound that keeps margins, and the best one."""
    low, E = arb(L), (arb(u) ** 2 / 2).exp()
    u2 = arb(u) ** 2

    def density(x: arb) -> arb:
        return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()

    def highest(x: arb, y: arb) -> arb:
        return density(arb(0)) if x < 0 < y else max(density(x), density(y), key=float)

    if kind == PROBABILITY:
        q1, q2, _ = (q.real for q in cells(kind, L, complex(a, 0.0)))
        v = (1 - abs(low)) * u / 2
        bound = v * v * (1 / q1 + 1 / q2) / 2 + v * u / (1 - arb(b))
        return (float(bound) if L >= 0 else inf), float(bound)
    x_low, x_high = arb(a) + low / 2, arb(b) + low / 2
    v_low, v_high = arb(a) - low / 2, arb(b) - low / 2
    w0 = 1 - normal_cdf(x_low)
    # q3 / x^2, q3 being the mass of [x - L/2, -x - L/2]: at most 2 |x| times a density, and at most w0.
    third = min(2 * highest(v_low, -arb(a) - low / 2) / -arb(b), w0 / arb(b) ** 2, key=float)
    keeps = [u2 / 2 + third * u2 / 2]
    if w0 < 1 / (2 * E):
        far, phi = max(x_low**2, x_high**2, key=float), highest(x_low, x_high)
        fine = w0 * (E - 1) + w0 * (1 + far) * u2 * E / 2 + (phi * u * E) ** 2 / (2 * (1 - w0 * E)) + E * third * u2 / 2
        keeps.append(fine)
    small1, small2 = normal_cdf(x_high), normal_cdf(v_high)
    s, every = small1 + small2, list(keeps)
    if s < 1 / (2 * E):
        tails = small1 * (1 + max(x_low**2, x_high**2, key=float)) + small2 * (1 + max(v_low**2, v_high**2, key=float))
        phis = highest(x_low, x_high) + highest(v_low, v_high)
        every.append(s * (E - 1) + tails * u2 * E / 2 + (phis * u * E) ** 2 / (2 * (1 - s * E)))
    return (float(min(keeps, key=float)) if L >= 0 else inf), float(min(every, key=float))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_that_of_the_theory(kind: int) -> None:
    """No smaller than T9a allows, and no larger: a wrong end of the set shows on one side or the other."""
    ctx.prec = 256
    for L, b, half in pieces(kind, 600, 2):
        a, top, u = b - 2.25 * half, b + 0.25 * half, 0.75 * half
        inside, best = log_excess(kind, L, a, top, u)
        true_inside, true_best = growth_as_in_the_theory(kind, L, a, top, u)
        assert best == pytest.approx(true_best, rel=1e-9)
        # Where two bounds keep margins, the one returned may be the larger.
        assert inside >= true_inside * (1.0 - 1e-9)
        assert L < 0 or inside <= max(true_inside * (1.0 + 1e-9), 0.5 * u * u * (1.0 + 1.0 / (top * top)))


@pytest.mark.parametrize("kind", KINDS)
def test_outside_of_the_curve_nothing_is_known(kind: int) -> None:
    outside = [(-0.1, 0.5), (0.0, 0.5), (0.5, 1.0), (0.5, 1.1)] if kind == PROBABILITY else [(-1.0, 0.0), (-1.0, 0.1)]
    for a, b in outside:
        assert log_excess(kind, 0.3, a, b, 0.01) == (inf, inf)


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_bounded_on_the_whole_ellipse(kind: int) -> None:
    """At alpha = 1 - 1e-9 and n = 1 the growth must bound ``|q1| + |q2| + |q3|``: over the set, not some other."""
    ctx.prec = 128
    closest = inf
    for L, b, half in pieces(kind, 250, 3):
        growth = log_growth(kind, L, 1, b, half, 1.0 - 1e-9)
        worst = max(log_sum_of_moduli(kind, L, t) for t in on_ellipse(b, half))
        assert worst <= growth * (1.0 + 1e-12) + 1e-8
        closest = min(closest, growth / worst)
    assert closest < 2.0, "the bound is not idle"


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_that_of_the_smallest_rectangle_around_the_ellipse(kind: int) -> None:
    for L, b, half in pieces(kind, 100, 4):
        ellipse = on_ellipse(b, half)
        left, right = min(t.real for t in ellipse), max(t.real for t in ellipse)
        inside, best = log_excess(kind, L, left, right, max(t.imag for t in ellipse))
        for n, alpha in ((1, 0.9), (1000, 1e-3)):
            expected = min(n * inside, n * best - log(alpha))
            assert log_growth(kind, L, n, b, half, alpha) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_a_ceiling_is_above_the_series_and_close_to_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 40))
    coefficients = rng.normal(size=m + 1) / (1.0 + np.arange(m + 1)) ** rng.uniform(0.0, 2.0)
    values = np.asarray(chebyshev.chebval(np.cos(pi * np.arange(m + 1) / m), coefficients), dtype=np.float64)
    angles = np.linspace(0.0, pi, 20_001)
    grid = chebyshev.chebval(np.cos(angles), coefficients)
    peak, nodes = float(grid.max()), float(values.max())
    scale = float(np.abs(coefficients).sum())
    ceiling, where = polynomial_ceiling(coefficients, m, values, peak + 1e-6 * scale)
    assert peak <= ceiling <= peak + 1e-6 * scale
    # A goal between the largest value at the points and the maximum is not met, and the place shown is above it.
    for share in (0.0, 0.5, 0.999):
        goal = nodes + share * (peak - nodes)
        if goal < peak - 1e-9 * scale:
            ceiling, where = polynomial_ceiling(coefficients, m, values, goal)
            assert ceiling > goal
            assert 0.0 <= where <= pi + 1e-12
            assert chebyshev.chebval(np.cos(where), coefficients) >= goal - 1e-9 * scale


def region_of(kind: int, n: int, x1: int, x2: int, alpha: float) -> Region:
    return make_region(n, outcome_region(x1, x2, n, alpha, MARGINS[kind])[0])


def probability(region: Region, kind: int, L: float, t: float) -> float:
    return float(region_probability(region, curve_point(kind, L, t), 1e-25))


@pytest.mark.parametrize("kind", KINDS)
def test_interpolants_err_less_than_their_bound(kind: int) -> None:
    """The true remainder against ``4 e^growth 2^-m`` times the larger of supremum and alpha (T9), n draws and all."""
    n, alpha, largest = 60, 0.01, 0.0
    rng = np.random.default_rng(5)
    for x1, x2 in ((40, 10), (30, 28), (55, 2), (20, 3)):
        region, L = region_of(kind, n, x1, x2, alpha), max(buehler_lower(x1, x2, n, alpha, MARGINS[kind]), 0.0)
        grid = np.linspace(0.0, 1.0, 801) if kind == PROBABILITY else -np.geomspace(1e-5, 8.0, 801)
        supremum = max(probability(region, kind, L, float(t)) for t in grid)
        for _ in range(15):
            half = 10 ** rng.uniform(-1.8, -0.5)
            b = rng.uniform(2.25 * half, 1.0 - 0.25 * half) if kind == PROBABILITY else -(10 ** rng.uniform(-0.7, 0.3))
            growth = log_growth(kind, L, n, b, half, alpha)
            if not growth < 30.0:
                continue
            for m in (4, 8, ceil((growth + 3.0) / log(2.0))):
                nodes = np.cos(pi * np.arange(m + 1) / m)
                values = [probability(region, kind, L, b - half + half * x) for x in nodes]
                series = chebyshev.chebfit(nodes, values, m)
                between = rng.uniform(-1.0, 1.0, 25)
                true = [probability(region, kind, L, b - half + half * x) for x in between]
                error = float(np.abs(chebyshev.chebval(between, series) - true).max())
                bound = 4.0 * np.exp(growth) * 2.0**-m * max(supremum, alpha)
                assert error <= bound + 1e-9 * supremum
                largest = max(largest, error / bound)
    assert largest > 1e-4, "some interpolant errs by a share of its bound"


class Walk:
    """Every cell and piece of one walk, seen from the functions that the walk calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: int, L: float, region: Region, alpha: float) -> None:
        self.kind, self.L, self.region, self.alpha = kind, L, region, alpha
        self.goal = alpha * (1.0 - RELATIVE_ERROR)
        self.proved: list[tuple[float, float]] = []
        self.cell: tuple[float, float] = (inf, -inf)
        self.piece: tuple[float, float, float] = (inf, inf, inf)
        self.interpolants = 0
        for name in ("corner", "region_probability", "log_growth", "polynomial_ceiling"):
            monkeypatch.setattr(supremum, name, getattr(self, name))

    def corner(self, kind: int, L: float, a: float, b: float) -> Any:
        self.cell = (a, b)
        return corner(kind, L, a, b)

    def region_probability(self, region: Region, q: Any, drop: float) -> float:
        assert drop == DROP * self.alpha
        found = float(region_probability(region, q, drop))
        if found <= self.goal:
            self.proved.append(self.cell)
        return found

    def log_growth(self, kind: int, L: float, n: int, b: float, half: float, alpha: float) -> float:
        found = float(log_growth(kind, L, n, b, half, alpha))
        self.piece = (b, half, found)
        return found

    def polynomial_ceiling(
        self, coefficients: FloatArray, m: int, values: FloatArray, goal: float
    ) -> tuple[float, float]:
        b, half, growth = self.piece
        # What the interpolant may hide is counted against alpha: its own error, rounding, and the kernel's.
        error = 4.0 * np.exp(growth) * 2.0**-m
        assert goal <= self.alpha * (1.0 - RELATIVE_ERROR - INTERPOLANT_ROUNDING - error) * (1.0 + 1e-12)
        nodes = np.cos(pi * np.arange(m + 1) / m)
        for x, value in zip(nodes, values, strict=False):
            true = probability(self.region, self.kind, self.L, b - half + half * x)
            assert true * (1.0 - 1e-9) <= value <= true * (1.0 + 1e-9) + 3.0 * DROP * self.alpha
        assert chebyshev.chebval(nodes, coefficients[: m + 1]) == pytest.approx(values[: m + 1], abs=1e-11 * self.alpha)
        ceiling, angle = polynomial_ceiling(coefficients, m, values, goal)
        if ceiling <= goal:
            self.proved.append((b - 2.0 * half, b))
            self.interpolants += 1
        return float(ceiling), float(angle)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("x1", "x2"), [(40, 10), (30, 29), (57, 1), (12, 3), (5, 40)])
def test_the_walk_leaves_no_gap(kind: int, x1: int, x2: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells and pieces that are proved cover the whole curve, and each counts all of its errors against alpha."""
    n, alpha = 60, 0.01
    region, L = region_of(kind, n, x1, x2, alpha), buehler_lower(x1, x2, n, alpha, MARGINS[kind])
    walk = Walk(monkeypatch, kind, L, region, alpha)
    proved, _ = supremum.supremum_at_most.py_func(kind, L, region, alpha)  # type: ignore[attr-defined]
    assert proved
    assert walk.interpolants > 0
    reached = curve_top(kind)
    for a, b in sorted(walk.proved, key=lambda piece: -piece[1]):
        assert b >= reached - 1e-12, f"nothing is proved between {b} and {reached}"
        reached = min(reached, a)
    assert reached <= curve_bottom(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_margin_a_little_too_large_is_not_proved(kind: int) -> None:
    """Both sides of the gate: the limit is proved, and 1e-4 of a standard error above it is not."""
    n, alpha = 60, 0.01
    for x1, x2 in ((40, 10), (30, 29), (57, 1), (12, 3)):
        region, L = region_of(kind, n, x1, x2, alpha), buehler_lower(x1, x2, n, alpha, MARGINS[kind])
        assert supremum.supremum_at_most(kind, L, region, alpha)[0]
        assert not supremum.supremum_at_most(kind, L + 1e-4 / np.sqrt(n), region, alpha)[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_bound_that_is_met_exactly_ends_nothing(seed: int) -> None:
    """Goals that are themselves bounds of the finest cells: what is not above them does not hide a higher peak."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(6, 20))
    coefficients = rng.normal(size=m + 1)
    nodes = np.cos(pi * np.arange(m + 1) / m)
    values = np.asarray(chebyshev.chebval(nodes, coefficients), dtype=np.float64)
    peak = float(chebyshev.chebval(np.cos(np.linspace(0.0, pi, 20_001)), coefficients).max())
    goal = float(values[:2].max())
    for _ in range(20):
        ceiling, _ = polynomial_ceiling(coefficients, m, values, goal)
        assert ceiling > goal or ceiling >= peak
        goal = ceiling
