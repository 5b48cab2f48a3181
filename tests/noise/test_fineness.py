"""Gaussian noise that float32 would round away is refused, through every door; its deviation is never rounded down."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.compat import Smooth
from buckler.noise import Gaussian
from buckler.runs.decide import Target, decide
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays

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
