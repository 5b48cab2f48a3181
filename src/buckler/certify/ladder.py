"""Radii fixed beforehand, and what votes must show for each: e-values at any time, or a final test at draw ``final_n``.

A rung is one radius of the ladder; a single target radius is a ladder of one. Rows are inputs, each at its own rung.
Alpha pays for any-time e-values and for a final test, a limit for a fixed number of draws, which sees the inputs that
no any-time test can tell from the threshold in that many draws (T17). The share of the final test falls as that number
grows, since fewer inputs are left for it (``budget.final_share``).

The final test belongs to the ``max_n`` that was fixed before the first draw. Where a larger budget is given later, it
stays at that draw, taken there or never, and beyond it e-values go on alone: a final test at another size, or at one
that depends on the draws, has no such level (theory T17).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.bounds.binomial import distinct_rows
from buckler.bounds.evalues import (
    Mixture,
    distance_to_half_space,
    distance_to_null,
    half_space_mixture,
    log_needed,
    tangent_mixture,
)
from buckler.certify import budget
from buckler.certify.votes import vote_margin_lower
from buckler.errors import InvalidInput, check_alpha, check_choice, check_positive, check_whole, show
from buckler.noise import check_margin, default_margin
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray, MarginKind, Noise

WORTH = 5.0
"""Draws worth spending on one more certified radius, in multiples of the largest number of draws an input may take.
Heuristic: affects draws and certificates, never validity."""

HORIZONS: FloatArray = 2.0 ** np.arange(-3.0, 18.0)
"""Numbers of further draws, in multiples of the draws made, whose chance to certify the next radius is weighed."""

SLOWEST = 1e-300
"""Lower clamp of what a vote for the class adds to a log e-value: rounded down, at absurd radii it may be 0 or less."""

RUNGS_IN_PRECISION = 4.0
"""Radii of ``radii_for`` in one ``precision``: the last one certified is then seldom far below what votes allow."""

HIGHEST = 6.0
"""Largest radius of ``radii_for``, in sigmas: a larger one takes a billion votes for the class, none for another."""


MIXTURES: dict[MarginKind, Callable[[float], Mixture]] = {
    "quantile": tangent_mixture,
    "probability": half_space_mixture,
}
"""For each kind of margin, the function from L to the e-values against "the margin is at most L"."""

DISTANCES: dict[MarginKind, Callable[[FloatArray, float], FloatArray]] = {
    "quantile": distance_to_null,
    "probability": distance_to_half_space,
}
"""For each kind of margin, the function that returns the signed distance of vote shares from margin L."""


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Rising radii, or rungs, numbered from 0, that votes certify one after another, and the tests that certify them.

    All are certified at the error probability ``alpha`` together, with at most ``max_n`` draws. A rung is certified
    once the e-values against all other classes have reached ``needed``, at any draws, or by a final test at draw
    ``final_n``: ``max_n`` (also written 0) unless a smaller one was fixed before the first draw.

    **Guarantee.** Of the radii for which the smoothed prediction is not constantly the class on the noise's ball, let i
    be the lowest. That ``wealth`` against the rival of the smallest margin ever reaches ``needed`` at rung i (T16), or
    that ``passes_final_test`` holds there (T17), has probability at most alpha. Radii above i are certified only after
    i has been, so the probability that *any* false radius is ever certified is at most alpha: the index i is fixed by
    the truth alone (fixed sequence, T18). No alpha is divided over radii, over looks or over classes.

    ``precision``, if given, ends drawing for an input once its certified radius is close to the estimated one: see
    ``precise_enough``. With ``winner`` the class is the one with the most votes, and a tenth of alpha goes to the test
    that it is the smoothed prediction (T18d); else classes are fixed beforehand.
    """

    radii: tuple[float, ...]
    noise: Noise
    alpha: float = 1e-3
    max_n: int = 100_000
    margin: MarginKind = None  # type: ignore[assignment]  # filled in from the noise
    final_n: int = 0
    precision: float | None = None
    winner: bool = False
    winner_alpha: float = field(init=False)
    needed: float = field(init=False)
    final_alpha: float = field(init=False)
    margins: tuple[float, ...] = field(init=False)
    fastest: FloatArray = field(init=False)
    mixtures: tuple[Mixture, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Check the fields, and compute the levels, margins and e-values that every look at the votes uses."""
        put = object.__setattr__
        put(self, "radii", check_radii(self.radii))
        if self.noise.total is not None:
            raise InvalidInput(f"radii cannot be decided draw by draw under {self.noise.describe()}: call certify")
        put(self, "alpha", check_alpha(self.alpha))
        put(self, "max_n", check_whole("max_n", self.max_n, 1))
        put(self, "final_n", check_whole("final_n", self.final_n, 0, self.max_n) or self.max_n)
        put(self, "margin", check_choice("margin", self.margin or default_margin(self.noise), tuple(MIXTURES)))
        check_margin(self.noise, self.margin)
        if self.precision is not None:
            check_precision(self.precision)
        level = budget.after_drawing(self.alpha, self.noise)
        put(self, "winner_alpha", budget.winner_share(level) if self.winner else 0.0)
        level = budget.rest(level, self.winner_alpha) if self.winner else level
        put(self, "final_alpha", budget.final_share(level, self.final_n))
        put(self, "needed", log_needed(budget.rest(level, self.final_alpha) if self.final_alpha else level))
        put(self, "margins", tuple(self.noise.margin(radius, self.margin) for radius in self.radii))
        put(self, "mixtures", tuple(MIXTURES[self.margin](margin) for margin in self.margins))
        put(self, "fastest", np.array([max(float(m.logs[:, 0].max()), SLOWEST) for m in self.mixtures]))

    def __len__(self) -> int:
        return len(self.radii)

    def wealth(self, rung: IntArray, top: IntArray, rival: IntArray, n: IntArray) -> FloatArray:
        """Return for each row the log e-value of its votes against "the margin is at most what rung ``rung`` needs".

        ``top`` of ``n`` votes are for the class, ``rival`` for one other class. It rejects once it reaches ``needed``.
        """
        rows, where = distinct_rows(rung, top, rival, n)
        found = self._by_rung(rows[:, 0], lambda k, at: self.mixtures[k].log_wealth(*rows[at, 1:].T))
        return np.asarray(found[where], dtype=np.float64)

    def passes_final_test(self, rung: IntArray, top: IntArray, rival: IntArray, num_classes: int) -> BoolArray:
        """Return for each row whether its votes of exactly ``final_n`` draws certify its rung by the final test.

        The exact lower limit, at level ``final_alpha``, of the margin of a class with ``top`` votes over one with
        ``rival`` votes must exceed the margin that the radius needs. The rival must be the one with the most votes of
        those against which no e-value has reached ``needed`` (T17).
        """
        if not self.final_alpha:
            return np.zeros(rung.shape, dtype=np.bool_)
        low = vote_margin_lower(
            top, rival, self.final_n, alpha=self.final_alpha, margin=self.margin, num_classes=num_classes
        )
        return np.asarray(low > np.array(self.margins)[rung])

    def out_of_reach(self, rung: IntArray, votes: IntArray, lacking: FloatArray) -> BoolArray:
        """Return for each row whether certifying its next radius, ``rung``, is too unlikely to be worth further draws.

        ``votes[row]`` are those of the class, of its hardest rival and of all others, ``lacking[row]`` is what the
        smallest log e-value needs to reach ``needed``. Heuristic: affects draws and certificates, never validity. The
        estimate's distance from "the margin is too small", in standard deviations of one draw, is taken to be normal
        about the true one. With m further draws at a distance w the log e-value grows by ``m w^2 / 2``, so what is
        lacking asks for ``w = sqrt(2 lacking / m)``; the final test asks for a mean distance of ``z / sqrt(final_n)``
        over all draws. A number m is worth it if the chance of such a w, times ``WORTH * max_n``, exceeds m.
        """
        n = votes.sum(axis=1).astype(np.float64)
        p = votes / n[:, None]
        distance = self._by_rung(rung, lambda k, at: DISTANCES[self.margin](p[at], self.margins[k]))
        fastest, value = self.fastest[rung], WORTH * self.max_n
        more = np.minimum(n[:, None] * HORIZONS, self.max_n - n[:, None])
        wanted = np.sqrt(2.0 * np.maximum(lacking, 0.0)[:, None] / more)
        wanted = np.where(lacking[:, None] <= more * fastest[:, None], wanted, np.inf)
        worth = (gain(distance[:, None], n[:, None], wanted, more, value)).any(axis=1)
        if self.final_alpha:
            left = np.maximum(self.final_n - n, 1e-9)
            wanted = (-float(ndtri(self.final_alpha)) * np.sqrt(self.final_n) - n * distance) / left
            can = (n < self.final_n) & (self.final_n * fastest >= -log(self.final_alpha))
            worth |= can & gain(distance, n, wanted, left, value)
        return np.asarray(~worth)

    def precise_enough(self, rung: IntArray, top: IntArray, rival: IntArray, n: IntArray) -> BoolArray:
        """Return for each row whether its certified radius is within ``precision`` of the one its vote shares suggest.

        The difference is relative to the latter, or to half of the noise's unit (sigma) if that is larger. ``rung`` is
        the next radius to certify; ``top`` of ``n`` votes are for the class, ``rival`` for its rival; half a vote is
        added to either. A rule about when to stop, and any such rule is valid (T18). False without a ``precision``.
        """
        if self.precision is None:
            return np.zeros(rung.shape, dtype=np.bool_)
        first, second = (top + 0.5) / (n + 1.0), (rival + 0.5) / (n + 1.0)
        margins = ndtri(first) - ndtri(second) if self.margin == "quantile" else first - second
        reach = np.array([self.noise.radius(margin, self.margin) for margin in margins.tolist()])
        certified, least = np.concatenate([[0.0], self.radii])[rung], 0.5 * self.noise.unit
        return np.asarray((rung > 0) & (reach - certified <= self.precision * np.maximum(reach, least)))

    @staticmethod
    def _by_rung(rung: IntArray, compute: Callable[[int, BoolArray], FloatArray]) -> FloatArray:
        """Return ``compute(k, rows at rung k)`` for all rungs that occur, in the order of the rows."""
        found = np.zeros(rung.shape)
        for k in np.unique(rung).tolist():
            at = rung == k
            found[at] = compute(k, at)
        return found


def gain(distance: FloatArray, n: FloatArray, wanted: FloatArray, more: FloatArray, value: float) -> BoolArray:
    """Return whether ``more`` draws are worth their chance of a mean above ``wanted``, after n of mean ``distance``.

    They are if the chance, for normal draws of deviation 1 and unknown mean, times ``value``, a number of draws,
    exceeds ``more``. Heuristic: affects draws and certificates, never validity.
    """
    return np.asarray(value * ndtr((distance - wanted) / np.sqrt(1.0 / n + 1.0 / more)) > more)


def check_precision(precision: float) -> float:
    """Return ``precision``, a share of a radius, as a float; raise InvalidInput unless it is above 0 and below 1."""
    number = check_positive("precision", precision)
    if number >= 1.0:
        raise InvalidInput(f"precision must be below 1; got {show(precision)}")
    return number


def radii_for(noise: Noise, precision: float, margin: MarginKind | None = None) -> tuple[float, ...]:
    """Return rising radii for a ``Ladder`` that is to certify each input to within ``precision`` of its radius.

    Each step is a fourth of ``precision`` times the radius, or times half the noise's unit (sigma) if that is larger.
    The radii end at ``HIGHEST`` units, or where a probability margin of 1 does. They depend on nothing else, so that
    more draws do not change them.

    >>> from buckler.noise import Gaussian
    >>> radii = radii_for(Gaussian(0.5), 0.05)
    >>> len(radii), radii[0], round(radii[-1], 3)
    (280, 0.003125, 2.999)
    """
    step, unit, margin = check_precision(precision) / RUNGS_IN_PRECISION, noise.unit, margin or default_margin(noise)
    radii = [0.5 * step * unit]
    while (after := radii[-1] + step * max(radii[-1], 0.5 * unit)) <= HIGHEST * unit:
        radii.append(after)
    if margin == "quantile":
        return tuple(radii)
    check_margin(noise, margin)
    most = noise.radius(1.0, margin)
    if most == 0.0:
        raise InvalidInput(f"{noise.describe()} certifies no radius, whatever the margin")
    if noise.closed:  # such a noise has few radii: those that it gives for a margin
        return tuple(sorted({noise.radius(noise.margin(radius, margin), margin) for radius in (*radii, most)} - {0.0}))
    return tuple(radius for radius in radii if radius < most)


def check_radii(radii: ArrayLike) -> tuple[float, ...]:
    """Return ``radii``, one or more, as floats; raise InvalidInput unless they rise and the first is above 0."""
    radii = radii.tolist() if hasattr(radii, "tolist") else radii  # of an array, or of a tensor
    if isinstance(radii, (str, bytes)) or not isinstance(radii, Sequence) or len(radii) == 0:
        raise InvalidInput(f"radii must be one or more numbers, the lowest first; got {show(radii)}")
    found = tuple(check_positive("radii", radius) for radius in radii)
    if any(a >= b for a, b in pairwise(found)):
        raise InvalidInput(f"radii must rise; got {show(list(found))}")
    return found
