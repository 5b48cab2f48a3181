"""Random words: 64 uniform bits for each number that a copy needs, and 64 more where those do not decide.

A word and its further bits are a uniform number u below 2^128. Comparing u with a threshold needs the further bits only
where the word equals the threshold's upper half, which has probability 2^-64, so they are drawn only there. What is
left of total variation is below ``K 2^-128`` for a number that is compared with K thresholds (T24, T26, T30).

``BaseNoise`` is the base class of every noise: of one that is drawn from words and certifies by the probability margin
and total variation (T25), unless it says otherwise. ``float_below`` and ``float_above`` round radii and margins.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from math import inf, nextafter, prod
from typing import Any, ClassVar

import numpy as np

from buckler.errors import InvalidInput
from buckler.types import AnyArray, BoolArray, DrawKind, Float32Array, IntArray, MarginKind, WordArray


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


HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Words ``first[rows, count]``; ``more(rows)`` draws the further words ``[len(rows), count]`` of some rows."""

    first: WordArray
    more: Callable[[IntArray], WordArray]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, rows: slice) -> "Words":
        low = rows.start or 0
        return Words(self.first[low : rows.stop], lambda some: self.more(some + low))

    def second(self, places: IntArray) -> WordArray:
        """Return the further words at some places of ``first.ravel()``."""
        rows, columns = np.divmod(places, self.first.shape[1])
        return self.more(rows)[np.arange(len(rows)), columns]

    def reached(self, high: WordArray, low: WordArray, places: IntArray) -> IntArray:
        """Return how many thresholds ``2^64 high + low``, sorted, are at most u, for words at some places.

        >>> words = Words(np.array([[5, 6]], np.uint64), lambda rows: np.array([[3, 0]], np.uint64)[rows])
        >>> words.reached(np.array([5, 5], np.uint64), np.array([3, 4], np.uint64), np.array([0, 1]))
        array([1, 2])
        """
        words = self.first.ravel()[places]
        found = np.searchsorted(high, words, side="right")
        tied = np.flatnonzero(high[found - 1] == words) if high.size else found[:0]
        for i, second in zip(tied.tolist(), self.second(places[tied]) if tied.size else (), strict=True):
            start = int(np.searchsorted(high, words[i]))
            found[i] = start + np.searchsorted(low[start : found[i]], second, side="right")
        return found

    def below(self, count: int) -> IntArray:
        """Return ``floor(u count / 2^128)``: whole numbers from 0 to ``count - 1``, for a count below 2^31.

        **Guarantee.** Each is within ``count 2^-130`` of uniform in total variation (T26).

        >>> Words(np.array([[0, 2**63 - 1, 2**63]], np.uint64), lambda rows: np.zeros((1, 3), np.uint64)).below(10)
        array([[0, 4, 5]])
        """
        number = np.uint64(count)
        found = ((self.first >> HALF) * number + ((self.first & LOW) * number >> HALF) >> HALF).view(np.int64)
        # The lower 64 bits of word * count: the further bits add less than count to them, which may carry.
        rest = self.first * number
        close = np.flatnonzero(rest.ravel() > np.uint64(2**64 - count))
        if close.size:
            added = [int(second) * count >> 64 for second in self.second(close)]
            found.ravel()[close] += [int(r) + a >> 64 for r, a in zip(rest.ravel()[close], added, strict=True)]
        return found

    def smallest(self, keep: int) -> BoolArray:
        """Return the places ``[rows, count]`` of the ``keep`` smallest numbers u of each row."""
        last = np.partition(self.first, keep - 1, axis=1)[:, keep - 1 : keep]
        found: BoolArray = self.first <= last
        for row in np.flatnonzero(found.sum(axis=1) > keep).tolist():
            order = np.lexsort((self.more(np.array([row]))[0], self.first[row]))
            found[row] = False
            found[row, order[:keep]] = True
        return found


MARGIN_HALVINGS = 80
"""Bisection steps on [0, 1]: more than float64 can tell apart."""


