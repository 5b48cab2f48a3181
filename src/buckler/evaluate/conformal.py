"""Robust conformal prediction: sets of classes that hold the true one after any move of the input within a radius.

The set of an input is ``{y : K_y >= k0}``, K_y counting the draws that voted for y, or whose score of y reaches tau.
After the worst move y stays in with probability at least ``s(p) = P(Binomial(n, g(p)) >= k0)``, g(p) the least that a
probability p can become. With h from ``bounds.bernstein``, ``E h(K) <= s(p)``, so conformal risk control with the loss
``1 - h(K)`` at *clean* calibration inputs chooses k0 (T34): no limit of any probability is needed.
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

from fractions import Fraction
from math import fsum, sqrt
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.bounds.bernstein import Shrinking, below_tail, check_draws_of, fitted_pmf
from buckler.certificate import ball
from buckler.certify.budget import after_drawing
from buckler.errors import (
    InvalidInput,
    check_float_array,
    check_label,
    check_real,
    check_risk,
    check_whole,
    check_whole_array,
)
from buckler.evaluate.population import drawn_noise, equal_draws, shuffled
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray, Noise

TUNING = 0.3
"""Share of the calibration inputs that only tune the method; found by simulation (``benchmarks/conformal.py
--tunings``)."""

QUANTILES: FloatArray = np.linspace(0.02, 0.5, 9)
"""Quantiles of the true classes' scores that are tried as tau, the least score that counts. Heuristic."""

CAUTION = 2.0
"""tau is chosen by the size of the sets at a risk this many standard errors above the tuning inputs'. Heuristic."""

OFFERED_THRESHOLDS = 50
"""About how many thresholds k0, the fewest draws that put a class into the set, the calibration chooses among."""

SHRUNK_ROUNDING = 1.0 - 1e-12
"""Factor that rounds shrunk probabilities and slopes down: ten times the error of ``ndtri`` and ``ndtr`` (F10)."""

Family = list[tuple[int, FloatArray]]
"""Thresholds k in rising order, each with values ``h[n + 1]`` of a count of draws: their mean is at most the chance
that a class with such counts stays in the set of threshold k after the worst move."""


