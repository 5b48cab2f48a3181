"""Clopper-Pearson limits: proved with ball arithmetic, exact at the ends, monotone."""

import numpy as np
import pytest
from flint import arb
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import betainccinv, betaincinv

from buckler.bounds import binomial
from buckler.bounds.binomial import (
    _LOSS,
    _WIN,
    SMALLEST_P_VALUE,
    STAKES,
    clopper_pearson_lower,
    clopper_pearson_upper,
    log_wealth_of_votes,
    tail_of_votes,
)
from buckler.errors import InvalidInput
from tests.balls import tail_at_least, tail_at_most


def grid(seed: int, size: int) -> list[tuple[int, int, float]]:
    """Return (k, n, alpha) over the whole range of use: n from 1 to 1e6, alpha from 1e-12 to 0.5, all kinds of k."""
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(size):
        n = int(10 ** rng.uniform(0, 6))
        alpha = float(10 ** rng.uniform(-12, np.log10(0.5)))
        p = rng.choice([rng.uniform(), 10 ** rng.uniform(-6, 0), 1 - 10 ** rng.uniform(-6, 0)])
        cases.append((int(rng.binomial(n, p)), n, alpha))
    return cases


GRID = grid(0, 1500)


def test_lower_limit_is_never_too_large() -> None:
    for k, n, alpha in GRID:
        p = float(clopper_pearson_lower(k, n, alpha))
        if k == 0:
            assert p == 0.0
        else:
            assert tail_at_least(k, n, p) <= arb(alpha), (k, n, alpha)


def test_upper_limit_is_never_too_small() -> None:
    for k, n, alpha in GRID:
        p = float(clopper_pearson_upper(k, n, alpha))
        if k == n or p == 1.0:
            assert k > 0
        else:
            assert tail_at_most(k, n, p) <= arb(alpha), (k, n, alpha)


def test_limits_are_tight() -> None:
    """The tail at the limit comes within 1e-8 of alpha: rounding outward costs next to nothing."""
    for k, n, alpha in GRID[::3]:
        if k > 0:
            p = float(clopper_pearson_lower(k, n, alpha))
            assert tail_at_least(k, n, p) >= arb(alpha) * (1 - 1e-8)
        upper = float(clopper_pearson_upper(k, n, alpha))
        if k < n and upper < 1.0 - 1e-6:  # beyond, the spacing of floats below 1 is the limit
            assert tail_at_most(k, n, upper) >= arb(alpha) * (1 - 1e-7)


def test_the_proof_catches_the_inverse_taken_at_its_word() -> None:
    """Planted bug: SciPy's inverse incomplete beta function, unrounded, is above the exact limit in many cases."""
    inner = [(k, n, alpha) for k, n, alpha in GRID if 0 < k < n]
    wrong = sum(not tail_at_least(k, n, float(betaincinv(k, n - k + 1, alpha))) <= arb(alpha) for k, n, alpha in inner)
    assert wrong > len(inner) // 10


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 10**6])
@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 0.5])
def test_ends_are_exact(n: int, alpha: float) -> None:
    assert float(clopper_pearson_lower(0, n, alpha)) == 0.0
    assert float(clopper_pearson_upper(n, n, alpha)) == 1.0
    assert float(clopper_pearson_lower(n, n, alpha)) == pytest.approx(alpha ** (1 / n), rel=2e-15)
    assert float(clopper_pearson_upper(0, n, alpha)) == pytest.approx(-np.expm1(np.log(alpha) / n), rel=2e-15)


@given(n=st.integers(1, 10**6), data=st.data(), alpha=st.floats(1e-12, 0.5))
def test_monotone(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n - 1))
    low, high = clopper_pearson_lower([k, k + 1], n, alpha), clopper_pearson_upper([k, k + 1], n, alpha)
    assert low[0] < low[1]
    assert high[0] < high[1] or high[0] == 1.0
    assert (low < high).all()
    assert (clopper_pearson_lower([k, k + 1], n, alpha / 2) <= low).all()


@given(n=st.integers(1, 2000), alpha=st.floats(1e-9, 0.5))
def test_vectorised_equals_scalar(n: int, alpha: float) -> None:
    k = np.linspace(0, n, 7).astype(int)
    assert clopper_pearson_lower(k, n, alpha).tolist() == [float(clopper_pearson_lower(int(j), n, alpha)) for j in k]
    assert clopper_pearson_upper(k, n, alpha).tolist() == [float(clopper_pearson_upper(int(j), n, alpha)) for j in k]


@pytest.mark.parametrize(
    ("k", "n", "alpha", "named"),
    [
        (3, 2, 0.1, "k must"),
        (-1, 2, 0.1, "k must"),
        (1, 0, 0.1, "n must"),
        (1, 2, 0.0, "alpha"),
        (0.5, 2, 0.1, "k must"),
    ],
)
def test_bad_input(k: float, n: int, alpha: float, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        clopper_pearson_lower(k, n, alpha)


def test_a_guess_that_is_off_is_moved_outward_and_not_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever SciPy's inverse says: the limits hold, and lie within twice its error of the exact ones."""
    for off in (1e-15, 1e-12, 1e-9, 1e-6):
        exact = float(betaincinv(30, 71, 0.01)), float(betainccinv(31, 70, 0.01))
        with monkeypatch.context() as patched:
            patched.setattr(binomial, "betaincinv", lambda a, b, p, off=off: betaincinv(a, b, p) * (1.0 + off))
            patched.setattr(binomial, "betainccinv", lambda a, b, p, off=off: betainccinv(a, b, p) * (1.0 - off))
            low, high = float(clopper_pearson_lower(30, 100, 0.01)), float(clopper_pearson_upper(30, 100, 0.01))
        assert tail_at_least(30, 100, low) <= arb(0.01)
        assert tail_at_most(30, 100, high) <= arb(0.01)
        assert low >= exact[0] * (1.0 - 4.0 * off - 1e-8)
        assert high <= exact[1] * (1.0 + 4.0 * off + 1e-8)


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
    assert arb(found) <= exact * (1 + arb(1e-8)) or found == SMALLEST_P_VALUE


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
