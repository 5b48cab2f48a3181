"""The test of one pair: its e-value in ball arithmetic, monotone, and worth having."""

import numpy as np
import pytest
from flint import arb
from hypothesis import example, given
from hypothesis import strategies as st

from buckler.bounds.sign_test import _LOSS, _WIN, SMALLEST, STAKES, log_wealth_of_votes, tail_of_votes
from buckler.errors import InvalidInput
from tests.balls import tail_at_least

votes = st.integers(0, 200_000)


@given(votes, votes)
def test_never_above_the_exact_average(wins: int, losses: int) -> None:
    logs = [wins * (1 + arb(s)).log() + losses * (1 - arb(s)).log() for s in STAKES.tolist()]
    exact = (sum((log.exp() for log in logs), arb(0)) / len(logs)).log()
    found = float(log_wealth_of_votes(wins, losses))
    assert arb(found) <= exact
    assert found >= float(exact.mid()) - 1e-9 * (1 + wins + losses)


@given(st.integers(0, 3000), st.integers(0, 3000))
@example(1037, 38)  # of all, the largest tail for which SciPy has 0
def test_the_tail_is_never_below_the_exact_one(wins: int, losses: int) -> None:
    found = float(tail_of_votes(wins, losses))
    exact = tail_at_least(wins, wins + losses, 0.5) if wins else arb(1)
    assert found == 1.0 or arb(found) >= exact
    assert arb(found) <= exact * (1 + arb(1e-8)) or found == SMALLEST


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


def test_negative_votes_are_refused() -> None:
    with pytest.raises(InvalidInput):
        log_wealth_of_votes(-1, 0)


def average(terms: list[arb]) -> arb:
    return (sum((term.exp() for term in terms), arb(0)) / len(terms)).log()


@pytest.mark.parametrize(("wins", "losses"), [(20, 3), (600, 450), (3, 40), (0, 0)])
def test_an_average_gives_up_what_is_said(wins: int, losses: int) -> None:
    """1e-12, and as much of its largest term: many times what a sum of sixteen exponentials is off by."""
    terms = [wins * arb(w) + losses * arb(m) for w, m in zip(_WIN.tolist(), _LOSS.tolist(), strict=True)]
    largest = max(float(term) for term in terms)
    given_up = float(average(terms) - arb(float(log_wealth_of_votes(wins, losses)))) / (1.0 + abs(largest))
    assert 0.9e-12 < given_up < 1.1e-12
