"""The Gaussian noise: closed forms, order, rounding, and the way back from a radius to a margin."""

import json
from fractions import Fraction
from math import copysign, inf, pi, sqrt
from sys import float_info
from typing import Any, get_args

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf

import buckler
from buckler.errors import InvalidInput
from buckler.evaluate.refutations import RefutationSettings
from buckler.noise import Gaussian, as_noise, named
from buckler.paper.estimators import lipschitz_radius
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
    for scale in ([], [0.0], [1.0, 0.0, 2.0], [-1.0, 2.0]):
        with pytest.raises(InvalidInput, match=r"scale must be 1 to .* numbers above 0"):
            Gaussian(0.5, scale=scale)
    with pytest.raises(InvalidInput, match="lipschitz"):
        lipschitz_radius(1.0, 1.0, lipschitz=-1.0)
    with pytest.raises(InvalidInput, match="exactly one of sigma and noise must be given; got neither"):
        as_noise(None, None)
    with pytest.raises(InvalidInput, match="exactly one of sigma and noise must be given; got both"):
        as_noise(0.5, Gaussian(0.5))
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
    for scale in ([0.0], [-1.0, 1.0], [], ["a"], np.ones(2000)):
        with pytest.raises(InvalidInput, match="scale"):
            Gaussian(scale=scale)


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