class RobustConformal:
    """Prediction sets that hold the true class also after a move of the input by up to ``radius``.

    The set of an input are the classes that at least k0 of n draws voted for, or gave a score of tau or more;
    ``calibrate`` chooses k0 and tau, then ``predict_sets`` returns sets. Radius 0 is plain conformal prediction.

    **Guarantee.** If calibration inputs and a new one are exchangeable, the set that ``predict_sets`` makes of draws
    at a point within ``radius`` of the new input holds its true class with probability at least ``1 - alpha``, over
    calibration inputs, the new one and all draws (T34). The point may depend on everything but the draws made there.

    >>> rng = np.random.default_rng(0)
    >>> votes = rng.binomial(50, rng.beta(2.0, 0.5, 600))
    >>> counts = np.stack([votes, 50 - votes], axis=1)
    >>> conformal = RobustConformal(sigma=0.5, radius=0.25, alpha=0.1).calibrate(counts, np.zeros(600, dtype=int))
    >>> conformal.predict_sets([[50, 0], [25, 25]])
    array([[ True, False],
           [ True,  True]])
    """

    def __init__(
        self, *, sigma: float | None = None, noise: Noise | str | None = None, radius: float, alpha: float = 0.1
    ) -> None:
        """Hold the noise, given as ``sigma`` or ``noise``, the radius of moves, and the error probability ``alpha``."""
        self.noise, self.alpha = drawn_noise(sigma, noise), check_risk(alpha)
        self.radius = check_real("radius", radius)
        if self.radius < 0.0:
            raise InvalidInput(f"radius must be at least 0; got {self.radius}")
        self._shrinking = worst_move(self.noise, self.radius) if self.radius > 0.0 else None
        self.n, self.by_label = 0, False
        self.tau: float | None = None
        self.thresholds: IntArray = np.zeros(0, dtype=np.int64)

    def calibrate(
        self,
        values: ArrayLike,
        labels: ArrayLike,
        *,
        n: int | None = None,
        tuning: float = TUNING,
        seed: int = 0,
        by_label: bool = False,
    ) -> Self:
        """Choose the threshold k0 from inputs that were not moved, with known ``labels``, and return this object.

        ``values`` are votes ``[inputs, classes]`` of n draws of each input (give ``n`` where rows do not add up to it),
        or scores ``[inputs, draws, classes]``, of which the first ``n``, by default all, are counted where they reach
        tau. The share ``tuning`` of the inputs, split off by ``seed``, only tunes tau and the loss that a count of
        draws stands for, and is not used again. With ``by_label`` every label has its own threshold, and coverage holds
        given each label.
        """
        table = check_float_array("values", values)
        if table.ndim not in {2, 3} or 0 in table.shape:
            raise InvalidInput(
                f"values must have shape [inputs, classes] or [inputs, draws, classes]; got {table.shape}"
            )
        truth = check_label(labels, table.shape[-1], len(table), "labels")
        tuned = round(check_real("tuning", tuning) * len(table))
        if not 1 <= tuned < len(table):
            raise InvalidInput(
                f"tuning must leave at least one input to tune and one to calibrate; got {tuning} of {len(table)}"
            )
        order = shuffled(len(table), seed)
        chosen, rest = order[:tuned], order[tuned:]
        self.n, self.tau, self.by_label = _draws(table, n), None, by_label
        level = after_drawing(self.alpha, self.noise, self.n * (len(rest) + 1))
        own = np.take_along_axis(table, truth.reshape(-1, *[1] * (table.ndim - 1)), axis=-1)[..., 0]
        taus: list[float | None] = [None]
        if table.ndim == 3:
            taus = [float(tau) for tau in np.unique(np.quantile(own[chosen, : self.n], QUANTILES))]
        tuned_by = [(*self._tuned(table[chosen], own[chosen], len(rest), tau), tau) for tau in taus]
        _, anchor, pmf, self.tau = min(tuned_by, key=lambda found: found[0])
        family = nested_polynomials(anchor, pmf, len(rest), self._shrinking)
        votes, groups = self._counted(own[rest], self.tau), range(table.shape[-1])
        self.thresholds = np.array(
            [controlled_threshold(family, votes[truth[rest] == y] if by_label else votes, level) for y in groups]
        )
        return self

    def predict_sets(self, values: ArrayLike) -> BoolArray:
        """Return each input's set as booleans ``[inputs, classes]``, from votes or scores drawn there.

        ``values`` have the form that ``calibrate`` was given: ``[inputs, classes]`` or ``[inputs, draws, classes]``.
        """
        if self.n == 0:
            raise InvalidInput("calibrate must be called before predict_sets; this object is not calibrated")
        table = check_float_array("values", values)
        axes, classes = 2 if self.tau is None else 3, self.thresholds.size
        if table.ndim != axes or table.shape[-1] != classes:
            raise InvalidInput(
                f"values must have {axes} axes and {classes} classes, as those calibrated; got shape {table.shape}"
            )
        _draws(table, self.n)
        return np.asarray(self._counted(table, self.tau) >= self.thresholds)

    def __str__(self) -> str:
        """Return in words what the sets promise."""
        if self.n == 0:
            return f"Robust conformal prediction under {self.noise.describe()}, not calibrated yet."
        where, each = ball(self.noise, f"{self.radius:g}"), ", whichever class that is," if self.by_label else ""
        seen = "votes" if self.tau is None else f"scores of at least {self.tau:.6g}"
        least = " to ".join(str(k) for k in sorted({int(self.thresholds.min()), int(self.thresholds.max())}))
        return (
            f"The set of a point holds the true class of the input that it was moved from, {where}, around that input, "
            f"with probability at least {1.0 - self.alpha:.6g}{each} over calibration inputs, the new input and all "
            f"draws under {self.noise.describe()}: classes with at least {least} of {self.n} {seen}."
        )

    def _counted(self, table: FloatArray, tau: float | None) -> IntArray:
        counts = table if tau is None else (table[:, : self.n] >= tau).sum(axis=1)
        return np.asarray(counts, dtype=np.int64)

    def _tuned(
        self, table: FloatArray, own: FloatArray, inputs: int, tau: float | None
    ) -> tuple[float, int, FloatArray]:
        """Return the mean size of cautious sets of the tuning inputs, a good k0, and the pmf of the true votes."""
        counts, votes = self._counted(table, tau), self._counted(own, tau)
        pmf = fitted_pmf(votes, self.n)
        losses: dict[int, FloatArray] = {}

        def largest(errors: float) -> int:
            """Return the largest threshold, or 0, whose risk plus ``errors`` standard errors is at most alpha."""
            low, high = 0, self.n + 1
            while high - low > 1:
                k = (low + high) // 2
                if k not in losses:
                    losses[k] = 1.0 - below_tail(k, self._shrinking, pmf, inputs)
                own = losses[k][votes]
                risk = own.mean() + errors * own.std() / sqrt(own.size) + losses[k].max() / inputs
                low, high = (k, high) if risk <= self.alpha else (low, k)
            return low

        return float((counts >= largest(CAUTION)).sum(axis=1).mean()), max(largest(0.0), 1), pmf


