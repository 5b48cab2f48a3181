"""Uniform noise on a grid, and the conversion of a probability margin to an l1 radius.

Each coordinate of an input on a grid of step h moves by an independent whole number of steps, uniform on ``-k, ...,
k``; ``lam = (k + 1/2) h``. If the input moves by delta, the distribution of the copy changes by at most ``||delta||_1 /
(2 lam)`` in total variation, so a probability margin M certifies ``||delta||_1 < lam M`` (T25, T27). Whole numbers are
added and each has one float32, so certificates hold for the computed floats.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from buckler.errors import InvalidInput, check_positive, show
from buckler.noise.base import float_above, float_below
from buckler.noise.grid import LEVELS, GridNoise, values_of
from buckler.noise.words import Words
from buckler.types import AnyArray, Float32Array, IntArray, MarginKind

MOST_LAMBDA_STEPS = 2**22
"""Largest ``lam`` in steps of the grid: noisy values stay below 2^24 steps."""


class L1Noise(GridNoise):
    """Base class of l1 noises that draw one of ``count`` whole numbers for each value of an input.

    Lambda, which sets the radii, is ``count * grid / 2``, where ``grid`` is the step of the grid.
    """

    __slots__ = ()

    norm: ClassVar[str] = "l1"

    @property
    def count(self) -> int:
        """How many whole numbers the noise of one value is drawn from."""
        raise NotImplementedError

    @property
    def unit(self) -> float:
        """A length that scales tables of radii: a fourth of lambda, which is the radius of a margin of 1."""
        return float(self.count * self.grid / 8)

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the l1 radius that a margin certifies: ``lam * margin``, rounded down; 0.0 if that is not positive.

        **Guarantee.** If the probability margin of class A at the input is at least ``margin``, the smoothed classifier
        predicts A at every input of the grid in the open l1 ball of the radius (T27, T28).

        >>> Uniform(0.5).radius(0.5)
        0.25
        """
        del kind
        return float_below(self.count * self.grid / 2 * Fraction(margin)) if margin > 0.0 else 0.0

    def margin(self, radius: float, kind: MarginKind = "probability") -> float:
        """Return the margin that a radius needs: ``radius / lam``, rounded up, at most 1."""
        del kind
        return min(1.0, float_above(Fraction(radius) * 2 / (self.count * self.grid)))

    def numbers(self, words: Words) -> IntArray:
        """Return a whole number from 0 to ``count - 1`` for each random word, as ``shown`` changes it."""
        shown: IntArray = self.shown(words.below(self.count))
        return shown

    def copy(self, x: AnyArray, numbers: AnyArray) -> Float32Array:
        """Return a noisy copy of ``x`` for each row of ``numbers[copies, x.size]``, from 0 to ``count - 1``."""
        return self.copies(x, numbers, self.shown)

    def shown(self, numbers: Any) -> Any:
        """Return what is added to places in the table for ``numbers``, in NumPy or torch: the numbers themselves."""
        return numbers

    def every(self, x: AnyArray) -> Iterator[tuple[Fraction, Float32Array]]:
        """Yield ``(probability, copy)`` for every noisy copy of a small input ``x``."""
        for numbers in product(range(self.count), repeat=x.size):
            yield Fraction(1, self.count**x.size), self.copy(x, np.array([numbers], dtype=np.int64))[0]

    def points(self) -> list[Float32Array]:
        """Return small inputs for an audit: of two values, or of one value if ``count`` is above 12."""
        if self.count <= 12:
            near = range(100, 102 + self.count // 2)
            return [values_of(np.array(point), self.grid) for point in product(near, repeat=2)]
        return [values_of(np.array([x]), self.grid) for x in range(0, 256, 5)]


@dataclass(frozen=True, slots=True)
class Uniform(L1Noise):
    """Uniform noise of whole steps in [-lam, lam], independent in every coordinate, for inputs on a grid of ``step``.

    ``lam`` is ``(k + 1/2) step`` for a whole number k: a value moves by -k, ..., k steps.

    >>> Uniform(0.5).describe()
    'uniform noise with lambda 0.5 on a grid of 1/255'
    """

    lam: float
    step: float = 1 / LEVELS

    name: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        self.check_step()
        if not check_positive("lam", self.lam) / self.step <= MOST_LAMBDA_STEPS:
            raise InvalidInput(f"lam must be at most {MOST_LAMBDA_STEPS} steps; got {show(self.lam)}")
        if abs(self.lam / self.step - self.count / 2) > 1e-9 * self.count:
            near = ", ".join(f"{float(max(1, self.count + i) * self.grid / 2):.6g}" for i in (-2, 0, 2))
            raise InvalidInput(f"lam must be k + 1/2 steps of {self.grid}, such as {near}; got {show(self.lam)}")

    @property
    def count(self) -> int:
        """How many whole numbers of steps the noise of one value is drawn from, ``2 k + 1``."""
        return 2 * max(0, round(self.lam / self.step - 0.5)) + 1

    def describe(self) -> str:
        """Return a text that describes the noise."""
        return f"uniform noise with lambda {self.lam:g} on a grid of {self.grid}"

    @property
    def reach(self) -> int:
        """The largest noise in steps, ``k``."""
        return self.count // 2
