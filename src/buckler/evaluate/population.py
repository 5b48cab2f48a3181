"""Certified accuracy of a population, from few draws of each input: no input is certified alone.

Let K be the votes for the true class among n draws, p its probability and ``t(r)`` the probability above which the
smoothed classifier is right everywhere within r. With h from ``bounds.bernstein``, ``E h(K) <= P(p > t)`` over draws
and inputs, so a lower limit of the mean of h(K) over inputs is one of the certified accuracy (T32).
"""

from __future__ import annotations  # so that help() shows ArrayLike, and not what it stands for

from dataclasses import dataclass
from math import ceil, inf, log, nextafter, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from buckler.bounds import bernstein
from buckler.bounds.bernstein import below_step, check_draws_of, fitted_pmf
from buckler.bounds.betting import constant_stake_lower, star_lower
from buckler.certificate import ball, rounded_down
from buckler.certify.budget import after_drawing, split_alpha
from buckler.errors import (
    InvalidInput,
    check_counts,
    check_float_array,
    check_label,
    check_real,
    check_risk,
    check_whole,
)
from buckler.evaluate.curves import Curve
from buckler.noise import as_noise
from buckler.types import ArrayLike, FloatArray, IntArray, Noise

LARGEST_POPULATION_N = bernstein.LARGEST_DEGREE
"""Largest number of draws of each input."""

PILOT, PILOT_INPUTS = 0.02, 10
"""Share of the inputs that serve as a pilot, which only chooses what each number of votes is worth, and their largest
number; found by simulation (docs/population.md)."""

USUAL_RADII: FloatArray = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
"""Radii of a report, in units of the noise: fixed before anything is drawn, since limits hold for such radii alone."""

DRAWS_TRIED, INPUTS_TRIED = (20, 40, 80, 160, 320), (500, 5_000, 100_000)
"""Numbers of draws of each input, and numbers of inputs, that ``plan_population`` tries."""

IMAGINED_INPUTS = 5.0
"""Imagined inputs that ``plan_population`` adds to the pilot's: more would make the forecast cautious."""

WIDTH = 1.08
"""Ratio by which the limit of a mean is further from it than a normal limit, at some 500 inputs; exact enough for a
forecast."""

SPLIT_KEY = 0x706F70756C617465
"""Key of the random words by which ``shuffled`` orders inputs, so that no other use of a seed shares them."""


@dataclass(frozen=True, slots=True, eq=False)
class PopulationAccuracy:
    """Lower limits ``low`` of the certified accuracy at ``radii``, which all hold with probability ``1 - delta``.

    They rest on ``n`` draws of each of ``inputs`` inputs, of which ``pilot`` only chose what each number of votes is
    worth: k votes of an input for its true class are worth ``polynomials[i, k]`` at radius i. ``thresholds[i]`` is the
    probability above which the true class is predicted everywhere within radius i. ``fixed_list`` says that the
    accuracy is that of these inputs, not of their population.
    """

    radii: FloatArray
    low: FloatArray
    delta: float
    noise: Noise
    n: int
    inputs: int
    pilot: int
    fixed_list: bool
    thresholds: FloatArray
    polynomials: FloatArray

    def __str__(self) -> str:
        """Return in words what the limits say, shares rounded down."""
        whole = f"these {self.inputs} inputs" if self.fixed_list else "the population that the inputs were drawn from"
        errs = "draws" if self.fixed_list else f"{self.inputs - self.pilot} inputs and their draws"
        shares = ", ".join(f"{rounded_down(a)} at {r:g}" for r, a in zip(self.radii, self.low, strict=True))
        return (
            f"With probability at least {1.0 - self.delta:.6g} over the {errs} ({self.n} each), the classifier "
            f"smoothed with {self.noise.describe()} predicts the true class {ball(self.noise, 'r')}, for at least this "
            f"share of {whole}, by r: {shares}."
        )

    def plot(self, title: str = "") -> Any:
        """Return a matplotlib figure of the limits against the radius."""
        from buckler.report.plots import accuracy_figure

        name = "these inputs" if self.fixed_list else "population"
        curve = Curve(name, self.radii, self.low, self.low, self.inputs, 0.0, self.delta, self.noise.norm)
        return accuracy_figure([curve], title, ylabel="certified accuracy, at least")


