"""The power of a discrete bound against the best there can be.

For a truth p and a target L below its margin, the power of a bound is ``P_p(bound(X) > L)``. A bound of level alpha
exceeds L with probability at most alpha under every truth whose margin is L or less, so it is a test of that
hypothesis, and no test has more power at p than the solution of a linear programme over all randomised tests. The
level is imposed on finitely many truths, which leaves the programme freer than it may be: its value is an upper bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.optimize import linprog

from buckler.certify.margins import margin as true_margin
from buckler.errors import InvalidInput, check_alpha, check_float_array
from buckler.evaluate.audit import multinomial_pmf, truths_on_curve
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

_NEGLIGIBLE = 1e-12
"""Outcomes less likely than this at the truth are left out of the programme; together they are below 1e-6."""


@dataclass(frozen=True, slots=True)
class Power:
    """The power of several bounds for one target at one truth, and the most that any test of the level can have."""

    truth: tuple[float, ...]
    target: float
    optimum: float
    powers: dict[str, float]


def optimal_power(null: FloatArray, truth: FloatArray, alpha: float) -> float:
    """Return the largest power of a randomised test whose level is ``alpha`` under each row of ``null``.

    ``null[truths, outcomes]`` and ``truth[outcomes]`` are probabilities of the same outcomes.

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
    """Return truths with a margin of at most ``target``: the curve of every runner-up, the rest spread in many ways."""
    shifts = 1.0 - np.concatenate([[0.0], np.geomspace(0.01, 0.8, points - 1)])
    truths = truths_on_curve(margin, target, shifts, num_classes)
    orders = sorted(set(permutations(range(1, num_classes)))) if num_classes <= 4 else [range(1, num_classes)]
    return np.unique(np.vstack([truths[:, [0, *order]] for order in orders]), axis=0)


def compare_power(
    bounds: Mapping[str, FloatArray],
    counts: IntArray,
    *,
    margin: MarginKind,
    alpha: float,
    truths: Sequence[ArrayLike],
    reference: str,
    points: int = 40,
) -> list[Power]:
    """Return the power of several bounds, each given as its limits of all ``counts``, at each truth.

    The target at a truth is where the bound ``reference`` has a power of about one half.
    """
    made = []
    for row in truths:
        p = _check_truth(row, counts.shape[1])
        mass = multinomial_pmf(counts, p[None])[0]
        order = np.argsort(-bounds[reference], kind="stable")
        at = min(int(np.searchsorted(np.cumsum(mass[order]), 0.5)), len(order) - 1)
        # Limits may be as large as the target itself with a tie, so the target is put just below.
        target = float(bounds[reference][order][at])
        if not np.isfinite(target):
            continue
        target = min(target, float(true_margin(margin, p[0], p[1:].max()))) - 1e-9
        null = multinomial_pmf(counts, least_favourable(margin, target, counts.shape[1], points))
        powers = {name: float(mass[lows > target].sum()) for name, lows in bounds.items()}
        made.append(Power(tuple(p.tolist()), target, optimal_power(null, mass, alpha), powers))
    return made


def default_truths(num_classes: int) -> list[list[float]]:
    """Return truths for a comparison: easy and hard inputs, with the rest on one class, mostly on one, or on all."""
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
