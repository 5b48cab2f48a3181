"""The linear programme against cases whose best test is known."""

import numpy as np
import pytest
from scipy import stats

from buckler.certify.votes import margin
from buckler.errors import InvalidInput
from buckler.evaluate.audit import multinomial_pmf, outcomes
from buckler.evaluate.power import compare_power, default_truths, least_favourable, optimal_power
from buckler.types import MarginKind


def test_pmf_agrees_with_scipy() -> None:
    counts, truth = outcomes(3, 7), np.array([0.2, 0.5, 0.3])
    assert multinomial_pmf(counts, truth[None])[0] == pytest.approx(stats.multinomial(7, truth).pmf(counts))


def test_simple_hypotheses_are_neyman_and_pearsons() -> None:
    """One null against one alternative: the likelihood-ratio test, randomised at its boundary, is the best."""
    n, alpha = 12, 0.03
    counts = outcomes(2, n)
    null, truth = multinomial_pmf(counts, np.array([[0.5, 0.5], [0.8, 0.2]]))
    order = np.argsort(-counts[:, 0])
    below = np.searchsorted(np.cumsum(null[order]), alpha)
    rest = (alpha - null[order][:below].sum()) / null[order][below]
    expected = truth[order][:below].sum() + rest * truth[order][below]
    assert optimal_power(null[None], truth, alpha) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("kind", ["quantile", "probability"])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_least_favourable_truths_are_in_the_hypothesis(kind: MarginKind, m: int) -> None:
    truths = least_favourable(kind, 0.3, m, 12)
    assert truths.sum(axis=1) == pytest.approx(1.0)
    assert (margin(kind, truths[:, 0], truths[:, 1:].max(axis=1)) <= 0.3 + 1e-9).all()


@pytest.mark.parametrize("m", [2, 3, 5])
def test_default_truths_are_truths(m: int) -> None:
    for truth in default_truths(m):
        assert len(truth) == m
        assert sum(truth) == pytest.approx(1.0)
        assert truth[0] > max(truth[1:])


@pytest.mark.parametrize("kind", ["quantile", "probability"])
@pytest.mark.parametrize("power", [0.3, 0.7])
def test_a_neutral_target_is_where_the_best_test_has_that_power(kind: MarginKind, power: float) -> None:
    counts, truth, alpha = outcomes(3, 15), [0.8, 0.1, 0.1], 0.05
    (row,) = compare_power({}, counts, margin=kind, alpha=alpha, truths=[truth], power=power)
    assert power <= row.optimum < power + 1e-3
    mass = multinomial_pmf(counts, np.array([truth]))[0]
    null = multinomial_pmf(counts, least_favourable(kind, row.target + 1e-4, 3, 40))
    assert optimal_power(null, mass, alpha) < power


def test_two_classes_are_tested_on_the_edge() -> None:
    """With two classes the null holds one least favourable truth, and the best test is the binomial one."""
    (row,) = compare_power({}, outcomes(2, 20), margin="probability", alpha=0.05, truths=[[0.9, 0.1]])
    p = (1.0 + row.target) / 2.0
    level, power = stats.binom(20, [p, 0.9]).sf(np.arange(20)[:, None]).T
    largest = int(np.argmax(level <= 0.05))
    assert power[largest] <= row.optimum <= power[largest - 1]


def test_truths_without_a_target_are_left_out() -> None:
    """The quantile margin of a certain class is infinite; one vote in a million needs a margin below -8."""
    for truth, alpha in (([1.0, 0.0, 0.0], 0.1), ([1e-6, 0.999998, 1e-6], 1e-3)):
        assert compare_power({}, outcomes(3, 2), margin="quantile", alpha=alpha, truths=[truth]) == []


def test_an_unsound_bound_may_pass_the_optimum_and_a_sound_one_not() -> None:
    counts = outcomes(3, 15)
    estimate = (counts[:, 0] - counts[:, 1:].max(axis=1)) / 15.0
    bounds = {"estimate": estimate, "timid": estimate - 0.9}
    (row,) = compare_power(bounds, counts, margin="probability", alpha=0.05, truths=[[0.6, 0.3, 0.1]])
    assert row.powers["timid"] <= row.optimum < row.powers["estimate"]


def test_a_truth_that_is_none_is_named() -> None:
    with pytest.raises(InvalidInput, match="sum 1"):
        compare_power({"a": np.zeros(3)}, outcomes(2, 2), margin="quantile", alpha=0.1, truths=[[0.5, 0.4]])
