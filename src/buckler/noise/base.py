"""The base class of every noise, and the rounding of radii and margins.

Unless it says otherwise, a noise is drawn from random words and certifies by the probability margin and total variation
(T25).
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from fractions import Fraction
from math import inf, nextafter, prod
from typing import Any, ClassVar

import numpy as np

from buckler.errors import InvalidInput
from buckler.noise.words import Words
from buckler.types import AnyArray, DrawKind, Float32Array, IntArray, MarginKind, WordArray


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


MARGIN_HALVINGS = 80
"""Halvings of [0, 1] in the search for a margin: to 2^-80, or as far as float64 can tell margins apart."""


class BaseNoise:
    """Base class of every noise, which makes noisy copies of an input and turns a margin into a certified radius.

    A frozen dataclass that inherits from it defines ``name``, ``norm`` (``l1`` or ``l0``), ``describe``, ``radius`` and
    ``noisy``; for an audit also ``every`` and ``points``. Its fields are its parameters. ``draws`` says what copies are
    made from: 64-bit random words by ``noisy``, unless it is ``"gaussian"`` (normal numbers times ``spread``) or
    ``"numbers"`` (all ``total`` copies, by ``numbered``).

    A radius follows from the probability margin, by how much the probability of a class under noise is above that of
    every other, or, where ``margins`` lists it, from the quantile margin: the same for their normal quantiles.
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
        """The noise's parameters by name: the fields of the dataclass that are not None."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if value is not None}

    @property
    def total(self) -> int | None:
        """The number of copies of an input if they are enumerated; None, as here, if they are drawn."""
        return None

    @property
    def unit(self) -> float:
        """A length that scales tables of radii: a fourth of the largest radius, that of a margin of 1; 1 if it is 0."""
        return self.radius(1.0, "probability") / 4.0 or 1.0

    def describe(self) -> str:
        """Return a text that describes the noise, such as 'Gaussian noise with sigma 0.25'."""
        raise NotImplementedError

    def check_input(self, x: AnyArray) -> None:
        """Accept any input. A noise that cannot be added to some inputs overrides this, to raise InvalidInput."""

    @property
    def spread(self) -> Float32Array:
        """What unit normal numbers are multiplied by to be noise: a number, or an array that broadcasts to an input."""
        raise NotImplementedError

    def words(self, shape: tuple[int, ...]) -> int:
        """Return how many 64-bit random words make one copy of an input of this shape: one for each value."""
        return prod(shape)

    def noisy(self, x: Float32Array, words: Words) -> Float32Array:
        """Return noisy copies ``[rows, *x.shape]`` of one input ``x``, each made from a row of ``words``."""
        raise NotImplementedError

    def numbered(self, x: Float32Array, numbers: IntArray) -> Float32Array:
        """Return the copies of one input ``x`` that have these numbers, 0 to ``total - 1``: ``[numbers, *x.shape]``."""
        raise NotImplementedError

    def every(self, x: AnyArray) -> Iterable[tuple[Fraction, AnyArray]]:
        """Yield ``(probability, copy)`` for every noisy copy of a small input ``x``: an audit enumerates them."""
        del x
        raise InvalidInput(f"{self.describe()} must list its copies to be audited: every(x) and points()")

    def points(self) -> Sequence[AnyArray]:
        """Return small inputs, of some thousand copies at most; an audit compares the first with every other one."""
        raise InvalidInput(f"{self.describe()} must list its copies to be audited: every(x) and points()")

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 for none.

        ``kind`` says which margin it is, one of ``margins``.
        """
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
        means torch's global one, or a fresh one for arrays. An input that the noise does not fit, say with values off
        its grid, raises InvalidInput.

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
