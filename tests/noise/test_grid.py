"""Noise on a grid: exact thresholds, whole numbers added, and its way through every room.

A classifier that reads the last bits of its floats shows what it is for: noise added in float32 certifies it falsely.
Near 128/255, float32 numbers are multiples of 2^-24; 127/255 is an odd multiple of 2^-25. Noise between -1.5 and -0.5
is a multiple of 2^-24 or 2^-23, so the sum with 128/255 and the sum with 127/255 never meet below 0: by their last bits
they tell from which of the two inputs they come. The two are 1/255 apart, and sigma is 1.
"""

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.special import ndtri

import buckler
from buckler.certify import budget
from buckler.certify.ladder import Ladder
from buckler.noise import Ablation, Gaussian, GridGaussian, Splitting, Uniform, as_noise, grid, named, parse
from buckler.noise.grid import values_of
from buckler.runs.spec import RunSpec, from_dict, read_toml
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine, check_inputs
from buckler.sampling.streams import Address, PhiloxNoise
from buckler.types import FloatArray
from tests.noise.test_words import chosen_words

LAW = GridGaussian(0.25)


def exact_threshold(k: int, sigma: Fraction, step: Fraction) -> int:
    """Return ``ceil(2^128 Phi((k + 1/2) step / sigma))`` by ball arithmetic."""
    ctx.prec = 500
    t = fmpq(2 * k + 1, 2) * fmpq(step.numerator, step.denominator) / fmpq(sigma.numerator, sigma.denominator)
    return int((arb(2) ** 128 * (-arb(t) / arb(2).sqrt()).erfc() / 2).ceil().unique_fmpz())


@pytest.mark.parametrize(
    ("sigma", "levels"),
    [(0.01, 255), (0.12, 255), (0.25, 255), (0.5, 255), (1.0, 255), (4.0, 255), (0.01, 65535), (0.1, 65535)],
)
def test_thresholds_are_exactly_right(sigma: float, levels: int) -> None:
    noise = GridGaussian(sigma, 1.0 / levels)
    found = [int(high) << 64 | int(low) for high, low in zip(*noise.thresholds, strict=True)]
    half = noise.reach
    # All of them where there are few, else both ends, the middle and every 97th: each anchor of the series is visited.
    every = range(-half, half)
    some = every if half < 1500 else sorted({*every[:40], *every[half - 40 : half + 40], *every[-40:], *every[::97]})
    assert [k for k in some if found[k + half] != exact_threshold(k, Fraction(sigma), noise.grid)] == []
    # Beyond them on either side less than one number is left.
    assert exact_threshold(half, Fraction(sigma), noise.grid) == 1 << 128
    assert exact_threshold(-half - 1, Fraction(sigma), noise.grid) == 1


