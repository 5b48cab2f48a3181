"""A ladder of radii: what it starts from, when a radius is precise, and its thresholds under every noise."""

from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from buckler.certify.ladder import HIGHEST, RUNGS_IN_PRECISION, Ladder, radii_for
from buckler.certify.sequential import AnytimeTest
from buckler.errors import InvalidInput
from buckler.noise import Ablation, Gaussian, Splitting, Uniform
from buckler.types import MarginKind
from tests.simulation import ever_certified

SIGMA = 0.5


def test_what_is_meant_where_nothing_is_said() -> None:
    ladder = Ladder((0.25,), Gaussian(SIGMA))
    assert (ladder.alpha, ladder.max_n, ladder.final_n) == (1e-3, 100_000, 100_000)
    assert (ladder.margin, ladder.precision) == ("quantile", None)
    assert Ladder((0.25,), Gaussian(SIGMA), max_n=200, final_n=100).final_n == 100
    assert not ladder.precise_enough(*(np.array([k]) for k in (1, 90, 10, 100))).any()


@pytest.mark.parametrize("margin", ["quantile", "probability"])
@pytest.mark.parametrize("precision", [0.05, 0.3])
def test_precise_is_close_to_the_radius_of_the_frequencies(margin: MarginKind, precision: float) -> None:
    """Votes with half a vote more for either class, one by one; nothing is precise before a radius is certified."""
    radii = (0.1, 0.3, 0.6, 1.0)
    ladder = Ladder(radii, Gaussian(SIGMA), margin=margin, precision=precision)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(2000):
        n = int(rng.integers(1, 60))
        top = int(rng.integers(0, n + 1))
        rival, rung = int(rng.integers(0, n - top + 1)), int(rng.integers(0, len(radii) + 1))
        first, second = (top + 0.5) / (n + 1), (rival + 0.5) / (n + 1)
        if margin == "quantile":
            estimate = SIGMA * float(ndtri(first) - ndtri(second)) / 2
        else:
            estimate = SIGMA * float(ndtri((1 + max(first - second, 0.0)) / 2))
        certified = radii[rung - 1] if rung else 0.0
        expected = rung > 0 and estimate - certified <= precision * max(estimate, SIGMA / 2)
        found = ladder.precise_enough(*(np.array([k]) for k in (rung, top, rival, n)))
        if abs(estimate - certified - precision * max(estimate, SIGMA / 2)) > 1e-9:
            assert bool(found[0]) == expected
            seen.add((expected, rung > 0, estimate < SIGMA / 2))
    assert {(True, True, True), (True, True, False), (False, True, False), (False, False, True)} <= seen


@pytest.mark.parametrize("margin", ["quantile", "probability"])
def test_an_input_is_precise_or_given_up_and_never_both(margin: MarginKind) -> None:
    """A label with nine votes of ten ends as precise, within what was asked for; one without votes is given up."""
    ladder = Ladder(radii_for(Gaussian(SIGMA), 0.2), Gaussian(SIGMA), max_n=100_000, margin=margin, precision=0.2)
    test = AnytimeTest(ladder, [0, 0], 2)
    while test.undecided.size:
        rows = test.undecided
        size = test.batch_sizes(rows)
        votes = np.stack([9 * size // 10, size - 9 * size // 10], axis=1)
        votes[rows == 1] = votes[rows == 1] @ [[0, 1], [0, 1]]
        test.update(rows, votes)
    clear, lost = test.decided(0, "clear"), test.decided(1, "lost")
    again = AnytimeTest(ladder, [0, 0], 2)
    again.restore(0, clear)
    again.restore(1, lost)
    assert [again.decided(0, "clear"), again.decided(1, "lost")] == [clear, lost]
    assert (clear.decision, lost.decision) == ("precise", "given up")
    share = dict(clear.votes)[0] / clear.certificate.n
    assert clear.certificate.radius >= 0.75 * SIGMA * float(ndtri(share))
    assert (lost.certificate.radius, lost.certificate.predicted, lost.certified_at) == (0.0, None, ())
    # An input without draws left is given up, however few its votes for others.
    short = AnytimeTest(
        Ladder(radii_for(Gaussian(SIGMA), 0.2), Gaussian(SIGMA), max_n=40, margin=margin, precision=0.2), [0], 2
    )
    short.update([0], [[40, 0]])
    assert short.decided(0, "x").decision == "given up"


def test_a_fine_ladder_rises_by_a_fourth_of_the_precision() -> None:
    for precision, sigma in ((0.05, 0.5), (0.3, 1.0)):
        radii = np.array(radii_for(Gaussian(sigma), precision))
        step = precision / RUNGS_IN_PRECISION
        assert radii[0] == pytest.approx(0.5 * step * sigma)
        np.testing.assert_allclose(np.diff(radii), step * np.maximum(radii[:-1], 0.5 * sigma), rtol=1e-9)
        assert radii[-1] <= HIGHEST * sigma < radii[-1] * (1.0 + step)
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(InvalidInput, match="precision"):
            radii_for(Gaussian(0.5), wrong)


def test_what_used_all_of_its_draws_is_put_back() -> None:
    """A budget of exactly the draws there were is enough, one of a draw less is not."""
    first = AnytimeTest(Ladder((0.25,), Gaussian(SIGMA), max_n=60), [0], 3)
    first.update([0], [[40, 15, 5]])
    before = first.decided(0, "x")
    again = AnytimeTest(Ladder((0.25,), Gaussian(SIGMA), max_n=60), [0], 3)
    again.restore(0, before)
    assert again.decided(0, "x") == before
    with pytest.raises(InvalidInput, match="at most 59 draws"):
        AnytimeTest(Ladder((0.25,), Gaussian(SIGMA), max_n=59), [0], 3).restore(0, before)


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.05},
        {"noise": Gaussian(0.25)},
        {"margin": "probability"},
        {"radii": (0.1,)},
        {"max_n": 200},
        {"max_n": 200, "final_n": 90},
    ],
)
def test_where_an_input_stands_is_put_back_into_the_same_test_alone(change: dict[str, Any]) -> None:
    """Another level, noise, margin, ladder or final test is another test, and the two together have no level."""
    how: dict[str, Any] = {"radii": (0.25,), "noise": Gaussian(SIGMA), "alpha": 1e-3, "max_n": 60}
    first = AnytimeTest(Ladder(**how), [0], 3)
    first.update([0], [[54, 6, 0]])
    before = first.decided(0, "x")
    assert (before.decision, before.by_final_test, before.certified_at) == ("certified", 1, (60,))
    AnytimeTest(Ladder(**how), [0], 3).restore(0, before)
    AnytimeTest(Ladder(**how | {"max_n": 200, "final_n": 60}), [0], 3).restore(0, before)
    with pytest.raises(InvalidInput, match="before must be"):
        AnytimeTest(Ladder(**how | change), [0], 3).restore(0, before)


