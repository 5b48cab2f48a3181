"""Tests of one pair of classes at a point: who is decided when, by which votes."""

import numpy as np

from buckler.bounds.binomial import tail_of_votes
from buckler.certificate import PairTest
from buckler.evaluate.refutations import FIRST_LOOK_DRAWS, PairTests, pairs_refuted, votes_refute


def test_pairs_are_decided_apart() -> None:
    tests = PairTests(np.array([0, 0, 0]), np.array([1, 2, 1]), 1e-3, 500)
    tests.update(np.array([0, 1]), np.array([[10, 90, 0], [90, 5, 5]]))
    assert tests.undecided.tolist() == [2]
    assert tests.passed.tolist() == [True, False, False]
    tests.update(np.array([2]), np.array([[250, 250, 0]]))
    assert tests.undecided.tolist() == []
    assert not tests.passed[2]


def test_votes_bear_out_a_refutation_or_not() -> None:
    assert votes_refute(PairTest(2.0, 1, 100, 90, 10, refuted=True), 1e-3)
    assert not votes_refute(PairTest(2.0, 1, 100, 55, 45, refuted=True), 1e-3)
    assert votes_refute(PairTest(2.0, 1, 100, 55, 45, refuted=False), 1e-3)
    # P(Bin(100, 1/2) >= 66) = 8.9e-4, less than alpha but not than the exam's half; of 67, 4.4e-4.
    assert not votes_refute(PairTest(2.0, 1, 100, 66, 34, refuted=True), 1e-3)
    assert votes_refute(PairTest(2.0, 1, 100, 67, 33, refuted=True), 1e-3)


def test_no_candidate_has_more_draws_than_it_may() -> None:
    tests = PairTests(np.array([0, 0]), np.array([1, 1]), 1e-3, 450)
    rows = np.arange(2)
    assert tests.batch_sizes(rows).tolist() == [FIRST_LOOK_DRAWS] * 2
    tests.update(rows, np.array([[200, 200], [210, 220]]))
    assert tests.batch_sizes(rows).tolist() == [50, 20]
    assert PairTests(np.array([0]), np.array([1]), 1e-3, 1).batch_sizes(np.array([0])).tolist() == [1]


def test_the_exam_is_passed_at_its_level_and_at_no_other_draw() -> None:
    wins, losses = 67, 33
    alpha = 2.0 * float(tail_of_votes(wins, losses))
    assert pairs_refuted(wins, losses, True, alpha)
    assert not pairs_refuted(wins, losses, True, alpha * (1.0 - 1e-9))
    assert not pairs_refuted(wins, losses, False, alpha)
