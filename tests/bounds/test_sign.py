"""The test of one pair: its e-value in ball arithmetic, votes against scores, monotone, and worth having."""

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from buckler.bounds.sign import STAKES, log_wealth_of_scores, log_wealth_of_votes
from buckler.errors import InvalidInput

votes = st.integers(0, 200_000)


@given(votes, votes)
def test_never_above_the_exact_average(wins: int, losses: int) -> None:
    with ctx.workprec(128):
        logs = [wins * (1 + arb(s)).log() + losses * (1 - arb(s)).log() for s in STAKES.tolist()]
        exact = (sum((log.exp() for log in logs), arb(0)) / len(logs)).log()
        found = float(log_wealth_of_votes(wins, losses))
        assert arb(found) <= exact
    assert found >= float(exact.mid()) - 1e-9 * (1 + wins + losses)


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=60))
def test_scores_that_are_votes_give_the_same(y: list[float]) -> None:
    draws = np.array(y)
    expected = log_wealth_of_votes(np.cumsum(draws > 0), np.cumsum(draws < 0))
    assert log_wealth_of_scores(draws) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=30))
def test_scores_are_never_above_the_exact_average(y: list[float]) -> None:
    with ctx.workprec(128):
        products = [arb(1) for _ in STAKES]
        for draw in y:
            products = [p * (1 + arb(s) * arb(draw)) for p, s in zip(products, STAKES.tolist(), strict=True)]
        assert arb(float(log_wealth_of_scores(y)[-1])) <= (sum(products, arb(0)) / len(products)).log()


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_rises_with_wins_and_falls_with_losses(wins: int, losses: int) -> None:
    here = log_wealth_of_votes(wins, losses + 1)
    assert here < log_wealth_of_votes(wins + 1, losses)
    assert here < log_wealth_of_votes(wins + 1, losses + 1) or wins < losses + 2
    assert log_wealth_of_votes(wins, losses) > here


def test_close_to_what_no_test_can_pass() -> None:
    """With a share theta of the votes, ln(1/alpha) / KL(theta || 1/2) draws are needed on average by any test."""
    for theta in (0.51, 0.55, 0.6, 0.75, 0.95):
        divergence = theta * np.log(2 * theta) + (1 - theta) * np.log(2 - 2 * theta)
        n = 2.0 * np.log(1000) / divergence
        assert log_wealth_of_votes(round(theta * n), round((1 - theta) * n)) >= np.log(1000)


@pytest.mark.parametrize("bad", [[1.5], [[0.5]], [float("nan")]])
def test_draws_outside_of_the_range_are_refused(bad: list[float]) -> None:
    with pytest.raises(InvalidInput):
        log_wealth_of_scores(bad)


def test_negative_votes_are_refused() -> None:
    with pytest.raises(InvalidInput):
        log_wealth_of_votes(-1, 0)
