"""Division of alpha, the total error probability of a certificate; no other module divides it.

Several statements that must hold together, or the best of several chosen after looking at the draws, get shares of
alpha from here. The minimum over classes of limits at level alpha needs no shares: it holds at level alpha (T2).
"""

from fractions import Fraction

from buckler.errors import InvalidInput, check_alpha, check_whole
from buckler.noise.base import float_below
from buckler.types import Noise


def split_alpha(alpha: float, parts: int) -> float:
    """Return an equal share of ``alpha``, rounded down so that ``parts`` shares never add up to more.

    **Guarantee.** If each of ``parts`` statements fails with probability at most the share, all hold together with
    probability at least ``1 - alpha`` (T3), whatever their dependence.

    >>> split_alpha(0.001, 2)
    0.0005
    >>> 3 * Fraction(split_alpha(0.001, 3)) <= Fraction(0.001)
    True
    """
    return float_below(Fraction(check_alpha(alpha)) / check_whole("parts", parts, 1))


DRAWING_DISTANCE = Fraction(1, 2**40)
"""Bound on the total variation between a statement's draws and its theorem's, for noise from words (T24)."""

MOST_STATEMENT_DRAWS = 2**33
"""Largest number of draws behind one statement: a billion at each of the eight points of a refutation."""

SMALLEST_DRAWN = 1e-10
"""Smallest alpha for noise drawn from words; ``DRAWING_DISTANCE`` is below a hundredth of it."""


def after_drawing(alpha: float, noise: Noise, draws: int = 0) -> float:
    """Return the level of a limit: ``alpha``, less 2^-40 rounded down where the noise is drawn from random words.

    **Guarantee.** Up to ``MOST_STATEMENT_DRAWS`` draws of inputs of up to 2^28 values, as the words give them, are
    within 2^-40 of the theorem's in total variation, so both can be coupled, equal but with that probability: a
    statement that fails with at most this level under the theorem's draws fails with at most ``alpha`` under these
    (T24). ``draws`` is their number, checked where a statement may rest on more.

    >>> from buckler.noise import Gaussian, Splitting
    >>> after_drawing(0.001, Gaussian(0.5)), 0.001 - after_drawing(0.001, Splitting(0.5)) >= 2.0**-40
    (0.001, True)
    """
    level = check_alpha(alpha)
    if draws > MOST_STATEMENT_DRAWS:
        raise InvalidInput(f"draws of all inputs must be at most {MOST_STATEMENT_DRAWS:,} together; got {draws:,}")
    if noise.draws != "words":
        return level
    if level < SMALLEST_DRAWN:
        raise InvalidInput(f"alpha must be at least {SMALLEST_DRAWN:g} for {noise.describe()}; got {alpha!r}")
    return float_below(Fraction(level) - DRAWING_DISTANCE)


WINNER_PARTS = 10
"""The winner's test gets ``alpha / WINNER_PARTS`` (T18d). Heuristic: affects power, not validity."""


def winner_share(alpha: float) -> float:
    """Return the share of ``alpha`` for the test that the class with the most votes is the smoothed prediction."""
    return split_alpha(alpha, WINNER_PARTS)


FINAL_PARTS, FINAL_DRAWS = 4, 10_000
"""A final test gets ``alpha / FINAL_PARTS`` if it comes after ``FINAL_DRAWS`` draws or fewer; after ten times as many,
a tenth of that. Heuristic: affects power, not validity."""

SMALLEST_FINAL, LARGEST_FINAL = 1e-12, 1_000_000
"""Smallest alpha and largest number of draws of the exact limit that the final test uses."""


def final_share(alpha: float, final_n: int) -> float:
    """Return the share of ``alpha`` for a final test at draw ``final_n``, or 0 where there is none (T17).

    It depends on nothing else, so it is fixed before the first draw. E-values take the others.

    >>> final_share(0.001, 1000), round(final_share(0.001, 100_000), 9)
    (0.00025, 2.5e-05)
    """
    share = split_alpha(alpha, FINAL_PARTS * -(-final_n // FINAL_DRAWS))
    return share if share >= SMALLEST_FINAL and final_n <= LARGEST_FINAL else 0.0


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
    return float_below(exact)


def routed_level(alpha: float) -> float:
    """Return the level at which a router and the classifier that it chooses are each certified.

    **Guarantee.** The level and its share for one winner's test add up to at most ``alpha``, which bounds the error of
    the composition (T36).

    >>> round(routed_level(0.001), 7)
    0.0009091
    """
    return float_below(Fraction(check_alpha(alpha)) * WINNER_PARTS / (WINNER_PARTS + 1))
