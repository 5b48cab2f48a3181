"""Gaussian noise: closed forms, order, rounding, the way back to a margin; too little of it for float32 is refused."""

import json
from fractions import Fraction
from math import copysign, inf, pi, sqrt
from pathlib import Path
from sys import float_info
from typing import Any, get_args

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf

import buckler
from buckler.compat import Smooth
from buckler.errors import InvalidInput
from buckler.evaluate.refutations import RefutationSettings, check_searched
from buckler.noise import Gaussian, as_noise, named
from buckler.paper.estimators import lipschitz_radius
from buckler.runs.decide import Target, decide
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.types import MarginKind, Noise
from tests.balls import normal_cdf

KINDS: tuple[MarginKind, ...] = get_args(MarginKind)


def test_closed_forms() -> None:
    assert Gaussian(0.25).radius(2.0, "quantile") == pytest.approx(0.25, rel=1e-14)
    assert lipschitz_radius(0.5, 1.0) == pytest.approx(0.6266570686577501, rel=1e-14)
    assert Gaussian(1.0).radius(0.5, "probability") == pytest.approx(0.6744897501960817, rel=1e-14)
    assert lipschitz_radius(0.5, 1.0, lipschitz=0.1) == pytest.approx(0.5 / (2**0.5 * 0.1), rel=1e-14)
    assert lipschitz_radius(0.5, 1.0, lipschitz=9.0) == lipschitz_radius(0.5, 1.0)


@given(low=st.floats(1e-9, 1.0, exclude_max=True), sigma=st.floats(1e-3, 10))
def test_order_and_rounding(low: float, sigma: float) -> None:
    noise = Gaussian(sigma)
    first, better = lipschitz_radius(low, sigma), noise.radius(low, "probability")
    assert 0.0 < first <= better * (1 + 1e-6)  # at margins near 1e-9 the rounding of 1 + low is all there is
    assert arb(first) < arb(sigma) * (arb.pi() / 2).sqrt() * arb(low)
    assert arb(noise.radius(low, "quantile")) < arb(sigma) * arb(low) / 2
    # Phi(R1+ / sigma) <= (1 + low) / 2
    assert normal_cdf(arb(better) / arb(sigma)) <= (1 + arb(low)) / 2


@pytest.mark.parametrize("low", [0.0, -1.0, -inf])
@pytest.mark.parametrize("kind", KINDS)
def test_no_margin_no_radius(low: float, kind: MarginKind) -> None:
    assert Gaussian(1.0).radius(low, kind) == 0.0


@given(
    low=st.floats(5e-324, 1e-290) | st.floats(0.0, 1.0) | st.sampled_from([5e-324, 1e-323, 2.3e-308]),
    sigma=st.sampled_from([1e-300, 1e-16, 0.25, 1.0, 1e5]),
    kind=st.sampled_from(KINDS),
)
def test_a_radius_is_never_negative_nor_a_negative_zero_nor_rounded_up(
    low: float, sigma: float, kind: MarginKind
) -> None:
    radius = Gaussian(sigma).radius(low, kind)
    assert copysign(1.0, radius) == 1.0
    if kind == "quantile":
        assert 2 * Fraction(radius) <= Fraction(sigma) * Fraction(low)


@given(radius=st.floats(1e-6, 100.0), sigma=st.floats(1e-3, 10))
def test_the_margin_of_a_radius_is_rounded_up(radius: float, sigma: float) -> None:
    margin = Gaussian(sigma).margin(radius, "quantile")
    assert Fraction(margin) * Fraction(sigma) >= 2 * Fraction(radius)
    assert margin == pytest.approx(2.0 * radius / sigma, rel=1e-15)


def test_the_margin_of_r1_plus_keeps_its_allowance() -> None:
    """``2 Phi(radius / sigma) - 1`` as computed is too small for some radii; as returned for none, by what is said."""
    rng, wrong = np.random.default_rng(0), 0
    for radius in rng.uniform(0.01, 3.0, 200).tolist():
        sigma = float(rng.uniform(0.2, 1.5))
        exact = (arb(radius) / arb(sigma) / arb(2).sqrt()).erf()
        wrong += bool(arb(float(erf(radius / sigma / sqrt(2.0)))) < exact)
        found = Gaussian(sigma).margin(radius, "probability")
        assert found == 1.0 or arb(found) >= exact * (1 + arb(0.9e-14))
        assert arb(found) <= exact * (1 + arb(1.2e-14))
    assert wrong > 0
    assert Gaussian(0.1).margin(10.0, "probability") == 1.0


@pytest.mark.parametrize("kind", ["R2", "R1"])
def test_the_smallest_radius_from_both_sides(kind: str) -> None:
    """The smallest normal number is a radius; what is below it, where products lose digits, is 0."""
    scale = 2.0 if kind == "R2" else sqrt(2.0 / pi)
    margins = [scale * float_info.min * (1.0 + k * 2.0**-52) for k in range(-40, 40)]
    radii = [Gaussian(1.0).radius(m) if kind == "R2" else lipschitz_radius(m, 1.0) for m in margins]
    assert float_info.min in radii
    assert 0.0 in radii
    assert all(radius == 0.0 or radius >= float_info.min for radius in radii)
    assert radii == sorted(radii)


