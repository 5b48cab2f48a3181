"""Every sound discrete method, over every outcome: the worst truth misses with probability at most alpha."""

import numpy as np
import pytest
from scipy import stats

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certify.methods import Method, sound_methods
from buckler.certify.votes import margin_from_limits, vote_margin_lower
from buckler.errors import InvalidInput
from buckler.evaluate.audit import CountsBound, audit_discrete, orders, outcomes, treats_rivals_alike
from buckler.types import FloatArray, IntArray, MarginKind


def bound_of(method: Method, kind: MarginKind, alpha: float) -> CountsBound:
    def bound(counts: IntArray) -> FloatArray:
        return vote_margin_lower(
            counts[:, 0],
            counts[:, 1:].max(axis=1),
            counts.sum(axis=1),
            alpha=alpha,
            margin=kind,
            method=method.name,
            num_classes=counts.shape[1],
        )

    return bound


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize(("m", "n"), [(3, 40), (4, 20)])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
@pytest.mark.parametrize("method", sound_methods(), ids=lambda method: method.name)
def test_sound(method: Method, kind: MarginKind, m: int, n: int, alpha: float) -> None:
    found = audit_discrete(bound_of(method, kind, alpha), margin=kind, num_classes=m, n=n, alpha=alpha, points=24)
    assert found.passed, str(found)
    assert found.miss > alpha / (m + 1), f"the audit found no truth near the worst: {found}"


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_planted_bug_one_vote_too_many(kind: MarginKind, alpha: float) -> None:
    """Clopper-Pearson at k + 1 in place of k, the usual off-by-one, is caught."""

    def bound(counts: IntArray) -> FloatArray:
        n = counts.sum(axis=1)
        low = clopper_pearson_lower(np.minimum(counts[:, 0] + 1, n), n, alpha)
        return margin_from_limits(kind, low, 1.0 - low)

    assert not audit_discrete(bound, margin=kind, num_classes=3, n=40, alpha=alpha, points=8).passed


def test_planted_bug_no_split_of_alpha() -> None:
    """Two limits at alpha each, with nothing paid for the union, are caught where both can fail."""

    def bound(counts: IntArray) -> FloatArray:
        n = counts.sum(axis=1)
        low = clopper_pearson_lower(counts[:, 0], n, 0.08)
        return margin_from_limits("probability", low, clopper_pearson_upper(counts[:, 1:].max(axis=1), n, 0.08))

    assert not audit_discrete(bound, margin="probability", num_classes=3, n=40, alpha=0.05, points=8).passed


def test_planted_bug_class_read_off_the_same_counts() -> None:
    """Certifying the argmax of the estimation counts themselves is caught (class 0 holds the truth's margin)."""

    def bound(counts: IntArray) -> FloatArray:
        ordered = -np.sort(-counts, axis=1)
        return vote_margin_lower(ordered[:, 0], ordered[:, 1], counts.sum(axis=1), alpha=0.05, method="top_class")

    assert not audit_discrete(bound, margin="quantile", num_classes=3, n=40, alpha=0.05, points=8).passed


@pytest.mark.parametrize("blind", [1, 2, 3])
def test_planted_bug_a_rival_that_is_not_looked_at(blind: int) -> None:
    """A bound that treats its rivals unequally is tried with each of them in each role."""

    def bound(counts: IntArray) -> FloatArray:
        n, rivals = counts.sum(axis=1), np.delete(counts, [0, blind], axis=1).max(axis=1)
        low = clopper_pearson_lower(counts[:, 0], n, 0.025)
        return margin_from_limits("probability", low, clopper_pearson_upper(rivals, n, 0.025))

    found = audit_discrete(bound, margin="probability", num_classes=4, n=12, alpha=0.05, points=8)
    assert not found.passed
    assert int(np.argmax(found.truth[1:])) + 1 == blind


def test_orders_of_rivals() -> None:
    assert len(orders(7)) == 720
    assert {order[0] for order in orders(10)} == set(range(1, 10))
    assert treats_rivals_alike(outcomes(4, 5), np.sort(outcomes(4, 5)[:, 1:], axis=1)[:, 1].astype(float))


def test_outcomes_are_all_there() -> None:
    counts = outcomes(4, 6)
    assert len(counts) == 84
    assert len({tuple(row) for row in counts.tolist()}) == 84
    assert (counts.sum(axis=1) == 6).all()


def test_miss_probability_agrees_with_scipy() -> None:
    """A constant bound of zero misses exactly on the outcomes' whole mass whenever the margin is negative."""
    found = audit_discrete(lambda counts: np.zeros(len(counts)), margin="probability", num_classes=3, n=5, alpha=0.1)
    assert found.miss == pytest.approx(1.0)
    truth = np.array(found.truth)
    assert truth[0] < truth[1:].max()
    assert stats.multinomial(5, truth).pmf(outcomes(3, 5)).sum() == pytest.approx(1.0)


def test_a_bound_of_another_shape_or_with_nan_is_named() -> None:
    for lows, came in ((np.full(15, np.nan), "NaN among them"), (np.zeros(3), r"shape \(3,\)")):
        with pytest.raises(InvalidInput, match=f"bound must return 15 limits.*got {came}"):
            audit_discrete(lambda _, lows=lows: lows, margin="probability", num_classes=3, n=4, alpha=0.05)  # type: ignore[misc]
