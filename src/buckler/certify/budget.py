"""The only place where alpha is divided.

A certificate's alpha is its total error. Whatever needs several statements to hold at once, or picks the best of
several after looking at the estimation draws, takes its shares from here. What T2 (intersection-union) covers
needs no share: the minimum over classes of limits that each hold at level alpha holds at level alpha.
"""

from fractions import Fraction

import numpy as np

from buckler.errors import check_alpha, check_whole


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
