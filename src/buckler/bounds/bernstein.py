"""Polynomials below a step or a rising curve: values h(k) of a count K whose mean, at every p, is never above it.

``B(p) = sum over k of h(k) C(n,k) p^k (1-p)^(n-k)`` is the mean of ``h(K)``, K binomial (n, p), and h are its Bernstein
coefficients. The accuracy of a population needs B below the step ``1[p > t]`` (T32), prediction sets need it below the
chance ``s(p)`` that a class stays in the set after the worst move (T34).

- ``fitted_pmf(counts, n)``: probabilities of counts, guessed from pilot inputs: what h is made for.
- ``below_step(n, t, pmf, inputs, alpha)``, ``below_curve(n, curve, pmf, inputs)``: h chosen by a linear programme.
- ``lowered_below_step(h, t)``, ``lowered_below_curve(h, curve)``: h less what its polynomial is proved to be over.

The programme may return anything at all: only lowering makes h sound (T33, F12), and nothing may be raised afterwards.
"""

from collections.abc import Callable
from math import ceil, floor, pi, sqrt

import numpy as np
from scipy.optimize import linprog
from scipy.special import betainc, gammaln, ndtri, xlog1py, xlogy

from buckler.errors import InvalidInput
from buckler.types import FloatArray, IntArray

LinesBelow = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""``curve(a, b)``: values at a, and slopes, such that value + slope (p - a) is not above the curve on [a, b]."""

Shrinking = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""A rising convex function g of p and its slope, both rounded down: the least probability after a move."""

LARGEST_DEGREE = 1000
"""Up to here the allowance covers the rounding of DEPTH cuts."""

ALLOWANCE = 1e-10
"""What every maximum is raised by, in units of the largest coefficient (F12)."""

DEPTH = 40
"""How often an interval is halved at most."""

MOST_PIECES = 1 << 14
"""Intervals examined at once at most; heuristic: an interval that is not halved costs sharpness, not validity."""

TAIL_ERROR = 1e-9
"""Relative error allowed for ``scipy.special.betainc`` and for the binomial density (F5)."""

EXCESS_TOLERANCE = 1e-7
"""How far above the true excess the proved one may be before an interval is halved again."""

# Heuristics of the programme: they move h, never its validity.
WINDOW = 6.0
"""Deviations of the count at t on either side of which h is free; beyond, it is constant."""

LARGEST_H = 2.0
"""h lies between -LARGEST_H and LARGEST_H below a step: large values cost spread."""

COARSE_SPACING, FINE_SPACING = 0.1, 0.02
"""Spacing of the points p that hold the polynomial down at first, and of those examined, in arcsin(sqrt p) sqrt n."""

ROUNDS = 12
"""How often points and tangents are added."""

SETTLED_EXCESS = 1e-5
"""An excess that is not worth another round."""

FITTING, IMAGINED = 20, 100.0
"""Steps of expectation maximisation, and how many imagined inputs join the pilot's."""


def binomial_pmf(n: int, p: FloatArray) -> FloatArray:
    """Return the probabilities of 0, ..., n successes at each p, ``[points, n + 1]``; to a relative 1e-11 or so.

    >>> binomial_pmf(2, np.array([0.5]))
    array([[0.25, 0.5 , 0.25]])
    """
    k = np.arange(n + 1)
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, p[:, None]) + xlog1py(n - k, -p[:, None])
    return np.asarray(np.exp(logs))


def _points(n: int, spacing: float, *more: float) -> FloatArray:
    """Return points of [0, 1], ends included, between which a polynomial of degree n changes little."""
    count = ceil(0.5 * pi * sqrt(n) / spacing) + 1
    grid = np.sin(np.linspace(0.0, 0.5 * pi, count)) ** 2
    return np.unique(np.clip(np.append(grid, more), 0.0, 1.0))


