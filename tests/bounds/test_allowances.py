"""Every allowance for rounding by an input that needs it: without it the limit would lie on the wrong side.

Inputs are constructed so that they need the allowance whatever the order of summation and on any processor; what the
exact limit is, is said by rational or ball arithmetic. Each test also shows the need: the same computation without the
allowance ends on the wrong side.
"""

from collections.abc import Callable
from fractions import Fraction
from math import log, nextafter, sqrt

import numpy as np
import pytest
from flint import arb, ctx
from scipy.special import betaincinv, ndtri

from buckler.bounds import binomial
from buckler.bounds.betting import CAP, star_lower, wealth_goal
from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.bounds.buehler import COLD, GUARD, MARGIN_STEP, profile, reaches_margin, value
from buckler.bounds.evalues import log_factors, null_supremum, tangent_mixture
from buckler.bounds.means import LIMIT_SLACK, bernstein_lower, hoeffding_lower, sequence_lower
from buckler.certify.budget import split_alpha
from buckler.certify.tangents import heights
from buckler.certify.votes import margin_from_limits
from buckler.noise import Gaussian
from buckler.paper.estimators import lipschitz_radius
from buckler.types import FloatArray
from tests.balls import normal_cdf, normal_quantile, tail_at_least, tail_at_most
from tests.bounds.test_means import reference as plain_sequence

ULP = 2.0**-53
ALMOST_ONE = nextafter(1.0, 0.0)
"""An alpha at which the width of a limit is next to nothing, so that rounding of the mean is all there is."""

# 1 + DUST rounds up to the next number, whichever is added to which: the mean of these two is too large in any order.
DUST = 1.01 * ULP
PAIR = np.array([1.0, DUST])


def exact_mean(x: FloatArray) -> Fraction:
    return sum((Fraction(float(v)) for v in x), Fraction(0)) / len(x)


def ball(value: Fraction) -> arb:
    return arb(value.numerator) / arb(value.denominator)


def test_the_mean_of_the_pair_is_too_large() -> None:
    assert Fraction(float(PAIR.mean())) > exact_mean(PAIR)


RANGES = [(0.0, 1.0), (0.0, 64.0), (-1.0, 1.0), (-64.0, 1.0), (1000.0, 1000.5)]


def test_hoeffding_needs_its_slack_on_the_unit_range() -> None:
    """On [0, 1] the smaller end is 0: an allowance scaled by it would be none."""
    ctx.prec = 300
    exact = ball(exact_mean(PAIR)) - (-arb(ALMOST_ONE).log() / 4).sqrt()
    assert arb(float(PAIR.mean()) - sqrt(-log(ALMOST_ONE) / 4.0)) > exact, "the input needs the allowance"
    assert arb(float(hoeffding_lower(PAIR, ALMOST_ONE))) <= exact


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_closed_forms_need_their_slack(low: float, high: float) -> None:
    """Of many inputs the plain formula is too large on some, whatever the order of its sums; the limits on none."""
    ctx.prec = 300
    rng, wrong = np.random.default_rng(0), [0, 0]
    scale = max(abs(low), abs(high))
    for i in range(60):
        n, alpha = 200 + i, 0.5
        x = low + (high - low) * (0.9 + 1e-3 * rng.random(n))
        mean = exact_mean(x)
        variance = sum(((Fraction(float(v)) - mean) ** 2 for v in x), Fraction(0)) / (n - 1)
        span, cost = arb(high) - arb(low), (2 / arb(alpha)).log()
        exact = (
            ball(mean) - span * (-arb(alpha).log() / (2 * n)).sqrt(),
            ball(mean) - (2 * ball(variance) * cost / n).sqrt() - 7 * span * cost / (3 * (n - 1)),
        )
        price = log(2.0 / alpha)
        plain = (
            x.mean() - (high - low) * sqrt(-log(alpha) / (2 * n)),
            x.mean() - np.sqrt(2.0 * x.var(ddof=1) * price / n) - 7.0 * (high - low) * price / (3.0 * (n - 1)),
        )
        found = hoeffding_lower(x, alpha, low, high), bernstein_lower(x, alpha, low, high)
        for k in range(2):
            wrong[k] += bool(arb(float(plain[k])) > exact[k])
            assert arb(float(found[k])) <= exact[k]
            assert float(found[k]) >= float(exact[k]) - 1.1 * LIMIT_SLACK * scale - 1e-13 * (high - low)
    assert min(wrong) > 0, "some inputs need the allowance"