def population_accuracy(
    counts: ArrayLike,
    labels: ArrayLike,
    radii: ArrayLike,
    *,
    sigma: float | None = None,
    noise: Noise | str | None = None,
    delta: float = 1e-3,
    n: int | None = None,
    pilot: float | None = None,
    seed: int = 0,
    fixed_list: bool = False,
) -> PopulationAccuracy:
    """Return lower limits of the share of a population that is classified right everywhere within each of ``radii``.

    ``counts[inputs, classes]`` are votes of n draws of each input, the same n, fixed beforehand; where some draws vote
    for no class, rows add up to less, and ``n`` is given. ``labels`` are the true classes. The noise is Gaussian of
    standard deviation ``sigma``, or else ``noise``.

    **Guarantee.** If the inputs are drawn independently from the population, the noise is independent from input to
    input, and the classifier and its noise were not chosen on these inputs, then with probability at least
    ``1 - delta`` all limits hold at once, over draws, inputs and all of the radii (T32). With ``fixed_list`` the share
    is that of these very inputs, and the probability over draws alone.

    ``seed`` puts the inputs into an order; the first share ``pilot`` of them (by default .02, and 10 inputs at most)
    chooses what each number of votes is worth and is not used again: in a fixed list they count as wrong.

    >>> counts = np.tile([[100, 0], [97, 3]], (300, 1))
    >>> population_accuracy(counts, np.zeros(600, dtype=int), [0.25], sigma=0.25).low.round(3)
    array([0.958])
    """
    votes, draws = _true_votes(counts, labels, n)
    known = drawn_noise(sigma, noise)
    grid = np.atleast_1d(check_float_array("radii", radii))
    if grid.ndim != 1 or not grid.size or (grid < 0.0).any():
        raise InvalidInput(f"radii must be numbers of at least 0; got {grid.tolist()}")
    share = check_real("pilot", min(PILOT, PILOT_INPUTS / votes.size) if pilot is None else pilot)
    pilots = round(share * votes.size)
    rest = votes.size - pilots
    if not 0.0 <= share < 1.0 or rest < 2:
        raise InvalidInput(f"pilot must be a share from 0 up that leaves 2 inputs; got {share} of {votes.size} inputs")
    order = shuffled(votes.size, seed)
    guess, used = fitted_pmf(votes[order[:pilots]], draws), votes[order[pilots:]]
    level = split_alpha(after_drawing(check_risk(delta, "delta"), known, rest * draws), grid.size)
    thresholds = np.array([threshold(known, radius) for radius in grid.tolist()])
    low, made = np.zeros(grid.size), np.zeros((grid.size, draws + 1))
    for i in np.flatnonzero(thresholds < 1.0):
        made[i] = below_step(draws, float(thresholds[i]), guess, rest, level)
        limit = _share_limit(made[i], used, guess, level, fixed_list)
        low[i] = limit * rest / votes.size if fixed_list else limit
    # What is certified at a radius is certified at the smaller ones.
    low = np.array([low[grid >= r].max() for r in grid])
    return PopulationAccuracy(grid, low, delta, known, draws, votes.size, pilots, fixed_list, thresholds, made)


class Effort(NamedTuple):
    """Forecast that ``inputs`` inputs with ``n`` draws each, ``draws`` in all, suffice for a wanted accuracy."""

    n: int
    inputs: int
    draws: int


def plan_population(
    counts: ArrayLike,
    labels: ArrayLike,
    radius: float,
    wanted: float,
    *,
    sigma: float | None = None,
    noise: Noise | str | None = None,
    delta: float = 1e-3,
    n: int | None = None,
) -> list[Effort]:
    """Return how many inputs take the limit of ``population_accuracy`` to ``wanted``, for several numbers of draws.

    A forecast, no bound, for one ``radius``: ``counts`` and ``labels`` of a pilot run tell how the probabilities of the
    true class are distributed, and ``wanted`` is a share of the population. Numbers of draws with which no number of
    inputs would do are left out. The inputs of the run that is planned must be others than the pilot's. The other
    arguments are those of ``population_accuracy``.

    >>> counts = np.tile([[100, 0], [97, 3], [60, 40]], (100, 1))
    >>> [effort.n for effort in plan_population(counts, [0] * 300, 0.25, 0.6, sigma=0.25)]
    [20, 40, 80, 160, 320]
    """
    votes, pilot_draws = _true_votes(counts, labels, n)
    known = drawn_noise(sigma, noise)
    t, level = threshold(known, check_real("radius", radius)), after_drawing(check_risk(delta, "delta"), known)
    if not 0.0 < check_real("wanted", wanted) < 1.0:
        raise InvalidInput(f"wanted must be a share above 0 and below 1; got {wanted}")
    found = []
    for draws in DRAWS_TRIED if t < 1.0 else ():
        pmf = fitted_pmf(votes, pilot_draws, draws, imagined=IMAGINED_INPUTS)
        for guess in INPUTS_TRIED:  # h is made for a number of inputs; more inputs make it steeper
            h = below_step(draws, t, pmf, guess, level)
            mean = float(pmf @ h)
            width = WIDTH * max(0.0, -float(ndtri(level))) * sqrt(float(pmf @ h**2) - mean**2)
            inputs = (width / (mean - wanted)) ** 2 if mean > wanted else inf
            if inputs <= 3 * guess:
                break
        if inputs < inf:
            needed = max(2, ceil(inputs / (1.0 - PILOT)))
            found.append(Effort(draws, needed, draws * needed))
    return found


