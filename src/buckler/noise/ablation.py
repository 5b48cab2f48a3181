"""Ablation noise: hides all but a few pixels, and converts a probability margin to an l0 radius.

A copy shows ``keep`` of ``pixels`` pixels, drawn without replacement, and holds ``mark`` in all channels of the others
(Levine and Feizi, *Robustness certificates for sparse adversarial attacks by randomized ablation*, AAAI 2020). If rho
pixels of an input change, a copy changes only if it shows one of them. So with d = ``pixels`` and k = ``keep`` a
probability margin M certifies every rho with ``2 (1 - C(d - rho, k) / C(d, k)) < M`` (T25, T30), which is compared in
whole numbers.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import ceil, comb, inf, nextafter
from typing import ClassVar

import numpy as np

from buckler.errors import InvalidInput, check_real, check_whole
from buckler.noise.base import BaseNoise, float_below
from buckler.noise.words import Words
from buckler.types import AnyArray, Float32Array, MarginKind

MOST_PIXELS = 2**28
"""Largest number of pixels: the limit on the values of an input (T24)."""


@lru_cache(maxsize=64)
def least_margins(pixels: int, keep: int) -> tuple[float, ...]:
    """Return the smallest margins that certify 0, 1, ... changed pixels, as far as they are at most 1.

    That of rho pixels is the smallest float above ``2 (1 - C(d - rho, k)/C(d, k))``, d = ``pixels`` and k = ``keep``.

    >>> least_margins(9, 2)[:2], 2 * (1 - Fraction(comb(8, 2), comb(9, 2)))
    ((5e-324, 0.4444444444444445), Fraction(4, 9))
    """
    found, shown, all_ = [], 1, 1  # C(d - rho, k) / C(d, k) is the product of (d - k - i)/(d - i) over i < rho
    for rho in range(pixels):
        needed = 2 * (1 - Fraction(shown, all_))
        least = nextafter(float_below(needed), inf)
        if least > 1.0:
            break
        found.append(least)
        ratio = Fraction(shown * (pixels - keep - rho), all_ * (pixels - rho))
        shown, all_ = ratio.numerator, ratio.denominator
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Ablation(BaseNoise):
    """Noise that replaces all but ``keep`` of ``pixels`` pixels by ``mark``; the kept ones are drawn uniformly.

    An input has ``pixels`` values or, with ``channels`` above 1, the shape ``[channels, ...]`` with ``pixels`` places
    in each channel: a pixel is then kept or marked with all its channels, and radii count such pixels. The mark must
    not be a value of an input, so that the classifier sees which pixels are missing: a model with the encoding of the
    paper, ``(x, 1 - x)`` and ``(0, 0)`` for a missing pixel, computes it from ``x == mark``.

    >>> Ablation(keep=75, pixels=1024, channels=3).describe()
    'ablation of all but 75 of 1024 pixels'
    """

    keep: int
    pixels: int
    mark: float = -1.0
    channels: int = 1

    name: ClassVar[str] = "ablation"
    norm: ClassVar[str] = "l0"

    def __post_init__(self) -> None:
        """Check the numbers, and that float32 holds the mark exactly."""
        object.__setattr__(self, "pixels", check_whole("pixels", self.pixels, 1, MOST_PIXELS))
        object.__setattr__(self, "keep", check_whole("keep", self.keep, 1, self.pixels))
        object.__setattr__(self, "channels", check_whole("channels", self.channels, 1))
        if float(np.float32(check_real("mark", self.mark))) != self.mark:
            raise InvalidInput(f"mark must be a number that float32 holds exactly; got {self.mark!r}")

    @property
    def units(self) -> str:  # type: ignore[override]  # a class variable of the base
        """The units of radii as text: single values, or pixels with all their channels."""
        return "in single values" if self.channels == 1 else f"in pixels, each with all its {self.channels} channels"

    @property
    def unit(self) -> float:
        """A number of pixels that scales tables of radii: about a fourth of the largest radius, at least 1."""
        return float(max(1, len(least_margins(self.pixels, self.keep)) // 4))

    def describe(self) -> str:
        """Return a text that describes the noise."""
        return f"ablation of all but {self.keep} of {self.pixels} {'values' if self.channels == 1 else 'pixels'}"

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the l0 radius that a margin certifies: the largest number of pixels that may change; 0.0 if none may.

        **Guarantee.** If the probability margin of class A at the input is at least ``margin``, the smoothed classifier
        predicts A at every input that differs from this one in at most so many pixels (T30).

        >>> Ablation(keep=75, pixels=1024).radius(0.9)
        7.0
        """
        del kind
        return float(max(0, bisect_right(least_margins(self.pixels, self.keep), margin) - 1))

    def margin(self, radius: float, kind: MarginKind = "probability") -> float:
        """Return the smallest margin that certifies a radius, a number of changed pixels; 1 if none does."""
        del kind
        needed, rho = least_margins(self.pixels, self.keep), ceil(radius)
        return needed[rho] if rho < len(needed) else 1.0

    def check_input(self, x: AnyArray) -> None:
        """Raise InvalidInput if ``x`` has not ``pixels`` values in each of ``channels`` channels, or holds the mark."""
        if x.size != self.pixels * self.channels or (self.channels > 1 and x.shape[0] != self.channels):
            many = f"shape [{self.channels}, ...], channels first, with {self.pixels} pixels in each channel"
            wanted = f"{self.pixels} values" if self.channels == 1 else many
            fits = x.ndim > 1 and x.size == self.pixels * x.shape[0]
            hint = f"; channels={x.shape[0]} keeps pixels with all their channels" if fits else ""
            raise InvalidInput(f"x must have {wanted}; got shape {x.shape}{hint}")
        if (np.asarray(x, dtype=np.float32) == np.float32(self.mark)).any():
            raise InvalidInput(f"x must not hold the mark of a missing pixel, {self.mark:g}; give another mark")

    def words(self, shape: tuple[int, ...]) -> int:
        """Return how many 64-bit random words make one copy of an input: one for each pixel."""
        del shape
        return self.pixels

    def noisy(self, x: AnyArray, words: Words) -> Float32Array:
        """Return a copy of ``x`` for each row of random words; it shows the pixels that have the ``keep`` smallest."""
        return self.copy(x, words.smallest(self.keep))

    def copy(self, x: AnyArray, shown: AnyArray) -> Float32Array:
        """Return a copy of ``x`` for each row of ``shown[copies, pixels]``: pixels that are False hold the mark."""
        self.check_input(x)
        channels = np.asarray(x, dtype=np.float32).reshape(1, self.channels, self.pixels)
        return np.where(shown[:, None], channels, np.float32(self.mark)).reshape(len(shown), *x.shape)

    def every(self, x: AnyArray) -> Iterator[tuple[Fraction, Float32Array]]:
        """Yield ``(probability, copy)`` for every noisy copy of a small input ``x``."""
        for kept in combinations(range(self.pixels), self.keep):
            shown = np.isin(np.arange(self.pixels), kept)[None]
            yield Fraction(1, comb(self.pixels, self.keep)), self.copy(x, shown)[0]

    def points(self) -> list[Float32Array]:
        """Return small inputs for an audit: a row of zeros, and rows whose first pixels are 1."""
        return [(np.arange(self.pixels) < flipped).astype(np.float32) for flipped in range(self.pixels + 1)]
