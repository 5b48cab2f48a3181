"""Certified accuracy and its band; the grid of round radii and the histogram over it."""

import dataclasses
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import buckler
from buckler.certificate import Claim
from buckler.evaluate.curves import (
    certified_accuracy,
    false_certificates,
    margin_accuracy,
    radius_histogram,
    round_grid,
)
from buckler.types import Noise


def certificates() -> buckler.Certificates:
    counts = np.array([[1000, 0], [950, 50], [500, 500], [20, 980]])
    return buckler.certify_votes(counts, sigma=1.0, labels=[0, 0, 0, 1], method="bonferroni")


def test_accuracy_counts_right_and_certified_inputs() -> None:
    made = certificates()
    radii = [0.0, made[1].radius, made[0].radius, made[0].radius + 1e-9]
    curve = certified_accuracy(made, [0, 0, 0, 0], radii)
    assert curve.accuracy.tolist() == [0.5, 0.5, 0.25, 0.0]
    assert curve.abstained == 0.25
    assert curve.name == "bonferroni"
    assert (curve.low <= curve.accuracy).all()
    assert curve.low[0] == 0.5 - false_certificates(4, 1e-3, 1e-3) / 4


def test_the_band_is_that_of_the_largest_alpha() -> None:
    counts, made = np.tile([1000, 0], (50, 1)), []
    for alpha in (1e-3, 0.2):
        ids = [f"{alpha} {i}" for i in range(50)]
        made.append(list(buckler.certify_votes(counts, sigma=1.0, alpha=alpha, ids=ids)))
    for both in ([*made[0], *made[1]], [*made[1], *made[0]]):
        low = certified_accuracy(both, [0] * 100, [0.1]).low[0]
        assert low == (100 - false_certificates(100, 0.2, 1e-3)) / 100


@pytest.mark.parametrize("inputs", [1, 10, 500, 10_000])
@pytest.mark.parametrize("alpha", [1e-3, 0.05])
@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_band_is_the_binomial_quantile(inputs: int, alpha: float, delta: float) -> None:
    k = false_certificates(inputs, alpha, delta)
    assert stats.binom.sf(k, inputs, alpha) <= delta
    assert k == 0 or stats.binom.sf(k - 1, inputs, alpha) > delta * (1 - 1e-8)


@pytest.mark.parametrize("inputs", [5, 30, 200])
def test_the_band_from_both_sides(inputs: int) -> None:
    """``P(Binomial(inputs, 1/8) > k)`` exactly: a delta at it needs one more, one 3e-9 above it does not."""
    for k in range(min(inputs, 12)):
        each = [Fraction(comb(inputs, i) * 7 ** (inputs - i), 8**inputs) for i in range(k + 1, inputs + 1)]
        tail = float(sum(each))
        if 1e-12 < tail < 0.9:
            assert false_certificates(inputs, 0.125, tail * (1.0 - 1e-12)) == k + 1
            assert false_certificates(inputs, 0.125, tail * (1.0 + 3e-9)) == k


def test_a_margin_of_zero_is_an_abstention_and_without_a_promise_there_is_no_band() -> None:
    limits, right = [0.0, 0.5, -1.0, 2.0], [True, True, True, False]
    curves = [
        margin_accuracy(limits, right, [0.0, 0.5, 0.6], alpha=0.05, sound=sound, name="") for sound in (True, False)
    ]
    for curve in curves:
        assert curve.abstained == 0.5
        assert curve.accuracy.tolist() == [0.5, 0.25, 0.0]
    assert curves[0].low.tolist() == [0.0, 0.0, 0.0]
    assert curves[1].low.tolist() == curves[1].accuracy.tolist()
    for low, counted in (([[0.5]], [[True]]), ([], []), ([0.5], [True, True]), ([np.nan], [True])):
        with pytest.raises(buckler.InvalidInput, match="one entry for each of at least one input"):
            margin_accuracy(low, counted, [0.0], alpha=0.05, sound=True, name="")


@pytest.mark.parametrize("inputs", [3, 7, 10, 49, 500])
def test_band_is_a_whole_number_of_inputs(inputs: int) -> None:
    """Not one roundoff above: a share less a share of certificates may round up."""
    k = false_certificates(inputs, 0.05, 0.01)
    limits = np.arange(1.0, inputs + 1.0)
    curve = margin_accuracy(limits, np.ones(inputs), limits, alpha=0.05, delta=0.01, sound=True, name="")
    assert curve.low.tolist() == [max(inputs - i - k, 0) / inputs for i in range(inputs)]


