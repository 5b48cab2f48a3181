"""Scores until decided: the limit holds whenever one looks, a fixed-n limit in its place is found or refused."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betainc, ndtri

import buckler
from buckler.bounds.bounded import sequence_lower
from buckler.certify import score_stopping
from buckler.certify.budget import after_drawing
from buckler.certify.make_certificates import terms_of
from buckler.certify.registry import sound_method, sound_methods
from buckler.certify.score_stopping import ScorePlan, ScoreTest
from buckler.certify.tangents import margin_from_height
from buckler.types import AnyArray, FloatArray, MarginKind


def plan(alpha: float = 1e-3, margin: MarginKind = "probability", **options: Any) -> ScorePlan:
    terms = terms_of(sound_method("pairwise/sequence"), sigma=1.0, alpha=alpha, margin=margin, scores=("softmax", None))
    return ScorePlan(terms, 0, **{"max_n": 1500, "precision": 1e-12} | options)


def misses(p: float, alpha: float, margin: MarginKind, runs: int, slope: float = 1.0) -> int:
    """Return how many of so many inputs ever have a limit above their true margin; scores are votes, of two classes."""
    test = ScoreTest(plan(alpha, margin), np.zeros(runs, dtype=int), 2)
    test._slopes[:] = slope
    rng = np.random.default_rng(0)
    while (rows := test.undecided).size:
        size = test.batch_size(int(test.n[rows[0]]))
        for row in rows:
            test.update(row, np.eye(2)[(rng.random(size) > p).astype(int)])
    truth = 2 * p - 1 if margin == "probability" else 2 * float(ndtri(p))
    return int((test.limits(range(runs), tuple(map(str, range(runs)))).low > truth).sum())


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

    monkeypatch.setattr(score_stopping, "sequence_lower", fixed)
    missed = misses(0.5, ALPHA, "probability", 400)
    assert betainc(missed, 400 - missed + 1, ALPHA) < 1e-6


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_each_rival_has_its_slope_and_range_and_what_rounding_may_add_is_taken_away(
    margin: MarginKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allowance made large: it is 1 + c for a slope c. The best limit of any look is kept, the least rival's."""
    monkeypatch.setattr(score_stopping, "SLACK", large := 1e-3)
    slopes = (1.0, 2.0) if margin == "quantile" else (1.0, 1.0)
    test = ScoreTest(plan(margin=margin, max_n=2000), [0], 3)
    test._slopes[0] = slopes
    shares = np.random.default_rng(1).integers(0, 2**10, (2000, 2)) / 2**13
    rows = np.stack([1.0 - shares[:, 0] - shares[:, 1], shares[:, 0], 0.5 * shares[:, 1]], axis=1)
    rows[900:, 0] = 0.0  # what was known before is not forgotten
    best = np.full(2, -np.inf)
    for start, stop in ((0, 300), (300, 900), (900, 1400)):
        test.update(0, rows[start:stop])
        for j, c in enumerate(slopes):
            draws = rows[:stop, 0] - c * rows[:stop, 1 + j]
            low = float(sequence_lower(draws, test.plan.level, -c, 1.0)) - large * (1.0 + c)
            best[j] = max(best[j], low if margin == "probability" else float(margin_from_height(low, c)))
        assert float(test.limits(range(1), ("a",)).low[0]) == pytest.approx(best.min(), abs=1e-10)
        assert test.undecided.size == (stop < 1400), "until more is certified than all draws suggest"
    assert best.min() > 0.1


@pytest.mark.parametrize("method", [m.name for m in sound_methods("scores") if m.name != "pairwise/sequence"])
def test_what_does_not_hold_at_any_time_is_refused_by_name(method: str) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    margin: MarginKind = "probability"
    with pytest.raises(buckler.InvalidInput, match=f"method must be 'pairwise/sequence'.*'{method}' holds at a number"):
        smoothed.certify([0.6], radii=[0.1], map="softmax", method=method, margin=margin)


def half_space(batch: AnyArray) -> AnyArray:
    flat = batch.reshape(len(batch), -1)
    return np.stack([flat[:, 0], -flat[:, 0]], axis=1)


@pytest.mark.parametrize("margin", ["probability", "quantile"])
def test_radii_are_decided_with_few_draws(margin: MarginKind) -> None:
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    options: Any = {"map": "softmax", "temperature": 0.1, "max_n": 20_000, "margin": margin}
    near = smoothed.certify([1.0], radii=[0.1, 0.25], **options)
    assert (near.predicted, near.method, near.map, near.temperature) == (0, "pairwise/sequence", "softmax", 0.1)
    assert 0.25 <= near.radius < 1.0
    assert near.n < 1000
    far = smoothed.certify([0.1], radii=[0.5], **options)
    assert far.radius < 0.5
    assert far.n < 5000
    rough, fine = (smoothed.certify([0.8], precision=share, **options) for share in (0.3, 0.1))
    assert rough.n < fine.n < 20_000
    assert rough.radius < fine.radius < 0.8


def test_many_are_what_each_is_alone_and_an_interrupt_leaves_the_first() -> None:
    points = np.linspace(-1.0, 1.0, 7)[:, None]
    options: Any = {"map": "sparsemax", "radii": [0.2], "max_n": 4000, "seed": 2}
    smoothed = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
    whole = smoothed.certify_many(points, **options)
    assert whole == [smoothed.certify(point, **options) for point in points]
    given = smoothed.certify_many(points, labels=[1, 1, 1, 1, 0, 0, 0], n0=0, **options)
    assert {c.n0 for c in given} == {0}

    calls = []

    def stops(batch: AnyArray) -> AnyArray:
        calls.append(len(batch))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return half_space(batch)

    part = buckler.Smoothed(stops, sigma=0.5, num_classes=2).certify_many(points, **options)
    assert 0 < len(part) <= part.asked == 7
    assert all(c.n < 4000 for c in part)


def test_drawing_takes_its_part_of_alpha() -> None:
    law, alpha = buckler.noise.GridGaussian(0.5), 1e-10
    terms = terms_of(
        sound_method("pairwise/sequence"), law=law, alpha=alpha, margin="probability", scores=("softmax", None)
    )
    assert ScorePlan(terms, 0, 4000, (0.1,)).level == after_drawing(alpha, law) < alpha
