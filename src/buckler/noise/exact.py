"""Exact arithmetic that several noises share: floats on the safe side of a fraction, inputs in whole steps."""

from fractions import Fraction
from math import inf, nextafter

import numpy as np

from buckler.errors import InvalidInput
from buckler.noise.grid import indices_of
from buckler.types import AnyArray, IntArray

LEVELS = 255
"""Steps from 0 to 1 of an 8-bit image."""


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


def whole_steps(x: AnyArray, step: Fraction, most: int | None = None) -> IntArray:
    """Return the values of an input in whole steps; values off the grid, or outside of 0 to ``most``, raise.

    A value is on the grid if it is the float32 of a whole number of steps, as in 8-bit images divided by 255.
    """
    steps = indices_of(np.asarray(x, dtype=np.float32), step)
    if most is not None and steps.size and not 0 <= steps.min() <= steps.max() <= most:
        raise InvalidInput(
            f"an input must lie within 0 to {most} steps of {step} for this noise; got {steps.min()} to {steps.max()}"
        )
    return steps