def threshold(noise: Noise, radius: float) -> float:
    """Return the probability above which a class is predicted everywhere within ``radius``; rounded up, at most 1.

    It is ``(1 + M)/2``, M the probability margin that the radius needs: where the class has p, no rival has more than
    ``1 - p``.

    >>> round(threshold(as_noise(0.5, None), 0.5), 6)
    0.841345
    """
    return min(1.0, nextafter(0.5 * (1.0 + noise.margin(radius, "probability")), inf))


def drawn_noise(sigma: float | None, noise: Noise | str | None) -> Noise:
    """Return Gaussian noise of standard deviation ``sigma``, or else ``noise``; raise InvalidInput if it is enumerated.

    Its copies must be drawn at random.
    """
    known = as_noise(sigma, noise)
    if known.total is not None:
        raise InvalidInput(f"noise must draw copies at random; {known.describe()} leaves nothing to estimate")
    return known


def shuffled(count: int, seed: int) -> IntArray:
    """Return the numbers 0, ..., count - 1 in a random order that the seed alone decides."""
    words = np.random.Philox(key=SPLIT_KEY << 64 | check_whole("seed", seed, 0, 2**53)).random_raw(count)
    return np.argsort(np.asarray(words, dtype=np.uint64), kind="stable")


def _true_votes(counts: ArrayLike, labels: ArrayLike, n: int | None) -> tuple[IntArray, int]:
    """Return the votes for the true class of each input, and the draws that all inputs have."""
    table = check_counts("counts", counts)
    if table.ndim != 2:
        raise InvalidInput(f"counts must have shape [inputs, classes]; got shape {table.shape}")
    truth = check_label(labels, table.shape[1], len(table), "labels")
    return table[np.arange(len(table)), truth], equal_draws("counts", table, n)


def equal_draws(name: str, counts: IntArray, n: int | None) -> int:
    """Return the number of draws of every input: ``n``, or for None what each row of ``counts`` adds up to.

    Raise InvalidInput if rows differ then, or a count is larger than n; ``name`` is what the error calls the counts.
    """
    totals = np.unique(counts.sum(axis=1))
    if n is None and totals.size > 1:
        raise InvalidInput(
            f"{name} must add up to the same number of draws for each input, unless n is given; "
            f"got {totals[0]} and {totals[-1]}"
        )
    draws = int(totals[0]) if n is None else check_whole("n", n, 1)
    check_draws_of(draws)
    if counts.max(initial=0) > draws:
        raise InvalidInput(f"{name} must be at most n = {draws}; got {counts.max()}")
    return draws


def _share_limit(h: FloatArray, votes: IntArray, guess: FloatArray, level: float, fixed_list: bool) -> float:
    """Return the lower limit of the mean of h(K), at least 0."""
    bottom, top = float(h.min()), float(h.max())
    if not bottom < top:
        return 0.0
    if fixed_list:
        scaled = (h - bottom) / (top - bottom)
        spread = sqrt(max(float(guess @ scaled**2 - (guess @ scaled) ** 2), 1e-4))
        stake = sqrt(-2.0 * log(level) / votes.size) / spread
        return max(0.0, constant_stake_lower(h[votes], level, stake, bottom, top))
    return max(0.0, float(star_lower(h[votes], level, bottom, top)))
