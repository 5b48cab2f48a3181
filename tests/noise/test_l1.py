"""Uniform and splitting noise: never more than holds and as much as holds, by enumeration in fractions."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.evaluate.noise_audit import covers, distribution
from buckler.noise import BaseNoise, DerandomizedSplitting, Splitting, Uniform, check_margin, named
from buckler.noise.base import float_below
from buckler.noise.grid import values_of
from buckler.noise.splitting import MOST_OFFSETS, offsets_of, split_values
from buckler.types import MarginKind
from tests.evaluate.test_noise_audit import worst_margin
from tests.noise.test_words import chosen_words

STEP = Fraction(1, 255)
SMALL = [Uniform(2.5 / 255), Uniform(3.5, step=1.0), Splitting(5 / 510), Splitting(6 / 510)]
"""Laws with five to seven whole numbers a value."""


def moved(noise: Any, x: tuple[int, ...]) -> Any:
    return values_of(np.array(x), noise.grid)


@pytest.mark.parametrize("noise", SMALL, ids=str)
@pytest.mark.parametrize("delta", [(1, 0), (0, 2), (-1, 1), (2, -1), (3, 0), (0, -4), (2, 2), (7, 0)], ids=str)
def test_the_radius_is_never_exceeded_and_attained_along_an_axis(noise: Any, delta: tuple[int, int]) -> None:
    here, there = (
        distribution(noise, moved(noise, (9, 8))),
        distribution(noise, moved(noise, (9 + delta[0], 8 + delta[1]))),
    )
    distance = (abs(delta[0]) + abs(delta[1])) * noise.grid
    lam = noise.count * noise.grid / 2
    for votes in range(1, noise.count**2 + 1):
        margin = Fraction(votes, noise.count**2)
        worst = worst_margin(here, there, margin)
        assert worst > 0 or not covers(noise, float_below(margin), distance)
        if 0 in delta:
            assert (worst > 0) == (distance < lam * margin)


@pytest.mark.parametrize("noise", SMALL[:3:2], ids=str)
def test_a_doubled_lambda_is_found(noise: Any) -> None:
    doubled = type(noise)(noise.lam * 2 + (noise.step / 2 if isinstance(noise, Uniform) else 0))
    here, there = distribution(noise, moved(noise, (9,))), distribution(noise, moved(noise, (11,)))
    margin = Fraction(3, 5)
    assert worst_margin(here, there, margin) < 0
    assert covers(doubled, 0.6, 2 * STEP)
    assert not covers(noise, 0.6, 2 * STEP)


def test_every_classifier_of_one_value() -> None:
    noise = Uniform(1.5, step=1.0)
    outcomes = range(-1, 6)
    for said in product((-1, 0, 1), repeat=len(outcomes)):
        at = [Fraction(said[x] + said[x + 1] + said[x + 2], 3) for x in range(5)]
        radius = noise.radius(float_below(at[0]))
        assert all(at[x] > 0 for x in range(5) if x < radius)


@pytest.mark.parametrize("template", [0, 1, 7])
@pytest.mark.parametrize("offsets", [4, 5, 9])
def test_without_chance_a_step_changes_one_copy_at_most_and_the_radius_is_attained(template: int, offsets: int) -> None:
    noise = DerandomizedSplitting(offsets / 510, template)
    x = np.array([3, 7])
    here = distribution(noise, moved(noise, (3, 7)))
    reached = set()
    for y in product(range(8), range(3, 12)):
        steps = int(np.abs(x - y).sum())
        there = distribution(noise, moved(noise, y))
        for votes in range(1, offsets + 1):
            margin = Fraction(votes, offsets)
            worst = worst_margin(here, there, margin)
            certified = covers(noise, votes / offsets, steps * STEP)
            assert worst > 0 or not certified
            if worst <= 0 and covers(noise, votes / offsets, (steps - 1) * STEP):
                reached.add(votes)
    # Every difference of votes that certifies a step has a classifier that changes its mind one step further.
    assert reached == set(range(3, offsets + 1))


def test_one_vote_less_is_needed_for_equality() -> None:
    noise = DerandomizedSplitting(9 / 510)
    assert [noise.radius(votes / 9) * 255 for votes in range(10)] == pytest.approx([0, 0, 0, 1, 1, 2, 2, 3, 3, 4])
    here, there = (distribution(noise, moved(noise, (x, 7))) for x in (3, 5))
    # The planted bug, 2 k <= N_A - N_j: at four votes and two steps the two classes tie.
    assert worst_margin(here, there, Fraction(4, 9)) == 0
    assert not covers(noise, 4 / 9, 2 * STEP)
    assert covers(noise, 5 / 9, 2 * STEP)


def test_a_template_for_each_input_is_found() -> None:
    first, second = DerandomizedSplitting(9 / 510, 0), DerandomizedSplitting(9 / 510, 1)
    here, there = distribution(first, moved(first, (3, 7))), distribution(second, moved(second, (4, 7)))
    assert covers(first, 3 / 9, STEP)
    assert worst_margin(here, there, Fraction(3, 9)) < 0


def test_without_chance_is_the_mean_over_templates_and_exact_for_one_value() -> None:
    offsets, values = 4, np.array([3, 6])
    with_chance = [split_values(values, np.array(pair), offsets) for pair in product(range(offsets), repeat=2)]
    for seed in range(20):  # a classifier is a function of what is seen: any will do
        said = np.random.default_rng(seed).integers(-1, 2, size=(1021, 1021))

        def of(seen: Any, said: Any = said) -> int:
            return int(said[tuple(np.rint(seen * 1020).astype(int))])

        mean = Fraction(sum(map(of, with_chance)), offsets**2)
        each = [
            Fraction(
                sum(of(split_values(values, (np.array(v) + t) % offsets, offsets)) for t in range(offsets)), offsets
            )
            for v in product(range(offsets), repeat=2)
        ]
        assert sum(each) / len(each) == mean
        one = said[0]
        for v in range(offsets):
            moved = [split_values(values[:1], np.array([(v + t) % offsets]), offsets)[0] for t in range(offsets)]
            shifted = [int(one[round(float(value) * 1020)]) for value in moved]
            fixed = [
                int(one[round(float(split_values(values[:1], np.array([t]), offsets)[0]) * 1020)])
                for t in range(offsets)
            ]
            assert sorted(shifted) == sorted(fixed)


@pytest.mark.parametrize("offsets", [1, 2, 3, 100, 254, 255, 256, 510, 1275])
def test_what_is_seen_is_the_middle_of_the_part_that_holds_the_value(offsets: int) -> None:
    values, j = np.meshgrid(
        [0, 1, 2, 99, 100, 101, 253, 254, 255], np.unique(np.linspace(0, offsets - 1, 12).astype(int))
    )
    seen = split_values(values, j, offsets)
    for x, offset, found in zip(values.flat, j.flat, seen.flat, strict=True):
        splits = [Fraction(2 * int(offset) + 1, 2) + offsets * z for z in range(-256, 257)]
        above = min(Fraction(255), *(s for s in splits if s > x))
        below = max(Fraction(0), *(s for s in splits if s < x))
        assert found == np.float32(float((above + below) / 510))


@pytest.mark.parametrize("offsets", [1, 3, 254, 255, 256, 257, 1275])
def test_the_table_is_what_is_seen(offsets: int) -> None:
    noise, x = Splitting(offsets / 510), values_of(np.arange(256), STEP)
    numbers = np.arange(offsets)[:, None] + np.zeros(256, dtype=np.int64)
    np.testing.assert_array_equal(noise.copy(x, numbers), split_values(np.arange(256), numbers, offsets))
    each = DerandomizedSplitting(offsets / 510, template=4)
    shifted = (each.start(256) + np.arange(offsets)[:, None]) % offsets
    copies = each.numbered(x, np.arange(offsets))
    np.testing.assert_array_equal(copies, split_values(np.arange(256), shifted, offsets))


def test_what_is_seen_is_what_networks_are_trained_on() -> None:
    torch = pytest.importorskip("torch")
    from buckler.training import tasks

    images = torch.arange(192, dtype=torch.uint8).reshape(1, 8, 8, 3)
    trained = tasks.noisy_by_splitting(images, 2.5, torch.Generator().manual_seed(3)).numpy()
    j = torch.randint(1275, images.shape, generator=torch.Generator().manual_seed(3))
    ours = split_values(images.numpy().astype(np.int64), j.numpy(), 1275).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(trained, ours, rtol=0, atol=2**-24)  # the last bit of float32


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 1275, 2**31 - 1])
def test_whole_numbers_from_words(count: int) -> None:
    """At the first 128-bit number of some values, just before and after it, where the further bits decide."""
    edges = {-(-v * 2**128 // count) for v in {0, 1, 2, count // 2, count - 1, count}}
    near = sorted({e + k for e in edges for k in (-(2**64), -1, 0, 1, 2**64) if 0 <= e + k < 2**128})
    words = chosen_words([[u >> 64 for u in near]], [[u & 2**64 - 1 for u in near]])
    assert words.below(count)[0].tolist() == [u * count >> 128 for u in near]
    # The planted bug: the further bits are ignored.
    ignored = [(u >> 64) * count >> 64 for u in near]
    assert (ignored != words.below(count)[0].tolist()) == (count & count - 1 != 0)


@pytest.mark.parametrize("count", [1, 3, 7, 256, 1275])
def test_the_total_variation_of_a_whole_number(count: int) -> None:
    numbers = [-(-(v + 1) * 2**128 // count) + (-v * 2**128 // count) for v in range(count)]
    exact = sum((abs(Fraction(u, 2**128) - Fraction(1, count)) for u in numbers), Fraction(0)) / 2
    rest = 2**128 % count
    assert exact == Fraction(rest * (count - rest), count << 128) <= Fraction(count, 2**130)


@pytest.mark.parametrize("noise", [Uniform(0.5), Splitting(0.5)], ids=str)
def test_noisy_copies_are_made_from_words_row_by_row(noise: Any) -> None:
    x = values_of(np.arange(12).reshape(3, 2, 2), STEP)
    drawn = np.random.default_rng(0).integers(0, 2**64, size=(4, noise.words(x.shape)), dtype=np.uint64, endpoint=False)
    words = chosen_words(drawn)
    copies = noise.noisy(x, words)
    assert copies.dtype == np.float32
    assert copies.shape == (4, 3, 2, 2)
    np.testing.assert_array_equal(noise.noisy(x, words[2:3])[0], copies[2])
    if isinstance(noise, Uniform):
        steps = np.rint(copies * 255).astype(int) - np.arange(12).reshape(3, 2, 2)
        expected = [[int(w) * 255 // 2**64 - 127 for w in row] for row in drawn]
        assert steps.reshape(4, 12).tolist() == expected


def test_all_bytes_are_on_the_grid_and_others_are_refused() -> None:
    pixels = np.arange(256)
    for x in ((pixels / 255.0).astype(np.float32), pixels.astype(np.float32) / np.float32(255)):
        assert Splitting(1.0).indices(x).tolist() == pixels.tolist()
    for x, noise in (
        (np.array([0.5]), Uniform(0.5)),
        (np.array([np.nextafter(np.float32(0.2), np.float32(1))]), Splitting(1.0)),
        (np.array([256 / 255]), Splitting(1.0)),
        (np.array([-1 / 255]), DerandomizedSplitting(1.0)),
    ):
        with pytest.raises(InvalidInput, match=r"an input must lie .* 1/255"):
            noise.check_input(x)
    Uniform(0.5).check_input(values_of(np.array([-3, 300]), STEP))


def test_margins_come_back() -> None:
    for noise in (Uniform(0.5), Splitting(2.5), DerandomizedSplitting(2.5)):
        for margin in (0.01, 0.2, 1 / 3, 0.999):
            radius = noise.radius(margin)
            needed = noise.margin(radius)
            assert noise.radius(needed) == radius
            assert needed <= margin * (1 + 1e-12)
        assert noise.radius(0.0) == noise.radius(-0.5) == 0.0
        assert noise.margin(99.0) == 1.0
        assert noise.unit == noise.lam / 4
        assert named(noise.name, noise.parameters) == noise
    assert (Uniform(0.5).norm, Uniform(0.5).closed, DerandomizedSplitting(1.0).closed) == ("l1", False, True)


@dataclass(frozen=True, slots=True)
class Own(BaseNoise):
    """A noise of a user's that says no more than its radius."""

    reach: float
    name: ClassVar[str] = "own"
    norm: ClassVar[str] = "l1"

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        del kind
        return self.reach * max(0.0, margin)


