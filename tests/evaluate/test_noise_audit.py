"""The audit of noises: ours pass and are attained, and each planted bug is found and named."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.evaluate.noise_audit import Distribution, audit_noise, distance, distribution, tying_margin
from buckler.noise import Ablation, DerandomizedSplitting, Splitting, Uniform
from buckler.noise.words import Words

OURS = [
    Uniform(2.5 / 255), Uniform(0.5), Uniform(3.5, step=1.0), Splitting(5 / 510), Splitting(0.5),
    DerandomizedSplitting(9 / 510), DerandomizedSplitting(0.5), Ablation(2, 6),
]  # fmt: skip


def worst_margin(here: Distribution, there: Distribution, margin: Fraction) -> Fraction:
    """Return the smallest margin there, ``E[F_A - F_j]``, of any classifier with a given margin here.

    It says j everywhere at first; copies are turned to A in the order of their likelihood ratio.
    """
    lacking, there_now = margin + 1, Fraction(-1)
    for copy in sorted(here, key=lambda c: there.get(c, Fraction(0)) / here[c]):
        share = min(Fraction(2), lacking / here[copy])
        lacking -= share * here[copy]
        there_now += share * there.get(copy, Fraction(0))
    return there_now


@pytest.mark.parametrize("noise", OURS, ids=lambda noise: noise.describe())
def test_our_laws_pass_and_are_attained(noise: Any) -> None:
    found = audit_noise(noise)
    assert found.passed, found.problem
    assert found.attained > 0
    assert str(found).startswith(f"passed: {noise.describe()}: {found.pairs} pairs of inputs, the radius attained at")


class Doubled(Splitting):
    """Twice the radius that holds."""

    def radius(self, margin: float, kind: Any = "probability") -> float:
        return 2.0 * Splitting.radius(self, margin, kind)


class Tied(DerandomizedSplitting):
    """At least, in the place of more than."""

    def radius(self, margin: float, kind: Any = "probability") -> float:
        del kind
        return float(round(margin * self.total) // 2 / 255)


class TiedPixels(Ablation):
    """At least, in the place of more than, for pixels."""

    def radius(self, margin: float, kind: Any = "probability") -> float:
        return Ablation.radius(self, np.nextafter(margin, 1.0), kind)


class Shifted(Uniform):
    """Draws noise that is not centred."""

    def noisy(self, x: Any, words: Any) -> Any:
        return Uniform.noisy(self, x, words) + np.float32(1 / 255)


class Lazy(Uniform):
    """Draws too few of the words' values."""

    def noisy(self, x: Any, words: Any) -> Any:
        return Uniform.noisy(self, x, Words(words.first >> np.uint64(1), words.more))


class Unlisted(Splitting):
    """Leaves a copy out."""

    def every(self, x: Any) -> Iterator[tuple[Fraction, Any]]:
        yield from list(Splitting.every(self, x))[1:]


@pytest.mark.parametrize(
    ("noise", "problem"),
    [
        (Doubled(5 / 510), "a classifier with that margin at"),
        (Tied(9 / 510), "ties there"),
        (TiedPixels(1, 4), "ties there"),
        (Shifted(2.5 / 255), "not among all copies"),
        (Lazy(2.5 / 255), "was drawn"),
        (Unlisted(5 / 510), "add up to 24/25"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_planted_bugs_are_found(noise: Any, problem: str) -> None:
    found = audit_noise(noise)
    assert not found.passed
    assert problem in str(found)


@dataclass(frozen=True)
class Listed:
    """Two inputs with given noises."""

    weights: tuple[tuple[int, ...], tuple[int, ...]]

    def every(self, x: Any) -> Iterator[tuple[Fraction, Any]]:
        row = self.weights[int(x[0])]
        yield from ((Fraction(w, sum(row)), np.array([i])) for i, w in enumerate(row) if w)


@pytest.mark.parametrize("weights", [((1, 1, 2), (2, 1, 1)), ((3, 1, 0), (0, 1, 3)), ((1, 2, 3), (1, 2, 3))])
def test_the_worst_classifier_is_the_worst_of_all(weights: Any) -> None:
    noise: Any = Listed(weights)
    here, there = (distribution(noise, np.array([x])) for x in (0, 1))
    parts = 4  # scores in steps of 1/4 between j and A: the extreme points are among them
    margins: dict[Fraction, Fraction] = {}
    for said in product(range(-parts, parts + 1), repeat=3):
        at = [sum((Fraction(s, parts) * w for s, w in zip(said, row, strict=True)), Fraction(0)) / sum(row)
              for row in weights]  # fmt: skip
        margins[at[0]] = min(at[1], margins.get(at[0], Fraction(1)))
    for margin, least in margins.items():
        assert worst_margin(here, there, margin) <= least
    tie = tying_margin(here, there)
    assert worst_margin(here, there, tie) == (0 if tie < 1 else -Fraction(1, 2))
    assert all(least > 0 for margin, least in margins.items() if margin > tie)


def test_distances_are_exact() -> None:
    x, y = np.array([0.0, 0.5, 1.0]), np.array([1.0, 0.5, 0.25])
    assert [distance(norm, x, y) for norm in ("l0", "l1", "l2", "linf")] == [2, Fraction(7, 4), Fraction(25, 16), 1]
    with pytest.raises(InvalidInput, match="norm must be l0, l1, l2 or linf"):
        distance("edit", x, y)


def test_too_large_a_law_is_refused() -> None:
    with pytest.raises(InvalidInput, match="audit one of its kind with fewer copies"):
        audit_noise(Ablation(4, 30))
