"""Radii fixed beforehand, and what votes must show for each: e-values at any time, or an exam at draw ``max_n``.

A rung is one radius of the ladder; a single target radius is a ladder of one. Rows are inputs, each at its own rung.
Three quarters of alpha belong to the any-time e-values; the last quarter is kept for the exam, a fixed-n test that sees
the inputs which no any-time test can tell from the threshold in that many draws (T17).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

import numpy as np
from scipy.special import betainc, ndtr, ndtri, rel_entr

from buckler.bounds.binomial import clopper_pearson_lower
from buckler.bounds.distinct import distinct
from buckler.bounds.evalues import Mixture, kl_to_null, kl_to_target, tangent_mixture
from buckler.certify import budget
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole, show
from buckler.laws import Gaussian
from buckler.types import BoolArray, FloatArray, IntArray, Law

PATIENCE = 3.0
"""Standard errors by which the estimate must miss what the remaining draws could certify before giving up."""

SHARES = 4
"""Alpha is cut into this many: one for the exam, the others for the e-values."""

LOG_ROUNDING = 1e-14
"""Allowance, relative and absolute, for a logarithm and a product: what must be reached is rounded up by it."""

SLOWEST = 1e-300
"""Growth of the wealth at absurd targets, where once rounded down not even votes for the label add to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Rising radii, all certified at the error probability ``alpha`` together, with at most ``max_n`` draws.

    **Guarantee.** Of the radii for which the smoothed prediction is not constantly the label on the open l2 ball, let i
    be the lowest. That ``wealth`` against the rival of the smallest margin ever reaches ``needed`` at rung i, or that
    ``passes_exam`` holds there, has probability at most alpha. Radii above i are certified only after i has been, so
    the probability that *any* false radius is ever certified is at most alpha: the index i is fixed by the truth alone
    (fixed-sequence testing). No alpha is divided over radii, over looks or over classes.
    """

    radii: tuple[float, ...]
    sigma: float
    alpha: float = 1e-3
    max_n: int = 100_000
    law: Law = field(init=False)
    needed: float = field(init=False)
    exam_alpha: float = field(init=False)
    margins: tuple[float, ...] = field(init=False)
    thresholds: FloatArray = field(init=False)
    fastest: FloatArray = field(init=False)
    mixtures: tuple[Mixture, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Check what was given, and compute what every look at the votes needs."""
        put = object.__setattr__
        put(self, "radii", _check_radii(self.radii))
        put(self, "law", Gaussian(self.sigma))
        put(self, "alpha", check_alpha(self.alpha))
        put(self, "max_n", check_whole("max_n", self.max_n, 1))
        put(self, "exam_alpha", budget.split(self.alpha, SHARES))
        put(self, "needed", -log((SHARES - 1) * self.exam_alpha) * (1.0 + LOG_ROUNDING) + LOG_ROUNDING)
        put(self, "margins", tuple(self.law.margin(radius, "R2") for radius in self.radii))
        put(self, "thresholds", np.minimum(1.0, ndtr(0.5 * np.array(self.margins)) * (1.0 + LOG_ROUNDING)))
        put(self, "mixtures", tuple(tangent_mixture(margin) for margin in self.margins))
        put(self, "fastest", np.array([max(float(m.logs[:, 0].max()), SLOWEST) for m in self.mixtures]))

    def __len__(self) -> int:
        """Return the number of radii."""
        return len(self.radii)

    def wealth(self, rung: IntArray, top: IntArray, rival: IntArray, n: IntArray) -> FloatArray:
        """Return the log e-value of each row's votes against one rival, at the margin of its rung."""
        rows, where = distinct(rung, top, rival, n)
        found = self._by_rung(rows[:, 0], lambda k, at: self.mixtures[k].log_wealth(*rows[at, 1:].T))
        return np.asarray(found[where], dtype=np.float64)

    def passes_exam(self, rung: IntArray, top: IntArray) -> BoolArray:
        """Return whether the votes for the label, of exactly ``max_n`` draws, certify the rung by themselves.

        The Clopper-Pearson limit of the label's probability at level ``alpha/4`` must exceed ``Phi(radius / sigma)``.
        """
        return np.asarray(clopper_pearson_lower(top, self.max_n, self.exam_alpha) > self.thresholds[rung])

    def exam_out_of_reach(self, rung: IntArray, top: IntArray, n: IntArray) -> BoolArray:
        """Return whether the exam looks lost: draws better than the estimate by ``PATIENCE`` errors would fail it.

        Heuristic: a wrong answer costs a certificate, never its validity.
        """
        least, left, p = self.thresholds[rung], self.max_n - n, top / n
        # Even if every draw that is left votes for the label.
        lost = betainc(top + left, n - top + 1.0, least) > self.exam_alpha
        distance = np.copysign(np.sqrt(2.0 * (rel_entr(p, least) + rel_entr(1.0 - p, 1.0 - least))), p - least)
        wanted = -float(ndtri(self.exam_alpha)) / np.sqrt(self.max_n)
        return np.asarray(lost | ((wanted - distance) * self.max_n > left * PATIENCE / np.sqrt(n)))

    def out_of_reach(self, rung: IntArray, votes: IntArray, lacking: FloatArray) -> BoolArray:
        """Return whether the e-values look unable to certify, from ``votes[row] = (label, hardest rival, others)``.

        Heuristic: a wrong answer costs a certificate, never its validity. Distances from the null are signed roots of
        twice the divergence, in standard errors of one draw. What is ``lacking`` in wealth needs a distance of
        ``sqrt(2 lacking / draws left)``: give up when the estimate falls short of it by ``PATIENCE`` standard errors.
        """
        n = votes.sum(axis=1)
        left = self.max_n - n
        p = votes / n[:, None]
        patience = PATIENCE / np.sqrt(n)
        wanted = np.sqrt(2.0 * np.maximum(lacking, 0.0) / left)
        short = self._by_rung(rung, lambda k, at: kl_to_target(p[at], self.margins[k]))
        beyond = self._by_rung(rung, lambda k, at: kl_to_null(p[at], self.margins[k]))
        # Of the two divergences one is zero: the estimate lies on one side of the boundary.
        distance = np.sqrt(2.0 * beyond) - np.sqrt(2.0 * short)
        return np.asarray((lacking > left * self.fastest[rung]) | (wanted - distance > patience))

    @staticmethod
    def _by_rung(rung: IntArray, compute: Callable[[int, BoolArray], FloatArray]) -> FloatArray:
        """Return ``compute(k, rows at rung k)`` for all rungs that occur, in the order of the rows."""
        found = np.zeros(rung.shape)
        for k in np.unique(rung).tolist():
            at = rung == k
            found[at] = compute(k, at)
        return found


def _check_radii(radii: Sequence[float]) -> tuple[float, ...]:
    if isinstance(radii, (str, bytes)) or not isinstance(radii, Sequence | np.ndarray) or len(radii) == 0:
        raise InvalidInput(f"radii must be one or more numbers, the lowest first; got {show(radii)}")
    found = tuple(check_positive("radii", radius) for radius in radii)
    if any(a >= b for a, b in pairwise(found)):
        raise InvalidInput(f"radii must rise; got {show(list(found))}")
    return found