@pytest.mark.parametrize("limit", [hoeffding_lower, bernstein_lower, sequence_lower, star_lower])
def test_no_limit_exceeds_the_exact_mean(limit: Callable[..., FloatArray]) -> None:
    """Limits are lowered to the mean, which is itself rounded: the ceiling has an allowance too."""
    for scale in (1.0, 4.0, 2.0**20):
        x = scale * PAIR
        found = float(limit(x, ALMOST_ONE, 0.0, scale))
        assert Fraction(found) <= exact_mean(x)


def test_the_goal_of_a_wealth_is_above_one_over_alpha() -> None:
    """An alpha whose inverse rounds down needs the allowance even with no draw at all."""
    needy = [alpha for alpha in (0.001, 0.03, 0.07, 0.09, 1e-5, 0.41) if Fraction(1.0 / alpha) * Fraction(alpha) < 1]
    assert needy
    for alpha in needy:
        assert Fraction(wealth_goal(alpha, 0)) * Fraction(alpha) >= 1
        # F6: each draw may add 4e-14 to a wealth, relative; the goal grows by more.
        for n in (1, 1000, 10**6):
            assert Fraction(wealth_goal(alpha, n)) * Fraction(alpha) >= 1 + n * Fraction(4e-14)


def test_products_of_factors_need_the_goal() -> None:
    """A computed wealth exceeds the exact one for some bets, and by less than the goal is raised for all."""
    rng, largest = np.random.default_rng(5), 0.0
    for _ in range(100):
        y, m, n = rng.random(60), float(rng.uniform(0.1, 0.9)), 60
        stakes = np.minimum(rng.uniform(0.0, 3.0, n), CAP / m)
        computed, exact = 1.0, Fraction(1)
        for stake, drawn in zip(stakes.tolist(), y.tolist(), strict=True):
            computed *= 1.0 + stake * (drawn - m)
            exact *= 1 + Fraction(stake) * (Fraction(drawn) - Fraction(m))
        excess = Fraction(computed) / exact
        assert excess <= Fraction(wealth_goal(0.5, n)) / 2
        largest = max(largest, float(excess - 1))
    assert largest > 0.0


def test_the_sequence_needs_what_it_gives_away() -> None:
    """The plain formula is too large on some inputs, the limit on none."""
    ctx.prec = 300
    rng, wrong = np.random.default_rng(6), 0
    for i in range(40):
        x, alpha = 0.8 + 0.2 * rng.random(20 + 5 * i), float(rng.choice([0.05, 0.3, 0.7]))
        exact = _sequence_exact(x, alpha)
        assert arb(float(sequence_lower(x, alpha))) <= exact
        wrong += bool(arb(float(plain_sequence(x, alpha).max())) > exact)
    assert wrong > 0


def _sequence_exact(x: FloatArray, alpha: float) -> arb:
    goal = -arb(alpha).log()
    total, squares, bets, wins, costs = arb(1) / 2, arb(1) / 4, arb(0), arb(0), goal
    best = arb(-1000)
    for i, drawn in enumerate(x.tolist(), start=1):
        bet = min(arb(0.5), (2 * goal * i / (squares * i * arb(1 + i).log())).sqrt(), key=float)
        psi = (-(1 - bet).log() - bet) / 4
        bets, wins = bets + bet, wins + bet * arb(drawn)
        costs += 4 * (arb(drawn) - total / i) ** 2 * psi
        best = max(best, (wins - costs) / bets, key=float)
        total += arb(drawn)
        squares += (arb(drawn) - total / (i + 1)) ** 2
    return best


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-9])
def test_clopper_pearson_needs_its_step_outward_and_keeps_its_slack(alpha: float) -> None:
    """SciPy's inverse is on the wrong side somewhere in a small grid; the limits are so nowhere, by ALPHA_SLACK."""
    wrong = 0
    for n in (20, 333, 5000):
        for k in range(1, n, max(1, n // 25)):
            wrong += not tail_at_least(k, n, float(betaincinv(k, n - k + 1, alpha))) <= arb(alpha)
            low, high = float(clopper_pearson_lower(k, n, alpha)), float(clopper_pearson_upper(k, n, alpha))
            # What is given up is at least 0.9 LIMIT_SLACK, so that SciPy's own error, 5e-12, can never matter (F5).
            room = arb(alpha) * (1 - arb(0.9 * binomial.ALPHA_SLACK))
            assert tail_at_least(k, n, low) <= room
            assert high == 1.0 or tail_at_most(k, n, high) <= room
    assert wrong > 0


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-12, 0.9])
def test_powers_at_the_ends_need_their_allowance(alpha: float) -> None:
    """``alpha^(1/n)`` and ``1 - alpha^(1/n)`` as computed are on the wrong side for some n; as returned, for none."""
    ctx.prec = 300
    wrong = 0
    for n in [*range(1, 60), 1000, 99_999]:
        power = (arb(alpha).log() / n).exp()
        wrong += bool(arb(float(np.exp(np.log(alpha) / n))) > power)
        wrong += bool(arb(float(-np.expm1(np.log(alpha) / n))) < 1 - power)
        assert arb(float(clopper_pearson_lower(n, n, alpha))) <= power
        high = float(clopper_pearson_upper(0, n, alpha))
        assert high == 1.0 or arb(high) >= 1 - power
    assert wrong > 0


