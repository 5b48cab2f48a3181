"""Ablation: l0 radii by enumeration of all ablations of a 3 x 3 image, in whole numbers."""

from fractions import Fraction
from itertools import combinations
from math import comb, exp, lgamma

import numpy as np
import pytest

import buckler
from buckler.errors import InvalidInput
from buckler.evaluate.noise_audit import covers, distribution
from buckler.noise import Ablation, named
from buckler.noise.base import float_below
from tests.evaluate.test_noise_audit import worst_margin
from tests.noise.test_words import chosen_words

IMAGE = np.arange(18, dtype=np.float32).reshape(2, 3, 3) / 255


def changed(places: tuple[int, ...]) -> np.ndarray:
    image = IMAGE.copy().reshape(2, 9)
    image[0, list(places)] = 0.9
    return image.reshape(2, 3, 3)


@pytest.mark.parametrize("keep", [1, 2, 3, 8, 9])
def test_all_ablations_of_a_small_image(keep: int) -> None:
    noise = Ablation(keep, 9, channels=2)
    here = distribution(noise, IMAGE)
    total = comb(9, keep)
    assert len(here) == total
    for rho in range(1, 6):
        for places in list(combinations(range(9), rho))[:: 1 if rho < 2 else 29]:
            there = distribution(noise, changed(places))
            for votes in range(1, total + 1):
                margin = Fraction(votes, total)
                worst = worst_margin(here, there, margin)
                # The float just below a margin that is no float is enough, so both agree to the last vote.
                assert (worst > 0) == covers(noise, float_below(margin), Fraction(rho)), (rho, votes)


def test_the_planted_bugs_are_found() -> None:
    noise = Ablation(2, 4)
    x = np.arange(4, dtype=np.float32)
    here, there = distribution(noise, x), distribution(noise, np.array([9, 1, 2, 3], dtype=np.float32))
    # C(3, 2)/C(4, 2) = 1/2: at a margin of 1 one changed pixel makes a tie, which >= for > would certify.
    assert worst_margin(here, there, Fraction(1)) == 0
    assert noise.radius(1.0) == 0.0
    assert 2 * (1 - Fraction(comb(3, 2), comb(4, 2))) <= 1

    # Floats for binomials certify some tie of small images that whole numbers do not.
    def in_floats(d: int, k: int, rho: int) -> float:
        log = lgamma(d - rho + 1) - lgamma(d - rho - k + 1) - lgamma(d + 1) + lgamma(d - k + 1)
        return 2 * (1 - exp(log))

    wrong = []
    for d in range(2, 40):
        for k in range(1, d):
            for rho in range(1, d - k):
                exact = 2 * (1 - Fraction(comb(d - rho, k), comb(d, k)))
                if exact <= 1 and Fraction(float(exact)) == exact:  # a tie that a float can show
                    assert Ablation(k, d).radius(float(exact)) == rho - 1
                    wrong += [(d, k, rho)] if in_floats(d, k, rho) < float(exact) else []
    assert wrong


def test_radii_of_the_paper() -> None:
    # CIFAR-10 with 75 of 1024 pixels: rho pixels are certified by p_A above 1 - C(d - rho, k)/(2 C(d, k)).
    noise = Ablation(75, 1024)
    for rho in range(1, 9):
        needed = noise.margin(float(rho))
        assert noise.radius(needed) == rho > noise.radius(np.nextafter(needed, 0.0))
        assert Fraction(needed) > 2 * (1 - Fraction(comb(1024 - rho, 75), comb(1024, 75)))
    assert noise.margin(99.0) == 1.0
    assert noise.radius(0.0) == noise.radius(-1.0) == 0.0


def test_the_smallest_words_are_kept_with_all_their_channels() -> None:
    noise = Ablation(2, 9, channels=2)
    first = [[9, 8, 7, 6, 5, 4, 3, 2, 1], [0, 2**64 - 1, 5, 6, 7, 1, 9, 10, 11], [1, 4, 4, 9, 4, 9, 9, 9, 9]]
    second = [[5] * 9, [5] * 9, [9, 3, 2, 0, 2**64 - 1, 0, 0, 0, 0]]
    copies = noise.noisy(IMAGE, chosen_words(first, second))
    # Of three words that are equal, the one with the smallest further bits is kept.
    for copy, kept in zip(copies.reshape(3, 2, 9), ([7, 8], [0, 5], [0, 2]), strict=True):
        assert np.flatnonzero(copy[0] != -1).tolist() == kept
        np.testing.assert_array_equal(copy[:, kept], IMAGE.reshape(2, 9)[:, kept])
        assert (np.delete(copy, kept, axis=1) == -1).all()
    assert noise.words(IMAGE.shape) == 9


def test_what_does_not_fit_is_refused() -> None:
    noise = Ablation(2, 9, channels=2)
    noise.check_input(IMAGE)
    Ablation(2, 9).check_input(IMAGE[0])
    Ablation(2, 9).check_input(IMAGE[0].reshape(9))
    Ablation(2, 18).check_input(IMAGE)
    for other in (IMAGE.transpose(1, 2, 0), IMAGE[:1], IMAGE[0]):
        with pytest.raises(InvalidInput, match=r"shape \[2, \.\.\.\], channels first, with 9 pixels"):
            noise.check_input(other)
    with pytest.raises(InvalidInput, match=r"x must have 9 values; got .*; channels=2 keeps pixels with all"):
        Ablation(2, 9).check_input(IMAGE)
    with pytest.raises(InvalidInput, match="must not hold the mark"):
        noise.check_input(IMAGE - 1)
    for keep, mark, message in ((10, -1.0, "keep"), (0, -1.0, "keep"), (2, 0.1, "mark must be a number that float32")):
        with pytest.raises(InvalidInput, match=message):
            Ablation(keep, 9, mark)
    assert named(noise.name, noise.parameters) == noise


def test_the_unit_is_a_fourth_of_the_largest_radius_and_one_at_the_least() -> None:
    for keep, pixels in ((2, 9), (45, 1024), (400, 784)):
        noise = Ablation(keep, pixels)
        assert noise.unit == max(1.0, float(int(noise.radius(1.0) + 1.0) // 4))
    assert (Ablation(2, 9).unit, Ablation(10, 1024).unit > 1.0) == (1.0, True)


def test_an_abstention_says_that_its_margin_is_too_small_for_a_pixel() -> None:
    made = buckler.certify_votes([[1000, 0]], noise=Ablation(keep=60, pixels=64), labels=[0])[0]
    assert made.abstained
    assert made.margin > 0.9
    assert "probability margin at least 0.98" in str(made)
    assert "too little for any radius" in str(made)
    none = buckler.certify_votes([[500, 500]], noise=Ablation(keep=60, pixels=64), labels=[0])[0]
    assert "probability margin may be 0 or below" in str(none)