def test_bad_input() -> None:
    made = certificates()
    with pytest.raises(buckler.InvalidInput, match="labels"):
        certified_accuracy(made, [0, 1], [0.0])
    with pytest.raises(buckler.InvalidInput, match="radii"):
        certified_accuracy(made, [0, 0, 0, 0], [-1.0])
    with pytest.raises(buckler.InvalidInput, match="certificates"):
        certified_accuracy([], [], [0.0])
    twice = [*made, made[1]]
    with pytest.raises(buckler.InvalidInput, match="different inputs; got 'input 1' twice"):
        certified_accuracy(twice, [0] * 5, [0.0])
    with pytest.raises(buckler.InvalidInput, match="different inputs; got 'input 1' twice"):
        certified_accuracy(twice, None, [0.0])


def test_one_claim_without_a_promise_takes_the_band_from_all() -> None:
    made = certificates()
    fields = {field.name: getattr(made[0], field.name) for field in dataclasses.fields(Claim)}
    unsound = Claim(**{**fields, "id": "other", "method": "wald", "sound": False})
    curve = certified_accuracy([*made, unsound], [0, 0, 0, 1, 0], [0.0])
    assert curve.accuracy.tolist() == curve.low.tolist() == [0.8]
    assert (curve.name, certified_accuracy([unsound, *made], [0] * 5, [0.0]).name) == ("bonferroni", "wald")


def test_share_is_accuracy_if_every_prediction_is_right() -> None:
    made = certificates()
    radii = np.linspace(0.0, 3.0, 50)
    share = certified_accuracy(made, None, radii)
    accuracy = certified_accuracy(made, [0, 0, 0, 1], radii)
    assert share.accuracy.tolist() == accuracy.accuracy.tolist()
    assert share.low.tolist() == accuracy.low.tolist()
    assert share.abstained == 0.25
    with pytest.raises(buckler.InvalidInput, match="certificates"):
        certified_accuracy([], None, radii)


@given(st.floats(1e-6, 1e4), st.integers(1, 300))
def test_grid_covers_the_top_in_few_even_steps(top: float, cells: int) -> None:
    grid = round_grid(top, cells)
    assert grid[0] == 0.0
    assert grid[-2] <= top * (1 + 1e-9)
    assert top <= grid[-1] * (1 + 1e-9)
    assert grid.size <= cells + 2
    assert np.diff(grid) == pytest.approx(grid[1], rel=1e-6)


def test_histogram_counts_every_certificate_once() -> None:
    made = certificates()
    edges = [0.0, made[1].radius, made[0].radius]
    found = radius_histogram(made, [0, 1, 0, 1], edges)
    assert found.abstained == 1
    assert found.wrong.tolist() == [0, 1]
    assert found.right.tolist() == [0, 2]
    assert found.unlabelled.sum() == 0
    bare = radius_histogram(made, None, edges)
    assert bare.unlabelled.tolist() == [0, 3]


def test_bad_edges() -> None:
    with pytest.raises(buckler.InvalidInput, match="edges"):
        radius_histogram(certificates(), None, [0.0, 0.0])
    with pytest.raises(buckler.InvalidInput, match="labels"):
        radius_histogram(certificates(), [0], [0.0, 1.0])
    with pytest.raises(buckler.InvalidInput, match="top"):
        round_grid(0.0, 5)


def test_radii_of_other_norms_or_scales_are_no_curve() -> None:
    noises: list[Noise] = [buckler.noise.Gaussian(scale=scale) for scale in ([0.5, 0.25], [0.5, 0.125])]
    noises += [buckler.noise.Gaussian(0.5), buckler.noise.Splitting(0.5)]
    made = [buckler.certify_votes([[99, 1]], noise=noise, labels=[0], ids=[noise.describe()])[0] for noise in noises]
    for one, other, what in ((0, 1, "scale"), (0, 2, "norm"), (2, 3, "norm")):
        pair = [made[one], made[other]]
        with pytest.raises(buckler.InvalidInput, match=f"one {what}"):
            certified_accuracy(pair, None, [0.1])