def test_a_test_goes_on_with_its_own_final_n_alone() -> None:
    """Before the final test: with it put off from draw 1000 to 5000, its share would be that of another test."""
    ladders = {key: Ladder((0.25,), Gaussian(SIGMA), max_n=5000, final_n=key) for key in (1000, 5000)}
    first = AnytimeTest(Ladder((0.25,), Gaussian(SIGMA), max_n=1000), [0], 3)
    first.update([0], [[40, 15, 5]])
    before = first.decided(0, "x")
    assert (before.decision, before.by_final_test) == ("undecided", 0)
    again = AnytimeTest(ladders[1000], [0], 3)
    again.restore(0, before)
    assert again.decided(0, "x") == before
    with pytest.raises(InvalidInput, match="a test with final_n 5000; got 1000"):
        AnytimeTest(ladders[5000], [0], 3).restore(0, before)


def test_no_more_draws_are_wanted_of_what_is_decided() -> None:
    test = AnytimeTest(Ladder((0.05, 0.1), Gaussian(SIGMA), max_n=5000), [0, 0, 0], 2)
    test.update([0, 1], [[400, 0], [0, 400]])
    assert [test.decided(row, "x").decision for row in (0, 1)] == ["certified", "given up"]
    sizes = test.batch_sizes(np.array([0, 1, 2])).tolist()
    assert sizes[:2] == [0, 0]
    assert sizes[2] > 0


@pytest.mark.parametrize(
    ("noise", "radii"), [(Splitting(2.5), (0.5, 1.0, 2.0)), (Ablation(3, 64), (1.0, 4.0))], ids=str
)
def test_thresholds_are_the_margins_of_the_law(noise: Any, radii: tuple[float, ...]) -> None:
    ladder = Ladder(radii, noise=noise, max_n=1000)
    assert ladder.margin == "probability"
    for radius, margin in zip(radii, ladder.margins, strict=True):
        lost = (
            Fraction(radius) / Fraction(5, 2)
            if noise.norm == "l1"
            else 2 * (1 - Fraction(comb(64 - int(radius), 3), comb(64, 3)))
        )
        assert lost <= Fraction(margin) <= lost * (1 + Fraction(1, 10**12))  # rounded up, and no more


def test_a_margin_at_the_threshold_is_ever_certified_with_at_most_alpha() -> None:
    noise, alpha, radius = Splitting(0.5), 0.05, 0.25
    ladder = Ladder((radius,), noise=noise, alpha=alpha, max_n=60)
    # At exactly the margin of the radius two classes may tie there: such truths are (p_A, p_j, rest).
    truths = [((1.5 - rest) / 2, (0.5 - rest) / 2, rest) for rest in (0.0, 0.2, 0.45)]

    def wealth(top: Any, rival: Any, n: int) -> Any:
        return ladder.wealth(np.zeros_like(top), top, rival, np.full_like(top, n))

    def final(top: Any, rival: Any) -> Any:
        return ladder.passes_final_test(np.zeros_like(top), top, rival, 3)

    chances = ever_certified(wealth, truths, 60, 3 * ladder.final_alpha, exam=final)
    assert (chances <= alpha).all()
    assert chances.max() > 0.005  # it can err, and is looked at where it does
    test = AnytimeTest(ladder, [0], 3)
    while test.undecided.size:
        test.update(test.undecided, np.array([[int(test.batch_sizes(test.undecided)[0]), 0, 0]]))
    assert test.decided(0, "all votes").certificate.radius == radius


def test_a_fine_ladder_has_the_radii_that_the_law_has() -> None:
    assert radii_for(Ablation(3, 64), 0.05) == tuple(float(k) for k in range(1, int(Ablation(3, 64).radius(1.0)) + 1))
    fine = radii_for(Uniform(0.5), 0.1)
    assert 0.0 < fine[0] < fine[-1] < 0.5
    with pytest.raises(InvalidInput, match="certifies no radius"):
        radii_for(Ablation(60, 64), 0.05)
