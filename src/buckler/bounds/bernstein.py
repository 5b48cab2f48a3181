"""Polynomials below a step or a rising curve: values h(k) of a count K whose mean, at every p, is never above it.

``B(p) = sum over k of h(k) C(n,k) p^k (1-p)^(n-k)`` is the mean of ``h(K)``, K binomial (n, p), and h are its Bernstein
coefficients. The accuracy of a population needs B below the step ``1[p > t]`` (T32), prediction sets need it below the
chance ``s(p)`` that a class stays in the set after the worst move (T34).

A linear programme chooses h for counts guessed from pilot inputs. It may return anything at all: only lowering makes h
sound (T33, F12), and nothing may be raised afterwards.
"""

from collections.abc import Callable
from math import ceil, floor, pi, sqrt

import numpy as np
from scipy.optimize import linprog
from scipy.special import betainc, gammaln, ndtri, xlog1py, xlogy

from buckler.errors import InvalidInput
from buckler.types import ArrayLike, FloatArray, IntArray

LinesBelow = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""A curve over p, from below: ``curve(a, b)`` returns a value and a slope for each interval [a, b], with which
``value + slope (p - a)`` is not above the curve there."""

Shrinking = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""``g(p)`` returns the least that a probability p can become after a move, and the slope of g there, both rounded down;
g rises and is convex."""

LARGEST_DEGREE = 1000
"""Largest degree n of a polynomial, the number of draws: up to it ``ALLOWANCE`` covers the rounding of ``DEPTH``
halvings."""

ALLOWANCE = 1e-10
"""Added to every proved maximum of a polynomial against rounding, in units of its largest coefficient (F12)."""

DEPTH = 40
"""Largest number of times that ``proved_excess`` halves an interval."""

MOST_PIECES = 1 << 14
"""Most intervals that ``proved_excess`` halves at once. Heuristic: an interval that is not halved costs sharpness, not
validity."""

TAIL_ERROR = 1e-9
"""Relative error allowed for ``scipy.special.betainc`` and for the binomial density (F5)."""

EXCESS_TOLERANCE = 1e-7
"""How far ``proved_excess`` may be above the true excess before it halves an interval again."""

# Heuristics of the programme: they move h, never its validity.
WINDOW = 6.0
"""Half-width of the window of counts k in which ``below_step`` lets h(k) vary, in standard deviations of the count at p
= t; h is constant outside."""

LARGEST_H = 2.0
"""Largest absolute value of h in ``below_step``: larger values would raise the variance of h(K)."""

COARSE_SPACING, FINE_SPACING = 0.1, 0.02
"""Spacing, in arcsin(sqrt p) sqrt n, of the points p that constrain the first linear programme, and of the points at
which every solution is examined."""

ROUNDS, SETTLED_EXCESS, SETTLED_MOVE = 12, 1e-5, 0.01
"""Largest number of linear programmes solved for one h, points and tangents being added after each; the excess over the
ceiling, and the change of h, below which no further one is solved."""

FITTING, IMAGINED = 20, 100.0
"""Steps of expectation maximisation in ``fitted_pmf``, and the number of imagined inputs added to the pilot inputs."""


def binomial_pmf(n: int, p: FloatArray) -> FloatArray:
    """Return the binomial probabilities of 0, ..., n successes at each ``p[points]``: ``[points, n + 1]``.

    They are accurate to a relative 1e-11 or so.

    >>> binomial_pmf(2, np.array([0.5]))
    array([[0.25, 0.5 , 0.25]])
    """
    k = np.arange(n + 1)
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, p[:, None]) + xlog1py(n - k, -p[:, None])
    return np.asarray(np.exp(logs))


def _points(n: int, spacing: float, *more: float) -> FloatArray:
    """Return a sorted grid of [0, 1], ``more`` included, in whose cells a polynomial of degree n changes little."""
    count = ceil(0.5 * pi * sqrt(n) / spacing) + 1
    grid = np.sin(np.linspace(0.0, 0.5 * pi, count)) ** 2
    return np.unique(np.clip(np.append(grid, more), 0.0, 1.0))


def fitted_pmf(counts: IntArray, n: int, draws: int | None = None, *, imagined: float = IMAGINED) -> FloatArray:
    """Return how probable each count 0, ..., n is for an input, ``[n + 1]``, as guessed from pilot inputs' counts.

    ``counts[i]`` is how many of the ``n`` draws of pilot input i were successes. A smooth mixture of binomials is
    fitted to them, with ``imagined`` inputs added, whose p is uniform in arcsin(sqrt p). With ``draws``, the mixture's
    probabilities of 0, ..., draws come back instead: of counts of ``draws`` draws.
    """
    pmfs = binomial_pmf(n, _points(n, COARSE_SPACING))
    weights = flat = np.full(len(pmfs), 1.0 / len(pmfs))
    seen = np.bincount(counts, minlength=n + 1)
    for _ in range(FITTING):
        weights = weights * (pmfs @ (seen / np.maximum(weights @ pmfs, 1e-300))) + imagined * flat
        weights /= counts.size + imagined
    return np.asarray(weights @ (pmfs if draws is None else binomial_pmf(draws, _points(n, COARSE_SPACING))))


