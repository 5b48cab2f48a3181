"""Algorithms 4, 5 and 6 of the paper, as printed: a bound of the margin from counts, without a guarantee.

The observed estimate is ``theta~ = g(x/n)`` and its law ``Pi(theta~ | q) = P_q(g(X/n) <= theta~)``. The margin L is
accepted while ``inf {Pi(theta~ | q) : g(q) <= L} >= 1 - alpha``, that is while ``P_q(g(X/n) > theta~) <= alpha`` for
all those q. A lower limit needs ``>=`` there: with the strict inequality the outcome (n, 0) accepts every L.

First margin: ``g = q1 - q2`` over the whole simplex. Second margin: ``g = Phi_M^-1(q1) - Phi_M^-1(q2)`` over
``chi^2 = {q1 >= 1/2}``, which is what Algorithm 6 asks of its Clopper-Pearson gate and where the paper compares
``Phi_M^-1`` with ``Phi^-1``.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import gammaln, ndtri

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.certify.budget import split
from buckler.certify.margins import margin_from_limits
from buckler.certify.votes import check_votes
from buckler.errors import check_alpha, check_choice, check_positive, check_whole
from buckler.paper.curve import curve_infimum, upper_region
from buckler.paper.quantile import odd_series, series
from buckler.paper.signomial import Constraint, Monomial, Signomial, SignomialProgram
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

Solver = Literal["curve", "signomial", "fast"]
Estimate = Literal["taylor", "exact"]
Solve = Callable[[float], float]

LATTICE = 8
"""SolveSignomial starts from the observed frequencies and from the inner points of this lattice of the simplex."""


TOLERANCE = 1e-3
"""Where the bisections end, the paper's epsilon: a tenth of what separates two points of its curves."""


def published_bisection(solve: Solve, estimate: float, alpha: float, tolerance: float = TOLERANCE) -> float:
    """Return the bound of Algorithm 4, ``solve`` being SolveSignomial(L) and ``estimate`` being theta~.

    It starts at left = 0 and returns left: 0 when nothing was accepted, whatever the truth.
    """
    return published_fast_bisection(solve, solve, estimate, alpha, tolerance)


def published_fast_bisection(
    solve: Solve, fast_solve: Solve, estimate: float, alpha: float, tolerance: float = TOLERANCE
) -> float:
    """Return the bound of Algorithm 5: ``fast_solve`` until it first accepts, ``solve`` from then on.

    The first acceptance rests on a value that is too large unless the one local search found the infimum.
    """
    left, right, close = 0.0, estimate, False
    while right - left > tolerance:
        L = (right + left) / 2.0
        solution = solve(L) if close else fast_solve(L)
        if solution < 1.0 - alpha:
            right = L
        else:
            close = True
            left = L
    return left


def published_counted(theta: float, n: int, margin: MarginKind, order: int, *, inclusive: bool = False) -> IntArray:
    """Return for each x2 = 0 .. n how many ``x1 = 0, 1, ...`` belong to the event of Pi: ``g(x/n) <= theta``.

    If ``inclusive``, ``g(x/n) < theta``: ties count in the tail beyond, as a lower limit needs.
    """
    values = _frequency_terms(n, margin, order)
    if margin == "probability":  # whole numbers, in which ties are exact
        values, theta = np.arange(n + 1.0), float(round(theta * n))
    counted = np.searchsorted(values, values + theta)
    # The sum rounds; the difference is what theta~ was computed as, so that the observed outcome ties with itself.
    for _ in range(2):
        gap = values[np.minimum(counted, n)] - values
        counted += (counted <= n) & (gap < theta if inclusive else gap <= theta)
    gap = values[np.maximum(counted - 1, 0)] - values
    counted -= (counted > 0) & (gap >= theta if inclusive else gap > theta)
    return np.minimum(counted, n + 1 - np.arange(n + 1))


def published_program(counted: IntArray, n: int, L: float, margin: MarginKind, order: int = 10) -> SignomialProgram:
    """Return the paper's programme: minimise ``Pi(theta~ | q)`` subject to ``g(q) <= L`` on the simplex.

    The first margin has the variables q1, q2, q3. The second has also ``u1 = 2 q1 - 1`` and ``u2 = 1 - 2 q2``,
    positive on chi^2, in which the Taylor constraint ``L - sum a_k u1^(2k+1) - sum a_k u2^(2k+1) >= 0`` is a signomial
    of 2M + 3 terms; multiplied out in q1 and q2 it would lose all digits by order 25.
    """
    second = margin == "quantile"
    v = 5 if second else 3
    x2 = np.repeat(np.arange(n + 1), counted)
    x1 = np.concatenate([np.arange(k) for k in counted.tolist()])
    x = np.column_stack([x1, x2, n - x1 - x2]).astype(np.float64)
    objective = Signomial(
        np.ones(len(x)), gammaln(n + 1.0) - gammaln(x + 1.0).sum(axis=1), np.hstack([x, np.zeros((len(x), v - 3))])
    )

    def power(coefficient: float, variable: int | None = None, exponent: float = 1.0) -> Monomial:
        return Monomial(coefficient, tuple(exponent if k == variable else 0.0 for k in range(v)))

    level = [(1 if L > 0 else -1, power(abs(L)))] if L != 0.0 else []
    simplex = Signomial.of([(1, power(1.0, 0)), (1, power(1.0, 1)), (1, power(1.0, 2)), (-1, power(1.0))])
    if not second:
        below = Signomial.of([*level, (-1, power(1.0, 0)), (1, power(1.0, 1))])
        return SignomialProgram(objective, (Constraint(below), Constraint(simplex, equality=True)))
    taylor = [(-1, power(a, u, 2 * k + 1)) for u in (3, 4) for k, a in enumerate(series(order))]
    u1 = Signomial.of([(1, power(2.0, 0)), (-1, power(1.0)), (-1, power(1.0, 3))])
    u2 = Signomial.of([(1, power(1.0)), (-1, power(2.0, 1)), (-1, power(1.0, 4))])
    constraints = (
        Constraint(Signomial.of([*level, *taylor])),
        *(Constraint(f, equality=True) for f in (simplex, u1, u2)),
    )
    return SignomialProgram(objective, constraints)


