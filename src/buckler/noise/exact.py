"""Exact arithmetic that several laws share: floats on the safe side of a fraction, whole numbers from 64-bit words.

``u * N // 2^64`` turns a uniform 64-bit word u into one of N whole numbers. Each has ``2^64 / N`` words, rounded up or
down, so its law is within ``r (N - r) / (N 2^64)`` of uniform in total variation, ``r = 2^64 mod N``: a fraction that
is known exactly and paid for (T26).
"""

from fractions import Fraction
from math import inf, nextafter

import numpy as np

from buckler.errors import InvalidInput
from buckler.noise.grid import indices_of
from buckler.types import AnyArray, IntArray, WordArray

WORDS = 1 << 64

LEVELS = 255
"""Steps between the darkest and the brightest value of an 8-bit image, which is 1."""


def float_below(value: Fraction) -> float:
    """Return the largest float that is not above a fraction.

    >>> float_below(Fraction(1, 4)), Fraction(float_below(Fraction(2, 3))) <= Fraction(2, 3)
    (0.25, True)
    """
    near = float(value)
    return near if Fraction(near) <= value else nextafter(near, -inf)


def float_above(value: Fraction) -> float:
    """Return the smallest float that is not below a fraction."""
    return -float_below(-value) + 0.0  # + 0.0: no negative zero


def uniform_below(words: WordArray, count: int) -> IntArray:
    """Return ``word * count // 2^64`` for each word: whole numbers from 0 to ``count - 1``, ``count`` below 2^31.

    >>> uniform_below(np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64), 10).tolist()
    [0, 4, 5, 9]
    """
    number, half = np.uint64(count), np.uint64(32)
    low = (words & np.uint64(0xFFFFFFFF)) * number >> half
    return ((words >> half) * number + low >> half).view(np.int64)


def uniform_price(count: int, numbers: int) -> float:
    """Return how far ``numbers`` whole numbers of ``uniform_below`` are from uniform ones, at most 1, rounded up.

    **Guarantee.** The total variation distance between their joint law and that of independent uniform ones is at most
    this (T26).

    >>> uniform_price(256, 10**9), uniform_price(1275, 10**9) < 1e-7
    (0.0, True)
    """
    rest = WORDS % count
    return float_above(min(Fraction(1), Fraction(numbers * rest * (count - rest), count * WORDS)))


def whole_steps(x: AnyArray, step: Fraction, most: int | None = None) -> IntArray:
    """Return how many steps each value of an input is from 0, refusing values off the grid, or outside 0 to ``most``.

    A value is on the grid if it is the float32 of a whole number of steps, as 8-bit images are after division by 255.
    """
    steps = indices_of(np.asarray(x, dtype=np.float32), step)
    if most is not None and steps.size and not 0 <= steps.min() <= steps.max() <= most:
        raise InvalidInput(
            f"an input must lie within 0 to {most} steps of {step}, for this law; got {steps.min()} to {steps.max()}"
        )
    return steps