def test_a_law_says_what_it_is() -> None:
    noise: Noise = Gaussian(0.25)
    assert named(noise.name, noise.parameters) == noise
    assert (noise.norm, noise.closed, noise.describe()) == ("l2", False, "Gaussian noise with sigma 0.25")
    assert noise.margins == ("quantile", "probability")
    assert buckler.noise.Gaussian is Gaussian
    assert as_noise(0.25, None) == as_noise(None, noise) == noise


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="sigma must be above 0"):
        Gaussian(0.0)
    for scale in ([], [0.0], [1.0, 0.0, 2.0], [-1.0, 2.0], np.ones(2000), ["a"]):
        with pytest.raises(InvalidInput, match=r"scale must .*numbers"):
            Gaussian(0.5, scale=scale)
    with pytest.raises(InvalidInput, match="lipschitz"):
        lipschitz_radius(1.0, 1.0, lipschitz=-1.0)
    with pytest.raises(InvalidInput, match="exactly one of sigma and noise must be given; got neither"):
        as_noise(None, None)
    with pytest.raises(InvalidInput, match="exactly one of sigma and noise must be given; got both"):
        as_noise(0.5, Gaussian(0.5))
    with pytest.raises(InvalidInput, match=r"each value one number; got .*\. A scale goes into noise_parameters"):
        as_noise(None, "gaussian:sigma=0.5,scale=1,2")
    with pytest.raises(InvalidInput, match="divide the inputs by the scale"):
        check_searched(Gaussian(0.5, scale=[1.0, 2.0]))
    with pytest.raises(InvalidInput, match="must be one of 'gaussian'"):
        named("cauchy", {})
    with pytest.raises(InvalidInput, match="'gaussian' takes the parameters sigma, scale; got 'lam'"):
        named("gaussian", {"lam": 1.0})
    with pytest.raises(InvalidInput, match="kind must be one of 'quantile', 'probability'"):
        Gaussian(1.0).margin(1.0, "R1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="kind must be one of 'quantile', 'probability'"):
        Gaussian(1.0).radius(1.0, "R1")  # type: ignore[arg-type]


def test_a_scale_makes_ellipsoids() -> None:
    noise = Gaussian(0.5, scale=np.array([[[2.0]], [[0.5]]]))
    assert (
        noise == Gaussian(0.5, scale=[[[2.0]], [[0.5]]]) == named("gaussian", json.loads(json.dumps(noise.parameters)))
    )
    assert hash(noise) != hash(Gaussian(0.5))
    assert noise.describe() == "Gaussian noise with sigma 0.5 times a scale from 0.5 to 2"
    assert (repr(Gaussian(0.5)), repr(Gaussian(0.5, [2.0]))) == (
        "Gaussian(sigma=0.5)",
        "Gaussian(sigma=0.5, scale=(2.0,))",
    )
    assert (noise.norm, Gaussian(scale=[1.0]).sigma) == ("scaled l2", 1.0)
    assert noise.radius(2.0, "quantile") == Gaussian(0.5).radius(2.0, "quantile")
    assert np.asarray(noise.spread).ravel().tolist() == [1.0, 0.25]
    noise.check_input(np.zeros((2, 3, 4), dtype=np.float32))
    for shape in ((3, 3, 4), (2,)):
        with pytest.raises(InvalidInput, match="of scale broadcasts"):
            noise.check_input(np.zeros(shape, dtype=np.float32))


def test_a_scaled_half_space_is_certified_to_its_exact_distance() -> None:
    # Class 1 where 3 x + 0.1 y > 1; under noise with deviations s the margin's radius is the distance of x / s.
    scale, weights = np.array([0.5, 4.0]), np.array([3.0, 0.1])

    def model(batch: Any) -> Any:
        side = batch @ weights.astype(np.float32) - 1.0
        return np.stack([-side, side], axis=1)

    x = np.array([0.2, 20.0], dtype=np.float32)
    away = (weights @ x - 1.0) / np.linalg.norm(weights * scale)  # in units of the scale
    smoothed = buckler.Smoothed(model, noise=Gaussian(scale=scale), num_classes=2)
    certificate = smoothed.certify(x[None], n=20_000, alpha=1e-6, seed=1)[0]
    assert 0.9 * away < certificate.radius < away  # short of it by the limit's width, beyond it once in a million
    assert "scaled l2" in str(certificate)
    with pytest.raises(InvalidInput, match="refutations are searched in l2"):
        RefutationSettings(Gaussian(scale=scale), 1e-3, 1000)


torch = pytest.importorskip("torch")

COARSE = "spacings of float32"


def half_space(batch: Any) -> Any:
    """Class 1 where the first value is above 4,500,000."""
    over = np.asarray(batch, dtype=np.float64)[:, 0] - 4.5e6
    return np.stack([0 * over, over], axis=1)


@pytest.mark.parametrize(
    ("x", "noise"),
    [
        ([4.5e6], Gaussian(0.1)),
        ([4500000.26], Gaussian(0.1)),
        ([1e8], Gaussian(1.0)),
        ([-1e8, 3.0], Gaussian(1.0)),
        ([1.0], Gaussian(1e-300)),
        ([0.0], Gaussian(1e-300)),
        ([0.0], Gaussian(1e-36)),
        ([1.0], Gaussian(scale=[1e-50])),
        ([1.0, 4.5e6], Gaussian(0.1, scale=[1.0, 1.0])),
        ([1.0], Gaussian(1e31)),
    ],
)
def test_noise_that_is_rounded_away_is_refused(x: list[float], noise: Gaussian) -> None:
    smoothed, inputs = buckler.Smoothed(half_space, noise=noise, num_classes=2), [x]
    by_scores = buckler.Smoothed(half_space, noise=noise, num_classes=2, scores=buckler.Softmax())
    for call in (
        lambda: smoothed.certify(inputs, n=100),
        lambda: by_scores.certify(inputs, n=100, labels=[0]),
        lambda: smoothed.certify_until(inputs, radii=[0.5 * noise.unit], max_n=100),
        lambda: by_scores.certify_until(inputs, radii=[0.5 * noise.unit], max_n=100),
        lambda: smoothed.predict(inputs, n=100),
        lambda: smoothed.predict(inputs, max_n=100),
    ):
        with pytest.raises(buckler.InvalidInput, match=COARSE):
            call()


def test_runs_and_other_doors_refuse_it(tmp_path: Path) -> None:
    x = np.array([[4.5e6], [0.0]])
    data = from_arrays(x.astype(np.float32), high=5e6)
    spec = RunSpec(model="m", data="d", num_classes=2, n=100, sigma=0.1)
    model = as_classifier(half_space, num_classes=2)
    for made in (
        lambda: sample(spec, model, data, tmp_path / "run"),
        lambda: decide(spec, Target((0.05,)), model, data, tmp_path / "d.parquet"),
        lambda: Smooth(half_space, 2, 0.1).certify(x[0], 10, 100, 0.001, 100),
        lambda: Smooth(half_space, 2, 0.1).predict(x[0], 100, 0.001, 100),
        lambda: buckler.Smoothed(torch.nn.Linear(1, 2), 0.1).refute(x[:1].astype(np.float32), labels=[0]),
    ):
        with pytest.raises(buckler.InvalidInput, match=COARSE):
            made()


def test_noise_from_both_sides_of_the_limit() -> None:
    for value in (1.0, 1.5, 255.0, 4.5e6, 1e-3):
        x = np.array([value], dtype=np.float32)
        least = 2.0**10 * float(np.spacing(x[0]))
        Gaussian(least).check_input(x)
        Gaussian(least).check_input(-x)
        with pytest.raises(buckler.InvalidInput, match=COARSE):
            Gaussian(np.nextafter(least, 0.0)).check_input(x)
        # A float64 input moves by half a spacing at most, so by less than 2^-10 of the smallest deviation.
        assert np.abs(np.float64(np.float32(value)) - value) < 2.0**-10 * least
    Gaussian(2.0**-100).check_input(np.zeros(3, dtype=np.float32))
    Gaussian(1e30).check_input(np.ones(3, dtype=np.float32))


def test_each_feature_has_a_scale_of_its_own() -> None:
    x = np.array([4.5e6, 1.0], dtype=np.float32)
    Gaussian(1.0, scale=[1000.0, 0.1]).check_input(x)
    with pytest.raises(buckler.InvalidInput, match=r"up to 4500000; got 0\.1"):
        Gaussian(1.0, scale=[0.1, 1000.0]).check_input(x)


def test_values_beyond_float32_are_refused() -> None:
    smoothed = buckler.Smoothed(half_space, 1.0, 2)
    for x in ([1e39], [-1e300]):
        with pytest.raises(buckler.InvalidInput, match="range of float32"):
            smoothed.certify([x], n=100)


def test_noise_is_never_drawn_with_less_than_sigma() -> None:
    """Radii use sigma; float32 rounds half of all numbers down, and the next one above is taken for those."""
    rng, down = np.random.default_rng(0), 0
    for sigma in rng.uniform(0.05, 2.0, 200).tolist():
        used = float(Gaussian(sigma).spread)
        down += float(np.float32(sigma)) < sigma
        assert sigma <= used < sigma * (1.0 + 2.0**-22)
    assert down > 50, "the planted bug: the nearest float32"
    scaled = Gaussian(0.3, scale=[[0.1], [0.7]])
    assert scaled.spread.dtype == np.float32
    for used, s in zip(scaled.spread.ravel().tolist(), (0.1, 0.7), strict=True):
        assert Fraction(used) >= Fraction(0.3 * s)
    assert Gaussian(0.12).spread == np.nextafter(np.float32(0.12), np.float32(1.0))
