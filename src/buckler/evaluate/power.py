"""The power of a discrete bound against the best there can be.

For a truth p and a target L below its margin, the power of a bound is ``P_p(bound(X) > L)``. A bound of level alpha
exceeds L with probability at most alpha under every truth whose margin is L or less, so it is a test of that
hypothesis, and no test has more power at p than the solution of a linear programme over all randomised tests. The
level is imposed on finitely many truths, which leaves the programme freer than it may be: its value is an upper bound.

A target is *neutral* if no bound under comparison was used to place it: here the optimum has a given power there. A
target just below one of a bound's own limits would flatter that bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np
from scipy.optimize import linprog

from buckler.certify.votes import margin as true_margin
from buckler.errors import InvalidInput, check_alpha, check_float_array
from buckler.evaluate.audit import multinomial_pmf, truths_on_curve
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

_NEGLIGIBLE = 1e-12
"""Outcomes less likely than this at the truth are left out of the linear programme; together they are below 1e-6."""

_CLOSE = 1e-5
"""Width of the interval at which the bisection for a neutral target stops."""


@dataclass(frozen=True, slots=True)
class Power:
    """Probability that each of several bounds of a margin exceeds ``target``, under one truth, and the most possible.

    ``truth`` holds the classes' probabilities, the certified class first. ``powers`` has the probability for each
    bound by name; ``optimum`` is an upper bound of what any bound of the same level can have.
    """

    truth: tuple[float, ...]
    target: float
    optimum: float
    powers: dict[str, float]


def optimal_power(null: FloatArray, truth: FloatArray, alpha: float) -> float:
    """Return the largest power, at ``truth``, of a test that rejects with at most ``alpha`` under each row of ``null``.

    ``null[distributions, outcomes]`` and ``truth[outcomes]`` are probabilities of the same outcomes; the test may be
    randomised.

    >>> half = multinomial_pmf(np.array([[0, 2], [1, 1], [2, 0]]), np.array([[0.5, 0.5]]))
    >>> more = multinomial_pmf(np.array([[0, 2], [1, 1], [2, 0]]), np.array([[0.9, 0.1]]))
    >>> round(optimal_power(half, more[0], 0.25), 6)
    0.81
    """
    keep = truth > _NEGLIGIBLE
    level = null[:, keep] / check_alpha(alpha)
    answer = linprog(-truth[keep], A_ub=level, b_ub=np.ones(len(level)), bounds=(0.0, 1.0), method="highs")
    if not answer.success or answer.fun is None:
        raise InvalidInput(f"the linear programme of the optimal power was not solved: {answer.message}")
    return float(min(1.0, -answer.fun + truth[~keep].sum()))


def least_favourable(margin: MarginKind, target: float, num_classes: int, points: int) -> FloatArray:
    """Return classes' probabilities, one truth a row, under which the margin of class 0 is at most ``target``.

    It equals the target over every other class in turn (over one only, beyond four classes), at ``points`` points, and
    the rest is spread in many ways.
    """
    shifts = 1.0 - np.concatenate([np.geomspace(0.8, 0.01, points - 1), [0.0]])
    truths = truths_on_curve(margin, target, shifts, num_classes)
    orders = sorted(set(permutations(range(1, num_classes)))) if num_classes <= 4 else [range(1, num_classes)]
    return np.unique(np.vstack([truths[:, [0, *order]] for order in orders]), axis=0)


def neutral_target(
    truth: FloatArray, null: Callable[[float], FloatArray], alpha: float, power: float, largest: float
) -> tuple[float, float] | None:
    """Return a margin, the target, that the best test shows to be exceeded with probability ``power``; and its power.

    ``truth[outcomes]`` holds the true probabilities of outcomes, and ``null(target)[distributions, outcomes]`` those
    under truths whose margin is at most the target; tests have level ``alpha`` there. The target is found by bisection
    between -8 and ``largest``, the truth's own margin, to 1e-5. The function returns None if ``largest`` is infinite or
    the target is below -8.

    >>> from buckler.evaluate.audit import outcomes
    >>> counts = outcomes(2, 20)
    >>> def null(target):
    ...     return multinomial_pmf(counts, np.array([[(1.0 + target) / 2.0, (1.0 - target) / 2.0]]))
    >>> target, optimum = neutral_target(multinomial_pmf(counts, np.array([[0.9, 0.1]]))[0], null, 0.05, 0.5, 0.8)
    >>> round(target, 3), round(optimum, 3)
    (0.501, 0.5)
    """
    low, high, best = -8.0, largest, 1.0
    if high == inf or optimal_power(null(low), truth, alpha) < power:
        return None
    while high - low > _CLOSE:
        middle = 0.5 * (low + high)
        found = optimal_power(null(middle), truth, alpha)
        low, high, best = (middle, high, found) if found >= power else (low, middle, best)
    return low, best


def compare_power(
    bounds: Mapping[str, FloatArray],
    counts: IntArray,
    *,
    margin: MarginKind,
    alpha: float,
    truths: Sequence[ArrayLike],
    power: float = 0.5,
) -> list[Power]:
    """Return, for each truth, the power of several bounds and the best possible, at a target that favours none of them.

    ``bounds`` maps a name to the lower limits of all outcomes ``counts[outcomes, classes]``. A bound's power is the
    probability that its limit exceeds the target, which is a margin at which the best test of level ``alpha`` has the
    given ``power``. ``truths`` hold the classes' probabilities, the certified class first; those without a target are
    left out (``neutral_target``).
    """
    m, made = counts.shape[1], []

    def null(target: float) -> FloatArray:
        return multinomial_pmf(counts, least_favourable(margin, target, m, points=40))

    for row in truths:
        p = _check_truth(row, m)
        mass = multinomial_pmf(counts, p[None])[0]
        found = neutral_target(mass, null, alpha, power, float(true_margin(margin, p[0], p[1:].max())))
        if found is not None:
            powers = {name: float(mass[limits > found[0]].sum()) for name, limits in bounds.items()}
            made.append(Power(tuple(p.tolist()), *found, powers))
    return made


def default_truths(num_classes: int) -> list[list[float]]:
    """Return classes' probabilities to compare bounds under, from hard to easy, the certified class first.

    What it leaves is on one other class, mostly on one, or on all alike.
    """
    truths = []
    for top in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        for share in sorted({1.0, 0.7, 1.0 / (num_classes - 1)}, reverse=True):
            first = (1.0 - top) * share
            others = [(1.0 - top - first) / max(1, num_classes - 2)] * (num_classes - 2)
            if first < top and (num_classes > 2 or share == 1.0):
                truths.append([top, first, *others])
    return truths


def _check_truth(row: ArrayLike, num_classes: int) -> FloatArray:
    p = check_float_array("truth", row)
    if p.shape != (num_classes,) or (p < 0.0).any() or abs(p.sum() - 1.0) > 1e-9:
        raise InvalidInput(f"truth must be {num_classes} probabilities with sum 1, class 0 first; got {p.tolist()}")
    return p