def below_step(n: int, t: float, pmf: FloatArray, inputs: int, alpha: float) -> FloatArray:
    """Return values ``h[0], ..., h[n]`` of a count whose mean is at most 0 if p <= t, and at most 1 at every p.

    **Guarantee.** For K binomial (n, p) and every p in [0, 1], ``E h[K] <= 1[p > t]`` (T32).

    They are chosen for a sharp lower limit, at level ``alpha``, of the mean of h[K] over ``inputs`` inputs: a linear
    programme maximises, nearly, ``E h - z sd(h) / sqrt(inputs)`` under ``pmf``, a guess of the probabilities of K
    (``fitted_pmf``), with ``z = Phi^-1(1 - alpha)``, at least 0.

    >>> h = below_step(40, 0.9, fitted_pmf(np.array([40, 40, 12]), 40), 1000, 1e-3)
    >>> h.max() > 0.9, binomial_pmf(40, np.array([0.9]))[0] @ h <= 0.0
    (np.True_, np.True_)
    """
    deviation = sqrt(n * t * (1.0 - t))
    low, high = max(0, floor(n * t - WINDOW * deviation)), min(n, ceil(n * t + WINDOW * deviation))
    programme = _Programme(pmf, low, high, lambda p: np.where(p > t, 1.0, 0.0), t, np.nextafter(t, 2))
    guess = np.where(np.arange(low, high + 1) > n * t, 1.0, 0.0)
    return lowered_below_step(programme.sharpest(guess, max(0.0, -float(ndtri(alpha))) / sqrt(inputs)), t)


def check_draws_of(n: int) -> None:
    """Raise InvalidInput unless n, the number of draws of each input, is from 1 to ``LARGEST_DEGREE``."""
    if not 1 <= n <= LARGEST_DEGREE:
        raise InvalidInput(f"n, the draws of each input, must be 1 to {LARGEST_DEGREE}; got {n}")


Linear = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""A linear programme over h and further variables: costs, the rows and the limits of inequalities, and the variables'
bounds ``[variables, 2]``."""


class _Programme:
    """Solver of linear programmes for h: constant outside of a window, its polynomial below a ceiling at points p.

    Points start coarse; those where the polynomial is found above the ceiling are added.
    """

    def __init__(
        self, pmf: FloatArray, low: int, high: int, ceiling: Callable[[FloatArray], FloatArray], *more: float
    ) -> None:
        n, self.size = pmf.size - 1, high + 1 - low
        check_draws_of(n)
        fine = _points(n, FINE_SPACING, *more)
        self.spread: FloatArray = np.eye(self.size)[np.clip(np.arange(n + 1), low, high) - low]
        self.pmf, self.examined, self.limits = pmf @ self.spread, binomial_pmf(n, fine) @ self.spread, ceiling(fine)
        self.chosen = np.arange(fine.size) % round(COARSE_SPACING / FINE_SPACING) == 0
        # The jump of a step has its constraints from the start.
        jumps = np.flatnonzero(np.diff(self.limits) > 0.5)
        self.chosen[jumps] = self.chosen[jumps + 1] = self.chosen[-1] = True

    def solved(self, window: FloatArray, still: float, programme: Callable[[FloatArray], Linear]) -> FloatArray:
        """Return h, ``[n + 1]``, from at most ``ROUNDS`` linear programmes, each built at the solution of the last.

        None follows once h exceeds the ceiling by at most ``SETTLED_EXCESS`` and has moved by at most ``still``.
        """
        for _ in range(ROUNDS):
            costs, rows, limits, bounds = programme(window)
            held = np.pad(self.examined[self.chosen], ((0, 0), (0, costs.size - self.size)))
            found = linprog(
                costs, A_ub=np.vstack([held, rows]), b_ub=np.concatenate([self.limits[self.chosen], limits]),
                bounds=[(low, high) for low, high in bounds], method="highs",
            )  # fmt: skip
            if found.x is None:
                break
            moved, window = float(np.abs(found.x[: self.size] - window).max()), found.x[: self.size]
            over = self.examined @ window - self.limits
            padded = np.pad(over, 1, constant_values=-np.inf)
            self.chosen |= (over >= padded[:-2]) & (over >= padded[2:]) & (over > SETTLED_EXCESS / 10.0)
            if over.max() <= SETTLED_EXCESS and moved <= still:
                break
        return np.asarray(self.spread @ window)

    def sharpest(self, guess: FloatArray, price: float) -> FloatArray:
        """Return h that nearly maximises its mean less ``price`` deviations, both under ``pmf``.

        The deviation is linear in the mean of h^2 around the last solution's, and h^2 is the largest of its tangents.
        """
        each = np.eye(self.size)
        at = list(np.linspace(-LARGEST_H, LARGEST_H, 9)[:, None] * np.ones(self.size))

        def programme(window: FloatArray) -> Linear:
            at.append(window)
            mean = float(self.pmf @ window)
            cost = price / (2.0 * sqrt(max(float(self.pmf @ window**2) - mean**2, 1e-4)))
            tangents = np.vstack([np.hstack([np.diag(2.0 * values), -each]) for values in at])
            costs = np.concatenate([-(1.0 + 2.0 * cost * mean) * self.pmf, cost * self.pmf])
            bounds = np.repeat([(-LARGEST_H, LARGEST_H), (0.0, np.inf)], self.size, axis=0)
            return costs, tangents, np.concatenate(at) ** 2, bounds

        return self.solved(guess, SETTLED_MOVE, programme)

    def highest(self, inputs: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return h between ``low`` and ``high`` that maximises its mean under ``pmf`` less ``max(-h, 0) / inputs``."""
        rows = np.hstack([-np.eye(self.size), np.full((self.size, 1), -1.0)])
        bounds = np.vstack([np.stack([low, high], axis=1), (0.0, np.inf)])
        linear = np.append(-self.pmf, 1.0 / inputs), rows, np.zeros(self.size), bounds
        return self.solved(low, np.inf, lambda _: linear)


