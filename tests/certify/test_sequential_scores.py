"""Scores until decided: the limit holds whenever one looks, a fixed-n limit in its place is found or refused."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betainc, ndtri

import buckler
from buckler.bounds.betting import sequence_lower
from buckler.certify import sequential
from buckler.certify.budget import after_drawing
from buckler.certify.methods import sound_methods
from buckler.certify.sequential import SEQUENCE, ScoreTest
from buckler.certify.settings import Settings, Softmax, make_settings
from buckler.certify.tangents import margin_from_height
from buckler.types import AnyArray, FloatArray, IntArray, MarginKind


def settings(
    alpha: float = 1e-3, margin: MarginKind = "probability", method: str = SEQUENCE, seed: int | None = None
) -> Settings:
    return make_settings(sigma=1.0, alpha=alpha, margin=margin, method=method, scores=Softmax(), seed=seed)


def limits(test: ScoreTest, inputs: int) -> FloatArray:
    return np.array([c.margin for c in test.certificates(slice(0, inputs), [str(i) for i in range(inputs)])])


def misses(p: float, alpha: float, margin: MarginKind, runs: int, slope: float = 1.0) -> int:
    """Return how many of so many inputs ever have a limit above their true margin; scores are votes, of two classes."""
    labels: IntArray = np.zeros(runs, dtype=np.int64)
    test = ScoreTest(settings(alpha, margin), runs, 2, max_n=1500, labels=labels, precision=1e-12)
    test._slopes[:] = slope
    rng = np.random.default_rng(0)
    while (rows := test.undecided).size:
        size = test.batch_size(int(test.n[rows[0]]))
        for row in rows:
            test.update(row, np.eye(2)[(rng.random(size) > p).astype(int)])
    truth = 2 * p - 1 if margin == "probability" else 2 * float(ndtri(p))
    return int((limits(test, runs) > truth).sum())


ALPHA = 0.2


@pytest.mark.parametrize(("margin", "p", "slope", "runs"), [("probability", 0.5, 1.0, 400), ("quantile", 0.7, 2.0, 60)])
def test_the_limit_holds_whenever_one_looks(margin: MarginKind, p: float, slope: float, runs: int) -> None:
    missed = misses(p, ALPHA, margin, runs, slope)
    # The judge errs once in a million: the chance of so many misses or more at level alpha.
    assert betainc(missed or 1, runs - missed + 1, ALPHA) > 1e-6


def test_a_limit_for_a_fixed_number_of_draws_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the right level at any one look, looked at a dozen times: it misses more than twice as often."""

    def fixed(x: FloatArray, alpha: float, low: float, high: float) -> FloatArray:
        del low, high
        return np.asarray(x.mean(axis=0) + float(ndtri(alpha)) * x.std(axis=0) / np.sqrt(len(x)))

    monkeypatch.setattr(sequential, "sequence_lower", fixed)
    missed = misses(0.5, ALPHA, "probability", 400)
    assert betainc(missed, 400 - missed + 1, ALPHA) < 1e-6


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_each_rival_has_its_slope_and_range_and_what_rounding_may_add_is_taken_away(
    margin: MarginKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allowance made large: it is 1 + c for a slope c. The best limit of any look is kept, the least rival's."""
    monkeypatch.setattr(sequential, "SLACK", large := 1e-3)
    slopes = (1.0, 2.0) if margin == "quantile" else (1.0, 1.0)
    test = ScoreTest(settings(margin=margin), 1, 3, max_n=2000, labels=np.array([0]), precision=1e-12)
    test._slopes[0] = slopes
    shares = np.random.default_rng(1).integers(0, 2**10, (2000, 2)) / 2**13
    rows = np.stack([1.0 - shares[:, 0] - shares[:, 1], shares[:, 0], 0.5 * shares[:, 1]], axis=1)
    rows[900:, 0] = 0.0  # what was known before is not forgotten
    best = np.full(2, -np.inf)
    for start, stop in ((0, 300), (300, 900), (900, 1400)):
        test.update(0, rows[start:stop])
        for j, c in enumerate(slopes):
            draws = rows[:stop, 0] - c * rows[:stop, 1 + j]
            low = float(sequence_lower(draws, 1e-3, -c, 1.0)) - large * (1.0 + c)
            best[j] = max(best[j], low if margin == "probability" else float(margin_from_height(low, c)))
        assert float(limits(test, 1)[0]) == pytest.approx(best.min(), abs=1e-10)
        assert test.undecided.size == (stop < 1400), "until more is certified than all draws suggest"
    assert best.min() > 0.1


@pytest.mark.parametrize("method", [m.name for m in sound_methods("scores") if m.name != SEQUENCE])
def test_what_does_not_hold_at_any_time_is_refused_by_name(method: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=f"method must be 'pairwise/sequence'.*'{method}', which holds at a"):
        ScoreTest(settings(method=method, seed=0), 1, 2, max_n=100)


def half_space(batch: AnyArray) -> AnyArray:
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
@pytest.mark.parametrize("n0", [0, 50])
def test_radii_are_decided_with_few_draws(margin: MarginKind, n0: int) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2, scores=Softmax(0.1))
    options: Any = {"max_n": 20_000, "margin": margin, "n0": n0}
    near = smoothed.certify_until([[1.0]], radii=[0.1, 0.25], **options)[0]
    assert (near.predicted, near.method, near.map, near.temperature) == (0, "pairwise/sequence", "softmax", 0.1)
    assert (near.n0, near.winner_alpha > 0.0) == (n0, n0 == 0)
    assert 0.25 <= near.radius < 1.0
    assert near.n < 1000
    far = smoothed.certify_until([[0.1]], radii=[0.5], **options)[0]
    assert far.radius < 0.5
    assert far.n < 5000
    rough, fine = (smoothed.certify_until([[0.8]], precision=share, **options)[0] for share in (0.3, 0.1))
    assert rough.n < fine.n < 20_000
    assert rough.radius < fine.radius < 0.8


