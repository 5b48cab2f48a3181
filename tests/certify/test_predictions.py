"""Predicting with abstention: exact chances of a wrong class, at fixed n and at any time, and planted bugs."""

from itertools import product

import numpy as np
import pytest
from flint import arb
from scipy.special import betainc, gammaln, xlogy

import buckler
from buckler.certify.predictions import PredictionTest, predicted_class
from buckler.evaluate.audit import outcomes
from buckler.types import ArrayLike, FloatArray, IntArray

TRUTHS = [
    np.array(p) / sum(p)
    for p in [
        (1, 1),
        (1.2, 1),
        (1, 1, 1),
        (2, 2, 1),
        (1.1, 1, 1),
        (1, 1, 0.02),
        (1, 1, 1, 1),
        (3, 3, 2, 1),
        (1, 1, 1, 0.1),
    ]
]


def chances(counts: IntArray, p: FloatArray) -> FloatArray:
    n = counts.sum(axis=1)
    return np.asarray(np.exp(gammaln(n + 1.0) + (xlogy(counts, p) - gammaln(counts + 1.0)).sum(axis=1)))


def error(said: IntArray, counts: IntArray, p: FloatArray) -> float:
    """Return the chance that a class is named other than the first, which has the largest probability."""
    return float(chances(counts, p)[said > 0].sum())


@pytest.mark.parametrize("p", TRUTHS, ids=lambda p: "-".join(f"{v:.2f}" for v in p))
def test_a_wrong_class_is_predicted_with_at_most_alpha(p: FloatArray) -> None:
    """Every outcome, and every alpha at which the rule changes: its chance is at most that alpha."""
    for n in (6, 13, 24):
        counts = outcomes(len(p), n)
        for alpha in (0.3, 0.1, 0.02, 2 * 0.5**n * (1 + 1e-6), 2 * 0.5 ** (n - 1) * (1 + 1e-6)):
            assert error(predicted_class(counts, alpha=alpha), counts, p) <= alpha * (1 + 1e-12)


def test_a_one_sided_test_of_the_top_class_is_found() -> None:
    """Half the tail, as if the class had been fixed beforehand: with three equal classes it errs more than it says."""
    counts = outcomes(3, 100)
    p = np.full(3, 1 / 3)
    assert max(error(predicted_class(counts, alpha=2 * a), counts, p) / a for a in np.linspace(0.3, 0.45, 60)) > 1.02
    assert max(error(predicted_class(counts, alpha=a), counts, p) / a for a in np.linspace(0.3, 0.9, 60)) < 0.7


def every_path(sizes: list[int], classes: int) -> list[IntArray]:
    """Return all outcomes of batches of these sizes: the votes ``[paths, m]`` of each batch."""
    each = [outcomes(classes, size) for size in sizes]
    picks = np.array(list(product(*(range(len(e)) for e in each))))
    return [e[picks[:, k]] for k, e in enumerate(each)]


def ever_rejected(test: PredictionTest, batches: list[IntArray], p: FloatArray) -> float:
    """Return the exact chance, over all paths, that the first class is ever rejected: a wrong answer needs that."""
    weight = np.ones(len(batches[0]))
    for votes in batches:
        weight *= chances(votes, p)
        rows = test.undecided
        test.update(rows, votes[rows])
    assert (test._rejected[test.answers > 0, 0]).all()
    return float(weight[test._rejected[:, 0]].sum())


SIZES = [2, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("p", [p for p in TRUTHS if len(p) == 3], ids=lambda p: "-".join(f"{v:.2f}" for v in p))
@pytest.mark.parametrize("alpha", [0.4, 0.25])
def test_no_wrong_class_is_ever_the_answer_more_often_than_alpha(p: FloatArray, alpha: float) -> None:
    batches = every_path(SIZES, 3)
    found = ever_rejected(PredictionTest(len(batches[0]), 3, alpha=alpha), batches, p)
    assert alpha / 16 < found <= alpha


class BacksWhoWins(PredictionTest):
    """A planted bug: the class to back is read off the batch that is bet on."""

    def update(self, rows: ArrayLike, counts: ArrayLike) -> None:
        where, votes = np.asarray(rows), np.asarray(counts)
        before = self._votes[where].copy()
        self._votes[where] = votes
        super().update(where, votes)
        self._votes[where] = before + votes


def test_backing_the_class_that_won_the_batch_is_found() -> None:
    """Ten equal classes, 2,000 inputs, 400 draws each: the rule keeps its level, the bug rejects nearly always."""
    runs, alpha = 2000, 0.1
    share = {}
    for kind in (PredictionTest, BacksWhoWins):
        rng, test = np.random.default_rng(1), kind(runs, 10, alpha=alpha, max_n=400)
        while (rows := test.undecided).size:
            sizes = test.batch_sizes(rows)
            test.update(rows, rng.multinomial(sizes, np.full(10, 0.1)))
        share[kind] = test._rejected[:, 0].mean()
    # The judge errs once in a million: betainc(k, N - k + 1, alpha) is the chance of k or more.
    assert betainc(runs * share[PredictionTest] or 1, runs * (1 - share[PredictionTest]) + 1, alpha) > 1e-6
    assert share[BacksWhoWins] > 0.5


def test_clear_cases_are_decided_soon_and_ties_never() -> None:
    rng = np.random.default_rng(0)
    test = PredictionTest(3, 4, alpha=1e-6, max_n=3000)
    truth = np.array([[0.9, 0.1, 0.0, 0.0], [0.1, 0.2, 0.1, 0.6], [0.5, 0.5, 0.0, 0.0]])
    while test.undecided.size:
        rows = test.undecided
        sizes = test.batch_sizes(rows)
        test.update(rows, np.stack([rng.multinomial(k, truth[i]) for i, k in zip(rows, sizes, strict=True)]))
    assert test.answers.tolist()[:2] == [0, 3]
    assert test.n[0] < 400
    assert test.n[1] < 1500
    assert (test.answers[2], test.n[2]) == (-1, 3000)  # wrong once in a million seeds


def test_what_does_not_fit_is_refused() -> None:
    test = PredictionTest(1, 2)
    with pytest.raises(buckler.InvalidInput, match="counts must have shape"):
        test.update([0], [[1, 2, 3]])
    with pytest.raises(buckler.InvalidInput, match="alpha"):
        predicted_class([[1, 2]], alpha=0.0)
    assert predicted_class([8, 0], alpha=0.01).tolist() == [0]  # 2 / 2**8 < .01 < 2 / 2**7
    assert predicted_class([7, 0], alpha=0.01).tolist() == [-1]


def test_the_wealth_needed_is_no_less_than_alpha_asks() -> None:
    for alpha in (0.4, 0.05, 1e-3, 1e-9):
        needed = PredictionTest(1, 2, alpha=alpha)._needed
        exact = -arb(alpha).log()
        assert exact * (1 + arb(0.5e-14)) <= arb(needed) <= exact * (1 + arb(2e-14)) + arb(2e-14)
