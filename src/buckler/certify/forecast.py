"""How many draws certificates take: the fewest that can certify, and those expected of an any-time certificate.

The second is a plan, not a bound.
"""

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.certificate import ABSTAINED, LEAST_UNIFORM
from buckler.certify import budget
from buckler.certify.ladder import NULLS, SHARES, Ladder, patience
from buckler.certify.methods import find
from buckler.certify.sequential import FIRST_BATCH
from buckler.certify.settings import Settings
from buckler.certify.votes import limits_of_votes
from buckler.errors import BucklerWarning, InvalidInput, check_alpha, check_float_array, check_whole, show
from buckler.noise import as_noise
from buckler.types import ArrayLike, FloatArray, Noise

OVER_LIMIT = 1.3
"""Draws that the any-time test takes over what no test can beat, ``ln(1/alpha)/KL``: the median in docs/anytime.md."""

CENTRE, SPREAD = 1.0, 1.2
"""A typical data set: normal quantiles of the top class's probability are spread like Normal(CENTRE, SPREAD)."""


def typical_top(inputs: int = 2000) -> FloatArray:
    """Return top-class probabilities at the middles of ``inputs`` equal shares of a typical data set.

    >>> print(typical_top(5).round(3))
    [0.295 0.645 0.841 0.948 0.994]
    """
    middles = (np.arange(check_whole("inputs", inputs, 1)) + 0.5) / inputs
    return np.asarray(ndtr(CENTRE + SPREAD * ndtri(middles)), dtype=np.float64)


def expected_draws(
    top: ArrayLike,
    *,
    radii: Sequence[float],
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 1e-3,
    max_n: int = 100_000,
) -> FloatArray:
    """Return about how many draws decide rising ``radii`` for inputs of these top-class probabilities.

    The noise is Gaussian of standard deviation ``sigma``, or ``noise``.

    The runner-up is taken to hold all other votes, the hardest case. An input that has a margin takes ``OVER_LIMIT``
    times ``ln(1/alpha)/KL`` to the null; one that lacks it is given up ``patience`` standard errors from the target,
    after ``patience**2 / (2 KL)`` draws; neither takes fewer than a first batch, nor more than ``max_n``. All radii
    share the draws, so a ladder takes as many as the dearest rung up to the first that fails.

    >>> print(expected_draws([0.3, 0.8, 0.84, 0.95, 0.999], radii=[0.5], sigma=0.5).round())
    [1.60e+01 3.99e+02 1.00e+05 1.62e+02 5.60e+01]
    """
    p = check_float_array("top", top)
    if ((p < 0.0) | (p > 1.0)).any():
        raise InvalidInput(f"top must hold probabilities; got {show(top)}")
    level = -log((SHARES - 1) * budget.split(check_alpha(alpha), SHARES))
    ladder = Ladder(tuple(radii), as_noise(sigma, noise), alpha=alpha, max_n=max_n)
    null = NULLS[ladder.margin]
    three = np.stack([p, 1.0 - p, np.zeros_like(p)], axis=-1)
    draws, climbing = np.full(p.shape, float(min(FIRST_BATCH, max_n))), np.ones(p.shape, dtype=np.bool_)
    for margin in ladder.margins:
        beyond, short = null.kl_to_null(three, margin), null.kl_to_target(three, margin)
        with np.errstate(divide="ignore"):
            guess = 0.5 * patience(10) ** 2 / short
            given_up = 0.5 * patience(np.minimum(guess, max_n)) ** 2 / short
            rung = np.minimum(OVER_LIMIT * level / beyond, given_up)
        draws = np.where(climbing, np.maximum(draws, np.minimum(rung, max_n)), draws)
        climbing &= beyond > 0.0
    return np.asarray(draws, dtype=np.float64)


CHECKED_DRAWS = 2000
"""More draws than these certify something at every alpha, unless the noise allows nothing."""


def warn_of_few_draws(n: int, settings: Settings, num_classes: int, *, winner: bool) -> None:
    """Warn if nothing can be certified from ``n`` draws, and name the fewest that can.

    ``winner`` says that the class is the winner of the same draws.
    """
    draws = range(CHECKED_DRAWS)
    if n not in draws or settings.noise.total is not None or _can_certify(n, settings, num_classes, winner):
        return
    enough = bisect_left(draws, True, n, key=lambda k: _can_certify(k, settings, num_classes, winner))
    if enough in draws:
        warnings.warn(
            f"n = {n} draws cannot certify anything at alpha = {settings.alpha:g} by method "
            f"{settings.method.name!r}, even if all are of one class: n must be at least {enough}",
            BucklerWarning,
            stacklevel=3,
        )


def _can_certify(n: int, settings: Settings, num_classes: int, winner: bool) -> bool:
    """Return whether ``n`` draws that are all of one class certify a radius."""
    labels = None if winner else [0]
    if settings.scores is None:
        votes = n * np.eye(1, num_classes, dtype=np.int64)
        chosen, low, _ = limits_of_votes(votes, settings, labels=labels)
    else:
        from buckler.certify.scores import limits_of_scores  # compiled code, loaded only where it is used

        # Each input has a random number of its own under a randomised method, and may be lucky.
        level, method = settings.alpha, find(settings.method.name.replace("randomised_", ""))
        luck = min(0.49, level / LEAST_UNIFORM) if settings.method.randomised else level
        scores = np.eye(1, num_classes)[None].repeat(n, axis=1)
        chosen, low, _ = limits_of_scores(scores, replace(settings, method=method, alpha=luck), labels=labels)
    return chosen.classes[0] != ABSTAINED and settings.noise.radius(float(low[0]), settings.margin) > 0.0