def test_a_leader_that_changes_is_certified_from_all_draws_once_it_is_the_winner() -> None:
    test = ScoreTest(settings(0.05), 1, 3, max_n=4000, radii=[0.2])
    test.update(0, np.tile([[0.1, 0.85, 0.05]], (64, 1)))
    assert test.certificates(slice(0, 1), ["a"])[0].predicted == 1
    tied = ScoreTest(settings(0.05), 1, 3, max_n=4000, precision=0.3)
    rows = np.tile([[0.45, 0.5, 0.05], [0.5, 0.45, 0.05]], (32, 1))
    tied.update(0, rows)
    assert tied.certificates(slice(0, 1), ["a"])[0].abstained
    for _ in range(20):
        if not tied.undecided.size:
            break
        tied.update(0, np.tile([[0.9, 0.05, 0.05]], (64, 1)))
    found = tied.certificates(slice(0, 1), ["a"])[0]
    assert found.predicted == 0
    assert 0.0 < found.winner_alpha < 0.05


def test_drawing_takes_its_part_of_alpha() -> None:
    """Noise from words leaves less for the limit: it is the one of Gaussian noise at that smaller level."""
    law, alpha, rows = buckler.noise.GridGaussian(1.0), 1e-10, np.tile([[0.9, 0.1], [0.8, 0.2]], (40, 1))
    found = []
    for level, noise in ((alpha, law), (after_drawing(alpha, law), buckler.noise.Gaussian(1.0)), (alpha, None)):
        drawn = noise or buckler.noise.Gaussian(1.0)
        asked = make_settings(noise=drawn, alpha=level, margin="probability", method=SEQUENCE, scores=Softmax())
        test = ScoreTest(asked, 1, 2, max_n=4000, labels=np.array([0]), radii=(0.1,))
        test.update(0, rows)
        found.append(float(limits(test, 1)[0]))
    assert found[0] == found[1] < found[2]
