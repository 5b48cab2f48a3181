"""The published estimators, judged as the sound ones are: they fail, and for the reasons that docs/errata.md gives."""

import numpy as np
import pytest

from benchmarks import errata
from buckler.certify.votes import vote_margin_lower
from buckler.evaluate.audit import CountsBound, audit_discrete
from buckler.paper.estimators import published_margin_lower
from buckler.types import FloatArray, IntArray, MarginKind
from tests.simulation import judge


def published(kind: MarginKind, alpha: float, *, inclusive: bool = False) -> CountsBound:
    """Return the published bound, its 0 read as an abstention: all that is left to fail is what it claims."""

    def bound(counts: IntArray) -> FloatArray:
        top, other, n = counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)
        lows = published_margin_lower(top, other, n, alpha=alpha, margin=kind, inclusive=inclusive)
        return np.where(lows > 0.0, lows, -np.inf)

    return bound


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize(("m", "n"), [(3, 40), (4, 20)])
@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_published_fails_the_audit(kind: MarginKind, m: int, n: int, alpha: float) -> None:
    found = audit_discrete(published(kind, alpha), margin=kind, num_classes=m, n=n, alpha=alpha, points=12)
    assert not found.passed, str(found)
    assert found.miss > 0.5


@pytest.mark.parametrize("kind", ["probability", "quantile"])
def test_the_strict_inequality_alone_is_why(kind: MarginKind) -> None:
    """With ties counted, the same algorithms pass: and reach alpha, so the audit looked where it matters."""
    found = audit_discrete(
        published(kind, 0.05, inclusive=True), margin=kind, num_classes=3, n=20, alpha=0.05, points=24
    )
    assert found.passed, str(found)
    assert found.miss > 0.04


def test_no_valid_bound_reaches_what_is_published_at_the_top_outcome() -> None:
    """At (100, 0) a bound above 3.00095 is false with probability above .001 at a truth just below it."""
    largest = float(vote_margin_lower(100, 0, 100, method="top_class"))
    assert largest == pytest.approx(3.00095, abs=1e-5)
    assert float(published_margin_lower(100, 0, 100)) > 1.5 * largest


def test_the_second_margin_from_scores_is_false_almost_surely() -> None:
    rows, weights = errata.over_claiming()
    truth = errata.true_margin(rows, weights)
    rng = np.random.default_rng(7)
    runs = rows[rng.choice(3, size=(30, 6000), p=weights)]
    labels = np.zeros(30, dtype=np.int64)
    for method in ("cited/sequence", "cited/bernstein"):
        assert (errata.score_limits(method, runs, labels, 0.001, "quantile") > truth).all()
    first = errata.score_limits("cited/sequence", runs, labels, 0.001, "probability")
    assert judge(int((first > (weights @ rows)[0] - (weights @ rows)[1]).sum()), 30, 0.001).passed
