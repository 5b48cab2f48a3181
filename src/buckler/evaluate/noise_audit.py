"""Audit the radius of a noise against the exact worst classifier, by enumeration in fractions.

A noise that can list all copies of a small input (``every``) is asked about pairs of small inputs (``points``). For the
inputs x and y the classifier that a margin at x protects worst at y follows from Neyman and Pearson: it gives away, in
the order of their likelihood ratio, the copies that y likes more than x. Along one axis that is a half-space, in a few
dimensions a box or its corner, for ablation a single flipped pixel: none is left out. The largest margin M at x for
which it ties at y is a fraction, computed exactly: no radius of a margin up to M may cover y (T25), and a noise that
gives nothing away covers y from there on.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor, prod
from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc

from buckler.errors import InvalidInput, show
from buckler.noise import BaseNoise
from buckler.noise.base import float_below
from buckler.noise.words import Words
from buckler.types import AnyArray

Distribution = dict[bytes, Fraction]

AUDIT_DRAWS = 20_000
"""Copies of an input that are drawn, to see whether they follow the probabilities that the noise lists."""

SUSPICIOUS = 1e-9
"""Chance that ``audit_noise`` calls drawing wrong although it is right."""

MOST_COPIES = 20_000
"""Largest number of different copies of one input that are listed."""


@dataclass(frozen=True, slots=True)
class NoiseAudit:
    """Result of ``audit_noise``: how many pairs of inputs it compared, and what is wrong, or None.

    ``attained`` counts pairs whose distance the radius covers as soon as the margin exceeds the worst classifier's.
    """

    noise: str
    pairs: int
    attained: int
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the audit found no problem."""
        return self.problem is None

    def __str__(self) -> str:
        if self.problem is not None:
            return f"FAILED: {self.noise}: {self.problem}"
        return f"passed: {self.noise}: {self.pairs} pairs of inputs, the radius attained at {self.attained}"


def distribution(noise: BaseNoise, x: Any) -> Distribution:
    """Return the probability of every copy that the noise can make of an input, by the bytes of the copy in float32."""
    found: Distribution = {}
    for weight, copy in noise.every(np.asarray(x, dtype=np.float32)):
        key = np.ascontiguousarray(copy, dtype=np.float32).tobytes()
        found[key] = found.get(key, Fraction(0)) + weight
        if len(found) > MOST_COPIES:
            raise InvalidInput(
                f"noise must make at most {MOST_COPIES:,} copies of a point; got {noise.describe()}, which makes more: "
                "audit one of its kind with fewer copies"
            )
    return found


def tying_margin(here: Distribution, there: Distribution) -> Fraction:
    """Return the largest probability margin at one input of a classifier whose margin at another is at most 0.

    ``here`` and ``there`` are the ``distribution`` of the copies of these inputs. The result is exact. The worst
    classifiers vote for the class on the copies that are likeliest ``here`` relative to ``there``, one copy after the
    other. Their margins at both inputs rise from (-1, -1) along straight pieces.
    """
    here_now, there_now = Fraction(-1), Fraction(-1)
    for copy in sorted(here, key=lambda c: there.get(c, Fraction(0)) / here[c]):
        gain = 2 * there.get(copy, Fraction(0))
        if there_now + gain > 0:
            return here_now + 2 * here[copy] * -there_now / gain
        here_now, there_now = here_now + 2 * here[copy], there_now + gain
    return here_now


def distance(norm: str, x: AnyArray, y: AnyArray) -> Fraction:
    """Return the distance of two inputs in the norm l0, l1 or linf, or its square in l2, as an exact fraction."""
    moved = [abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(x.flat, y.flat, strict=True)]
    if norm == "l0":
        return Fraction(sum(part > 0 for part in moved))
    if norm not in {"l1", "l2", "linf"}:
        raise InvalidInput(f"norm must be l0, l1, l2 or linf for an audit; got {show(norm)}")
    return sum((part * part if norm == "l2" else part for part in moved), Fraction(0)) if norm != "linf" else max(moved)


DISTANCE_SLACK = Fraction(1, 10**6)
"""Relative tolerance of distances: inputs on a grid are off by up to this in float32, and a closed ball may end at
one."""