class BaseNoise:
    """Base class of every noise: one that is drawn from random words and has a radius from the probability margin.

    A frozen dataclass that inherits from it defines ``name``, ``norm`` (``l1`` or ``l0``), ``describe``, ``radius`` and
    ``noisy``; for an audit also ``every`` and ``points``. Its fields are its parameters. Where ``draws`` is
    ``"gaussian"`` it has a ``spread`` in place of ``noisy``, and where it is ``"numbers"``, ``total`` and ``numbered``.
    """

    __slots__ = ()

    name: ClassVar[str]
    norm: ClassVar[str]
    margins: ClassVar[tuple[MarginKind, ...]] = ("probability",)
    units: ClassVar[str] = "in the units of the input"
    holds_at: ClassVar[str] = "everywhere"
    closed: ClassVar[bool] = True
    draws: ClassVar[DrawKind] = "words"
    idealised: ClassVar[str | None] = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields of the dataclass that are not None, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if value is not None}

    @property
    def total(self) -> int | None:
        """None: copies are drawn, not enumerated."""
        return None

    @property
    def unit(self) -> float:
        """A fourth of the radius at a margin of 1, the largest; 1 if that is 0."""
        return self.radius(1.0, "probability") / 4.0 or 1.0

    def describe(self) -> str:
        """Return the noise in words."""
        raise NotImplementedError

    def check_input(self, x: AnyArray) -> None:
        """Accept any input. Override it to raise InvalidInput."""

    @property
    def spread(self) -> Float32Array:
        """The factor of unit normal numbers: one, or an array that broadcasts to an input."""
        raise NotImplementedError

    def words(self, shape: tuple[int, ...]) -> int:
        """Return how many random words a copy of an input of this shape takes: one for each value."""
        return prod(shape)

    def noisy(self, x: Float32Array, words: Words) -> Float32Array:
        """Return noisy copies ``[rows, *shape]`` of one input from words ``[rows, words(shape)]``."""
        raise NotImplementedError

    def numbered(self, x: Float32Array, numbers: IntArray) -> Float32Array:
        """Return the copies ``[len(numbers), *shape]`` of one input that have these numbers, 0 to ``total - 1``."""
        raise NotImplementedError

    def every(self, x: AnyArray) -> Iterable[tuple[Fraction, AnyArray]]:
        """Yield every copy of a small input with its probability, for an audit."""
        del x
        raise InvalidInput(f"{self.describe()} must list its copies to be audited: every(x) and points()")

    def points(self) -> Sequence[AnyArray]:
        """Return small inputs, of some thousand copies at most; an audit compares the first with each other one."""
        raise InvalidInput(f"{self.describe()} must list its copies to be audited: every(x) and points()")

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 for none."""
        raise NotImplementedError

    def margin(self, radius: float, kind: MarginKind = "probability") -> float:
        """Return the smallest margin whose radius is at least ``radius``, by bisection; 1 if there is none."""
        low, high = 0.0, 1.0
        for _ in range(MARGIN_HALVINGS if self.radius(1.0, kind) >= radius else 0):
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.radius(middle, kind) >= radius else (middle, high)
        return high

    def sample(self, batch: Any, generator: Any = None) -> Any:
        """Return a noisy copy of each input of ``batch[inputs, ...]``: a torch tensor of a tensor, else a NumPy array.

        ``generator`` is a ``torch.Generator`` on the tensor's device, or for arrays a ``numpy.random.Generator``; None
        is torch's own, or a fresh one. Values that the noise cannot be added to, off its grid, raise InvalidInput.

        >>> from buckler.noise import Uniform
        >>> Uniform(0.5).sample(np.array([[0.2, 0.4]]), np.random.default_rng(0)).round(2)
        array([[0.34, 0.17]], dtype=float32)
        """
        if self.draws == "gaussian" and hasattr(batch, "detach"):
            return batch + batch.new_tensor(self.spread) * batch.new_empty(batch.shape).normal_(generator=generator)
        if hasattr(batch, "detach"):
            seed = batch.new_empty(1).long().random_(generator=generator)
            return batch.new_tensor(self.sample(batch.detach().cpu().float().numpy(), np.random.default_rng(int(seed))))
        rng, x = generator or np.random.default_rng(), np.asarray(batch, dtype=np.float32)
        if self.draws == "gaussian":
            return np.asarray(rng.standard_normal(x.shape, dtype=np.float32) * self.spread + x, dtype=np.float32)
        return np.stack([self._sample(one, rng) for one in x]) if len(x) else x

    def _sample(self, x: Float32Array, rng: np.random.Generator) -> Float32Array:
        """Return one noisy copy of an input, from words or the number of a copy drawn from ``rng``."""
        self.check_input(x)
        if self.total is not None:
            return np.asarray(self.numbered(x, rng.integers(self.total, size=1))[0])
        count = self.words(x.shape)

        def draw(rows: IntArray) -> WordArray:
            return rng.integers(0, 2**64, size=(len(rows), count), dtype=np.uint64)

        return np.asarray(self.noisy(x, Words(draw(np.arange(1)), draw))[0])
