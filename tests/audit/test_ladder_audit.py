"""A ladder of radii: exact chances of ever certifying a false one, by the rule and by the object, and planted bugs."""

import copy

import numpy as np
import pytest
from flint import arb
from scipy.signal import fftconvolve
from scipy.special import gammaln, ndtr, xlogy

from buckler.bounds.evalues import Mixture, half_space_mixture, log_factors, log_needed, null_supremum, tangent_mixture
from buckler.certify import budget
from buckler.certify.ladder import Ladder
from buckler.certify.sequential import FIRST_BATCH_DRAWS, SMALLEST_BATCH_DRAWS, AnytimeTest
from buckler.evaluate.audit import outcomes
from buckler.noise import Gaussian
from buckler.types import FloatArray, IntArray, MarginKind
from tests.simulation import audit_stopping, boundary_truths, ever_all_certified

MIXTURES = {"quantile": tangent_mixture, "probability": half_space_mixture}


@pytest.mark.parametrize("L", [0.05, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("alpha", [0.2, 0.02])
def test_the_probability_margin_keeps_the_promise_after_every_draw(L: float, alpha: float) -> None:
    audit = audit_stopping(half_space_mixture(L).log_wealth, L, 60, alpha, points=30, margin="probability")
    assert audit.passed, str(audit)
    assert audit.miss > alpha / 20 or L > 0.9, str(audit)


@pytest.mark.parametrize("L", [0.3, 0.7])
def test_a_probability_margin_that_is_tested_too_low_is_found(L: float) -> None:
    wrong = half_space_mixture(L - 0.08).log_wealth
    assert not audit_stopping(wrong, L, 60, 0.1, points=12, margin="probability").passed


@pytest.mark.parametrize(("margin", "rungs"), [("quantile", (0.3, 0.8, 1.4)), ("probability", (0.15, 0.4, 0.7))])
def test_no_false_radius_is_ever_certified_more_often_than_alpha(margin: MarginKind, rungs: tuple[float, ...]) -> None:
    """Truths at each rung and between them; the lowest false rung is the one that all false claims need."""
    alpha, max_n = 0.2, 26
    tests = [MIXTURES[margin](L).log_wealth for L in rungs]
    worst = []
    for i, L in enumerate(rungs):
        below = rungs[i - 1] if i else 0.05
        for true in (L, 0.5 * (L + below)):
            chances = ever_all_certified(tests[: i + 1], boundary_truths(true, 6, margin), max_n, alpha)
            assert chances.max() <= alpha
            worst.append(chances.max())
    assert max(worst) > alpha / 5


def single(L: float, share: float) -> Mixture:
    """One factor in place of a mixture: a point of the ray from the binary edge, that share of the way out."""
    h = ndtr(L / 2) - ndtr(-L / 2)
    a = np.maximum(1.0 + share / (1.0 + h) * (np.array([[1.0, -1.0, 0.0]]) - h), 0.0)
    return Mixture(log_factors(a, null_supremum(a, L)), np.zeros(1))


def test_a_rung_certified_without_those_below_it_is_found() -> None:
    """Each rung is a test of level alpha, and the higher one bets so differently that it often fires alone."""
    alpha, truths = 0.1, boundary_truths(0.6, 2)[:1]
    rungs = [single(0.6, 0.5).log_wealth, single(0.61, 1.0).log_wealth]
    x1 = np.array([9])
    assert rungs[1](x1, 0 * x1, 9) > rungs[0](x1, 0 * x1, 9)
    alone = [float(ever_all_certified([rung], truths, 40, alpha)[0]) for rung in rungs]
    assert max(alone) <= alpha
    assert ever_all_certified(rungs, truths, 40, alpha)[0] <= min(alone)
    assert ever_all_certified(rungs, truths, 40, alpha, any_rung=True)[0] > 1.25 * alpha


def start(radii: tuple[float, ...], alpha: float, max_n: int, margin: MarginKind = "quantile") -> AnytimeTest:
    return AnytimeTest(Ladder(radii, Gaussian(1.0), alpha, max_n, margin), [0], 3)


def rows_of(test: AnytimeTest, rows: IntArray) -> AnytimeTest:
    """A test of these inputs alone, each as often as it is named, with a state of its own."""
    taken = copy.copy(test)
    for name, value in vars(test).items():
        if isinstance(value, np.ndarray):
            setattr(taken, name, value[rows])
    return taken


def chance_of_certifying(first: AnytimeTest, truths: FloatArray, rung: int = 0) -> FloatArray:
    """The exact chance that the object itself certifies this rung, by following every sequence of batches it asks for.

    What is certified stays so: whoever stops earlier claims less.
    """
    level: dict[tuple[bytes, ...], tuple[AnytimeTest, FloatArray]] = {(b"",): (first, np.ones(len(truths)))}
    certified = np.zeros(len(truths))
    while level:
        key = min(level, key=lambda state: int(level[state][0].n[0]))
        test, chance = level.pop(key)
        votes = outcomes(3, int(test.batch_sizes(test.undecided)[0]))
        weight = gammaln(votes.sum(axis=1) + 1.0) - gammaln(votes + 1.0).sum(axis=1)
        steps = np.exp(weight + xlogy(votes[None], truths[:, None, :]).sum(axis=2))
        after = rows_of(test, np.zeros(len(votes), dtype=np.int64))
        after.update(np.arange(len(votes)), votes)
        for k in range(len(votes)):
            if k not in after.undecided or after._rung[k] > rung:
                certified += chance * steps[:, k] * float(after._rung[k] > rung)
                continue
            state = after._votes[k].tobytes(), after._overcome[k].tobytes(), after._rung[k].tobytes()
            one, before = level.get(state, (None, np.zeros(len(truths))))
            level[state] = one or rows_of(after, np.array([k])), before + chance * steps[:, k]
    return certified


@pytest.mark.parametrize("target", [0.1, 0.5])
def test_the_object_itself_keeps_the_promise(target: float) -> None:
    alpha = 0.25
    truths = boundary_truths(2 * target, 40)
    chances = chance_of_certifying(start((target,), alpha, 24), np.vstack([truths, truths[:, [0, 2, 1]]]))
    assert 0.02 < chances.max() <= alpha
    assert chances[40:] == pytest.approx(chances[:40], rel=1e-9)


def test_a_class_without_a_wealth_is_found() -> None:
    alpha, truth = 0.25, np.array([[0.45, 0.05, 0.5]])
    forgetful = start((0.1,), alpha, 20)
    forgetful._overcome[0, 2] = True
    assert chance_of_certifying(start((0.1,), alpha, 20), truth) <= alpha
    assert chance_of_certifying(forgetful, truth) > alpha


def test_the_object_keeps_the_promise_for_a_ladder_of_either_margin() -> None:
    alpha, radii = 0.25, (0.1, 0.3)
    for margin in ("quantile", "probability"):
        first = start(radii, alpha, 20, margin)
        for rung, L in enumerate(first.ladder.margins):
            truths = boundary_truths(L, 12, margin)
            chances = chance_of_certifying(first, truths, rung)
            assert 0.005 < chances.max() <= alpha


def extended(radii: tuple[float, ...], alpha: float, final_n: int, max_n: int) -> AnytimeTest:
    return AnytimeTest(Ladder(radii, Gaussian(1.0), alpha, max_n, final_n=final_n), [0], 3)


def test_going_on_beyond_the_final_test_keeps_the_promise() -> None:
    alpha, radius = 0.25, 0.1
    truths = boundary_truths(2 * radius, 12)
    short = chance_of_certifying(start((radius,), alpha, 12), truths)
    longer = chance_of_certifying(extended((radius,), alpha, 12, 24), truths)
    assert (longer >= short * (1.0 - 1e-12)).all()
    assert longer.max() <= alpha


def chance_with_finals(
    radius: float,
    alpha: float,
    finals: list[int],
    last: int,
    shares: tuple[float, float] | None = None,
    bets: float = 0.0,
) -> float:
    """The exact chance of certifying a radius (sigma is 1) at whose threshold the truth lies, all else one rival's.

    E-values are looked at as batches of an eighth of the draws so far come in, up to ``last``, and a final test is
    taken at each of ``finals``, as if each were the ``max_n`` of a test of its own that goes on from the votes of the
    one before. ``shares`` are the levels of e-values and final test, if not those of the ladder; ``bets`` puts one
    product of factors, that share of the way out, in the place of the mixture.
    """
    p, n = float(ndtr(radius)), FIRST_BATCH_DRAWS
    looks = {*finals, last}
    while n < last:
        looks.add(n)
        n += max(SMALLEST_BATCH_DRAWS, n // (64 if bets else 8))
    left, before, certified = np.ones(1), 0, 0.0
    for n in sorted(looks):
        step = np.arange(n - before + 1)
        chances = gammaln(step[-1] + 1.0) - gammaln(step + 1.0) - gammaln(step[-1] - step + 1.0)
        chances = np.exp(chances + xlogy(step, p) + xlogy(step[-1] - step, 1.0 - p))
        left, before = np.maximum(fftconvolve(left, chances), 0.0), n
        top = np.flatnonzero(left > 1e-18)  # the rest is lost to the sum, which is the safe side for a bug to be found
        ladder, zero = Ladder((radius,), Gaussian(1.0), alpha, n), np.zeros_like(top)
        if shares is not None:
            object.__setattr__(ladder, "needed", log_needed(shares[0]))
            object.__setattr__(ladder, "final_alpha", shares[1])
        if bets:
            object.__setattr__(ladder, "mixtures", (single(ladder.margins[0], bets),))
        passed = ladder.wealth(zero, top, n - top, np.full_like(top, n)) >= ladder.needed
        if n in finals:
            passed |= ladder.passes_final_test(zero, top, n - top, 2)
        certified += float(left[top[passed]].sum())
        left[top[passed]] = 0.0
    return certified


def test_a_final_test_that_is_taken_again_at_larger_sizes_breaks_the_promise() -> None:
    """Why a larger budget goes on by e-values alone: retaken at 200, 400, ..., 25,600 the level .05 becomes .063."""
    sizes = [200 * 2**k for k in range(8)]
    assert chance_with_finals(0.25, 0.05, sizes, sizes[-1]) == pytest.approx(0.06305, abs=5e-5)
    assert 0.015 < chance_with_finals(0.25, 0.05, sizes[:1], sizes[-1]) <= 0.05


@pytest.mark.parametrize("bets", [0.0, 0.2])
def test_shares_of_the_final_test_and_of_e_values_add_up(bets: float) -> None:
    """As they are: at most alpha. Chosen after looking, the larger one for whichever test passes: above it."""
    alpha, n = 0.05, 4000
    assert 0.015 < chance_with_finals(0.25, alpha, [n], n, None, bets) <= alpha
    assert chance_with_finals(0.25, alpha, [n], n, (alpha, alpha), bets) > 1.2 * alpha


def test_a_share_of_the_final_test_that_e_values_do_not_pay_is_found() -> None:
    """One product of factors errs with nearly its level: .0415 with the final test as it is, .0521 at all of alpha."""
    alpha, n = 0.05, 4000
    share = budget.final_share(alpha, n)
    assert chance_with_finals(0.25, alpha, [n], n, (alpha, share), 0.2) > 1.03 * alpha
    for final_n in (1, 999, 10_001, 100_000, 10**6, 10**7):
        ladder = Ladder((0.25,), Gaussian(1.0), alpha, 10**8, final_n=final_n, winner=True)
        spent = arb(-ladder.needed).exp() + arb(ladder.final_alpha) + arb(ladder.winner_alpha)
        assert spent <= arb(alpha)
        assert ladder.final_alpha == budget.final_share(budget.rest(alpha, ladder.winner_alpha), final_n)


@pytest.mark.parametrize("classes", [10, 1000])
def test_many_classes_and_draws_by_simulation(classes: int) -> None:
    """Truths with the third of four radii false: at alpha .05 of 400 inputs about 20 may climb that far."""
    alpha, inputs, sigma = 0.05, 400, 0.5
    ladder = Ladder((0.25, 0.5, 0.75, 1.0), Gaussian(sigma), alpha, 20_000)
    first, second = ndtr(-0.3 + 0.75 / sigma), ndtr(-0.3 - 0.75 / sigma)
    truth = np.full(classes, (1.0 - first - second) / (classes - 2))
    truth[:2] = first, second
    test, rng = AnytimeTest(ladder, np.zeros(inputs), classes), np.random.default_rng(classes)
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), truth))
    reached = np.array([len(test.decided(row, "x").certified_at) for row in range(inputs)])
    assert (reached >= 2).mean() > 0.9
    false = int((reached >= 3).sum())
    assert false <= 48, "P(Binomial(400, .05) > 48) < 1e-7"
