"""A warning where draws are too few to certify anything, whatever the model answers."""

import warnings
from bisect import bisect_left
from dataclasses import replace

import numpy as np

from buckler.certificate import ABSTAINED, LEAST_UNIFORM
from buckler.certify.methods import find
from buckler.certify.settings import Settings
from buckler.certify.votes import limits_of_votes
from buckler.errors import BucklerWarning

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
