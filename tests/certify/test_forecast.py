"""The forecast of draws against the test it is a forecast of."""

import numpy as np
import pytest

from buckler.certify.forecast import expected_draws, typical_top
from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.errors import InvalidInput
from buckler.noise import Gaussian


@pytest.mark.parametrize("target", [(0.25,), (0.5,), (1.0,), (0.25, 0.5, 0.75, 1.0)])
def test_the_forecast_is_near_what_the_test_takes(target: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    top = typical_top(300)
    truths = np.stack([top, 1.0 - top], axis=1)
    test = AnytimeTest(Ladder(target, Gaussian(0.5), 1e-3, 20_000), np.zeros(300), 2)
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), truths[rows]))
    used = test.n
    forecast = expected_draws(top, radii=target, sigma=0.5, max_n=20_000)
    assert 0.5 < np.mean(used) / forecast.mean() < 1.5
    assert 0.5 < np.median(used) / np.median(forecast) < 2.0


def test_draws_stay_within_the_budget() -> None:
    draws = expected_draws(np.linspace(0.0, 1.0, 101), radii=[0.5], sigma=0.5, max_n=5000)
    assert draws.min() >= 16
    assert draws.max() == 5000
    assert (expected_draws([0.5], radii=[0.5], sigma=0.5, max_n=7) == 7).all()
    with pytest.raises(InvalidInput, match="probabilities"):
        expected_draws([1.5], radii=[0.5], sigma=0.5)