def fitted_pmf(counts: IntArray, n: int, draws: int | None = None, *, imagined: float = IMAGINED) -> FloatArray:
    """Return probabilities of 0, ..., n: a smooth mixture of binomials fitted to counts of pilot inputs.

    With ``draws`` they are those of 0, ..., draws: of the counts that so many draws would give. ``imagined`` inputs, of
    p flat in arcsin(sqrt p), join the pilot's.
    """
    pmfs = binomial_pmf(n, _points(n, COARSE_SPACING))
    weights = flat = np.full(len(pmfs), 1.0 / len(pmfs))
    seen = np.bincount(counts, minlength=n + 1)
    for _ in range(FITTING):
        weights = weights * (pmfs @ (seen / np.maximum(weights @ pmfs, 1e-300))) + imagined * flat
        weights /= counts.size + imagined
    return np.asarray(weights @ (pmfs if draws is None else binomial_pmf(draws, _points(n, COARSE_SPACING))))


def below_step(n: int, t: float, pmf: FloatArray, inputs: int, alpha: float) -> FloatArray:
    """Return h, ``[n + 1]``, with its polynomial below ``1[p > t]``, made for a sharp limit of the mean of h(K).

    **Guarantee.** For K binomial (n, p) and every p in [0, 1], ``E h(K) <= 1[p > t]`` (T32).

    ``pmf`` is a guess of the probabilities of K over inputs, ``inputs`` and ``alpha`` say how many will be averaged and
    at which level: h maximises ``E h - z sd(h) / sqrt(inputs)`` under them, nearly, by a linear programme.

    >>> h = below_step(40, 0.9, fitted_pmf(np.array([40, 40, 12]), 40), 1000, 1e-3)
    >>> h.max() > 0.9, binomial_pmf(40, np.array([0.9]))[0] @ h <= 0.0
    (np.True_, np.True_)
    """
    check_draws_of(n)
    deviation = sqrt(n * t * (1.0 - t))
    low, high = max(0, floor(n * t - WINDOW * deviation)), min(n, ceil(n * t + WINDOW * deviation))
    programme = _Programme(
        pmf, low, high, lambda p: np.where(p > t, 1.0, 0.0), _points(n, FINE_SPACING, t, np.nextafter(t, 2))
    )
    price = max(0.0, -float(ndtri(alpha))) / sqrt(inputs)
    guess = np.where(np.arange(n + 1) > n * t, 1.0, 0.0)
    h = programme.sharpest(guess, price)
    return lowered_below_step(h, t)


def check_draws_of(n: int) -> None:
    """Refuse a degree whose rounding the allowance does not cover."""
    if not 1 <= n <= LARGEST_DEGREE:
        raise InvalidInput(f"n, the draws of each input, must be 1 to {LARGEST_DEGREE}; got {n}")