def test_heights_need_their_slack() -> None:
    ctx.prec = 300
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        L, c = float(rng.uniform(0.05, 6.0)), float(2.0 ** rng.uniform(0.0, 6.0))
        t = -arb(c).log() / arb(L)
        exact = normal_cdf(t + arb(L) / 2) - arb(c) * normal_cdf(t - arb(L) / 2)
        found = float(heights(L, c))
        assert arb(found) >= exact
        wrong += bool(arb(found - 1e-14 * (1.0 + c)) < exact)
    assert wrong > 0, "without the slack some heights are too low"


def test_radii_need_their_rounding() -> None:
    """R1+ and R1 as computed exceed the exact radius for some margins; as returned, for none."""
    ctx.prec = 300
    rng, wrong = np.random.default_rng(1), [0, 0, 0]
    for _ in range(300):
        margin, sigma = float(rng.uniform(0.01, 0.99)), float(rng.uniform(0.1, 2.0))
        noise = Gaussian(sigma)
        exact1 = arb(sigma) * (arb.pi() / 2).sqrt() * arb(margin)
        assert arb(lipschitz_radius(margin, sigma)) <= exact1
        wrong[0] += bool(arb(margin / (sqrt(2.0) * (1.0 / (sigma * sqrt(np.pi))))) > exact1)
        known = 0.3 / sigma
        assert arb(lipschitz_radius(margin, sigma, known)) <= arb(margin) / (arb(2).sqrt() * arb(known))
        half = (1 + arb(margin)) / 2
        assert normal_cdf(arb(noise.radius(margin, "probability")) / arb(sigma)) <= half
        wrong[1] += bool(normal_cdf(arb(sigma * float(ndtri((1.0 + margin) / 2.0))) / arb(sigma)) > half)
        assert 2 * Fraction(noise.radius(margin, "quantile")) <= Fraction(sigma) * Fraction(margin)
        wrong[2] += 2 * Fraction(sigma * margin / 2.0) > Fraction(sigma) * Fraction(margin)
    assert min(wrong) > 0, "each radius needs it somewhere"


def test_margins_from_limits_need_their_rounding() -> None:
    ctx.prec = 300
    rng, wrong = np.random.default_rng(2), [0, 0]
    for _ in range(400):
        low, high = sorted(rng.uniform(1e-6, 1.0 - 1e-6, 2).tolist(), reverse=True)
        found = float(margin_from_limits("probability", low, high))
        assert Fraction(found) <= Fraction(low) - Fraction(high)
        wrong[0] += Fraction(low - high) > Fraction(low) - Fraction(high)
        found = float(margin_from_limits("quantile", low, high))
        exact = normal_quantile(low) - normal_quantile(high)
        assert arb(found) <= exact
        wrong[1] += bool(arb(float(ndtri(low) - ndtri(high))) > exact)
    assert wrong[1] > 0
    assert wrong[0] > 0


def test_shares_that_round_up_are_lowered() -> None:
    needy = [(a, k) for a in (0.001, 0.05, 0.01, 0.3) for k in range(1, 60) if Fraction(a / k) * k > Fraction(a)]
    assert needy
    for alpha, parts in needy:
        assert Fraction(split_alpha(alpha, parts)) * parts <= Fraction(alpha)
        assert split_alpha(alpha, parts) == nextafter(alpha / parts, 0.0)


def test_factors_need_their_allowance() -> None:
    """Logarithms as computed, exponentiated, have a mean above one somewhere; as returned, nowhere."""
    ctx.prec = 300
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(300):
        a = rng.gamma(0.7, 1.0, 3).tolist()
        logs = log_factors(a, null_supremum(a, 0.0))
        # At L = 0 the supremum is the largest of a2, a3 and (a1 + a2)/2: exact.
        supremum = max(Fraction(a[1]), Fraction(a[2]), (Fraction(a[0]) + Fraction(a[1])) / 2)
        for factor, log_ in zip(a, logs.tolist(), strict=True):
            exact = (ball(Fraction(factor)) / ball(supremum)).log()
            assert arb(log_) <= exact
            wrong += bool(arb(float(np.log(factor) - np.log(float(supremum)))) > exact)
    assert wrong > 0


