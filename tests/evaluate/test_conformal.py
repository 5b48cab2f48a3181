"""Robust prediction sets: what is taken, what is returned, and what the tuning inputs are used for."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from flint import arb
from scipy.special import ndtr, ndtri

from buckler import InvalidInput, RobustConformal, noise
from buckler.certify import budget
from buckler.evaluate.conformal import controlled_threshold, nested_polynomials, worst_move
from buckler.evaluate.population import shuffled
from buckler.types import FloatArray, IntArray
from tests.balls import normal_cdf, normal_quantile

RNG = np.random.default_rng(3)
SCORES: FloatArray = RNG.dirichlet([0.6, 0.3, 0.3], (120, 10))
LABELS = np.zeros(120, dtype=np.int64)
VOTES: IntArray = (SCORES.argmax(axis=2)[:, :, None] == np.arange(3)).sum(axis=1)


def made(radius: float = 0.25, **options: object) -> RobustConformal:
    return RobustConformal(**({"sigma": 0.5, "radius": radius, "alpha": 0.2} | options))  # type: ignore[arg-type]


def test_radius_zero_is_plain_conformal_prediction() -> None:
    """The set holds y if its votes are at least the quantile of rank floor(alpha (N + 1)) of the calibration's."""
    conformal = made(0.0, alpha=0.1).calibrate(VOTES, LABELS, tuning=0.25, seed=4)
    own = np.sort(VOTES[shuffled(120, 4)[30:], 0])
    rank = int(Fraction(0.1) * (own.size + 1))
    assert conformal.thresholds.tolist() == [own[rank - 1]] * 3
    assert (conformal.predict_sets(VOTES) == (own[rank - 1] <= VOTES)).all()


def test_draws_of_calibration_and_new_input_count_towards_the_most_that_words_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "MOST_STATEMENT_DRAWS", 91 * 10)
    made(0.0).calibrate(VOTES, LABELS, tuning=0.25)
    monkeypatch.setattr(budget, "MOST_STATEMENT_DRAWS", 91 * 10 - 1)
    with pytest.raises(InvalidInput, match="draws of all inputs must be at most 909 together; got 910"):
        made(0.0).calibrate(VOTES, LABELS, tuning=0.25)