class _Programme:
    """The linear programme over the h that are constant outside of a window, below a ceiling at points of [0, 1].

    Points start coarse; those where the polynomial is found above the ceiling are added.
    """

    def __init__(
        self, pmf: FloatArray, low: int, high: int, ceiling: Callable[[FloatArray], FloatArray], fine: FloatArray
    ) -> None:
        n = pmf.size - 1
        self.low, self.high, self.size = low, high, high + 1 - low
        self.pmf = self._windowed(pmf[None])[0]
        self.examined, self.limits = self._windowed(binomial_pmf(n, fine)), ceiling(fine)
        self.n, self.chosen = n, np.zeros(fine.size, dtype=np.bool_)
        self.chosen[:: max(1, round(COARSE_SPACING / FINE_SPACING))] = True
        # The jump of a step has its constraints from the start.
        jumps = np.flatnonzero(np.diff(self.limits) > 0.5)
        self.chosen[jumps] = self.chosen[jumps + 1] = self.chosen[-1] = True

    def _windowed(self, rows: FloatArray) -> FloatArray:
        """Return rows with the columns outside of the window added to its ends."""
        inner = rows[:, self.low : self.high + 1].copy()
        inner[:, 0] += rows[:, : self.low].sum(axis=1)
        inner[:, -1] += rows[:, self.high + 1 :].sum(axis=1)
        return inner

    def _whole(self, window: FloatArray) -> FloatArray:
        return np.concatenate([np.full(self.low, window[0]), window, np.full(self.n - self.high, window[-1])])

    def _hold_down(self, window: FloatArray) -> float:
        """Add the points where the polynomial is most above the ceiling, and return by how much it is."""
        over = self.examined @ window - self.limits
        padded = np.concatenate([[-np.inf], over, [-np.inf]])
        self.chosen |= (over >= padded[:-2]) & (over >= padded[2:]) & (over > SETTLED_EXCESS / 10.0)
        return float(over.max())

    def sharpest(self, guess: FloatArray, price: float) -> FloatArray:
        """Return h that nearly maximises its mean less ``price`` deviations, both under ``pmf``.

        The deviation is linear in the mean of h^2 around the last solution's, and h^2 is the largest of its tangents.
        """
        size, window = self.size, guess[self.low : self.high + 1]
        at = np.tile(np.linspace(-LARGEST_H, LARGEST_H, 9), (size, 1))
        for _ in range(ROUNDS):
            at = np.hstack([at, window[:, None]])
            mean = float(self.pmf @ window)
            cost = price / (2.0 * sqrt(max(float(self.pmf @ window**2) - mean**2, 1e-4)))
            rows = self.examined[self.chosen]
            values, each = at.reshape(-1, 1), np.repeat(np.eye(size), at.shape[1], axis=0)
            held = np.hstack([rows, np.zeros_like(rows)])
            found = linprog(
                np.concatenate([-(1.0 + 2.0 * cost * mean) * self.pmf, cost * self.pmf]),
                A_ub=np.vstack([held, np.hstack([2.0 * values * each, -each])]),
                b_ub=np.concatenate([self.limits[self.chosen], values[:, 0] ** 2]),
                bounds=[(-LARGEST_H, LARGEST_H)] * size + [(0.0, None)] * size,
                method="highs",
            )
            if found.x is None:
                break
            moved = float(np.abs(found.x[:size] - window).max())
            window = found.x[:size]
            if self._hold_down(window) <= SETTLED_EXCESS and moved <= 0.01:
                break
        return self._whole(window)

    def highest(self, inputs: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return h between ``low`` and ``high`` that maximises its mean under ``pmf`` less ``max(-h, 0) / inputs``."""
        size, window = self.size, low
        for _ in range(ROUNDS):
            rows, each = self.examined[self.chosen], np.eye(size)
            found = linprog(
                np.append(-self.pmf, 1.0 / inputs),
                A_ub=np.vstack(
                    [np.hstack([rows, np.zeros((len(rows), 1))]), np.hstack([-each, np.full((size, 1), -1.0)])]
                ),
                b_ub=np.append(self.limits[self.chosen], np.zeros(size)),
                bounds=[*zip(low, high, strict=True), (0.0, None)],
                method="highs",
            )
            if found.x is None:
                break
            window = found.x[:size]
            if self._hold_down(window) <= SETTLED_EXCESS:
                break
        return self._whole(window)


def below_curve(
    n: int,
    curve: LinesBelow,
    pmf: FloatArray,
    inputs: int,
    low: FloatArray | float = -1.0,
    high: FloatArray | float = 1.0,
) -> FloatArray:
    """Return h, ``[n + 1]``, with its polynomial nearly below the curve and its mean under ``pmf`` as large as can be.

    It is a guess for ``lowered_below_curve``. h lies between ``low`` and ``high``; ``inputs`` is how many will be
    averaged beside one whose h is the least there is (T34).
    """
    check_draws_of(n)
    programme = _Programme(pmf, 0, n, lambda p: curve(p, p)[0], _points(n, FINE_SPACING))
    return programme.highest(inputs, np.zeros(n + 1) + low, np.zeros(n + 1) + high)


def lowered_below_curve(h: FloatArray, curve: LinesBelow) -> FloatArray:
    """Return h less the most by which its polynomial can be proved to exceed the curve.

    **Guarantee.** The polynomial of what is returned is nowhere above the curve on [0, 1] (T33, F12).
    """
    check_draws_of(h.size - 1)
    return h - max(proved_excess(h[None], curve) + ALLOWANCE * max(1.0, float(np.abs(h).max())), 0.0)


def shrunk_tail(n: int, k: int, shrinking: Shrinking) -> LinesBelow:
    """Return the curve ``s(p) = P(Binomial(n, g(p)) >= k)``, k at least 1, from below.

    Its slope is a density of one mode, at g(p), times a slope that rises: on [a, b] at least the smaller of the
    densities at the ends times the slope of g at a (T35).
    """
    log_scale = gammaln(n + 1) - gammaln(k) - gammaln(n - k + 1)

    def density(g: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_scale + xlogy(k - 1, g) + xlog1py(n - k, -g)))

    def curve(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        (left, slope), (right, _) = shrinking(a), shrinking(b)
        value = betainc(k, n - k + 1, left) * (1.0 - TAIL_ERROR)
        return value, np.minimum(density(left), density(right)) * slope * (1.0 - TAIL_ERROR)

    return curve


def lowered_below_step(h: FloatArray, t: float) -> FloatArray:
    """Return h less the most by which its polynomial can be proved to exceed ``1[p > t]``.

    **Guarantee.** The polynomial of what is returned is at most 0 on [0, t] and at most 1 on [t, 1] (T33, F12).
    """
    check_draws_of(h.size - 1)
    left, right = subdivide(h[None], t)
    over = max(
        proved_excess(left, lambda a, _: (0.0 * a, 0.0 * a)),
        proved_excess(right, lambda a, _: (0.0 * a + 1.0, 0.0 * a)),
    )
    return h - max(over + ALLOWANCE * float(np.abs(h).max()), 0.0)


def subdivide(coefficients: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
    """Return the Bernstein coefficients of each row's polynomial on [0, t] and on [t, 1], by de Casteljau's rule."""
    left, right, n = np.empty_like(coefficients), np.empty_like(coefficients), coefficients.shape[1] - 1
    rows = np.ascontiguousarray(coefficients.T)
    for j in range(n + 1):
        left[:, j], right[:, n - j] = rows[0], rows[-1]
        rows = (1.0 - t) * rows[:-1] + t * rows[1:]
    return left, right


def proved_excess(coefficients: FloatArray, curve: LinesBelow) -> float:
    """Return a number that the polynomial less the curve does not exceed on [0, 1]; what is below 0 is not resolved.

    On an interval a polynomial is at most the largest of its Bernstein coefficients there, and so is its difference
    from a straight line. Intervals whose bound is not yet close to a value that is attained are halved.
    """
    n = coefficients.shape[1] - 1
    pieces, start, width = coefficients, np.zeros(1), 1.0
    attained, proved = 0.0, 0.0
    for depth in range(DEPTH + 1):
        value, slope = curve(start, start + width)
        bound = (pieces - value[:, None] - (slope * width)[:, None] * (np.arange(n + 1) / n)).max(axis=1)
        attained = max(attained, float((pieces[:, 0] - value).max()))
        again = bound > attained + EXCESS_TOLERANCE
        if depth == DEPTH or np.count_nonzero(again) > MOST_PIECES:
            return max(proved, float(bound.max()))
        proved = max(proved, float(bound[~again].max(initial=0.0)))
        if not again.any():
            break
        width *= 0.5
        pieces = np.concatenate(subdivide(pieces[again], 0.5))
        start = np.concatenate([start[again], start[again] + width])
    return proved