def test_weights_of_a_mixture_add_up_to_at_most_one() -> None:
    for L in (0.0, 0.3, 1.0, 2.0, 5.0):
        mixture = tangent_mixture(L)
        assert sum((arb(float(w)).exp() for w in mixture.log_weights), arb(0)) <= 1
        assert float(mixture.log_wealth(0, 0, 0)) <= 0.0


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("n", [14, 1000, 300_000])
def test_a_value_needs_the_guard_to_spare(kind: int, n: int) -> None:
    """A level within the guard of the deviance at a grid point does not reach it, one beyond the guard does."""
    for x1, x2, L in ((n // 2, n // 4, 0.01), (3 * n // 4, n // 7, 0.3), (n // 3, n // 3 - 1, -0.2)):
        k = int(L / MARGIN_STEP)
        deviance, _, excess, _ = profile(kind, x1, x2, n, k * MARGIN_STEP, COLD)
        assert excess > 0.0
        guard = GUARD * (n + 200)
        assert value(kind, x1, x2, n, deviance - 0.9 * guard) < k
        assert value(kind, x1, x2, n, deviance - 1.1 * guard) == k
        assert reaches_margin(kind, x1, x2, n, k, deviance)
        assert not reaches_margin(kind, x1, x2, n, k, float(np.nextafter(deviance, np.inf)))


@pytest.mark.parametrize("kind", [0, 1])
def test_the_guard_of_an_ordering_is_above_the_error_of_a_deviance(kind: int) -> None:
    """GUARD is twice the error of D (F3): computed deviances are held against balls, and the error is not nothing."""
    ctx.prec = 300
    rng, largest = np.random.default_rng(4), 0.0
    for n in (5, 100, 10_000, 1_000_000):
        for _ in range(40):
            y1, y2, _ = rng.multinomial(n, rng.dirichlet([1, 1, 1])).tolist()
            y1 = max(y1, 1)
            y2 = min(y2, n - y1)
            L = float(rng.uniform(-0.5, 0.9))
            D, _, _, t = profile(kind, y1, y2, n, L, -0.7)
            if not D < 1e6:
                continue
            error = abs(float(_deviance(kind, y1, y2, n, L, t) - arb(D)))
            assert error <= 0.5 * GUARD * (n + 200)
            largest = max(largest, error / (0.5 * GUARD * (n + 200)))
    assert largest > 1e-4


def test_deviances_near_the_lowest_margin_do_not_cancel() -> None:
    """Probability margins next to -1, where the smallest cell is far below roundoff of the others (F3)."""
    ctx.prec = 300
    largest = 0.0
    for n in (1, 100, 1_000_000):
        for y1, y2 in ((0, n), (1, n - 1), (0, n - 1), (min(3, n), max(n - 9, 0))):
            for steps in (1, 5, 1000, 10**6):
                L = -1.0 + steps * MARGIN_STEP
                D = profile(0, y1, y2, n, L, COLD)[0]
                a1, a2, a3 = (arb(2 * y + 1) / 2 for y in (y1, y2, n - y1 - y2))
                total, far = a1 + a2 + a3, arb(-L)
                w = 1 - far
                b = (a1 + a2) * w - 2 * (a1 + a3) * far
                r = (b + (b * b + 8 * total * a1 * far * w).sqrt()) / (4 * total)
                cells = ((a1, r), (a2, r + far), (a3, w - 2 * r))
                true = 2 * sum((x * (x / (total * q)).log() for x, q in cells), arb(0))
                error = abs(float(true - arb(D)))
                assert error <= 0.5 * GUARD * (n + 200)
                largest = max(largest, float(true.mid()))
    assert largest > 30.0, "deviances that decide at small alpha"


def _deviance(kind: int, y1: int, y2: int, n: int, L: float, t: float) -> arb:
    """D at the fitted parameter, which is off by the square of the last step: far below roundoff of D."""
    y3 = n - y1 - y2
    shifts = (arb(-1) / 4, arb(3) / 5, arb(3) / 5) if kind == 1 else (arb(1) / 2,) * 3
    if kind == 1:
        q1, q2 = normal_cdf(arb(t) + arb(L) / 2), normal_cdf(arb(t) - arb(L) / 2)
    else:
        q1, q2 = (arb(t) + arb(L)) / 2, (arb(t) - arb(L)) / 2
    a = [y + shift for y, shift in zip((y1, y2, y3), shifts, strict=True)]
    total = sum(a, arb(0))
    return 2 * sum((x * (x / (total * q)).log() for x, q in zip(a, (q1, q2, 1 - q1 - q2), strict=True)), arb(0))
