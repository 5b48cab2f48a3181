"""A noise for each input: exact error probabilities of the composition over every outcome (T36).

The truth is a pair of half-spaces. The router's smoothed choice ends at distance R, beyond which the other classifier
says another class, and the chosen classifier's prediction ends at distance R'; so the composition predicts one class
within min(R, R') and no further.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from buckler.certificate import Certificate
from buckler.certify.budget import routed_level
from buckler.certify.votes import certify_votes
from buckler.routed import compose
from buckler.types import FloatArray

ROUTER_SIGMA, SIGMA = 1.0, 0.5


class Outcome(NamedTuple):
    """What is certified from one outcome of router and classifier: level, class and radius; radius 0 is nothing."""

    level: int
    label: int
    radius: float


Rule = Callable[[Certificate, Certificate, Certificate], Outcome]
"""The router's certificate and those of the classifiers of levels 0 and 1 -> what is certified."""


def composed(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    if router.predicted is None:
        return Outcome(0, 0, 0.0)
    level = int(router.predicted)
    one = compose(router, (first, second)[level], 0.1)
    return Outcome(level, -1 if one.predicted is None else int(one.predicted), one.radius)


def with_a_default_level(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    """Planted bug: where the router abstains, level 0 is taken, with the classifier's own radius."""
    if router.predicted is not None:
        return composed(router, first, second)
    return Outcome(0, -1 if first.predicted is None else int(first.predicted), first.radius)


def chosen_without_smoothing(router: Certificate, first: Certificate, second: Certificate) -> Outcome:
    """Planted bug: the level is read off the input itself, so that only the classifier's radius is certified."""
    del router, second
    return Outcome(0, -1 if first.predicted is None else int(first.predicted), first.radius)


def worst_error(rule: Rule, n: int, n_router: int, alpha: float) -> float:
    """Return the largest probability, over truths, that a false radius or class is certified."""
    level = routed_level(alpha)
    votes = [np.stack([np.arange(k + 1), k - np.arange(k + 1)], axis=1) for k in (n_router, n)]
    routers = certify_votes(votes[0], sigma=ROUTER_SIGMA, alpha=level)
    firsts = certify_votes(votes[1], sigma=SIGMA, alpha=level)
    second = certify_votes([[0, n]], sigma=SIGMA, alpha=level)[0]  # beyond the router's plane every copy has class 1
    made = [[rule(router, first, second) for first in firsts] for router in routers]
    levels = np.array([[one.level for one in row] for row in made])
    labels = np.array([[one.label for one in row] for row in made])
    radii = np.array([[one.radius for one in row] for row in made])
    worst = 0.0
    for reach in truths(routers.radii):
        for far in truths(firsts.radii):
            false = (radii > 0.0) & ((levels == 1) | (labels == 1) | (radii > min(reach, far)))
            p = binom.pmf(np.arange(n_router + 1), n_router, ndtr(reach / ROUTER_SIGMA))
            q = binom.pmf(np.arange(n + 1), n, ndtr(far / SIGMA))
            worst = max(worst, float(p @ false @ q))
    return worst


def truths(radii: FloatArray) -> list[float]:
    """Return distances at which a limit is just false, and next to a tie."""
    return [0.0, 1e-6, 0.01, *(np.unique(radii[radii > 0.0]) - 1e-9)]


@pytest.mark.parametrize(("n", "n_router", "alpha"), [(40, 40, 0.05), (25, 50, 0.1), (50, 20, 0.1)])
def test_the_error_of_the_composition_is_at_most_alpha(n: int, n_router: int, alpha: float) -> None:
    error = worst_error(composed, n, n_router, alpha)
    assert 0.5 * alpha < error <= alpha * (1.0 + 1e-9)


@pytest.mark.parametrize("bug", [with_a_default_level, chosen_without_smoothing])
def test_planted_bugs_are_found(bug: Rule) -> None:
    assert worst_error(bug, 40, 40, 0.05) > 0.25


def test_the_level_pays_for_a_winners_test_beside_it() -> None:
    for alpha in (0.1, 1e-3, 1e-9):
        assert 0.9 * alpha < routed_level(alpha) * 1.1 <= alpha * (1.0 + 1e-15)
