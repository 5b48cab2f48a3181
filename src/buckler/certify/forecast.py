"""A warning where draws are too few to certify anything, whatever the model answers."""

import warnings
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from buckler.certificate import ABSTAINED, LEAST_UNIFORM
from buckler.certify.methods import find
from buckler.certify.settings import Settings
from buckler.certify.votes import limits_of_votes
from buckler.errors import BucklerWarning

if TYPE_CHECKING:
    from buckler.certify.ladder import Ladder

CHECKED_DRAWS = 2000
"""Largest n for which the check is made: more draws can certify something at every usual alpha."""

MOST_CHECKED = 10_000
"""Largest number of draws for which the smallest sufficient one is searched."""


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


def warn_of_short_ladder(ladder: "Ladder", num_classes: int) -> None:
    """Warn if ``max_n`` draws cannot certify the first radius of a ladder, and name the fewest that can."""
    if ladder.max_n >= MOST_CHECKED or _reaches(ladder.max_n, ladder, num_classes):
        return
    draws = range(MOST_CHECKED + 1)
    enough = bisect_left(draws, True, ladder.max_n, key=lambda k: _reaches(k, ladder, num_classes))
    fewest = f"max_n must be at least {enough}" if enough in draws else f"nor can {MOST_CHECKED:,}"
    warnings.warn(
        f"max_n = {ladder.max_n} draws cannot certify radius {ladder.radii[0]:g} at alpha = {ladder.alpha:g}, even if "
        f"all are of one class: {fewest}",
        BucklerWarning,
        stacklevel=3,
    )


def _reaches(max_n: int, ladder: "Ladder", num_classes: int) -> bool:
    """Return whether at most ``max_n`` draws that are all of one class certify the first radius."""
    from buckler.certify.sequential import AnytimeTest  # compiled code, loaded only where it is used

    test = AnytimeTest(
        replace(ladder, radii=ladder.radii[:1], max_n=max_n, final_n=0), 1 if ladder.winner else [0], num_classes
    )
    while (rows := test.undecided).size:
        test.update(rows, test.batch_sizes(rows)[:, None] * np.eye(1, num_classes, dtype=np.int64))
    return not test.decided(0, "trial").certificate.abstained