def published_margin_lower(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    order: int = 10,
    solver: Solver = "curve",
    estimate: Estimate = "taylor",
    tolerance: float = TOLERANCE,
    inclusive: bool = False,
) -> FloatArray:
    """Return the paper's bound of the margin as printed; arrays broadcast. **No guarantee**: it is false too often.

    First margin: Algorithm 4 (``solver="signomial"``) or 5 (``"fast"``). Second margin: Algorithm 6 with the Taylor
    series of order M = ``order`` and the same two solvers. ``"curve"`` is Algorithm 4 with the same infimum found along
    the boundary of the feasible set, in much less time. ``estimate`` says how theta~ is computed in Algorithm
    6: from ``Phi_M^-1``, as the redefined Pi does and the paper's tables fit, or from ``Phi^-1``, as its line prints;
    then +inf is returned wherever runner_up is 0. ``inclusive`` mends the strict inequality alone, to show what else
    is wrong.

    >>> published_margin_lower([100, 98, 55], [0, 1, 30], 100).round(4)
    array([ 4.5618,  2.6959, -0.2151])
    """
    check_choice("margin", margin, get_args(MarginKind))
    check_choice("solver", solver, get_args(Solver))
    check_choice("estimate", estimate, get_args(Estimate))
    level, width, M = check_alpha(alpha), check_positive("tolerance", tolerance), check_whole("order", order, 0)
    votes = check_votes(top, runner_up, n)
    how = _How(level, margin, M, solver, estimate, width, inclusive)
    values = [_margin_lower(*outcome, how) for outcome in zip(*(each.ravel().tolist() for each in votes), strict=True)]
    return np.array(values, dtype=np.float64).reshape(votes[0].shape)


class _How(NamedTuple):
    alpha: float
    margin: MarginKind
    order: int
    solver: Solver
    estimate: Estimate
    tolerance: float
    inclusive: bool


@lru_cache(maxsize=1 << 16)
def _margin_lower(x1: int, x2: int, n: int, how: _How) -> float:
    alpha, margin, order, solver = how[:4]
    if margin == "quantile":
        share = split(alpha, 2)
        low = clopper_pearson_lower(x1, n, share)
        if not low > 0.5:
            return float(margin_from_limits(margin, low, clopper_pearson_upper(x2, n, share)))
    terms = _frequency_terms(n, margin, order)
    theta = float(terms[x1] - terms[x2])
    if margin == "quantile" and how.estimate == "exact":
        theta = float(ndtri(x1 / n) - ndtri(x2 / n))
        if theta == np.inf:
            return theta
    counted = published_counted(theta, n, margin, order, inclusive=how.inclusive)
    region, starts = upper_region(counted, n), published_starts(x1, x2, n, margin)

    def program(L: float) -> SignomialProgram:
        return published_program(counted, n, L, margin, order)

    solvers: dict[Solver, Solve] = {
        "curve": lambda L: curve_infimum(region, L, margin, order, below=1.0 - alpha),
        "signomial": lambda L: program(L).solve(starts),
        "fast": lambda L: program(L).fast_solve(starts[0]),
    }
    slow = solvers["signomial" if solver == "fast" else solver]
    return published_fast_bisection(slow, solvers[solver], theta, alpha, how.tolerance)


@lru_cache(maxsize=64)
def _frequency_terms(n: int, margin: MarginKind, order: int) -> FloatArray:
    """Return the h with ``g(x/n) = h[x1] - h[x2]``: k/n, or Phi_M^-1(k/n)."""
    k = np.arange(n + 1)
    return k / n if margin == "probability" else odd_series((2 * k - n) / n, order)


def published_starts(x1: int, x2: int, n: int, margin: MarginKind) -> list[FloatArray]:
    """Return where SolveSignomial starts; FastSolveSignomial starts at the first, the observed frequencies."""
    observed = (np.array([x1, x2, n - x1 - x2]) + 0.5) / (n + 1.5)
    inner = range(1, LATTICE)
    lattice = [np.array([i, j, LATTICE - i - j]) / LATTICE for i in inner for j in inner if i + j < LATTICE]
    points = [observed, *lattice]
    return points if margin == "probability" else [np.append(q, [2 * q[0] - 1, 1 - 2 * q[1]]) for q in points]