def test_a_law_of_ones_own_has_the_margin_of_a_radius_by_halving() -> None:
    noise = Own(3.0)
    assert (noise.margins, noise.parameters, noise.total) == (("probability",), {"reach": 3.0}, None)
    assert (noise.unit, Own(0.0).unit) == (0.75, 1.0)
    for radius in (1e-9, 0.1, 1.5, 2.999, 3.0):
        needed = noise.margin(radius)
        assert noise.radius(needed) >= radius > noise.radius(needed * (1.0 - 1e-12))
    assert noise.margin(3.1) == 1.0


def test_every_whole_number_of_offsets_has_its_lambda() -> None:
    """Also where it is written with fewer digits than a float has, within a share of 1e-9."""
    counts = [*range(1, 3000), MOST_OFFSETS - 1, MOST_OFFSETS]
    for factor in (1.0, 1.0 + 0.9e-9, 1.0 - 0.9e-9):
        assert [offsets_of(count / 510 * factor) for count in counts] == counts
    for wrong in (MOST_OFFSETS + 1, 0.4, 1.5, 2.0 + 3e-9, 1e6 - 2e-3):
        with pytest.raises(InvalidInput, match="510 lam a whole number"):
            offsets_of(wrong / 510)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(0.25), r"k \+ 1/2 steps of 1/255, such as 0\.245098, 0\.24902, 0\.252941; got 0\.25"),
        (lambda: Uniform(0.001), r"such as 0\.00196078, 0\.00196078, 0\.00588235; got 0\.001"),
        (lambda: Uniform(0.5, step=3.14159265358979), "step must be a fraction"),
        (lambda: Uniform(1e9), "lam must be at most"),
        (lambda: Splitting(0.3001), "510 lam a whole number"),
        (lambda: Splitting(1e7), "510 lam a whole number"),
        (lambda: DerandomizedSplitting(-1.0), "lam must be above 0"),
        (lambda: DerandomizedSplitting(1.0, template=-1), "template"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_margin_without_a_radius_is_refused_by_the_names_of_those_with_one() -> None:
    check_margin(Splitting(2.5), "probability")
    with pytest.raises(InvalidInput, match=r"margin must be 'probability' under splitting noise .*; got 'quantile'"):
        check_margin(Splitting(2.5), "quantile")
