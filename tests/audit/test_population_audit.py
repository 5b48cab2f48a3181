"""Limits of a population's accuracy: exact at small sizes, simulated at large ones, and failing on planted bugs.

Truths are mixtures of p at t (where the classifier may tie, so it does not count), just below and just above it.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from flint import arb
from scipy.special import ndtr

from buckler import population_accuracy
from buckler.bounds.bernstein import below_step, binomial_pmf, fitted_pmf, lowered_below_step
from buckler.bounds.betting import constant_stake_lower, star_lower
from buckler.types import FloatArray, IntArray
from tests.bounds.test_bernstein import value_in_balls
from tests.simulation import judge

NO_COUNTS = np.zeros(0, dtype=np.int64)
T = float(ndtr(1.0))
MIXTURES = [
    {T: 1.0},
    {np.nextafter(T, 0.0): 1.0},
    {T: 0.9, np.nextafter(T, 1.0): 0.1},
    {T: 0.5, 1.0: 0.5},
    {0.0: 0.3, T - 0.02: 0.4, T + 0.02: 0.1, 0.97: 0.2},
    {T - 0.01: 0.8, T + 0.01: 0.2},
]
H = below_step(40, T, fitted_pmf(NO_COUNTS, 40), 2000, 0.05)


def worst_mean_over(h: FloatArray, t: float) -> float:
    """Return by how much, for certain, ``E h(K)`` exceeds the certified accuracy: the largest over the mixtures' atoms.

    Both are linear in the mixture, so atoms are enough.
    """
    atoms = {p for mixture in MIXTURES for p in mixture} | set(np.linspace(t - 0.05, t + 0.05, 41)) | {t}
    over = [value_in_balls(h, float(p)) - (1 if p > t else 0) for p in atoms]
    return max(float(arb(o.lower())) for o in over)


def raised_near_the_threshold(h: FloatArray) -> FloatArray:
    """An h of which de Casteljau's check was left out: 1e-3 over the step."""
    return h + 1e-3


def too_small_a_threshold(h: FloatArray) -> FloatArray:
    """An h made for the threshold less 1e-3."""
    return below_step(h.size - 1, T - 1e-3, fitted_pmf(NO_COUNTS, h.size - 1), 2000, 0.05)


def clipped_after_lowering(h: FloatArray) -> FloatArray:
    """An h whose low values were raised, to shorten its range, after it had been lowered."""
    return np.asarray(np.maximum(h, h.min() + 0.05))


def test_mean_is_never_above_the_certified_accuracy() -> None:
    assert worst_mean_over(H, T) <= 0.0
    assert worst_mean_over(H, T) > -1e-3


@pytest.mark.parametrize("bug", [raised_near_the_threshold, too_small_a_threshold, clipped_after_lowering])
def test_planted_bugs_of_the_polynomial_are_found(bug: Callable[[FloatArray], FloatArray]) -> None:
    assert worst_mean_over(bug(H), T) > 1e-5


def test_clipping_is_mended_by_lowering_again() -> None:
    assert worst_mean_over(lowered_below_step(clipped_after_lowering(H), T), T) <= 0.0


def exact_miss(limit: Callable[[IntArray], FloatArray], laws: FloatArray, truth: float) -> float:
    """Return the exact chance that the limit exceeds the truth, input i having the law ``laws[i]`` of counts."""
    inputs, values = laws.shape
    outcomes = np.array(list(product(range(values), repeat=inputs)))
    chances = np.prod(laws[np.arange(inputs), outcomes], axis=1)
    return float(chances[limit(outcomes) > truth].sum())


def small(n: int, inputs: int, delta: float) -> FloatArray:
    return below_step(n, T, fitted_pmf(NO_COUNTS, n), inputs, delta)


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize(("n", "inputs", "delta"), [(4, 5, 0.3), (8, 4, 0.1)])
def test_exact_miss_of_a_population(mixture: dict[float, float], n: int, inputs: int, delta: float) -> None:
    h = small(n, inputs, delta)
    law = np.array(list(mixture.values())) @ binomial_pmf(n, np.array(list(mixture)))
    truth = sum(weight for p, weight in mixture.items() if p > T)

    def limit(outcomes: IntArray) -> FloatArray:
        return np.maximum(star_lower(h[outcomes.T], delta, h.min(), h.max()), 0.0)

    assert exact_miss(limit, np.tile(law, (inputs, 1)), truth) <= delta


@pytest.mark.parametrize("p", [(T, T, T, T), (T, 1.0, 0.0, 0.9), (1.0, 1.0, T, T), (0.9, 0.9, 0.9, 0.0)])
def test_exact_miss_of_a_fixed_list(p: tuple[float, ...]) -> None:
    h = small(4, 4, 0.2)

    def limit(outcomes: IntArray) -> FloatArray:
        values = {tuple(row): constant_stake_lower(h[list(row)], 0.2, 0.8, h.min(), h.max()) for row in outcomes}
        return np.maximum([values[tuple(row)] for row in outcomes], 0.0)

    assert exact_miss(limit, binomial_pmf(4, np.array(p)), float(np.mean([v > T for v in p]))) <= 0.2


def simulated_counts(mixture: dict[float, float], n: int, inputs: int, runs: int) -> IntArray:
    rng = np.random.default_rng(0)
    p = rng.choice(list(mixture), (inputs, runs), p=list(mixture.values()))
    return np.asarray(rng.binomial(n, p), dtype=np.int64)


@pytest.mark.parametrize("mixture", MIXTURES[::2])
def test_simulated_miss_of_a_population(mixture: dict[float, float]) -> None:
    """1,000 populations of 300 inputs with 40 draws, level .05."""
    truth = sum(weight for p, weight in mixture.items() if p > T)
    counts = simulated_counts(mixture, 40, 300, 1000)
    limits = np.maximum(star_lower(H[counts], 0.05, H.min(), H.max()), 0.0)
    assert judge(int((limits > truth).sum()), 1000, 0.05).passed


def test_pilot_used_twice_is_found() -> None:
    """Nobody is certified (p = t); an h fitted to the very inputs that it judges shows some all the same.

    Passes for any seed: each of the 12 runs misses with a chance near one, and the judge objects to eight.
    """
    counts = simulated_counts({T: 1.0}, 160, 400, 12)
    missed = 0
    for column in counts.T:
        seen = np.bincount(column, minlength=161) / column.size
        h = below_step(160, T, seen, column.size, 0.05)
        missed += bool(star_lower(h[column], 0.05, h.min(), h.max()) > 0.0)
    assert not judge(missed, 12, 0.05).passed


def test_running_maximum_on_a_sorted_list_is_found() -> None:
    """Half of the list is certain to be right, and comes first; the other half is at t, where h has mean 0 at most.

    After the first half the wealth has passed every goal, so the limit is the sample mean, which is too large in about
    every second run: for any seed more than 25 of 100.
    """
    rng = np.random.default_rng(0)
    votes = np.concatenate([np.full((500, 100), 40), rng.binomial(40, T, (500, 100))])
    sorted_list = star_lower(H[votes], 0.001, H.min(), H.max())
    assert not judge(int((sorted_list > 0.5).sum()), 100, 0.001).passed
    for column in votes.T[:5]:
        counts = np.stack([column, 40 - column], axis=1)
        found = population_accuracy(counts, np.zeros(1000, dtype=int), 1.0, sigma=1.0, fixed_list=True)
        assert 0.3 < found.low[0] <= 0.5