def test_sets_grow_with_the_radius_and_shrink_with_alpha() -> None:
    sizes = [made(r).calibrate(SCORES, LABELS).predict_sets(SCORES).sum() for r in (0.0, 0.1, 0.5)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    several = [made(alpha=a).calibrate(VOTES, LABELS).thresholds[0] for a in (0.05, 0.2, 0.5)]
    assert several == sorted(several)
    assert several[0] < several[-1]


def test_scores_are_counted_from_tau_on_among_the_first_n() -> None:
    conformal = made().calibrate(SCORES, LABELS, n=8)
    assert conformal.n == 8
    assert conformal.tau is not None
    counts = (SCORES[:, :8] >= conformal.tau).sum(axis=1)
    assert (conformal.predict_sets(SCORES) == (counts >= conformal.thresholds)).all()


@pytest.mark.parametrize("values", [VOTES, SCORES])
def test_sets_are_booleans_by_input_and_class(values: FloatArray) -> None:
    sets = made().calibrate(values, LABELS).predict_sets(values[:7])
    assert sets.shape == (7, 3)
    assert sets.dtype == np.bool_


def test_only_tuning_inputs_choose_tau() -> None:
    order = shuffled(120, 0)
    changed = SCORES.copy()
    changed[order[36:]] = changed[order[36:]][:, :, ::-1]
    before, after = made().calibrate(SCORES, LABELS), made().calibrate(changed, LABELS)
    assert before.tau == after.tau
    assert before.thresholds[0] > after.thresholds[0]
    changed = SCORES.copy()
    changed[order[:36]] = changed[order[:36]] ** 2
    assert made().calibrate(changed, LABELS).tau != before.tau


def test_every_label_may_have_its_threshold() -> None:
    labels = np.arange(120) % 2
    counts = np.where(labels[:, None] == 0, VOTES, VOTES[:, [1, 0, 2]])
    counts[labels == 1, 1] //= 2
    counts[:, 2] = 10 - counts[:, 0] - counts[:, 1]
    found = made(0.0).calibrate(counts, labels, by_label=True)
    rest = shuffled(120, 0)[36:]
    for y in (0, 1):
        own = np.sort(counts[rest][labels[rest] == y, y])
        assert found.thresholds[y] == own[int(Fraction(0.2) * (own.size + 1)) - 1]
    assert found.thresholds[2] == 0  # nobody has this label, so nothing is known of it


def test_losses_are_compared_exactly() -> None:
    """Of nine votes one is below 3; with the new input, 2 of 10 losses are 0.2, which is allowed at 0.2."""
    indicator = [(k, np.where(np.arange(6) >= k, 1.0, 0.0)) for k in range(6)]
    votes = np.array([5, 5, 4, 4, 4, 3, 3, 3, 2])
    assert controlled_threshold(indicator, votes, 0.2) == 3
    assert controlled_threshold(indicator, votes, float(np.nextafter(0.2, 0.0))) == 2
    assert controlled_threshold(indicator, votes, 0.0) == 0
    assert controlled_threshold(indicator, votes[:0], 0.5) == 0


def test_family_falls_everywhere() -> None:
    law = np.full(31, 1.0 / 31)
    family = nested_polynomials(9, law, 100, worst_move(noise.Gaussian(0.5), 0.25))
    assert [k for k, _ in family] == list(range(31))
    for (_, before), (_, after) in pairwise(family):
        assert (after <= before).all()


@pytest.mark.parametrize("p", [1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9])
def test_worst_move_is_rounded_down(p: float) -> None:
    value, slope = worst_move(noise.Gaussian(0.5), 0.25)(np.array([p]))
    exact = normal_quantile(p) - arb(0.5)
    assert normal_cdf(exact) >= float(value[0])
    assert float(value[0]) == pytest.approx(float(ndtr(ndtri(p) - 0.5)), rel=1e-11)
    assert (normal_quantile(p) / 2 - arb(0.125)).exp() >= float(slope[0])
    assert slope[0] == pytest.approx(np.exp(0.5 * ndtri(p) - 0.125), rel=1e-11)


def test_worst_move_under_total_variation() -> None:
    law = noise.Splitting(2.5)
    value, slope = worst_move(law, 0.5)(np.array([0.0, 0.05, 0.6, 1.0]))
    assert value == pytest.approx([0.0, 0.0, 0.5, 0.9], abs=1e-9)
    assert (value <= [0.0, 0.0, 0.5, 0.9]).all()
    assert slope == pytest.approx([0.0, 0.0, 1.0, 1.0])
    found = made(0.2, sigma=None, noise=law).calibrate(VOTES, LABELS)
    assert found.thresholds[0] > 0


def test_noise_drawn_from_words_pays_for_its_drawing() -> None:
    """2^-40 of alpha: where 2 of 10 losses are allowed at 0.2 exactly, they no longer are."""
    votes = np.array([9] * 8 + [1, 10] + [10] * 3)
    counts = np.stack([votes, 10 - votes], axis=1)[np.argsort(shuffled(13, 0))]
    ties = {
        law.name: made(0.0, sigma=None, noise=law)
        .calibrate(counts, np.zeros(13, dtype=int), tuning=4 / 13)
        .thresholds[0]
        for law in (noise.Gaussian(0.5), noise.GridGaussian(0.5))
    }
    assert ties["gaussian"] > ties["grid"]


def test_sentence() -> None:
    conformal = made(0.25)
    assert "not calibrated yet" in str(conformal)
    text = str(conformal.calibrate(VOTES, LABELS))
    assert "everywhere in the open l2 ball of radius 0.25, in the units of the input, around that input" in text
    assert "probability at least 0.8 over calibration inputs" in text
    assert f"at least {conformal.thresholds[0]} of 10 votes" in text
    assert "scores of at least" in str(conformal.calibrate(SCORES, LABELS))


@pytest.mark.parametrize(
    ("options", "values", "more", "named"),
    [
        ({"radius": -1.0}, VOTES, {}, "radius"),
        ({"alpha": 1.0}, VOTES, {}, "alpha"),
        ({"alpha": 0.9}, VOTES, {}, "did you mean 0.1"),
        ({"sigma": None}, VOTES, {}, "exactly one of sigma"),
        ({"sigma": None, "noise": noise.DerandomizedSplitting(2.5)}, VOTES, {}, "noise must draw copies at random"),
        ({"sigma": None, "noise": noise.Splitting(2.5), "radius": 3.0}, VOTES, {}, "radius must be one that"),
        ({}, VOTES[0], {}, "values must have shape"),
        ({}, VOTES[:119], {}, "labels"),
        ({}, VOTES + np.eye(120, 3, dtype=int), {}, "values must add up to the same number of draws"),
        ({}, VOTES + 0.5, {}, "values"),
        ({}, VOTES, {"n": 3}, "values must be at most n = 3"),
        ({}, VOTES, {"tuning": 0.0}, "tuning"),
        ({}, VOTES, {"tuning": 1.0}, "tuning"),
        ({}, VOTES, {"seed": -1}, "seed"),
        ({}, SCORES, {"n": 11}, "values must hold at least n = 11 draws"),
        ({}, np.full_like(SCORES, np.nan), {}, "values"),
    ],
)
def test_what_is_wrong_is_named(
    options: dict[str, object], values: object, more: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        made(**options).calibrate(values, LABELS, **more)  # type: ignore[arg-type]


def test_new_values_must_fit_the_calibration() -> None:
    with pytest.raises(InvalidInput, match="calibrate must be called"):
        made().predict_sets(VOTES)
    conformal = made().calibrate(VOTES, LABELS)
    with pytest.raises(InvalidInput, match="2 axes and 3 classes"):
        conformal.predict_sets(SCORES)
    with pytest.raises(InvalidInput, match="2 axes and 3 classes"):
        conformal.predict_sets(VOTES[:, :2])
    with pytest.raises(InvalidInput, match="values must be at most n = 10"):
        conformal.predict_sets(2 * VOTES + 10)
    assert conformal.predict_sets(np.zeros((0, 3), dtype=int)).shape == (0, 3)
