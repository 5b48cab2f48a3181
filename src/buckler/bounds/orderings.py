"""Orderings of trinomial outcomes: statistics ``T(x1, x2)`` that rise with ``x1`` and fall with ``x2``.

``ordering.region(x1, x2, n, alpha, margin)`` returns the boundary (see ``trinomial``) of ``{y : T(y) >= T(x)}``, ties
included, and a margin near which to start searching. Each T is one deterministic function, evaluated identically on
every outcome: the regions of all outcomes nest, which is what Buehler's argument needs (T4, T6).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from buckler.bounds.curve import PROBABILITY, QUANTILE
from buckler.bounds.likelihood_ratio import STEP, fill_boundary, value
from buckler.types import IntArray, MarginKind

SMALLEST_Z = 0.5
"""For alpha above 0.31, where ``Phi^-1(1 - alpha)`` goes to 0: any z makes a valid ordering, this one a useful one."""


class Ordering(Protocol):
    """What the inversion needs of an ordering."""

    def region(self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> tuple[IntArray, float]:
        """Return the boundary of ``{T >= T(x)}`` and a first guess of the limit."""


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Signed-root likelihood ratio of shifted counts (see ``likelihood_ratio``); the default.

    T is the largest margin below the estimate whose profile deviance reaches ``z^2``, ``z = Phi^-1(1 - alpha)``, on a
    grid of ``2^-30`` (see ``likelihood_ratio`` for the proof that T is monotone and its regions nest). Its regions
    run parallel to the margin curve, in standard errors, so the probability along the curve is close to alpha
    everywhere, which is what brings the limit close to the optimum.
    """

    def region(self, x1: int, x2: int, n: int, alpha: float, margin: MarginKind) -> tuple[IntArray, float]:
        """Return the boundary at the grid index of ``x``, and that index as a margin."""
        kind = PROBABILITY if margin == "probability" else QUANTILE
        zz = max(-float(ndtri(alpha)), SMALLEST_Z) ** 2
        k = value(kind, x1, x2, n, zz)
        c = np.zeros(n + 1, dtype=np.int64)
        if x1 == 0 and margin == "quantile":
            return c, k * STEP
        return c[: fill_boundary(kind, n, k, zz, c)], k * STEP


DEFAULT = LikelihoodRatio()
