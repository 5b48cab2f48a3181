"""Base class of noises that certify by the probability margin and total variation (T25)."""

from dataclasses import fields
from typing import Any, ClassVar

from buckler.types import AnyArray, Draws, MarginKind

HALVINGS = 80
"""Bisection steps on [0, 1]: more than float64 can tell apart."""


class BaseNoise:
    """Base class of a noise that is drawn from random words and has one radius, from the probability margin.

    A frozen dataclass that inherits from it defines ``name``, ``norm`` (``l1`` or ``l0``), ``describe``, ``radius``,
    ``words`` and ``noisy``; for an audit also ``every`` and ``points``. Its fields are its parameters.
    """

    __slots__ = ()

    norm: ClassVar[str]
    margins: ClassVar[tuple[MarginKind, ...]] = ("probability",)
    units: ClassVar[str] = "in the units of the input"
    holds_at: ClassVar[str] = "everywhere"
    closed: ClassVar[bool] = True
    draws: ClassVar[Draws] = "words"
    idealised: ClassVar[str | None] = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields of the dataclass, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def total(self) -> int | None:
        """None: copies are drawn, not enumerated."""
        return None

    @property
    def unit(self) -> float:
        """A fourth of the radius at a margin of 1, the largest; 1 if that is 0."""
        return self.radius(1.0, "probability") / 4.0 or 1.0

    def check_input(self, x: AnyArray) -> None:
        """Accept any input. Override it to raise InvalidInput."""

    def radius(self, margin: float, kind: MarginKind = "probability") -> float:
        """Return the radius that a margin of at least ``margin`` certifies, rounded down; 0.0 for none."""
        raise NotImplementedError

    def margin(self, radius: float, kind: MarginKind = "probability") -> float:
        """Return the smallest margin whose radius is at least ``radius``, by bisection; 1 if there is none."""
        low, high = 0.0, 1.0
        for _ in range(HALVINGS if self.radius(1.0, kind) >= radius else 0):
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.radius(middle, kind) >= radius else (middle, high)
        return high
