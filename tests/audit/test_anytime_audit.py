"""Optional stopping at its worst: exact on the lattice at small n, simulated at large, and failing on planted bugs."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import bdtrc, ndtr

from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.evalues import Mixture, log_factors, null_supremum, tangent_mixture
from buckler.certify.votes import vote_margin_lower
from buckler.types import BoolArray, FloatArray, IntArray
from tests.simulation import audit_stopping, boundary_truths, ever_certified, simulate_crossings

MARGINS = [0.05, 0.3, 1.0, 2.0, 3.5]


@pytest.mark.parametrize("L", MARGINS)
@pytest.mark.parametrize("alpha", [0.2, 0.02])
def test_looking_after_every_draw_keeps_the_promise(L: float, alpha: float) -> None:
    audit = audit_stopping(tangent_mixture(L).log_wealth, L, 60, alpha, points=30)
    assert audit.passed, str(audit)
    # Not by being vacuous: a boundary truth is mistaken for a better one about as often as Ville's inequality allows.
    assert audit.miss > alpha / 20 or L > 3, str(audit)


def test_with_the_exam_the_shares_add_up() -> None:
    L, alpha, max_n = 1.0, 0.1, 80

    def exam(top: IntArray, rival: IntArray) -> BoolArray:
        return np.asarray(vote_margin_lower(top, rival, max_n, alpha=alpha / 4) > L)

    audit = audit_stopping(tangent_mixture(L).log_wealth, L, max_n, 0.75 * alpha, points=30, exam=exam)
    alone = audit_stopping(tangent_mixture(L).log_wealth, L, max_n, 0.75 * alpha, points=30)
    assert alone.miss < audit.miss <= alpha


def test_lattice_matches_a_closed_form() -> None:
    """A rule that fires on the last draw alone has a binomial tail as its chance."""

    def late(x1: IntArray, _: IntArray, n: int) -> FloatArray:
        return np.where((n == 30) & (x1 >= 25), np.inf, -np.inf)

    truths = boundary_truths(1.0, 6)
    assert ever_certified(late, truths, 30, 0.05) == pytest.approx(bdtrc(24, 30, truths[:, 0]), rel=1e-10)


def undivided(L: float) -> Callable[[IntArray, IntArray, int], FloatArray]:
    """A likelihood ratio whose denominators miss the null by .25 in the margin, and no division by the supremum."""
    return tangent_mixture(L - 0.25).log_wealth


def divided(L: float) -> Callable[[IntArray, IntArray, int], FloatArray]:
    """The same poor denominators, divided."""
    poor = tangent_mixture(L - 0.25)
    a = np.exp(poor.logs)
    return Mixture(log_factors(a, null_supremum(a, L)), poor.log_weights).log_wealth


def peeking(L: float) -> Callable[[IntArray, IntArray, int], FloatArray]:
    """The alternative that fits the very draws it is tested on, in place of the average over alternatives."""
    mixture = tangent_mixture(L)

    def best(x1: IntArray, x2: IntArray, n: int) -> FloatArray:
        counts = np.stack([x1, x2, n - x1 - x2], axis=-1)
        return np.asarray((counts @ mixture.logs.T).max(axis=-1), dtype=np.float64)

    return best


def repeated_exam(L: float) -> Callable[[IntArray, IntArray, int], FloatArray]:
    """A fixed-n limit looked at after every draw."""

    def look(x1: IntArray, _: IntArray, n: int) -> FloatArray:
        return np.where(clopper_pearson_lower(x1, n, 0.1) > ndtr(L / 2), np.inf, -np.inf)

    return look


@pytest.mark.parametrize("L", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("bug", [undivided, peeking, repeated_exam])
def test_planted_bugs_are_found(
    bug: Callable[[float], Callable[[IntArray, IntArray, int], FloatArray]], L: float
) -> None:
    audit = audit_stopping(bug(L), L, 60, 0.1, points=12)
    assert not audit.passed, str(audit)


@pytest.mark.parametrize("L", [0.3, 1.0, 2.0])
def test_poor_denominators_are_sound_once_divided(L: float) -> None:
    audit = audit_stopping(divided(L), L, 60, 0.1, points=12)
    assert audit.passed, str(audit)


LOOKS = np.unique(np.geomspace(10, 100_000, 90).astype(np.int64))


@pytest.mark.parametrize(("L", "row"), [(0.5, 0), (2.0, 0), (2.0, 2)])
def test_a_hundred_thousand_draws_by_simulation(L: float, row: int) -> None:
    alpha, runs = 0.05, 600
    crossings = simulate_crossings(tangent_mixture(L).log_wealth, boundary_truths(L, 8)[row], LOOKS, runs, alpha, 1)
    assert bdtrc(crossings - 1, runs, alpha) > 1e-6


def test_simulation_finds_the_bug_that_only_many_draws_show() -> None:
    """Denominators off by .04 in the margin: invisible at n = 60, fatal at 100,000.

    Passes for any seed: 73 % of runs cross (2,924 of 4,000 were seen to), 37 of the 300 suffice, and fewer have a
    probability of 4e-109.
    """
    runs, L = 300, 2.0
    poor = tangent_mixture(L - 0.04).log_wealth
    small = audit_stopping(poor, L, 60, 0.05, points=8)
    assert small.passed
    crossings = simulate_crossings(poor, boundary_truths(L, 8)[0], LOOKS, runs, 0.05, 1)
    assert bdtrc(crossings - 1, runs, 0.05) < 1e-6


def test_betting_against_the_current_runner_up_alone_has_a_mean_above_one() -> None:
    """The true rival, of margin L, is overtaken by chance, and the bet is then placed against an easier class."""
    L, t = 0.3, -0.2
    truth = np.array([ndtr(t + L / 2), ndtr(t - L / 2), 1.0 - ndtr(t + L / 2) - ndtr(t - L / 2)])
    factors = np.exp(tangent_mixture(L).logs[60])
    assert (truth * factors).sum() <= 1.0
    mean = {(0, 0): 1.0}
    for _ in range(20):
        after: dict[tuple[int, int], float] = {}
        for (x1, x2), wealth in mean.items():
            steps = truth * factors[[0, 1, 2] if x1 >= x2 else [0, 2, 1]]
            for key, step in zip([(x1, x2), (x1 + 1, x2), (x1, x2 + 1)], steps.tolist(), strict=True):
                after[key] = after.get(key, 0.0) + wealth * step
        mean = after
    assert sum(mean.values()) > 3.0
