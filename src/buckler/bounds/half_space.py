"""Any-time likelihood ratios against the null of the probability margin, ``H0(L) = {q : q1 - q2 <= L}``, a half-space.

One pair of classes at a time, as in ``evalues``: a draw is of the first class, of the second, or of neither. With
``v = (1, -1, 0)`` the factor ``1 + lambda (v - L)``, ``0 <= lambda <= 1/(1 + L)``, has mean at most one under every
member of ``H0(L)``. It is also the best factor there is: by the optimality conditions of a half-space an
alternative p projects onto ``q = p / (1 + lambda (v - L))``. So the mixture needs a grid in lambda alone (T16).
"""

from functools import lru_cache

import numpy as np
from scipy.special import xlogy

from buckler.bounds.evalues import (
    POINT_POWER,
    RATIO,
    ROUNDING,
    STEPS,
    Mixture,
    check_distribution,
    check_three,
    divided,
)
from buckler.errors import InvalidInput, check_real, show
from buckler.types import ArrayLike, FloatArray

HALVINGS = 60
"""Of the interval that holds the best lambda: enough for double precision."""

OUTCOMES = np.array([1.0, -1.0, 0.0])


def _check_margin(L: object) -> float:
    number = check_real("L", L)
    if not 0.0 <= number <= 1.0:
        raise InvalidInput(f"L must be from 0 to 1; got {show(L)}")
    return number


def half_space_supremum(a: ArrayLike, L: float) -> FloatArray:
    """Return an upper bound of ``sup of E_q[a] over q1 - q2 <= L`` for factors ``a[..., 3]``, tight to 1e-12.

    **Guarantee.** Never below the exact supremum, for any nonnegative ``a``: floating error is included.

    The mean is linear in q, so its supremum is at an extreme point of the null: the corners ``(0, 1, 0)`` and
    ``(0, 0, 1)``, or where the boundary leaves the simplex, ``((1 + L)/2, (1 - L)/2, 0)`` and ``(L, 0, 1 - L)``.

    >>> print(half_space_supremum([1.5, 0.25, 0.75], 0.5).round(10))
    1.1875
    """
    a1, a2, a3 = np.moveaxis(check_three("a", a), -1, 0)
    L = _check_margin(L)
    edge = np.maximum(0.5 * (a1 * (1.0 + L) + a2 * (1.0 - L)), a1 * L + a3 * (1.0 - L))
    return np.asarray(np.maximum(edge, np.maximum(a2, a3)) * (1.0 + ROUNDING) + 1e-300, dtype=np.float64)


@lru_cache(maxsize=1024)
def half_space_mixture(L: float) -> Mixture:
    """Return the mixture over lambda, placed and weighted along its ray as in ``tangent_mixture``.

    **Guarantee.** For draws with ``q1 - q2 <= L``, ``P(some n >= 1 has log_wealth >= ln(1/alpha)) <= alpha``, for every
    alpha at once: any-time, one-sided, for independent draws (theory T16).

    >>> print(half_space_mixture(0.8).log_wealth([108, 109], [1, 1], [109, 110]).round(4))
    [6.5984 6.6888]
    """
    L = _check_margin(L)
    place = RATIO ** np.arange(STEPS)
    stake = (1.0 - (1.0 - place) ** 2) / (1.0 + L)
    a = np.maximum(1.0 + stake[:, None] * (OUTCOMES - L), 1e-300)
    weights = place**POINT_POWER
    return Mixture(L, divided(a, half_space_supremum(a, L)), np.log(weights / (weights.sum() * (1.0 + 1e-12))))


def _best_growth(p: FloatArray, L: float, furthest: float) -> FloatArray:
    """Return ``max of E_p[ln(1 + lambda (v - L))]`` over lambda from 0 to ``furthest``, by the sign of its slope."""
    ends = np.zeros(p.shape[:-1]), np.full(p.shape[:-1], furthest)
    gain = OUTCOMES - L
    for _ in range(HALVINGS):
        middle = 0.5 * (ends[0] + ends[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(p > 0.0, p * gain / (1.0 + middle[..., None] * gain), 0.0).sum(axis=-1)
        onward = slope * furthest > 0.0
        ends = np.where(onward, middle, ends[0]), np.where(onward, ends[1], middle)
    factors = np.maximum(1.0 + ends[0][..., None] * gain, 0.0)
    return np.asarray(np.maximum(xlogy(p, factors).sum(axis=-1), 0.0), dtype=np.float64)


def kl_to_half_space(p: ArrayLike, L: float) -> FloatArray:
    """Return ``min of KL(p || q) over q1 - q2 <= L`` for ``p[..., 3]``, zero inside: the best growth of a log e-value.

    A plan, not a bound: accurate to about 1e-9, not rounded to a side.

    >>> print(kl_to_half_space([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0]], 0.5).round(6))
    [0.07246 0.     ]
    """
    three, L = check_distribution(p), _check_margin(L)
    return _best_growth(three, L, 1.0 / (1.0 + L))


def kl_beyond_half_space(p: ArrayLike, L: float) -> FloatArray:
    """Return ``min of KL(p || q) over q1 - q2 >= L``, zero where p is there: how far a failure is from the target.

    >>> print(kl_beyond_half_space([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0]], 0.5).round(6))
    [0.       0.054115]
    """
    three, L = check_distribution(p), _check_margin(L)
    return _best_growth(three, L, -1.0 / max(1.0 - L, 1e-9))
