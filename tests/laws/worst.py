"""The classifier that a law protects worst: exact, by Neyman and Pearson, over all copies of two small inputs."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from buckler.types import RadiusKind


class Enumerable(Protocol):
    """A law all of whose copies of a small input can be listed."""

    @property
    def closed(self) -> bool: ...
    def radius(self, margin: float, kind: RadiusKind) -> float: ...
    def every(self, x: Any) -> Iterator[tuple[Fraction, Any]]: ...


Distribution = dict[bytes, Fraction]


def distribution(law: Enumerable, x: Any) -> Distribution:
    """Return the probability of every copy of an input."""
    found: Counter[bytes] = Counter()
    for weight, copy in law.every(np.asarray(x, dtype=np.float32)):
        found[np.asarray(copy).tobytes()] += weight  # type: ignore[assignment]
    assert sum(found.values()) == 1
    return dict(found)  # type: ignore[arg-type]


def worst_classifier(here: Distribution, there: Distribution, margin: Fraction) -> dict[bytes, Fraction]:
    """Return ``F_A - F_j`` of the classifier with a given margin here whose margin there is the smallest.

    It says j, -1, wherever that costs little here: copies are turned to A in the order of their likelihood ratio.
    """
    said = dict.fromkeys({*here, *there}, Fraction(-1))
    lacking = margin + 1
    for copy in sorted(here, key=lambda c: there.get(c, Fraction(0)) / here[c]):
        said[copy] += min(Fraction(2), lacking / here[copy])
        lacking -= (said[copy] + 1) * here[copy]
    assert mean(said, here) == margin
    return said


def mean(said: dict[bytes, Fraction], of: Distribution) -> Fraction:
    """Return the margin of a classifier, ``E[F_A - F_j]``, at an input."""
    return sum((said[copy] * weight for copy, weight in of.items()), Fraction(0))


def worst_margin(here: Distribution, there: Distribution, margin: Fraction) -> Fraction:
    """Return the smallest margin there of any classifier with a given margin here."""
    return mean(worst_classifier(here, there, margin), there)


def certifies(law: Enumerable, kind: RadiusKind, margin: float, distance: Fraction) -> bool:
    """Return whether the law's radius for a margin covers a distance; a float within 1e-12 above or below is itself."""
    radius = Fraction(law.radius(margin, kind))
    return radius > 0 and (distance <= radius + Fraction(1, 10**12) if law.closed else distance < radius)
