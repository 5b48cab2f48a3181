"""Ladders of radii under noises of the first margin: which thresholds they have, and which radii a fine one."""

from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest

from buckler.certify.ladder import Ladder, radii_for
from buckler.certify.sequential import AnytimeTest
from buckler.errors import InvalidInput
from buckler.noise import Ablation, Splitting, Uniform
from tests.stopping import ever_certified


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
