"""Gaussian noise rounded to the grid of the inputs: certificates hold for the computed floats, not for an idealisation.

For inputs on a grid (8-bit images, steps of 1/255) let Q round to the grid. Cohen's theorem holds for the function
``f o Q`` of real numbers, and at a point of the grid ``Q(x + sigma Z) = x + step M`` with whole numbers M, independent
in each coordinate and of known probabilities (T23). M is drawn from these, whole numbers are added, and a table gives
the one float32 of each sum: floats are never added.

Thresholds are normal probabilities as 128-bit integers, each exactly rounded, with Python's integers alone (F11). With
``t_k = (k + 1/2) step / sigma`` the tail ``2^128 Phi(-t_k)`` is enclosed to within 2^-79 and rounded down; where both
ends of the enclosure do not round down to one number, ArithmeticError is raised. In fixed point with ``BITS`` bits
behind the point:

- at anchors ``a``, multiples of ``ANCHOR_SPACING``, the density is ``phi(a) = 1 / (exp(a^2/2) sqrt(2 pi))`` with the
  series of the exponential, and ``Phi(-a) = 1/2 - phi(a) (a + a^3/3 + a^5/(3 5) + ...)``: positive terms, dropped below
  one unit;
- from the nearest anchor ``Phi(-(a + d)) = Phi(-a) - phi(a) sum_j (-1)^j He_j(a) d^(j+1) / (j+1)!`` with ``TERMS``
  terms and ``abs(d) <= ANCHOR_SPACING / 2``; by Cramer's bound ``abs(He_j(x)) phi(x) <= sqrt(j!)`` what is left out is
  at most ``sqrt(TERMS!) / (TERMS + 1)! (ANCHOR_SPACING / 2)^(TERMS + 1) < 2^-228``.

All errors together stay below ``PHI_SLACK = 2^-208`` (F11).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import factorial, floor, isqrt
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from buckler.errors import InvalidInput, check_positive, show
from buckler.noise.base import BaseNoise
from buckler.noise.gaussian import Gaussian
from buckler.noise.words import Words
from buckler.types import AnyArray, Float32Array, IntArray, MarginKind, WordArray

WORD_BITS = 64
"""Bits of a random word; a threshold has twice as many."""

BITS = 384
ONE = 1 << BITS
ANCHOR_SPACING = Fraction(1, 16)
TERMS = 32
FARTHEST_TAIL = Fraction(27, 2)
PHI_SLACK = 1 << (BITS - 208)
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
    """Return the normal tails ``floor(2^128 Phi(-(2 k + 1) unit))``, exact, for ``k = 0, 1, ...`` while above 0."""
    found: list[int] = []
    # Beyond FARTHEST_TAIL the tail is below 2^-128: 2^128 Phi(-27/2) is about .003.
    k, stop = 0, floor((FARTHEST_TAIL / unit + 1) / 2)
    while k < stop:
        anchor = round((2 * k + 1) * unit / ANCHOR_SPACING)
        # The last k of this anchor: (2 k + 1) unit <= (anchor + 1/2) ANCHOR_SPACING.
        last = min(stop, max(k + 1, (floor((2 * anchor + 1) * ANCHOR_SPACING / (2 * unit)) + 1) // 2))
        centre = anchor * ANCHOR_SPACING
        start, coefficients = _anchor(centre)
        odd = np.arange(2 * k + 1, 2 * last + 1, 2, dtype=np.int64).astype(object)
        there = odd * (unit.numerator * ONE) // unit.denominator - centre.numerator * ONE // centre.denominator
        total = np.full(last - k, 0, dtype=object)
        for coefficient in reversed(coefficients):
            total = (total + coefficient) * there >> BITS
        low = (total + (start - PHI_SLACK)) >> (BITS - 2 * WORD_BITS)
        high = (total + (start + PHI_SLACK)) >> (BITS - 2 * WORD_BITS)
        if (low != high).any():
            raise ArithmeticError(
                "sigma must give normal probabilities that 128 bits can round with certainty; choose another"
            )
        found += low.tolist()
        k = last
    return [tail for tail in found if tail]


@lru_cache(maxsize=8)
def thresholds(sigma: Fraction, step: Fraction) -> tuple[WordArray, WordArray]:
    """Return the thresholds that turn uniform numbers into rounded Gaussian noise: their upper and lower 64 bits.

    They are ``ceil(2^128 Phi((k + 1/2) step / sigma))``, ``k = -L, ..., L - 1``, where L is the first number with
    ``2^128 Phi(-(L + 1/2) step / sigma) < 1``. **Guarantee.** With u uniform on 128-bit numbers,
    ``M = -L + #{thresholds <= u}`` is distributed as ``round(sigma Z / step)``, Z normal, up to a total variation of at
    most ``max(K, 4) 2^-128`` with ``K = 2 L`` thresholds (T24).

    >>> thresholds(Fraction(1), Fraction(6))[0].tolist()
    [2, 24901223515084635, 18421842850194466980, 18446744073709551613]
    """
    upper = tails(step / (2 * sigma))
    lower = [tail + 1 for tail in reversed(upper)]
    both = np.array([*lower, *((1 << 2 * WORD_BITS) - tail for tail in upper)], dtype=object)
    return (both >> WORD_BITS).astype(np.uint64), (both & (1 << WORD_BITS) - 1).astype(np.uint64)


Steps = npt.NDArray[np.int32]

LARGEST_STEP_DENOMINATOR = 1 << 20
"""Largest denominator of a step: the float given must be that of such a fraction."""

FARTHEST = 1 << 23
"""Largest value of an input in steps, up or down: neighbours on the grid still have different float32 numbers."""

MOST_SIGMA_STEPS = 1 << 19
"""Largest sigma in steps. Noise reaches 13.1 sigma, so noisy values stay below 2^24 steps."""

LEVELS = 255
"""Steps from 0 to 1 of an 8-bit image."""

TOP_BITS = 16
"""How many of a word's highest bits index the guide, a table of how many thresholds a word with these bits reaches."""

