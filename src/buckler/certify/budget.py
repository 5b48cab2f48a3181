"""Division of alpha, the total error probability of a certificate; no other module divides it.

Several statements that must hold together, or the best of several chosen after looking at the draws, get shares of
alpha from here. The minimum over classes of limits at level alpha needs no shares: it holds at level alpha (T2).
"""

from fractions import Fraction

from buckler.errors import InvalidInput, check_alpha, check_whole
from buckler.noise.base import float_below
from buckler.types import Noise


def split_alpha(alpha: float, parts: int) -> float:
    """Return ``alpha / parts``, rounded down so that ``parts`` such shares never add up to more than ``alpha``.

    **Guarantee.** If each of ``parts`` statements fails with probability at most the share, all hold together with
    probability at least ``1 - alpha`` (T3), whatever their dependence.

    >>> split_alpha(0.001, 2)
    0.0005
    >>> 3 * Fraction(split_alpha(0.001, 3)) <= Fraction(0.001)
    True
    """
    return float_below(Fraction(check_alpha(alpha)) / check_whole("parts", parts, 1))


DRAWING_DISTANCE = Fraction(1, 2**40)
"""Bound on the total variation between draws made from random 64-bit words and those of the noise's theorem (T24)."""

MOST_STATEMENT_DRAWS = 2**33
"""Largest number of draws behind one statement: a billion at each of the eight points of a refutation."""

SMALLEST_DRAWN = 1e-10
"""Smallest alpha for noise drawn from random words; ``DRAWING_DISTANCE`` is below a hundredth of it."""


def after_drawing(alpha: float, noise: Noise, draws: int = 0) -> float:
    """Return the error probability left for a limit: ``alpha``, or ``alpha - 2^-40`` for noise made of random words.

    **Guarantee.** Up to ``MOST_STATEMENT_DRAWS`` draws of inputs of up to 2^28 values, as the words give them, are
    within 2^-40 of the theorem's in total variation, so both can be coupled, equal but with that probability: a
    statement that fails with at most this level under the theorem's draws fails with at most ``alpha`` under these
    (T24). ``draws`` is the number of draws behind the statement, given where it may be larger than that.

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
"""The winner's test, that the top class is the smoothed prediction, gets ``alpha / WINNER_PARTS`` (T18d). Heuristic:
affects power, not validity."""


def winner_share(alpha: float) -> float:
    """Return the share of ``alpha``, a tenth, for the winner's test: that the top class is the smoothed prediction."""
    return split_alpha(alpha, WINNER_PARTS)


FINAL_PARTS, FINAL_DRAWS = 4, 10_000
"""The final test of a ``Ladder`` gets ``alpha / FINAL_PARTS`` if it comes after ``FINAL_DRAWS`` draws or fewer; after
ten times as many, a tenth of that. Heuristic: affects power, not validity."""

SMALLEST_FINAL, LARGEST_FINAL = 1e-12, 1_000_000
"""Smallest alpha and largest number of draws of the exact limit that the final test of a ``Ladder`` uses."""


def final_share(alpha: float, final_n: int) -> float:
    """Return the share of ``alpha`` for the final test that an any-time test of votes takes once, at draw ``final_n``.

    0 if none is taken (T17). It depends on nothing else, so it is fixed before the first draw. The e-values, which may
    reject at any draw, take the rest of alpha.

    >>> final_share(0.001, 1000), round(final_share(0.001, 100_000), 9)
    (0.00025, 2.5e-05)
    """
    share = split_alpha(alpha, FINAL_PARTS * -(-final_n // FINAL_DRAWS))
    return share if share >= SMALLEST_FINAL and final_n <= LARGEST_FINAL else 0.0


def rest(alpha: float, share: float) -> float:
    """Return what is left of ``alpha`` after a ``share`` of it: ``alpha - share``, rounded down.

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
    """Return the level at which a router and the classifier it chooses are each certified, for ``alpha`` in all.

    **Guarantee.** The level and its share for one winner's test (``winner_share``) add up to at most ``alpha``, which
    bounds the error of router and classifier together (T36).

    >>> round(routed_level(0.001), 7)
    0.0009091
    """
    return float_below(Fraction(check_alpha(alpha)) * WINNER_PARTS / (WINNER_PARTS + 1))
