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


def price_of(law: Law, dimension: int | None, draws: int) -> float:
    """Return what drawing costs of alpha: the law's price for so many copies of an input of ``dimension`` values."""
    if dimension is None:
        if law.price(1, 1) > 0.0:
            raise InvalidInput(
                f"dimension, the number of values of an input, must be given: drawing {law.describe()} has a price"
            )
        return 0.0
    return law.price(check_whole("dimension", dimension, 1), draws)


def after_price(alpha: float, price: float) -> float:
    """Return ``alpha - price``, rounded down: the level of a limit; 0.0 where nothing is left, and so no limit at all.

    **Guarantee.** Draws whose law is within ``price`` of the theorem's in total variation can be coupled with draws of
    the theorem, equal but with probability ``price``: a statement that fails with at most this level for those fails
    with at most ``alpha`` for these (T24).

    >>> after_price(0.001, 0.0), after_price(0.001, 0.01)
    (0.001, 0.0)
    """
    exact = Fraction(check_alpha(alpha)) - Fraction(price)
    if exact <= 0:
        return 0.0
    level = float(exact)
    return level if Fraction(level) <= exact else float(np.nextafter(level, 0.0))