@pytest.mark.parametrize(
    "unit", [Fraction(1, 510), Fraction(1, 64), Fraction(1, 37), Fraction(1, 32), Fraction(3, 7), 2]
)
def test_every_point_is_reached_from_an_anchor_within_half_a_spacing(
    unit: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out of the series is bounded for these alone (F11). Here the series is the distance itself."""
    centres: list[Fraction] = []

    def distance(centre: Fraction) -> tuple[int, tuple[int, ...]]:
        centres.append(centre)
        return grid.ONE + 2 * grid.PHI_SLACK, (grid.ONE,)

    monkeypatch.setattr(grid, "_anchor", distance)
    found = [Fraction(tail - 2**128, 2**128) for tail in grid.tails(Fraction(unit))]
    assert len(found) == int((grid.FARTHEST_TAIL / unit + 1) / 2)
    assert max(map(abs, found)) <= grid.ANCHOR_SPACING / 2
    # And not because there is an anchor for each: one serves all points that are near it.
    assert centres == sorted(set(centres))
    assert all(centre / grid.ANCHOR_SPACING == centre // grid.ANCHOR_SPACING for centre in centres)


def test_pi_is_cut_after_eighty_digits() -> None:
    ctx.prec = 300
    assert int((arb.pi() * 10**80).floor().unique_fmpz()) == grid.PI
    assert grid.PI_SCALE == 10**80


def test_the_guide_finds_what_the_thresholds_say() -> None:
    edges = [int(high) << 64 | int(low) for high, low in zip(*LAW.thresholds, strict=True)]
    near = [u for e in edges[::7] for u in (e - 2**64, e - 1, e, e + 1, e + 2**64) if 0 <= u < 2**128]
    drawn = PhiloxNoise().words(Address(0, "7", "estimation"), 1, 20_000)
    drawn_numbers = [int(a) << 64 | int(b) for a, b in zip(drawn.first[0], drawn.more(np.array([0]))[0], strict=True)]
    at_edges = chosen_words([[u >> 64 for u in near]], [[u & 2**64 - 1 for u in near]])
    for some, numbers in ((at_edges, near), (drawn, drawn_numbers)):
        assert LAW.numbers(some)[0].tolist() == [bisect_right(edges, u) for u in numbers]
    assert LAW.numbers(chosen_words([[0, 2**64 - 1]], [[0, 2**64 - 1]])).tolist() == [[0, 2 * LAW.reach]]
    # The planted bug: the further bits of a word that equals the upper half of a threshold are ignored.
    ignored = np.searchsorted(LAW.thresholds[0], at_edges.first[0], side="right")
    assert (LAW.numbers(at_edges)[0] != ignored).sum() >= len(edges) // 7


@pytest.mark.parametrize("noise", [GridGaussian(0.004), GridGaussian(0.25), GridGaussian(1.0, 1 / 2)])
def test_the_total_variation_of_drawing_is_what_the_theorem_says(noise: GridGaussian) -> None:
    """Of the noise of one value, in balls: at most ``max(K, 4) 2^-128`` (T24)."""
    ctx.prec = 500
    edges = [0, *(int(high) << 64 | int(low) for high, low in zip(*noise.thresholds, strict=True)), 1 << 128]
    unit = noise.grid / Fraction(noise.sigma) / 2
    ends = [normal_cdf_at((2 * k + 1) * unit) for k in range(-noise.reach - 1, noise.reach + 1)]
    both = zip(pairwise(edges), pairwise(ends), strict=True)
    beyond = 2 * ends[0]
    apart = sum((abs((b - a) / arb(2) ** 128 - (high - low)) for (a, b), (low, high) in both), beyond)
    assert apart / 2 < max(2 * noise.reach, 4) * arb(2) ** -128


def normal_cdf_at(t: Fraction) -> arb:
    return (-arb(fmpq(t.numerator, t.denominator)) / arb(2).sqrt()).erfc() / 2


def test_noisy_copies_are_points_of_the_grid() -> None:
    x = LAW.values(np.array([[0, 17, 255], [128, 254, 1]]))
    drawn = PhiloxNoise().words(Address(3, "x", "estimation"), 50, LAW.words(x.shape))
    copies = LAW.noisy(x, drawn)
    assert copies.shape == (50, 2, 3)
    assert copies.dtype == np.float32
    steps = LAW.indices(copies) - LAW.indices(x)
    assert np.array_equal(steps.reshape(50, 6) + LAW.reach, LAW.numbers(drawn))


def test_copies_are_looked_up_as_far_as_noise_reaches() -> None:
    ends = chosen_words([[0, 0], [2**64 - 1, 2**64 - 1]], [[0, 0], [2**64 - 1, 2**64 - 1]])
    for noise in (LAW, Uniform(99.5 / 255)):
        reach = noise.count // 2 if isinstance(noise, Uniform) else noise.reach
        for at in (*range(-900, 1200, 100), -50_000, 50_000):
            found = noise.noisy(LAW.values(np.array([at, at + 600])), ends)
            expected = np.array([[at - reach, at + 600 - reach], [at + reach, at + 600 + reach]])
            assert np.array_equal(found, LAW.values(expected)), (noise, at)


def test_words_of_a_row_do_not_depend_on_the_others() -> None:
    address = Address(5, "a", "selection", 2)
    whole = np.random.Philox(key=address.key()).random_raw(128 * 7).reshape(128, 7)
    assert np.array_equal(PhiloxNoise().words(address, 128, 7).first, whole)
    further = PhiloxNoise().words(address, 128, 7).more(np.arange(128))
    assert not np.isin(further, whole).any()
    for low, rows in ((0, 1), (1, 3), (5, 2), (127, 1)):
        some = PhiloxNoise().words(address, rows, 7, low)
        assert np.array_equal(some.first, whole[low : low + rows])
        assert np.array_equal(some.more(np.arange(rows)), further[low : low + rows])
        assert np.array_equal(some[rows - 1 : rows].more(np.array([0])), further[low + rows - 1 : low + rows])


def test_inputs_off_the_grid_are_refused_and_the_nearest_named() -> None:
    with pytest.raises(buckler.InvalidInput, match=r"step 1/255; got 0\.5, whose nearest point is 0\.501960814"):
        LAW.check_input(np.array([0.0, 0.5], dtype=np.float32))
    for bad in (np.nan, np.inf, 1e30):
        with pytest.raises(buckler.InvalidInput, match="grid"):
            LAW.check_input(np.array([bad], dtype=np.float32))
    for low, high in ((3, 256), (-1, 4)):
        with pytest.raises(buckler.InvalidInput, match=f"within 0 to 255 steps .* got {low} to {high}"):
            Splitting(0.5).check_input(LAW.values(np.array([high, low])))
    for within in ([255, 0], [7, 7], []):
        Splitting(0.5).check_input(LAW.values(np.array(within, dtype=np.int64)))
    with pytest.raises(buckler.InvalidInput, match="grid"):  # the neighbouring float is another one
        LAW.check_input(np.nextafter(LAW.values(np.array([77])), np.float32(1.0)))
    LAW.check_input(LAW.values(np.arange(-300, 600)))


def test_bytes_and_their_floats_are_the_same_points() -> None:
    every = np.arange(256)
    assert np.array_equal(LAW.indices((every / 255.0).astype(np.float32)), every)
    assert np.unique(values_of(np.arange(-(1 << 16), 1 << 17), Fraction(1, 65535))).size == 3 << 16


def test_a_law_is_written_in_one_way() -> None:
    assert named("grid", {"sigma": 0.25}) == LAW
    assert as_noise(0.25, "grid:step=1/16") == GridGaussian(0.25, 1 / 16)
    assert parse("grid:step=1/16, sigma=16") == ("grid", {"step": 0.0625, "sigma": 16})
    for text, said in (("grid:step", "NAME:key=value"), ("grid:step=1/16,step=1/16", "NAME:key=value")):
        with pytest.raises(buckler.InvalidInput, match=said):
            parse(text)
    with pytest.raises(buckler.InvalidInput, match="takes the parameters sigma, step; got 'lam'"):
        as_noise(0.25, "grid:lam=2")
    with pytest.raises(buckler.InvalidInput, match="sigma must be given once"):
        as_noise(0.25, "grid:sigma=0.25")
    with pytest.raises(buckler.InvalidInput, match="needs the parameter sigma; got none"):
        as_noise(None, "grid")
    with pytest.raises(buckler.InvalidInput, match="step must be a fraction"):
        GridGaussian(0.25, step=0.1234567891234)
    with pytest.raises(buckler.InvalidInput, match="sigma must be at most"):
        GridGaussian(1e6)
    with pytest.raises(buckler.InvalidInput, match="noise_parameters"):
        as_noise(0.25, None, {"step": 1.0})


SPEC: dict[str, Any] = {"model": "m", "data": "d", "num_classes": 2, "n": 100}


def test_a_specification_names_its_law_and_a_sigma_alone_is_as_it_was() -> None:
    plain = RunSpec(**SPEC, sigma=0.5)
    assert plain == RunSpec(**SPEC, noise=Gaussian(0.5)) == RunSpec(**SPEC, noise=Gaussian(0.5), sigma=0.5)
    assert not {"noise", "noise_parameters"} & plain.as_dict().keys()
    grid = RunSpec(**SPEC, noise=GridGaussian(0.5))
    assert grid == RunSpec(**SPEC, sigma=0.5, noise=GridGaussian(0.5, step=1 / 255))
    assert grid == from_dict(read_toml(grid.to_toml()))
    assert grid.noise == GridGaussian(0.5)
    assert len({plain.hash(), grid.hash(), RunSpec(**SPEC, noise=GridGaussian(0.5, step=1 / 16)).hash()}) == 3


@pytest.mark.parametrize("noise", [LAW, Uniform(0.5), Splitting(0.5), Ablation(2, 9)], ids=str)
def test_limits_leave_room_for_drawing(noise: Any) -> None:
    """At the smallest alpha a hundredth of it belongs to drawing: a limit at all of alpha would be another one."""
    alpha, margin = 1e-10, noise.margins[-1]
    left = budget.after_drawing(alpha, noise)
    assert Fraction(left) + Fraction(1, 2**40) <= Fraction(alpha)
    counts = [990, 6, 4]
    for labels in ([0], None):
        options: dict[str, Any] = {"labels": labels, "margin": margin, "method": "top_class"}
        found, at_left, at_all = (
            buckler.certify_votes([counts], alpha=level, **how, **options)[0]
            for level, how in ((alpha, {"noise": noise}), (left, {"sigma": 0.25}), (alpha, {"sigma": 0.25}))
        )
        assert found.alpha == alpha
        assert found.margin == at_left.margin < at_all.margin
    rows = np.tile([[0.9, 0.1], [0.8, 0.2]], (1, 500, 1))
    by_scores, scores_left = (
        buckler.certify_scores(rows, alpha=level, labels=[0], margin=margin, method="pairwise/hoeffding", **how)
        for level, how in ((alpha, {"noise": noise}), (left, {"sigma": 0.25}))
    )
    assert by_scores[0].margin == scores_left[0].margin
    radius = noise.radius(0.3, margin) or 1.0
    asked = (alpha, noise), (left, Gaussian(0.25))
    for winner in (False, True):
        ladder, plain = (Ladder((radius,), noise, level, margin=margin, winner=winner) for level, noise in asked)
        assert (ladder.needed, ladder.final_alpha) == (plain.needed, plain.final_alpha)
        assert ladder.winner_alpha == plain.winner_alpha
    with pytest.raises(buckler.InvalidInput, match=r"alpha must be at least 1e-10 .*; got 9\.9e-11"):
        buckler.certify_votes([counts], noise=noise, labels=[0], alpha=9.9e-11)


def test_noise_that_is_not_drawn_from_words_takes_nothing_from_alpha() -> None:
    assert budget.after_drawing(1e-100, Gaussian(0.5)) == 1e-100


def test_draws_and_values_beyond_the_theorem_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(as_classifier(mean, num_classes=2), noise=LAW)
    with engine.session(), pytest.raises(buckler.InvalidInput, match="at most 1073741824 draws; got 1073741825"):
        engine.votes(LAW.values(np.array([[130]])), ["a"], "estimation", 1, start=2**30)
    monkeypatch.setattr("buckler.sampling.engine.MOST_VALUES", 10)
    with pytest.raises(buckler.InvalidInput, match="at most 10 values"):
        check_inputs(np.zeros((1, 11), np.float32), ["a"], LAW)


def mean(batch: Any) -> Any:
    """Class 1 where the mean is above a half."""
    over = np.asarray(batch).reshape(len(batch), -1).mean(axis=1) - 0.5
    return np.stack([0 * over, over], axis=1)


def test_a_model_in_hand() -> None:
    smoothed = buckler.Smoothed(mean, noise=LAW, num_classes=2)
    x = LAW.values(np.array([200, 210, 180]))
    certificate = smoothed.certify(x[None], n=500)[0]
    assert certificate.predicted == 1
    assert certificate.noise == LAW
    assert smoothed.certify_until(x[None], radii=[0.05, 0.1], max_n=2000).radii.tolist() == [0.1]
    with pytest.raises(buckler.InvalidInput, match="grid"):
        smoothed.certify(x[None] + np.float32(1e-3))
    with pytest.raises(buckler.InvalidInput, match="exactly one of sigma and noise"):
        buckler.Smoothed(mean, 0.25, 2, noise=LAW)


def test_batches_have_one_shape() -> None:
    shapes = set()

    def spy(batch: Any) -> Any:
        shapes.add(batch.shape)
        return mean(batch)

    engine = Engine(as_classifier(spy, num_classes=2), noise=LAW, batch_size=64)
    with engine.session():
        votes = engine.votes(LAW.values(np.array([[130], [131]])), ["a", "b"], "estimation", 50)
    assert shapes == {(64, 1)}
    assert votes.sum(axis=1).tolist() == [50, 50]


SIGMA = 1.0
GRID = GridGaussian(SIGMA)
HERE, NEXT = GRID.values(np.array([128])), GRID.values(np.array([127]))
ELSEWHERE = 0.83
"""Beyond this the answer is class 0 as well, so that class 0 has a majority at the one input and not at the other."""


def reads_last_bits(batch: Any) -> Any:
    """Class 0 where the last bits are those of noise around 128/255, or above ``ELSEWHERE``."""
    v = np.asarray(batch, dtype=np.float64)[:, 0]
    fine = v * 2.0**24
    near = (fine == np.rint(fine)) & ((v >= -0.5) | (np.rint(fine) % 2 == 1))
    first = np.where((v >= -1.0) & (v < 0.0), near, v > ELSEWHERE)
    return np.stack([first, ~first], axis=1).astype(np.float32)


def test_noise_in_float32_is_fooled() -> None:
    """Both are certified, with error 1e-6 each, and contradict one another: 127/255 lies in the first one's ball.

    Class 0 has .61 of the votes at the one input and .37 at the other, 25 standard errors from a half and more.
    """
    smoothed = buckler.Smoothed(reads_last_bits, sigma=SIGMA, num_classes=2)
    here = smoothed.certify(HERE[None], n=20_000, alpha=1e-6, labels=[0])[0]
    there = smoothed.certify(NEXT[None], n=20_000, alpha=1e-6, labels=[1])[0]
    assert here.predicted == 0
    assert there.predicted == 1
    assert here.radius > 0.2  # fifty times the distance of the two
    assert "idealised: real-valued noise, drawn and added in float32" in str(here)


def exact_probability(noise: GridGaussian, low: int, high: int) -> FloatArray:
    """Return the probability of class 0 at the grid points ``low, ..., high``, from the law's own probabilities."""
    edges = np.concatenate([[0.0], noise.thresholds[0].astype(np.float64) / 2.0**64, [1.0]])
    weights = np.diff(edges)
    half = len(weights) // 2
    votes = reads_last_bits(noise.values(np.arange(low - half, high + half + 1))[:, None])[:, 0]
    return np.convolve(votes, weights[::-1], mode="valid")


def test_noise_on_the_grid_is_not() -> None:
    """Every point of the grid within the radius that the exact margin gives has the same prediction."""
    low, high = -800, 1100
    p = exact_probability(GRID, low, high)
    assert abs(p[128 - low] - p[127 - low]) < 0.01  # floats of the grid carry no trace of the input
    radius = SIGMA * np.abs(ndtri(p)) * 255
    for k, reach in enumerate(radius):
        ball = p[max(0, int(np.ceil(k - reach + 1e-9))) : int(np.floor(k + reach - 1e-9)) + 1]
        assert ((ball > 0.5) == (p[k] > 0.5)).all()
    smoothed = buckler.Smoothed(reads_last_bits, noise=GRID, num_classes=2)
    both = smoothed.certify(np.stack([HERE, NEXT]), n=20_000, alpha=1e-6, labels=[0, 1], progress=False)
    assert sum(c.radius > 1 / 255 for c in both) < 2
