"""Alpha below 1e-200 is refused everywhere, and at 1e-200 tails are still right."""

from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

import buckler
from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certify.ladder import Ladder
from buckler.certify.predictions import PredictionTest, predicted_class
from buckler.errors import check_alpha
from buckler.evaluate.refutations import PairTests
from buckler.noise import Gaussian

SMALLEST, BELOW = 1e-200, float(np.nextafter(1e-200, 0.0))
REFUSED = "alpha must be at least 1e-200 and below 1"


def half_space(batch: Any) -> Any:
    return np.stack([0 * batch[:, 0], batch[:, 0]], axis=1)


SMOOTHED = buckler.Smoothed(half_space, sigma=0.5, num_classes=2)
DOORS: list[Any] = [
    check_alpha,
    lambda alpha: clopper_pearson_lower(90, 100, alpha),
    lambda alpha: clopper_pearson_upper(90, 100, alpha),
    lambda alpha: buckler.certify_votes([[90, 10]], sigma=1.0, alpha=alpha),
    lambda alpha: buckler.certify_scores(np.tile([[0.9, 0.1]], (1, 50, 1)), sigma=1.0, alpha=alpha),
    lambda alpha: predicted_class([[90, 10]], alpha=alpha),
    lambda alpha: PredictionTest(1, 2, alpha=alpha),
    lambda alpha: PairTests(np.array([0]), np.array([1]), alpha, 100),
    lambda alpha: Ladder((0.1,), Gaussian(0.5), alpha=alpha),
    lambda alpha: SMOOTHED.certify([[1.0]], n=20, alpha=alpha),
    lambda alpha: SMOOTHED.certify_until([[1.0]], radii=[0.1], max_n=20, alpha=alpha),
    lambda alpha: SMOOTHED.predict([[1.0]], n=20, alpha=alpha),
    lambda alpha: SMOOTHED.predict([[1.0]], max_n=20, alpha=alpha),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore:n = ", "ignore:max_n = ")
def test_alpha_below_the_smallest_is_refused(door: Any) -> None:
    for alpha in (0.0, 1e-250, BELOW):
        with pytest.raises(buckler.InvalidInput, match=REFUSED):
            door(alpha)
    door(100 * SMALLEST)  # some doors split it


@pytest.mark.parametrize(("k", "n"), [(36270, 36306), (999_000, 1_000_000), (5000, 10_000), (90, 100), (700, 1000)])
def test_a_limit_at_the_smallest_alpha_has_its_tail(k: int, n: int) -> None:
    """The limit back into its tail, in balls; at 1e-250 SciPy's tail underflows and this fails."""
    ctx.prec = 400
    successes, failures = arb(k), arb(n - k + 1)
    lower, upper = clopper_pearson_lower(k, n, SMALLEST), clopper_pearson_upper(n - k, n, SMALLEST)
    for p in (arb(float(lower)), 1 - arb(float(upper))):
        tail = p.beta_lower(successes, failures, True)
        assert tail <= arb(SMALLEST)
        assert tail > arb(SMALLEST) * 0.999
