"""Certified accuracy of a population: what it takes, what it returns, what the pilot is used for."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from buckler import InvalidInput, noise, population_accuracy
from buckler.bounds.betting import star_lower
from buckler.certify import budget
from buckler.evaluate import population
from buckler.evaluate.population import DRAWS_TRIED, plan_population, shuffled, threshold
from buckler.types import FloatArray, IntArray

RNG = np.random.default_rng(5)
TRUE_P = RNG.beta(0.6, 0.4, 400)
VOTES = RNG.binomial(60, TRUE_P)
COUNTS: IntArray = np.stack([60 - VOTES, VOTES], axis=1)
LABELS = np.ones(400, dtype=np.int64)


def low(counts: IntArray, radii: float | list[float] = 0.25, **options: object) -> FloatArray:
    options = {"sigma": 0.5, "delta": 0.01} | options
    return population_accuracy(counts, LABELS[: len(counts)], radii, **options).low  # type: ignore[arg-type]


def test_limit_is_below_the_truth_and_of_use() -> None:
    truth = (ndtr(0.5) < TRUE_P).mean()
    assert truth - 0.15 < low(COUNTS)[0] < truth
    assert truth - 0.15 < low(COUNTS, fixed_list=True)[0] < truth


def test_draws_of_all_inputs_but_the_pilot_count_towards_the_most_that_words_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "MOST_STATEMENT_DRAWS", 360 * 60)
    assert low(COUNTS, pilot=0.1)[0] > 0.0
    monkeypatch.setattr(budget, "MOST_STATEMENT_DRAWS", 360 * 60 - 1)
    with pytest.raises(InvalidInput, match="draws of all inputs must be at most 21,599 together; got 21,600"):
        low(COUNTS, pilot=0.1)


def test_limits_fall_with_the_radius_and_a_larger_radius_serves_the_smaller() -> None:
    found = low(COUNTS, [0.75, 0.1, 0.5, 0.25])
    assert found[1] >= found[3] >= found[2] >= found[0] > 0.0
    # Each radius of a table has its share of delta, so alone it is sharper.
    assert low(COUNTS, 0.25)[0] > found[3]


def test_each_radius_of_a_table_has_the_limit_that_it_has_alone_at_its_share_of_delta() -> None:
    radii = [0.1, 0.5]
    alone = [low(COUNTS, radius, delta=0.005)[0] for radius in radii]
    assert low(COUNTS, radii).tolist() == alone
    assert alone[0] > alone[1] > 0.0


def test_polynomials_follow_from_the_pilot_and_limits_from_the_rest() -> None:
    order, pilot = shuffled(400, 7), 40
    made = population_accuracy(COUNTS, LABELS, 0.25, sigma=0.5, pilot=0.1, seed=7)
    assert (made.inputs, made.pilot, made.n) == (400, pilot, 60)
    h = made.polynomials[0]
    assert made.low[0] == float(star_lower(h[VOTES[order[pilot:]]], 1e-3, h.min(), h.max()))
    others = COUNTS.copy()
    others[order[pilot:]] = others[order[pilot:]][:, ::-1]
    assert (population_accuracy(others, LABELS, 0.25, sigma=0.5, pilot=0.1, seed=7).polynomials == h).all()
    others = COUNTS.copy()
    others[order[:pilot]] = others[order[:pilot]][:, ::-1]
    assert (population_accuracy(others, LABELS, 0.25, sigma=0.5, pilot=0.1, seed=7).polynomials != h).any()


def test_pilot_of_a_fixed_list_counts_as_wrong() -> None:
    certain = np.tile([0, 60], (400, 1))
    assert low(certain, fixed_list=True, pilot=0.5)[0] <= 0.5
    assert low(certain, fixed_list=True)[0] > 0.9


@pytest.mark.parametrize("fixed_list", [False, True])
def test_few_inputs_with_few_draws_have_a_limit(fixed_list: bool) -> None:
    """At a high threshold, where h made without any pilot shows next to nothing."""
    rng = np.random.default_rng(0)
    p = np.where(rng.random(500) < 0.55, 1.0 - 0.3 * rng.beta(0.3, 6.0, 500), rng.random(500))
    votes = rng.binomial(40, p)
    found = population_accuracy(
        np.stack([votes, 40 - votes], axis=1), [0] * 500, 0.5, sigma=0.25, fixed_list=fixed_list
    )
    assert 0.1 < found.low[0] < (p > ndtr(2.0)).mean()
    assert found.pilot == 10


def test_the_pilot_is_ten_inputs_at_most() -> None:
    many = np.tile(COUNTS, (3, 1))
    assert population_accuracy(many, np.ones(1200, dtype=int), 0.25, sigma=0.5).pilot == 10
    assert population_accuracy(COUNTS[:200], LABELS[:200], 0.25, sigma=0.5).pilot == 4


def test_inputs_that_abstain_need_n() -> None:
    fewer = COUNTS.copy()
    fewer[:5, 0] = np.maximum(fewer[:5, 0] - 1, 0)
    fewer[0] = [0, 59]
    with pytest.raises(InvalidInput, match="counts must add up to the same number of draws"):
        low(fewer)
    assert low(fewer, n=60)[0] > 0.0
    with pytest.raises(InvalidInput, match="counts must be at most n = 58"):
        low(fewer, n=58)


@pytest.mark.parametrize(
    ("law", "radius"),
    [
        (noise.Splitting(2.5), 0.5),
        (noise.Uniform(0.5), 0.1),
        (noise.Ablation(20, 784), 2),
        (noise.GridGaussian(0.5), 0.25),
    ],
)
def test_every_noise_with_a_threshold(law: object, radius: float) -> None:
    made = population_accuracy(COUNTS, LABELS, radius, noise=law)  # type: ignore[arg-type]
    assert 0.0 < made.low[0] < 1.0
    assert made.thresholds[0] == threshold(law, radius)  # type: ignore[arg-type]


def test_thresholds_are_rounded_up() -> None:
    assert threshold(noise.Gaussian(0.5), 0.5) > ndtr(1.0)
    assert threshold(noise.Gaussian(0.5), 0.5) == pytest.approx(ndtr(1.0), abs=1e-13)
    assert threshold(noise.Gaussian(0.5), 0.0) > 0.5
    law = noise.Splitting(2.5)
    assert law.radius(2.0 * threshold(law, 1.0) - 1.0, "probability") >= 1.0
    assert threshold(law, 1.0) == pytest.approx(0.7, abs=0.001)


def test_radius_beyond_what_can_be_certified_has_no_limit() -> None:
    assert low(COUNTS, [0.25, 1e6])[1] == 0.0
    assert low(COUNTS, 3.0, sigma=None, noise=noise.Splitting(2.5))[0] == 0.0


def test_drawing_takes_its_part_of_delta() -> None:
    law = noise.GridGaussian(0.5)
    assert low(COUNTS, sigma=None, noise=law)[0] > 0.0
    with pytest.raises(InvalidInput, match="alpha must be at least 1e-10"):
        low(COUNTS, sigma=None, noise=law, delta=1e-11)


def test_sentence_and_plot() -> None:
    made = population_accuracy(COUNTS, LABELS, [0.25, 0.5], sigma=0.5, delta=0.01)
    text = str(made)
    assert "With probability at least 0.99 over the 392 inputs and their draws (60 each)" in text
    assert "share of the population that the inputs were drawn from" in text
    assert f"{np.floor(made.low[0] * 1000) / 1000:.3f} at 0.25" in text
    assert "everywhere in the open l2 ball of radius r" in text
    assert "share of these 400 inputs" in str(population_accuracy(COUNTS, LABELS, 0.5, sigma=0.5, fixed_list=True))
    axes = made.plot("title").axes[0]
    assert axes.get_title() == "title"
    assert made.low[0] in axes.lines[0].get_ydata()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"radii": -1.0}, "radii"),
        ({"radii": []}, "radii"),
        ({"pilot": 1.0}, "pilot"),
        ({"pilot": -0.1}, "pilot"),
        ({"pilot": 0.9999}, "pilot"),
        ({"seed": -1}, "seed"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": 0.999}, "did you mean 0.001"),
        ({"sigma": None}, "exactly one of sigma"),
        ({"noise": noise.Splitting(2.5)}, "exactly one of sigma"),
        ({"sigma": None, "noise": noise.DerandomizedSplitting(2.5)}, "noise must draw copies at random"),
        ({"labels": np.full(400, 2)}, "labels"),
        ({"labels": LABELS[:3]}, "labels"),
        ({"counts": VOTES}, "counts must have shape"),
        ({"counts": np.tile([1001, 0], (400, 1))}, "n, the draws of each input"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], named: str) -> None:
    asked: dict[str, object] = {"counts": COUNTS, "labels": LABELS, "radii": 0.25, "sigma": 0.5} | change
    with pytest.raises(InvalidInput, match=named):
        population_accuracy(**asked)  # type: ignore[arg-type]


def test_a_plan_reaches_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)

    def drawn(inputs: int, n: int) -> IntArray:
        p = np.where(rng.random(inputs) < 0.6, 1.0 - rng.beta(0.3, 6.0, inputs), rng.random(inputs))
        votes = rng.binomial(n, p)
        return np.stack([votes, n - votes], axis=1)

    pilot = drawn(600, 100)
    plan = plan_population(pilot, [0] * 600, 0.25, 0.5, sigma=0.5)
    assert [effort.n for effort in plan] == list(DRAWS_TRIED)
    monkeypatch.setattr(population, "DRAWS_TRIED", (20, 40))
    assert all(a.inputs > b.inputs for a, b in pairwise(plan)), "more draws, fewer inputs"
    effort = plan[1]
    assert effort.draws == 40 * effort.inputs
    none = [0] * effort.inputs
    lows = [population_accuracy(drawn(effort.inputs, 40), none, [0.25], sigma=0.5).low[0] for _ in range(6)]
    assert np.mean(lows) == pytest.approx(0.5, abs=0.08)
    # Above the share that the classifier has, and beyond what any votes show, there is no plan.
    assert plan_population(pilot, [0] * 600, 0.25, 0.9, sigma=0.5) == []
    assert plan_population(pilot, [0] * 600, 100.0, 0.1, sigma=0.5) == []
    with pytest.raises(InvalidInput, match="noise must draw copies at random"):
        plan_population(pilot, [0] * 600, 0.25, 0.5, noise=noise.DerandomizedSplitting(2.5))
    with pytest.raises(InvalidInput, match="wanted must be"):
        plan_population(pilot, [0] * 600, 0.25, 1.0, sigma=0.5)
