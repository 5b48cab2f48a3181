"""Coverage of robust prediction sets after the worst move: exact at small sizes, simulated at large ones.

A truth is a mixture of probabilities p of the true class; after the worst move p is ``g(p)``, which half-spaces attain,
so ``P(Binomial(n, g(p)) >= k0)`` is the coverage given p.
"""

from collections.abc import Callable
from itertools import combinations_with_replacement
from math import factorial

import numpy as np
import pytest
from scipy.special import betainc, ndtr, ndtri

from buckler import RobustConformal
from buckler.bounds.bernstein import below_tail, binomial_pmf, fitted_pmf
from buckler.evaluate.conformal import controlled_threshold, nested_polynomials, worst_move
from buckler.evaluate.population import shuffled
from buckler.noise import Gaussian
from buckler.types import FloatArray, IntArray
from tests.bounds.test_bernstein import value_in_balls

MIXTURES = [
    {1.0: 1.0},
    {0.7: 1.0},
    {0.95: 0.8, 0.2: 0.2},
    {1.0: 0.7, 0.6: 0.2, 0.0: 0.1},
    {0.9: 0.25, 0.8: 0.25, 0.7: 0.25, 0.5: 0.25},
]


def covered(p: FloatArray, n: int, k: int, shift: float) -> FloatArray:
    """Return the coverage after the worst move by ``shift`` deviations, given p, of sets with threshold k."""
    if k == 0:
        return np.ones_like(p)
    with np.errstate(divide="ignore"):
        return np.asarray(betainc(k, n - k + 1, ndtr(ndtri(p) - shift)))


@pytest.mark.parametrize(("shift", "alpha"), [(0.0, 0.3), (0.5, 0.3), (0.5, 0.5), (1.0, 0.4)])
def test_exact_coverage_of_small_calibrations(shift: float, alpha: float) -> None:
    """Every outcome of six calibration inputs with four draws each."""
    n, inputs = 4, 6
    shrinking = worst_move(Gaussian(1.0), shift) if shift else None
    family = nested_polynomials(2, fitted_pmf(np.zeros(0, dtype=np.int64), n), inputs, shrinking)
    thresholds = {
        outcome: controlled_threshold(family, np.array(outcome), alpha)
        for outcome in combinations_with_replacement(range(n + 1), inputs)
    }
    assert max(thresholds.values()) >= 2
    for mixture in MIXTURES:
        p, weights = np.array(list(mixture)), np.array(list(mixture.values()))
        law, coverage = weights @ binomial_pmf(n, p), 0.0
        for outcome, k in thresholds.items():
            repeats = np.bincount(outcome, minlength=n + 1)
            chance = factorial(inputs) * np.prod(law**repeats / [factorial(int(r)) for r in repeats])
            coverage += float(chance) * float(weights @ covered(p, n, k, shift))
        assert coverage >= 1.0 - alpha - 1e-12


def test_the_door_uses_the_audited_family() -> None:
    rng = np.random.default_rng(0)
    votes = rng.binomial(12, 0.8, 60)
    counts = np.stack([votes, 12 - votes], axis=1)
    found = RobustConformal(sigma=1.0, radius=0.5, alpha=0.2).calibrate(counts, np.zeros(60, dtype=int), tuning=0.5)
    tuning, rest = np.split(votes[shuffled(60, 0)], 2)
    fits = [
        controlled_threshold(nested_polynomials(anchor, fitted_pmf(tuning, 12), 30, SHRINKING), rest, 0.2)
        for anchor in range(1, 13)
    ]
    assert 0 < found.thresholds[0] == fits[found.thresholds[0] - 1]


N, INPUTS, ALPHA, SHIFT = 40, 200, 0.1, 0.5
POPULATION = np.random.default_rng(9).beta(1.2, 0.3, 4000)
SHRINKING = worst_move(Gaussian(1.0), SHIFT)


def coverage_of(threshold: Callable[[IntArray], int], runs: int, seed: int = 0) -> tuple[float, float]:
    """Return the mean coverage after the worst move, over calibrations drawn from the population, and its error."""
    rng = np.random.default_rng(seed)
    by_threshold = [float(covered(POPULATION, N, k, SHIFT).mean()) for k in range(N + 1)]
    found = [by_threshold[threshold(rng.binomial(N, rng.choice(POPULATION, INPUTS)))] for _ in range(runs)]
    return float(np.mean(found)), float(np.std(found) / np.sqrt(runs))


def test_simulated_coverage_is_kept_and_sharp() -> None:
    tuning = np.random.default_rng(1).binomial(N, np.random.default_rng(2).choice(POPULATION, 100))
    family = nested_polynomials(14, fitted_pmf(tuning, N), INPUTS, SHRINKING)
    mean, error = coverage_of(lambda votes: controlled_threshold(family, votes, ALPHA), 150)
    assert 1.0 - ALPHA - 5.0 * error <= mean <= 1.0 - ALPHA + 0.03


def tuned_on_the_calibration(votes: IntArray) -> int:
    """Every h made for the very inputs that judge it, and not held below the one before: the largest k that passes."""
    seen = np.bincount(votes, minlength=N + 1) / votes.size
    for k in range(N - 8, 0, -3):
        h = below_tail(k, SHRINKING, seen, INPUTS)
        if (1.0 - h[votes]).sum() + (1.0 - h).max() <= ALPHA * (INPUTS + 1):
            return k
    return 0


def without_the_move(votes: IntArray) -> int:
    """Plain conformal prediction, for inputs that are moved all the same."""
    return controlled_threshold([(k, np.where(np.arange(N + 1) >= k, 1.0, 0.0)) for k in range(N + 1)], votes, ALPHA)


@pytest.mark.parametrize(("bug", "runs"), [(tuned_on_the_calibration, 20), (without_the_move, 40)])
def test_planted_bugs_are_found(bug: Callable[[IntArray], int], runs: int) -> None:
    mean, error = coverage_of(bug, runs)
    assert mean + 4.0 * error < 1.0 - ALPHA


@pytest.mark.parametrize("k", [1, 5, 20, 40])
def test_mean_of_h_is_below_the_curve(k: int) -> None:
    """At probabilities across [0, 1], by balls; raised by 1e-3 it is not."""
    h = below_tail(k, SHRINKING, fitted_pmf(np.zeros(0, dtype=np.int64), N), INPUTS)
    p = np.concatenate([np.linspace(0.0, 1.0, 41), 1.0 - 2.0 ** -np.arange(5.0, 40.0, 5.0)])
    over = [
        float((value_in_balls(h, float(q)) - float(s)).lower()) for q, s in zip(p, covered(p, N, k, SHIFT), strict=True)
    ]
    assert max(over) <= 1e-12  # the curve in floats is off by less
    assert max(over) + 1e-3 > 0.0
