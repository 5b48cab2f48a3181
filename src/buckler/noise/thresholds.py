"""Normal probabilities on a grid as 128-bit integers, each exactly rounded, with Python's integers alone (F11).

With ``t_k = (k + 1/2) h / sigma`` the tail ``2^128 Phi(-t_k)`` is enclosed to within 2^-79 and rounded; an enclosure
that holds a whole number would raise. In fixed point with ``BITS`` bits behind the point:

- at anchors ``a``, multiples of ``SPACING``, the density is ``phi(a) = 1 / (exp(a^2/2) sqrt(2 pi))`` with the series of
  the exponential, and ``Phi(-a) = 1/2 - phi(a) (a + a^3/3 + a^5/(3 5) + ...)``: positive terms, dropped below one unit;
- from the nearest anchor ``Phi(-(a + d)) = Phi(-a) - phi(a) sum_j (-1)^j He_j(a) d^(j+1) / (j+1)!`` with ``TERMS``
  terms and ``abs(d) <= SPACING / 2``; by Cramer's bound ``abs(He_j(x)) phi(x) <= sqrt(j!)`` what is left out is at most
  ``sqrt(TERMS!) / (TERMS + 1)! (SPACING / 2)^(TERMS + 1) < 2^-228``.

All errors together stay below ``SLACK = 2^-208`` (F11).
"""

from fractions import Fraction
from functools import lru_cache
from math import factorial, floor, isqrt

import numpy as np

from buckler.types import WordArray

WORD = 64
"""Bits of a word; a threshold has two of them."""

BITS = 384
ONE = 1 << BITS
SPACING = Fraction(1, 16)
TERMS = 32
FARTHEST = Fraction(27, 2)
SLACK = 1 << (BITS - 208)
PI = 314159265358979323846264338327950288419716939937510582097494459230781640628620899
PI_SCALE = 10**80


def _anchor(a: Fraction) -> tuple[int, tuple[int, ...]]:
    """Return ``Phi(-a)`` and the coefficients of ``d, d^2, ...`` around it, in units of 2^-BITS."""
    square = a * a
    exponential, term, j = 0, ONE, 0
    while term:
        exponential += term
        j += 1
        term = term * square.numerator // (2 * j * square.denominator)
    density = ONE**3 // (exponential * isqrt(2 * PI * ONE * ONE // PI_SCALE))
    series, term, j = 0, ONE * a.numerator // a.denominator, 1
    while term:
        series += term
        j += 2
        term = term * square.numerator // (j * square.denominator)
    hermite = [Fraction(1), a]
    for j in range(1, TERMS - 1):
        hermite.append(a * hermite[j] - j * hermite[j - 1])
    shares = [(-1) ** (j + 1) * he / factorial(j + 1) for j, he in enumerate(hermite)]
    return ONE // 2 - (density * series >> BITS), tuple(density * s.numerator // s.denominator for s in shares)


def tails(unit: Fraction) -> list[int]:
    """Return ``floor(2^128 Phi(-(2 k + 1) unit))`` for ``k = 0, 1, ...`` as far as it is above 0, each exact."""
    found: list[int] = []
    # Beyond FARTHEST the tail is below 2^-128: 2^128 Phi(-27/2) is about .003.
    k, stop = 0, floor((FARTHEST / unit + 1) / 2)
    while k < stop:
        anchor = round((2 * k + 1) * unit / SPACING)
        # The last k of this anchor: (2 k + 1) unit <= (anchor + 1/2) SPACING.
        last = min(stop, max(k + 1, (floor((2 * anchor + 1) * SPACING / (2 * unit)) + 1) // 2))
        centre = anchor * SPACING
        start, coefficients = _anchor(centre)
        odd = np.arange(2 * k + 1, 2 * last + 1, 2, dtype=np.int64).astype(object)
        there = odd * (unit.numerator * ONE) // unit.denominator - centre.numerator * ONE // centre.denominator
        total = np.full(last - k, 0, dtype=object)
        for coefficient in reversed(coefficients):
            total = (total + coefficient) * there >> BITS
        low = (total + (start - SLACK)) >> (BITS - 2 * WORD)
        high = (total + (start + SLACK)) >> (BITS - 2 * WORD)
        if (low != high).any():
            raise ArithmeticError("a normal probability is within 2^-208 of a multiple of 2^-128")
        found += low.tolist()
        k = last
    return [tail for tail in found if tail]


@lru_cache(maxsize=8)
def thresholds(sigma: Fraction, step: Fraction) -> tuple[WordArray, WordArray]:
    """Return the upper and the lower 64 bits of ``ceil(2^128 Phi((k + 1/2) step / sigma))``, ``k = -L, ..., L - 1``.

    L is the first number for which no more words are left. **Guarantee.** With u uniform on 128-bit numbers,
    ``M = -L + #{thresholds <= u}`` is distributed as ``round(sigma Z / step)``, Z normal, up to a total variation of at
    most ``max(K, 4) 2^-128`` with ``K = 2 L`` thresholds (T24).

    >>> thresholds(Fraction(1), Fraction(6))[0].tolist()
    [2, 24901223515084635, 18421842850194466980, 18446744073709551613]
    """
    upper = tails(step / (2 * sigma))
    lower = [tail + 1 for tail in reversed(upper)]
    both = np.array([*lower, *((1 << 2 * WORD) - tail for tail in upper)], dtype=object)
    return (both >> WORD).astype(np.uint64), (both & (1 << WORD) - 1).astype(np.uint64)
