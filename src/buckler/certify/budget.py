"""The only place where alpha is divided.

A certificate's alpha is its total error. Whatever needs several statements to hold at once, or picks the best of
several after looking at the estimation draws, takes its shares from here. What T2 (intersection-union) covers
needs no share: the minimum over classes of limits that each hold at level alpha holds at level alpha.
"""

from fractions import Fraction

import numpy as np

from buckler.errors import InvalidInput, check_alpha, check_whole
from buckler.types import Law


def split(alpha: float, parts: int) -> float:
    """Return an equal share of ``alpha``, rounded down so that ``parts`` shares never add up to more.

    **Guarantee.** If each of ``parts`` statements fails with probability at most the share, all hold together with
    probability at least ``1 - alpha`` (T3), whatever their dependence.

    >>> split(0.001, 2)
    0.0005
    >>> 3 * Fraction(split(0.001, 3)) <= Fraction(0.001)
    True
    """
    level, count = check_alpha(alpha), check_whole("parts", parts, 1)
    share = level / count
    return share if Fraction(share) * count <= Fraction(level) else float(np.nextafter(share, 0.0))


DRAWING = Fraction(1, 2**40)
"""Total variation between the draws of one statement and those of its theorem, at most, for noise drawn from words."""

MOST_DRAWS = 2**33
"""Draws that one statement may rest on, at most: a billion of an input at each of eight points."""

SMALLEST_DRAWN = 1e-10
"""The smallest alpha for noise that is drawn from words: of it the allowance for drawing is below a hundredth."""


def after_drawing(alpha: float, noise: Law) -> float:
    """Return the level of a limit: ``alpha``, less 2^-40 rounded down where the noise is drawn from random words.

    **Guarantee.** Up to ``MOST_DRAWS`` draws of inputs of up to 2^28 values, as the words give them, are within 2^-40
    of the theorem's in total variation, so both can be coupled, equal but with that probability: a statement that fails
    with at most this level under the theorem's draws fails with at most ``alpha`` under these (T24).

    >>> from buckler.noise import Gaussian, Splitting
    >>> after_drawing(0.001, Gaussian(0.5)), 0.001 - after_drawing(0.001, Splitting(0.5)) >= 2.0**-40
    (0.001, True)
    """
    level = check_alpha(alpha)
    if noise.draws != "words":
        return level
    if level < SMALLEST_DRAWN:
        raise InvalidInput(f"alpha must be at least {SMALLEST_DRAWN:g} for {noise.describe()}; got {alpha!r}")
    exact = Fraction(level) - DRAWING
    left = float(exact)
    return left if Fraction(left) <= exact else float(np.nextafter(left, 0.0))


WINNER_PARTS = 10
"""One part in this many of alpha pays for the winner's test (T18d). Heuristic: affects power, not validity."""


def winner_share(alpha: float) -> float:
    """Return the share of ``alpha`` for the test that the class with the most votes is the smoothed prediction."""
    return split(alpha, WINNER_PARTS)


def rest(alpha: float, share: float) -> float:
    """Return ``alpha - share``, rounded down.

    **Guarantee.** Two statements at levels ``share`` and ``rest(alpha, share)`` hold together with probability at least
    ``1 - alpha``.

    >>> rest(0.001, winner_share(0.001)) <= 0.0009
    True
    """
    exact = Fraction(check_alpha(alpha)) - Fraction(share)
    if exact <= 0:
        raise InvalidInput(f"share must be below alpha {alpha}; got {share}")
    level = float(exact)
    return level if Fraction(level) <= exact else float(np.nextafter(level, 0.0))
