"""A classifier that reads the last bits of its floats: noise added in float32 certifies it falsely, the grid does not.

Near 128/255, float32 numbers are multiples of 2^-24; 127/255 is an odd multiple of 2^-25. Noise between -1.5 and -0.5
is a multiple of 2^-24 or 2^-23, so the sum with 128/255 and the sum with 127/255 never meet below 0: by their last bits
they tell from which of the two inputs they come. The two are 1/255 apart, and sigma is 1.
"""

from typing import Any

import numpy as np
from scipy.special import ndtri

import buckler
from buckler.noise import GridGaussian
from buckler.types import FloatArray

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
