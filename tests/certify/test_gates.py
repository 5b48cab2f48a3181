"""Every gate between a certificate and an abstention from both sides, one vote apart, against exact arithmetic."""

from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from flint import arb

from buckler import certify_votes
from buckler.certify import budget
from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.certify.settings import ChosenClass, make_certificates, make_settings
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput
from buckler.noise import DerandomizedSplitting, Gaussian
from buckler.types import MarginKind
from tests.balls import normal_cdf, tail_at_least

SIGMA = 0.5
CASES = [(0.25, 520, 0.05), (0.5, 520, 0.05), (0.5, 2000, 1e-3), (0.9, 700, 0.2), (0.05, 333, 0.01)]
"""Radius, budget and alpha."""


def after(votes: list[int], ladder: Ladder) -> tuple[str, float]:
    """Return decision and radius after all of these votes at once, the label being class 0."""
    test = AnytimeTest(ladder, [0], len(votes))
    test.update([0], [votes])
    decided = test.decided(0, "x")
    return decided.decision, decided.certificate.radius


def final_tail(top: int, radius: float, max_n: int) -> arb:
    """Return ``P(at least top of max_n votes)`` for a label whose probability is ``Phi(radius / sigma)``."""
    return tail_at_least(top, max_n, float(normal_cdf(arb(radius) / arb(SIGMA))))


def first_to_pass(radius: float, max_n: int, alpha: float) -> int:
    """Return the fewest votes of two classes that pass the final test: their tail is at most alpha / 4."""
    low, high = 1, max_n
    while high > low:
        middle = (low + high) // 2
        low, high = (low, middle) if final_tail(middle, radius, max_n) <= arb(alpha) / 4 else (middle + 1, high)
    return low


def wealth(ladder: Ladder, top: int, rival: int, n: int) -> float:
    return float(ladder.wealth(np.array([0]), np.array([top]), np.array([rival]), np.array([n]))[0])


@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_the_final_test_at_the_end_of_the_budget(radius: float, max_n: int, alpha: float) -> None:
    """One vote too few at ``max_n`` is an abstention, however undecided the input was; the next is a certificate."""
    ladder = Ladder((radius,), Gaussian(SIGMA), alpha, max_n)
    least = first_to_pass(radius, max_n, alpha)
    assert wealth(ladder, least, max_n - least, max_n) < ladder.needed, "the final test alone decides here"
    assert after([least, max_n - least], ladder) == ("certified", radius)
    assert after([least - 1, max_n - least + 1], ladder) == ("given up", 0.0)


