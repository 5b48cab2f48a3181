"""Noise on a grid from end to end in one dimension: drawn and certified, against probabilities in closed form."""

from typing import Any

import numpy as np
import pytest
from scipy.special import bdtrc, ndtri

from buckler.certify.votes import certify_votes
from buckler.noise import Gaussian, GridGaussian
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine

LAW = GridGaussian(2.0 / 255.0)
INPUTS, N, ALPHA = 2000, 60, 0.2
FALSE_ALARM = 1e-6


def above(batch: Any) -> Any:
    """Class 0 above 129/255, at the steps 130, 131, ..."""
    over = np.asarray(batch)[:, 0] > LAW.values(np.array([129]))[0]
    return np.stack([over, ~over], axis=1).astype(np.float32)


def misses(noise: Any, at: int) -> int:
    """Return how many of independent certificates of the input at ``at`` steps reach beyond its exact radius."""
    engine = Engine(as_classifier(above, num_classes=2), noise=noise, seed=11)
    x = np.repeat(LAW.values(np.array([[at]])), INPUTS, axis=0)
    with engine.session():
        votes = engine.votes(x, [str(i) for i in range(INPUTS)], "estimation", N)
    # Class 0 is voted for where the noise is at least 130 - at steps; its probability from the thresholds themselves.
    p = 1.0 - float(LAW.thresholds[0][LAW.reach + 130 - at - 1]) / 2.0**64
    exact = Gaussian(LAW.sigma).radius(2.0 * float(ndtri(p)), "quantile")
    made = certify_votes(votes.tolist(), noise=LAW, alpha=ALPHA, labels=np.zeros(INPUTS, dtype=int))
    return sum(c.radius > exact for c in made)


def is_alarm(missed: int) -> bool:
    """Whether so many misses are less likely than ``FALSE_ALARM`` at an error probability of alpha."""
    return bool(bdtrc(missed - 1, INPUTS, ALPHA) < FALSE_ALARM)


@pytest.mark.parametrize("at", [130, 131, 132])
def test_misses_are_at_most_alpha(at: int) -> None:
    missed = misses(LAW, at)
    assert not is_alarm(missed)
    assert missed > 0  # the audit looks at certificates that can be wrong


class OffByOne(GridGaussian):
    """The planted bug: noise that counts one threshold too many, half of sigma here."""

    def noise(self, words: Any) -> Any:
        return super().noise(words) + np.int32(1)


def test_a_threshold_off_by_one_is_found() -> None:
    assert is_alarm(misses(OffByOne(LAW.sigma), 131))