DOUBTFUL = -1
"""Entry of the guide where words with the same highest bits reach different numbers of thresholds."""

VALUES_AT_A_TIME = 1 << 16
"""Values of noisy copies made at a time: intermediate arrays stay in the cache. Heuristic: affects speed alone."""


class GridNoise(BaseNoise):
    """Base class of noises for inputs on a grid, whose values are whole numbers of ``step``, say 1/255 in 8-bit images.

    Noisy values come from a table, at the place of the input's value plus a whole number that is drawn.
    """

    __slots__ = ()

    step: float
    closed: ClassVar[bool] = False

    @property
    def grid(self) -> Fraction:
        """The step of the grid, as an exact fraction."""
        return Fraction(self.step).limit_denominator(LARGEST_STEP_DENOMINATOR)

    def check_step(self) -> None:
        """Store ``step`` as a float; raise InvalidInput if no fraction with a denominator up to 2^20 has this float."""
        object.__setattr__(self, "step", check_positive("step", self.step))
        if float(self.grid) != self.step:
            raise InvalidInput(
                f"step must be a fraction such as 1/255, with a denominator up to {LARGEST_STEP_DENOMINATOR}; "
                f"got {self.step}"
            )

    @property
    def holds_at(self) -> str:  # type: ignore[override]  # a class variable of the base
        """Text that says where certificates hold: at every point of the grid."""
        return f"at every point of the grid of step {self.grid}"

    @property
    def most(self) -> int | None:
        """The largest value that an input may have, in steps, the smallest being 0; None if any value will do."""
        return None

    def values(self, steps: AnyArray) -> Float32Array:
        """Return the values, in float32, of whole numbers of ``steps``."""
        return values_of(np.asarray(steps, dtype=np.int64), self.grid)

    def indices(self, x: AnyArray) -> IntArray:
        """Return the values of ``x`` as whole numbers of steps; one off the grid or out of range raises InvalidInput.

        A value is on the grid if it is the float32 of a whole number of steps, as in 8-bit images divided by 255.
        """
        x = np.asarray(x, dtype=np.float32)
        found = np.rint(x.astype(np.float64) / float(self.grid))
        off = ~(np.abs(found) <= FARTHEST)
        at = np.where(off, 0.0, found).astype(np.int64)
        off |= self.values(at) != x
        if off.any():
            value = float(x[off][0])
            nearest = float(values_of(np.rint(value / float(self.grid)), self.grid))
            raise InvalidInput(
                f"an input must lie on the grid of its noise, step {self.grid}; got {show(value)}, whose nearest point "
                f"is {nearest:.9g}. A rounded input is another input, with another certificate"
            )
        if self.most is not None and at.size and not 0 <= at.min() <= at.max() <= self.most:
            raise InvalidInput(
                f"an input must lie within 0 to {self.most} steps of {self.grid} for this noise; "
                f"got {at.min()} to {at.max()}"
            )
        return at

    def check_input(self, x: AnyArray) -> None:
        """Raise InvalidInput if a value of ``x`` is off the grid or out of range."""
        self.indices(x)

    @property
    def reach(self) -> int:
        """The largest noise in steps: of the numbers 0 to ``2 reach``, i moves a value by ``i - reach`` steps."""
        raise NotImplementedError

    def table(self, x: AnyArray) -> tuple[Float32Array, IntArray]:
        """Return a table of noisy values in float32, and the place in it for each value of ``x`` where 0 is drawn.

        Where i is drawn, the noisy value is i places further on.
        """
        at, reach = self.indices(x), self.reach
        low, high = int(at.min()), int(at.max())
        return _values_from(low - reach, high + reach, self.grid), at - low

    def numbers(self, words: Words) -> AnyArray:
        """Return the whole number that each random word draws: what is added to a place in the table."""
        raise NotImplementedError

    def noisy(self, x: AnyArray, words: Words) -> Float32Array:
        """Return noisy copies ``[rows, *x.shape]`` of one input ``x``, one for each row of random words."""
        return self.copies(x, words, self.numbers)

    def copies(self, x: AnyArray, drawn: Words | IntArray, numbers: Callable[[Any], AnyArray]) -> Float32Array:
        """Return a noisy copy of ``x`` for each row of ``drawn``, which ``numbers`` turns into one number a value."""
        table, at = self.table(x)
        out = np.empty((len(drawn), *x.shape), dtype=np.float32)
        rows = 1 + VALUES_AT_A_TIME // (1 + x.size)
        for first in range(0, len(drawn), rows):
            places = numbers(drawn[first : first + rows]) + at.ravel()
            out[first : first + rows] = table.take(places).reshape(len(places), *x.shape)
        return out