@pytest.mark.parametrize("kind", ["quantile", "probability"])
@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_the_final_test_of_many_classes(radius: float, max_n: int, alpha: float, kind: MarginKind) -> None:
    """The exact limit at alpha / 4, one vote apart, where the runner-up has half of the other votes."""
    ladder, needed = Ladder((radius,), Gaussian(SIGMA), alpha, max_n, kind), Gaussian(SIGMA).margin(radius, kind)

    def votes(top: int) -> list[int]:
        others = max_n - top
        return [top, -(-others // 2), *(len(range(k, others // 2, 4)) for k in range(4))]

    def passes(top: int) -> bool:
        return (
            float(vote_margin_lower(top, votes(top)[1], max_n, alpha=budget.split_alpha(alpha, 4), margin=kind))
            > needed
        )

    low, high = max_n // 3, max_n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    assert wealth(ladder, high, votes(high)[1], max_n) < ladder.needed, "the final test alone decides here"
    assert after(votes(high), ladder) == ("certified", radius)
    assert after(votes(high - 1), ladder) == ("given up", 0.0)
    if kind == "quantile":
        assert high < first_to_pass(radius, max_n, alpha), "third classes' votes count less than the runner-up's"


@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_an_input_undecided_until_its_last_draw(radius: float, max_n: int, alpha: float) -> None:
    """The same gate, reached with one draw to go: the last vote decides, for the label or against it."""
    ladder = Ladder((radius,), Gaussian(SIGMA), alpha, max_n)
    least = first_to_pass(radius, max_n, alpha)
    for last, expected in (([1, 0], ("certified", radius)), ([0, 1], ("given up", 0.0))):
        test = AnytimeTest(ladder, [0], 2)
        test.update([0], [[least - 1, max_n - least]])
        assert test.decided(0, "x").decision == "undecided"
        assert test.decided(0, "x").certificate.abstained
        test.update([0], [last])
        assert (test.decided(0, "x").decision, test.decided(0, "x").certificate.radius) == expected


@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_no_final_test_before_the_end(radius: float, max_n: int, alpha: float) -> None:
    """Votes that pass at ``max_n`` certify nothing with one draw more in the budget."""
    least = first_to_pass(radius, max_n, alpha)
    decision, certified = after([least, max_n - least], Ladder((radius,), Gaussian(SIGMA), alpha, max_n + 1))
    assert decision != "certified"
    assert certified == 0.0


@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_the_wealth_needed_is_no_less_than_its_share_of_alpha_asks(radius: float, max_n: int, alpha: float) -> None:
    ladder = Ladder((radius,), Gaussian(SIGMA), alpha, max_n)
    assert arb(ladder.needed) >= -(arb(alpha) * 3 / 4).log()
    assert ladder.needed < float(-(arb(alpha) * 3 / 4).log()) + 1e-12
    assert 4 * Fraction(ladder.final_alpha) <= Fraction(alpha)


@pytest.mark.parametrize(("radius", "max_n", "alpha"), CASES)
def test_wealth_decides_from_both_sides(radius: float, max_n: int, alpha: float) -> None:
    """With most of the budget left, one vote more for the label takes the wealth over what is needed."""
    ladder = Ladder((radius,), Gaussian(SIGMA), alpha, 100 * max_n)
    n = next(n for n in range(2, 100 * max_n) if wealth(ladder, n, 0, n) >= ladder.needed)
    assert after([n, 0, 0], ladder) == ("certified", radius)
    assert after([n - 1, 0, 0], ladder)[1] == 0.0
    # And against a rival with votes, among other classes that have fewer.
    total = 4 * n
    top = next(top for top in range(total, 0, -1) if wealth(ladder, top - 1, total - top + 1, total) < ladder.needed)
    assert after([top, total - top, 0], ladder) == ("certified", radius)
    assert after([top - 1, total - top + 1, 0], ladder)[1] == 0.0


def test_each_rung_has_its_own_gate() -> None:
    radii, max_n, alpha = (0.3, 0.5, 0.7), 900, 0.05
    ladder = Ladder(radii, Gaussian(SIGMA), alpha, max_n)
    gates = [first_to_pass(radius, max_n, alpha) for radius in radii]
    assert gates == sorted(set(gates))
    for rung, least in enumerate(gates):
        below = radii[rung - 1] if rung else 0.0
        assert after([least, max_n - least], ladder)[1] == radii[rung]
        assert after([least - 1, max_n - least + 1], ladder)[1] == below


def upper_half(top: int, n: int) -> Fraction:
    """Return ``P(Binomial(n, 1/2) >= top)`` exactly."""
    return Fraction(sum(comb(n, k) for k in range(top, n + 1)), 2**n)


@pytest.mark.parametrize("n", [10, 57, 100, 1001])
@pytest.mark.filterwarnings("ignore:n = ")
def test_a_label_with_half_of_the_votes(n: int) -> None:
    """Clopper-Pearson certifies where ``P(Binomial(n, 1/2) >= top)`` is at most alpha, and nowhere else.

    An alpha at that probability itself, and one 3e-9 above: what is given up to rounding is between them.
    """
    for top in {n // 2 + 1, (3 * n) // 4, n - 1}:
        tail = upper_half(top, n)
        if not 1e-12 < tail < 0.49:
            continue
        at = float(tail)
        at = at if Fraction(at) <= tail else float(np.nextafter(at, 0.0))
        for alpha, certified in ((at, False), (at * (1 + 3e-9), True)):
            found = certify_votes([[top, n - top]], sigma=SIGMA, alpha=alpha, labels=[0], method="top_class")[0]
            assert found.abstained != certified
            # One vote fewer never does, one more always.
            fewer = certify_votes([[top - 1, n - top + 1]], sigma=SIGMA, alpha=alpha, labels=[0], method="top_class")[0]
            more = certify_votes([[top + 1, n - top - 1]], sigma=SIGMA, alpha=alpha, labels=[0], method="top_class")[0]
            assert fewer.abstained
            assert not more.abstained


@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_exact_limits_change_sign_at_one_vote(alpha: float) -> None:
    """With every vote for one of two classes of three, the least favourable truth of margin 0 is a fair coin.

    So a certificate needs the sign test's tail, exactly, at the least.
    """
    n = 60
    first = next(top for top in range(n // 2, n + 1) if upper_half(top, n) <= alpha)
    found = [certify_votes([[top, n - top, 0]], sigma=SIGMA, alpha=alpha, labels=[0])[0] for top in range(n + 1)]
    certified = [top for top, certificate in enumerate(found) if not certificate.abstained]
    assert certified == list(range(certified[0], n + 1))
    assert certified[0] in {first, first + 1}


def test_two_limits_part_at_one_vote() -> None:
    """With all votes in two of three classes the two limits mirror one another, and meet at one half."""
    n, alpha = 101, 0.01
    for top in range(51, n + 1):
        expected = upper_half(top, n) <= Fraction(alpha) / 2
        assert abs(float(upper_half(top, n)) * 2.0 / alpha - 1.0) > 1e-6, "no case hangs on rounding"
        for margin in ("probability", "quantile"):
            found = certify_votes(
                [[top, n - top, 0]], sigma=SIGMA, alpha=alpha, labels=[0], method="bonferroni", margin=margin
            )[0]
            assert found.abstained != expected


@pytest.mark.parametrize("kind", ["quantile", "probability"])
def test_a_limit_from_both_sides_of_zero(kind: MarginKind) -> None:
    """A limit of 0, or one whose radius is below the smallest normal number, is an abstention; one above it is not."""
    noise = Gaussian(1.0)
    least = next(k for k in range(-1080, 0) if noise.radius(2.0**k, kind) > 0.0)
    lows = np.array([-np.inf, -1.0, -5e-324, 0.0, 5e-324, 2.0 ** (least - 1), 2.0**least, 0.3])
    size = len(lows)
    settings = make_settings(noise=noise, alpha=0.01, margin=kind)
    zeros = np.zeros(size, dtype=np.int64)
    made = make_certificates(
        settings, ChosenClass(zeros, zeros, 0.01, 0.0), lows, np.full(size, 10), [str(i) for i in range(size)]
    )
    assert [c.abstained for c in made] == [True] * 6 + [False] * 2
    assert [c.predicted for c in made] == [None] * 6 + [0] * 2
    assert [c.radius for c in made] == [noise.radius(float(low), kind) for low in lows]
    # The radius of an ulp less is no larger, and the record takes no other than its own.
    for certificate in made[6:]:
        assert noise.radius(float(np.nextafter(certificate.margin, 0.0)), kind) <= certificate.radius
        with pytest.raises(InvalidInput, match="radius"):
            replace(certificate, radius=float(np.nextafter(certificate.radius * (1.0 + 1e-14), np.inf)))


def test_votes_that_are_all_there_are_leave_no_error() -> None:
    settings = make_settings(noise=DerandomizedSplitting(2.5), alpha=0.01)
    assert (settings.alpha, settings.margin) == (0.0, "probability")
    with pytest.raises(InvalidInput, match=r"counts must add up to 1275 for each input, all copies of .*; got 1274"):
        certify_votes([[1275, 0], [1274, 0]], noise=settings.noise)
    with pytest.raises(InvalidInput, match="votes are exact"):
        make_settings(noise=settings.noise, method="top_class")