def _draws(table: FloatArray, n: int | None) -> int:
    """Return the number of draws counted for each input; raise InvalidInput unless every input has as many."""
    if table.ndim == 2:
        return equal_draws("values", check_whole_array("values", table), n)
    draws = check_whole("n", table.shape[1] if n is None else n, 1)
    check_draws_of(draws)
    if table.shape[1] < draws:
        raise InvalidInput(f"values must hold at least n = {draws} draws of each input; got {table.shape[1]}")
    return draws


def nested_polynomials(anchor: int, pmf: FloatArray, inputs: int, shrinking: Shrinking | None) -> Family:
    """Return thresholds k, each with values ``h[n + 1]`` that are at most those of the one before; at k = 0 all are 1.

    h is that of ``below_tail``, for the count ``pmf`` guessed, ``inputs`` inputs and the move ``shrinking``. It is best
    at the threshold ``anchor``; below the anchor every h is held above the next one, above it below the one before.
    """
    n = pmf.size - 1
    step = max(1, n // OFFERED_THRESHOLDS)
    made = {anchor: below_tail(anchor, shrinking, pmf, inputs)}
    for k in range(anchor - step, 0, -step):
        made[k] = below_tail(k, shrinking, pmf, inputs, low=made[k + step])
    for k in range(anchor + step, n + 1, step):
        made[k] = below_tail(k, shrinking, pmf, inputs, high=made[k - step])
    found = [(0, np.ones(n + 1))]
    for k in sorted(made):
        found.append((k, np.minimum(found[-1][1], made[k])))
    return found


def controlled_threshold(family: Family, votes: IntArray, level: float) -> int:
    """Return the largest threshold k of ``family`` at which the losses ``1 - h`` average at most ``level``.

    They are those of calibration inputs whose true classes got ``votes[inputs]`` draws, and the largest possible for a
    new input. The losses rise with k, so the first average that is too large ends the search.
    """
    found = 0
    for k, h in family:
        losses = Fraction(fsum(1.0 - h[votes])) + Fraction(float((1.0 - h).max()))
        if losses > Fraction(level) * (votes.size + 1):
            break
        found = k
    return found


def worst_move(noise: Noise, radius: float) -> Shrinking:
    """Return a function of p that gives the least a class's probability p can become within ``radius``, and its slope.

    Both are rounded down. The least is ``Phi(Phi^-1(p) - r/sigma)`` for radius r where the noise has a radius for the
    quantile margin (T1), else ``p - M/2``, at least 0, M being the probability margin that the radius needs (T25).
    """
    if "quantile" in noise.margins:
        steps = 0.5 * noise.margin(radius, "quantile")

        def shifted(p: FloatArray) -> tuple[FloatArray, FloatArray]:
            v = ndtri(p)
            slope = np.exp(steps * (np.clip(v, -40.0, 40.0) - 0.5 * steps))
            return ndtr(v - steps) * SHRUNK_ROUNDING, np.where(p > 0.0, slope, 0.0) * SHRUNK_ROUNDING

        return shifted
    lost = 0.5 * noise.margin(radius, "probability")
    if lost >= 0.5:
        raise InvalidInput(f"radius must be one that {noise.describe()} can certify; got {radius:g}")

    def lowered(p: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.maximum(p - lost, 0.0) * SHRUNK_ROUNDING, np.where(p >= lost, SHRUNK_ROUNDING, 0.0)

    return lowered
