"""Splitting noise of 8-bit images, random or derandomized, and the conversion of a probability margin to an l1 radius.

An offset ``j`` from 0 to N - 1, ``N = 510 lam``, splits the values 0, ..., 255 (in steps of 1/255) at ``j + 1/2`` and
at every N-th place from there. A value is replaced by the middle of its part of [0, 1], so the network sees only
between which splits the value lies (Levine and Feizi, *Improved, deterministic smoothing for L1 certified robustness*,
ICML 2021). A change of one value by one step changes the copy for one offset of N. So a probability margin M certifies
``||delta||_1 < lam M``, whatever the joint distribution of the offsets (T25, T28).

``DerandomizedSplitting`` uses that freedom: the offsets are a template, the same for all inputs, shifted by ``t = 0,
..., N - 1``. Votes of these N copies are probabilities without error, and ``k`` steps are certified if ``2 k`` is below
the difference of the votes (T29).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any, ClassVar

import numpy as np

from buckler.errors import InvalidInput, check_positive, check_whole, show
from buckler.noise.base import float_above
from buckler.noise.grid import LEVELS
from buckler.noise.uniform import L1Noise
from buckler.noise.words import Words
from buckler.types import AnyArray, DrawKind, Float32Array, IntArray, MarginKind

LEVEL_STEP = Fraction(1, LEVELS)
MOST_OFFSETS = 2**20
"""Offsets of one value at most, so that lambda is at most 2056."""

MIDDLES: Float32Array = (np.arange(4 * LEVELS + 1) / (4.0 * LEVELS)).astype(np.float32)
"""Noisy values in float32: the middles of parts of [0, 1], which are multiples of a quarter of a step of 1/255."""

SAME_STEP = Fraction(1, 2**20)
"""Tolerance, in steps, for taking a radius as a whole number of steps."""

TEMPLATE_KEY = 0x6275636B2D73706C  # "buck-spl"
"""Upper half of the key of the generator (Philox) of a template's offsets; the lower half is the template's number."""


def offsets_of(lam: float) -> int:
    """Return N, the number of offsets that splitting noise draws from: ``510 lam``, which must be a whole number."""
    count = round(2 * LEVELS * check_positive("lam", lam)) if lam <= MOST_OFFSETS else 0
    if not 1 <= count <= MOST_OFFSETS or abs(2 * LEVELS * lam - count) > 1e-9 * count:
        raise InvalidInput(f"lam must make 510 lam a whole number from 1 to {MOST_OFFSETS}; got {show(lam)}")
    return count


def split_values(values: AnyArray, offsets: AnyArray, count: int) -> Float32Array:
    """Return the noisy values, in [0, 1], of ``values`` from 0 to 255 under ``offsets`` from 0 to ``count - 1``.

    An offset j splits 0, ..., 255 at ``j + 1/2`` and at every ``count``-th place from there; a noisy value is the
    middle of the part of the value. For ``count >= 255`` it is ``(min(s, 1) + 1[x > s]) / 2`` with ``x = value / 255``
    and ``s = (j + 1/2) / 255``.

    >>> split_values(np.array([0, 100, 101, 255]), np.array([100, 100, 100, 300]), 510).tolist()
    [0.19705882668495178, 0.19705882668495178, 0.6970587968826294, 0.5]
    """
    above = 2 * offsets + 1 + 2 * count * ((values - offsets - 1) // count + 1)  # the split above, in half steps
    seen: Float32Array = np.take(MIDDLES, np.minimum(above, 2 * LEVELS) + np.maximum(above - 2 * count, 0))
    return seen


@lru_cache(maxsize=16)
def seen_table(count: int) -> Float32Array:
    """Return ``split_values`` of each value and offset, ``[256, offsets]``; offsets from 255 on share one column."""
    values, offsets = np.arange(LEVELS + 1)[:, None], np.arange(min(count, LEVELS + 1))[None]
    return split_values(values, offsets, count)


@dataclass(frozen=True, slots=True)
class Splitting(L1Noise):
    """Splitting noise with ``510 lam`` offsets, independent in every coordinate, for 8-bit inputs in [0, 1].

    An offset splits [0, 1] into parts, and the noise replaces a value by the middle of its part (``split_values``).

    >>> Splitting(2.5).describe(), Splitting(2.5).radius(0.5)
    ('splitting noise with lambda 2.5', 1.25)
    """

    lam: float

    name: ClassVar[str] = "splitting"
    holds_at: ClassVar[str] = "at every 8-bit input (the grid of step 1/255 from 0 to 1)"

    def __post_init__(self) -> None:
        offsets_of(self.lam)

    @property
    def grid(self) -> Fraction:
        """The step of the grid of 8-bit inputs, 1/255."""
        return LEVEL_STEP

    @property
    def most(self) -> int:
        """The largest value of an 8-bit input in steps, 255."""
        return LEVELS

    @property
    def count(self) -> int:
        """The number N of offsets, ``510 lam``."""
        return offsets_of(self.lam)

    def describe(self) -> str:
        """Return a text that describes the noise."""
        return f"splitting noise with lambda {self.lam:g}"

    def table(self, x: AnyArray) -> tuple[Float32Array, IntArray]:
        """Return the table of ``split_values``, and the place in it for each value of ``x`` under the offset 0."""
        table = seen_table(self.count)
        return table.ravel(), self.indices(x) * table.shape[1]

    def shown(self, numbers: Any) -> Any:
        """Return these offsets, with 255 in place of larger ones, which give the same copy."""
        return numbers.clip(max=LEVELS)


@dataclass(frozen=True, slots=True)
class DerandomizedSplitting(Splitting):
    """Splitting noise whose ``N = 510 lam`` copies are enumerated: copy t has the offsets ``(start(size) + t) mod N``.

    ``start(size)`` are the offsets of a template for inputs of so many values. They depend on the template's number
    ``template``, on lambda and on ``size`` alone.

    >>> DerandomizedSplitting(2.5).total
    1275
    """

    template: int = 0

    name: ClassVar[str] = "derandomized-splitting"
    closed: ClassVar[bool] = True
    draws: ClassVar[DrawKind] = "numbers"

    def __post_init__(self) -> None:
        offsets_of(self.lam)
        object.__setattr__(self, "template", check_whole("template", self.template, 0, 2**53))

    @property
    def total(self) -> int:
        """The number N of copies, ``510 lam``."""
        return self.count

    def describe(self) -> str:
        """Return a text that describes the noise."""
        return f"splitting noise with lambda {self.lam:g}, each of its {self.total} offsets once"

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the l1 radius that a margin certifies: ``k / 255`` for the largest whole k with ``2 k < N margin``.

        N is the number of copies of an input (``total``).

        **Guarantee.** If the votes of all N copies give class A this margin, the smoothed classifier predicts A at
        every 8-bit input at most k steps away, the *closed* l1 ball of the radius (T29). The float of ``k / 255`` may
        be rounded either way: no 8-bit input lies between. ``margin`` is a whole number of votes over N.

        >>> noise = DerandomizedSplitting(2.5)
        >>> noise.radius(511 / 1275), noise.radius(510 / 1275)
        (1.0, 0.996078431372549)
        """
        del kind
        votes = margin * self.total if margin > 0.0 else 0.0
        # Whole votes over N, times N, are within 2^-32 of the votes; any other margin is rounded down.
        whole = round(votes) if abs(votes - round(votes)) < 2.0**-32 else int(votes)
        return float(max(0, (whole - 1) // 2) * LEVEL_STEP)

    def margin(self, radius: float, kind: MarginKind = "probability") -> float:
        """Return the margin that a radius needs: ``2 k + 1`` of N votes for a radius of k steps of 1/255; at most 1."""
        del kind
        steps = floor(Fraction(radius) / LEVEL_STEP + SAME_STEP)
        return min(1.0, float_above(Fraction(2 * steps + 1, self.total)))

    def start(self, size: int) -> IntArray:
        """Return the template's offsets for inputs of ``size`` values: ``floor(word N / 2^64)`` of random words."""
        words = np.random.Philox(key=TEMPLATE_KEY << 64 | self.template).random_raw((1, size))
        start: IntArray = Words(words, lambda _: np.zeros_like(words)).below(self.total)[0]
        return start

    def numbered(self, x: AnyArray, numbers: IntArray) -> Float32Array:
        """Return the copies of ``x`` that have these numbers, 0 to N - 1: ``[numbers, *x.shape]``."""
        start = self.start(x.size)
        return self.copies(x, numbers[:, None], lambda some: self.shown((start + some) % self.total))

    def every(self, x: AnyArray) -> Iterator[tuple[Fraction, Float32Array]]:
        """Yield ``(probability, copy)`` for each of the N copies of ``x``."""
        for copy in self.numbered(x, np.arange(self.total)):
            yield Fraction(1, self.total), copy