def covers(noise: BaseNoise, margin: float, away: Fraction) -> bool:
    """Return whether the ball that a noise certifies for a probability margin covers an input at distance ``away``.

    ``away`` is what ``distance`` returns: the square in l2. At the distance itself a closed ball covers the input and
    an open one does not, so an open one must reach beyond it, and a closed one may end before it, by
    ``DISTANCE_SLACK``.
    """
    radius = Fraction(noise.radius(margin, "probability"))
    reach = radius**2 if noise.norm == "l2" else radius
    return radius > 0 and (
        away * (1 - DISTANCE_SLACK) <= reach if noise.closed else away * (1 + DISTANCE_SLACK) < reach
    )


def audit_noise(noise: BaseNoise) -> NoiseAudit:
    """Return what is wrong, if anything, with a noise's radius for a probability margin, and with its drawing.

    The noise must list the copies of small inputs (``every``, ``points``).

    **Guarantee.** If it fails, the inputs that are named show it. If it passes, no classifier contradicts the radius at
    the pairs of inputs compared, whatever its decision regions: a proof there, evidence elsewhere.
    """
    if "probability" not in noise.margins:
        raise InvalidInput(f"{noise.describe()} must have a radius for the probability margin to be audited")
    first, *others = [np.asarray(point, dtype=np.float32) for point in noise.points()]
    here = distribution(noise, first)
    problem = _of_listing(here) or _of_drawing(noise, first, here)
    attained = 0
    for other in others:
        if problem is not None:
            break
        there = distribution(noise, other)
        tie, away = tying_margin(here, there), distance(noise.norm, first, other)
        below = float_below(tie)
        if covers(noise, below, away):
            problem = (
                f"the radius of margin {below:.6g} is {noise.radius(below, 'probability'):.6g} and covers "
                f"{show(other.tolist())}, but a classifier with that margin at {show(first.tolist())} ties there"
            )
        attained += covers(noise, _just_above(noise, tie), away)
    return NoiseAudit(noise.describe(), len(others), attained, problem)


def _just_above(noise: BaseNoise, tie: Fraction) -> float:
    """Return the next margin that the noise can show, or one above a tie by more than ``DISTANCE_SLACK``."""
    total = noise.total
    return float(tie * (1 + 4 * DISTANCE_SLACK)) if total is None else float(Fraction(floor(tie * total) + 1, total))


def _of_listing(here: Distribution) -> str | None:
    total = sum(here.values(), Fraction(0))
    return None if total == 1 and min(here.values()) > 0 else f"the probabilities of all copies add up to {total}"


def _of_drawing(noise: BaseNoise, x: AnyArray, here: Distribution) -> str | None:
    """Return what is wrong with drawn copies of ``x``: shape, an impossible copy or a frequency; None if nothing is."""
    noise.check_input(x)
    numbered = noise.total
    if numbered is not None:
        drawn, made = numbered, noise.numbered(x, np.arange(numbered))
    else:
        shape = 2, AUDIT_DRAWS, noise.words(x.shape)
        first, second = np.random.Philox(key=0).random_raw(prod(shape)).reshape(shape)
        drawn, made = AUDIT_DRAWS, noise.noisy(x, Words(first, lambda rows: second[rows]))
    copies = np.ascontiguousarray(made, dtype=np.float32)
    if copies.shape != (drawn, *x.shape):
        return f"noisy must return copies of shape {(drawn, *x.shape)}; got {copies.shape}"
    seen: dict[bytes, int] = {}
    for copy in copies:
        key = copy.tobytes()
        seen[key] = seen.get(key, 0) + 1
    strange = [copy for copy in seen if copy not in here]
    if strange:
        return f"a copy was drawn that is not among all copies: {show(np.frombuffer(strange[0], np.float32).tolist())}"
    if numbered is not None:
        wrong = [copy for copy in here if Fraction(seen.get(copy, 0), drawn) != here[copy]]
        return "numbered copies are not those that were listed" if wrong else None
    least = SUSPICIOUS / (2 * len(here))
    for copy, weight in here.items():
        k, p = seen.get(copy, 0), float(weight)
        if bdtr(k, drawn, p) < least or (k > 0 and bdtrc(k - 1, drawn, p) < least):
            return f"a copy of probability {weight} was drawn {k} times in {drawn}"
    return None