def below_tail(
    k: int, shrinking: Shrinking | None, pmf: FloatArray, inputs: int, low: ArrayLike = -1.0, high: ArrayLike = 1.0
) -> FloatArray:
    """Return values ``h[0], ..., h[n]`` of a count whose mean is at most the chance of ``k`` successes after a move.

    **Guarantee.** For K binomial (n, p) and every p in [0, 1], ``E h[K] <= P(Binomial(n, g(p)) >= k)``, whatever the
    other arguments; ``g`` is ``shrinking``, the least that p can become (T34). With None g(p) is p, and h the indicator
    of ``K >= k``, for which both sides are equal.

    The mean of h under ``pmf``, a guess of the probabilities of K, less ``max(0, -min h) / inputs``, is as large as can
    be; ``inputs`` is how many calibration inputs will be averaged. h is chosen between ``low`` and ``high``, numbers or
    ``[n + 1]``, and then lowered until the inequality is proved.
    """
    n = pmf.size - 1
    if shrinking is None:
        return np.where(np.arange(n + 1) >= k, 1.0, 0.0)
    curve = shrunk_tail(n, k, shrinking)
    ends = (np.broadcast_to(np.asarray(end, dtype=np.float64), n + 1) for end in (low, high))
    h = _Programme(pmf, 0, n, lambda p: curve(p, p)[0]).highest(inputs, *ends)
    return _lowered(h, proved_excess(h[None], curve))


def shrunk_tail(n: int, k: int, shrinking: Shrinking) -> LinesBelow:
    """Return a function that gives lines below the curve ``s(p) = P(Binomial(n, g(p)) >= k)``; g is ``shrinking``.

    The slope of s is a density with one mode, at g(p), times the slope of g, which rises: on [a, b] it is at least the
    smaller of the densities at g(a) and g(b), times the slope of g at a (T35).
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
    """Return ``h[n + 1]``, lowered until its mean is proved to be at most 0 for p <= t, and at most 1 at every p.

    **Guarantee.** The mean of h[K], K binomial (n, p), is a polynomial in p; that of what is returned is at most 0 on
    [0, t] and at most 1 on [t, 1] (T33, F12).
    """

    def level(top: float) -> LinesBelow:
        return lambda a, _: (0.0 * a + top, 0.0 * a)

    left, right = subdivide(h[None], t)
    return _lowered(h, max(proved_excess(left, level(0.0)), proved_excess(right, level(1.0))))


def _lowered(h: FloatArray, over: float) -> FloatArray:
    """Return h lowered by ``over`` and by an allowance for rounding in the proof of ``over`` (F12)."""
    return h - (over + ALLOWANCE * max(1.0, float(np.abs(h).max())))


def subdivide(coefficients: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
    """Return the Bernstein coefficients of polynomials on [0, t] and on [t, 1], from those on [0, 1], one a row.

    De Casteljau's rule.
    """
    left, right, n = np.empty_like(coefficients), np.empty_like(coefficients), coefficients.shape[1] - 1
    rows = np.ascontiguousarray(coefficients.T)
    for j in range(n + 1):
        left[:, j], right[:, n - j] = rows[0], rows[-1]
        rows = (1.0 - t) * rows[:-1] + t * rows[1:]
    return left, right


def proved_excess(coefficients: FloatArray, curve: LinesBelow) -> float:
    """Return an upper bound, at least 0, of a polynomial less a curve on [0, 1].

    ``coefficients``, ``[1, n + 1]``, are the polynomial's Bernstein coefficients.

    On an interval a polynomial is at most the largest of its Bernstein coefficients there, and so is its difference
    from a straight line. Intervals whose bound is not yet close to a value that is attained are halved.
    """
    n = coefficients.shape[1] - 1
    check_draws_of(n)
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
