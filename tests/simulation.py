"""Coverage by seeded simulation: how often a limit misses a known truth, and whether that is too often.

For laws that cannot be enumerated. A simulation never proves a limit valid; the judge says when it is shown to be
invalid, with a chance of a false alarm that is stated.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import betainc

from buckler.errors import check_alpha, check_whole
from buckler.types import ArrayLike, FloatArray

FALSE_ALARM = 1e-6
"""How rarely a valid limit may be called invalid."""


def first_by_default(values: Iterable[Any]) -> list[Any]:
    """Return parameters of a test, of which the default run takes the first alone and ``make test-all`` every one."""
    first, *others = values
    return [first, *(pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in others)]


class Verdict(NamedTuple):
    """What a simulation says of a limit: misses out of replicates, and the chance of so many at level alpha."""

    misses: int
    replicates: int
    alpha: float
    chance: float

    @property
    def passed(self) -> bool:
        """Whether the misses are compatible with a miss probability of alpha."""
        return self.chance > FALSE_ALARM


def simulate_misses(
    bound: Callable[[FloatArray], ArrayLike],
    law: Callable[[np.random.Generator, int, int], FloatArray],
    truth: float,
    n: int,
    replicates: int,
    seed: int,
    batch: int = 2000,
) -> tuple[int, int]:
    """Return how many of the replicates give a lower limit above the truth, and the number of replicates.

    ``law(rng, n, replicates)`` draws data with the replicates on the last axis, ``bound`` returns one limit for each.

    >>> from buckler.bounds.means import hoeffding_lower
    >>> uniform = lambda rng, n, replicates: rng.random((n, replicates))
    >>> simulate_misses(lambda x: hoeffding_lower(x, 0.05), uniform, 0.5, 20, 1000, seed=0)
    (0, 1000)
    """
    rng = np.random.default_rng(seed)
    misses, left = 0, check_whole("replicates", replicates, 1)
    while left > 0:
        size = min(left, batch)
        misses += int(np.sum(np.asarray(bound(law(rng, n, size))) > truth))
        left -= size
    return misses, replicates


def judge(misses: int, replicates: int, alpha: float) -> Verdict:
    """Return the verdict of a one-sided binomial test of ``miss probability <= alpha``.

    The chance of at least k misses in N is ``betainc(k, N - k + 1, alpha)``.

    >>> judge(60, 1000, 0.05).passed, judge(100, 1000, 0.05).passed
    (True, False)
    """
    replicates = check_whole("replicates", replicates, 1)
    misses = check_whole("misses", misses, 0, replicates)
    alpha = check_alpha(alpha)
    chance = 1.0 if misses == 0 else float(betainc(misses, replicates - misses + 1, alpha))
    return Verdict(misses, replicates, alpha, chance)