@dataclass(frozen=True, slots=True)
class GridGaussian(GridNoise):
    """Gaussian noise of standard deviation ``sigma`` rounded to multiples of ``step``, for inputs on that grid.

    **Guarantee.** Radii hold at every point of the grid in the ball, for the classifier as computed, if it is one
    function of its input.

    >>> GridGaussian(0.25).describe()
    'Gaussian noise with sigma 0.25 rounded to steps of 1/255'
    """

    sigma: float
    step: float = 1.0 / 255.0

    name: ClassVar[str] = "grid"
    norm: ClassVar[str] = "l2"
    margins: ClassVar[tuple[MarginKind, ...]] = Gaussian.margins

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))
        self.check_step()
        if self.sigma > MOST_SIGMA_STEPS * self.step:
            raise InvalidInput(
                f"sigma must be at most {MOST_SIGMA_STEPS} steps; got {self.sigma:g} and step {self.step:g}"
            )

    @property
    def unit(self) -> float:
        """A length that scales tables of radii: sigma."""
        return self.sigma

    def describe(self) -> str:
        """Return a text that describes the noise."""
        return f"Gaussian noise with sigma {self.sigma:g} rounded to steps of {self.grid}"

    def radius(self, margin: float, kind: MarginKind = "quantile") -> float:
        """Return the l2 radius that the margin certifies: that of ``Gaussian(sigma)``.

        Its theorem holds for the rounding and the classifier as one function.
        """
        return Gaussian(self.sigma).radius(margin, kind)

    def margin(self, radius: float, kind: MarginKind = "quantile") -> float:
        """Return the margin that a radius needs: that of ``Gaussian(sigma)``."""
        return Gaussian(self.sigma).margin(radius, kind)

    @property
    def thresholds(self) -> tuple[WordArray, WordArray]:
        """What ``thresholds(sigma, step)`` returns: numbers, in two halves, at which the noise rises by a step."""
        return thresholds(Fraction(self.sigma), self.grid)

    @property
    def reach(self) -> int:
        """The largest noise in steps: half of the number of thresholds."""
        return len(self.thresholds[0]) // 2

    def numbers(self, words: Words) -> Steps:
        """Return how many thresholds each random word reaches: the noise of a value in steps, plus ``reach``."""
        cells = (words.first >> np.uint64(64 - TOP_BITS)).view(np.int64)
        found: Steps = _guide(Fraction(self.sigma), self.grid).take(cells)
        where = np.flatnonzero(found == DOUBTFUL)
        found.ravel()[where] = words.reached(*self.thresholds, where)
        return found


def values_of(indices: AnyArray, step: Fraction) -> Float32Array:
    """Return the values of whole numbers of steps, ``indices * step``: a quotient in float64, rounded to float32."""
    return np.asarray((indices * float(step.numerator) / float(step.denominator)), dtype=np.float64).astype(np.float32)


@lru_cache(maxsize=8)
def _guide(sigma: Fraction, step: Fraction) -> Steps:
    """Return how many thresholds words reach, by their highest bits; ``DOUBTFUL`` where these do not decide."""
    edges, _ = thresholds(sigma, step)
    first = np.arange(1 << TOP_BITS, dtype=np.uint64) << np.uint64(64 - TOP_BITS)
    last = first | np.uint64((1 << (64 - TOP_BITS)) - 1)
    reached = np.searchsorted(edges, first)
    certain = np.searchsorted(edges, last, side="right") == reached
    return np.where(certain, reached, DOUBTFUL).astype(np.int32)


@lru_cache(maxsize=8)
def _values_from(low: int, high: int, step: Fraction) -> Float32Array:
    """Return the float32 of ``low, ..., high`` steps."""
    return values_of(np.arange(low, high + 1), step)
