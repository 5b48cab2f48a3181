"""The paper's estimators as printed: bounds of the margin from votes or scores, its first radius, and their names.

**No guarantee.** From votes (Algorithms 4, 5 and 6) the margin L is accepted while
``inf {Pi(theta~ | q) : g(q) <= L} >= 1 - alpha``, that is while ``P_q(g(X/n) > theta~) <= alpha`` for all those q. A
lower limit needs ``>=`` there: with the strict inequality the outcome (n, 0) accepts every L.

From scores, first margin: ``Z = X_A - max_j X_j``, whose mean is at most the margin; sound if the width is, and both
printed widths have misprints. Second margin: ``Z = Phi_M^-1(X_A) - max_j Phi_M^-1(X_j)``, whose mean is a mean of
quantiles and not the quantile of means that the radius needs: **unsound**, whatever the width. There are three ways,
each with the width of a ``sequence`` or of ``bernstein``: ``published``, the variable Z with the width that the paper
prints; ``cited``, the same with the width of the theorem it cites; ``baseline``, its Algorithm 3 with the latter.

``METHODS`` has all of these by name, so that they can be audited and compared: none may certify.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from math import inf, log, nextafter, pi, sqrt
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtri

from buckler.bounds.binomial import clopper_pearson_lower, clopper_pearson_upper
from buckler.bounds.means import check_draws
from buckler.certify.budget import split_alpha
from buckler.certify.methods import Method, Reads, ScoreDraws, Votes, find
from buckler.certify.votes import check_votes, margin_from_limits
from buckler.certify.votes import margin as margin_of
from buckler.errors import check_alpha, check_choice, check_positive, check_whole
from buckler.noise.gaussian import RADIUS_ROUNDING, SMALLEST_RADIUS
from buckler.paper.signomial import (
    SignomialProgram,
    curve_infimum,
    frequency_terms,
    published_counted,
    published_program,
    published_quantile,
    published_starts,
    upper_region,
)
from buckler.types import ArrayLike, FloatArray, MarginKind

Solver = Literal["curve", "signomial", "fast"]
Estimate = Literal["taylor", "exact"]
Solve = Callable[[float], float]
PublishedLimit = Literal["sequence", "bernstein"]

PRINTED_EPSILON = 1e-3
"""Width of the interval at which the paper's bisections stop, its epsilon: a tenth of its curves' spacing of points."""

LARGEST_BET = 0.5
"""Largest bet of the sequence whose width ``published_sequence_lower`` has."""


def published_bisection(solve: Solve, estimate: float, alpha: float, tolerance: float = PRINTED_EPSILON) -> float:
    """Return the paper's bound of the margin by bisection, its Algorithm 4.

    ``solve(L)``, its SolveSignomial, is the least probability, under a margin of at most L, of an estimate as large as
    ``estimate`` or smaller; L is accepted where that is at least ``1 - alpha``. The search goes from 0 to ``estimate``
    and returns 0 when nothing was accepted, whatever the truth. It stops at intervals of width ``tolerance``.
    """
    return published_fast_bisection(solve, solve, estimate, alpha, tolerance)


def published_fast_bisection(
    solve: Solve, fast_solve: Solve, estimate: float, alpha: float, tolerance: float = PRINTED_EPSILON
) -> float:
    """Return the paper's bound of the margin by its Algorithm 5, a faster ``published_bisection``.

    It calls ``fast_solve(L)`` until that first accepts an L, and ``solve(L)`` from then on. The first acceptance rests
    on a value that is too large unless the one local search of ``fast_solve`` found the infimum.
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
    tolerance: float = PRINTED_EPSILON,
    inclusive: bool = False,
) -> FloatArray:
    """Return the paper's bound of the margin, as printed, of a class with ``top`` of ``n`` votes over ``runner_up``.

    **No guarantee**: it is false too often. The three arrays broadcast.

    Probability margin: Algorithm 4 (``solver="signomial"``) or 5 (``"fast"``). Quantile margin: Algorithm 6 with the
    Taylor series ``Phi_M^-1`` of the normal quantile, of order M = ``order``, and the same two solvers. ``"curve"`` is
    Algorithm 4 with the same infimum found along the boundary of the feasible set, in much less time. ``estimate`` says
    how the estimated margin is computed in Algorithm 6: from ``Phi_M^-1`` ("taylor"), as the redefined Pi does and the
    paper's tables fit, or from ``Phi^-1`` ("exact"), as its line prints; then +inf is returned wherever runner_up is 0.
    ``tolerance`` is the width of interval at which bisection stops. ``inclusive`` mends the strict inequality alone, to
    show what else is wrong.

    >>> published_margin_lower([100, 98, 55], [0, 1, 30], 100).round(4)
    array([ 4.5618,  2.6959, -0.2151])
    """
    check_choice("margin", margin, get_args(MarginKind))
    check_choice("solver", solver, get_args(Solver))
    check_choice("estimate", estimate, get_args(Estimate))
    level, width, M = check_alpha(alpha), check_positive("tolerance", tolerance), check_whole("order", order, 0)
    votes = check_votes(top, runner_up, n)
    outcomes = zip(*(each.ravel().tolist() for each in votes), strict=True)
    values = [_margin_lower(*outcome, level, margin, M, solver, estimate, width, inclusive) for outcome in outcomes]
    return np.array(values, dtype=np.float64).reshape(votes[0].shape)


@lru_cache(maxsize=1 << 16)
def _margin_lower(
    x1: int,
    x2: int,
    n: int,
    alpha: float,
    margin: MarginKind,
    order: int,
    solver: Solver,
    estimate: Estimate,
    tolerance: float,
    inclusive: bool,
) -> float:
    if margin == "quantile":
        share = split_alpha(alpha, 2)
        low = clopper_pearson_lower(x1, n, share)
        if not low > 0.5:
            return float(margin_from_limits(margin, low, clopper_pearson_upper(x2, n, share)))
    terms = frequency_terms(n, margin, order)
    theta = float(terms[x1] - terms[x2])
    if margin == "quantile" and estimate == "exact":
        theta = float(ndtri(x1 / n) - ndtri(x2 / n))
        if theta == np.inf:
            return theta
    counted = published_counted(theta, n, margin, order, inclusive=inclusive)
    region, starts = upper_region(counted, n), published_starts(x1, x2, n, margin)

    def program(L: float) -> SignomialProgram:
        return published_program(counted, n, L, margin, order)

    solvers: dict[Solver, Solve] = {
        "curve": lambda L: curve_infimum(region, L, margin, order, below=1.0 - alpha),
        "signomial": lambda L: program(L).solve(starts),
        "fast": lambda L: program(L).fast_solve(starts[0]),
    }
    slow = solvers["signomial" if solver == "fast" else solver]
    return published_fast_bisection(slow, solvers[solver], theta, alpha, tolerance)


def published_bernstein_lower(
    x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, *, corrected: bool = False
) -> FloatArray:
    """Return the paper's empirical Bernstein bound (its first Proposition) of each column's mean, not rounded outward.

    Draws ``x``, ``[n]`` or ``[n, columns]``, lie in [low, high]. With V their unbiased variance it is
    ``mean - sqrt(2 V ln(1/alpha)/n) - 7 (high - low) ln(1/alpha) / (3 (n - 1))``. The theorem it cites has
    ``ln(2/alpha)``, used if ``corrected``.

    >>> round(float(published_bernstein_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.699834
    """
    draws, left, right = check_draws(x, low, high, least=2)
    n = draws.shape[1]
    cost = log((2.0 if corrected else 1.0) / check_alpha(alpha))
    width = np.sqrt(2.0 * draws.var(axis=1, ddof=1) * cost / n) + 7.0 * (right - left) * cost / (3.0 * (n - 1))
    return np.asarray((draws.mean(axis=1) - width).reshape(np.shape(x)[1:]), dtype=np.float64)


def published_sequence_lower(
    x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, *, corrected: bool = False
) -> FloatArray:
    """Return the lower end of the paper's PrPl-EB interval (its second Proposition) for each column's mean.

    Draws ``x``, ``[n]`` or ``[n, columns]``, lie in [low, high]; the interval is the one after the last draw:
    ``(sum l_i X_i)/(sum l_i) - sqrt((2 ln(2/alpha) + sum v_i psi(l_i)) / sum l_i)`` with the draws scaled to [0, 1].
    The theorem it cites has ``(ln(2/alpha) + sum v_i psi(l_i)) / sum l_i``, used if ``corrected``. Bets, variances and
    psi, for which the paper points to a missing equation, are those of that theorem: ``v_i = 4 (X_i - mu_{i-1})^2``,
    ``l_i = min(1/2, sqrt(2 ln(2/alpha) / (s2_{i-1} i ln(1 + i))))``, ``psi(l) = (-ln(1 - l) - l)/4``.

    >>> round(float(published_sequence_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.344112
    """
    draws, left, right = check_draws(x, low, high)
    y = (draws - left) / (right - left)
    cost = log(2.0 / check_alpha(alpha))
    i = np.arange(1, y.shape[1] + 1)
    means = (0.5 + np.cumsum(y, axis=1)) / (i + 1)
    before = np.hstack([np.full((len(y), 1), 0.5), means[:, :-1]])
    variances = (0.25 + np.cumsum((y - means) ** 2, axis=1)) / (i + 1)
    variances_before = np.hstack([np.full((len(y), 1), 0.25), variances[:, :-1]])
    bets = np.minimum(LARGEST_BET, np.sqrt(2.0 * cost / (variances_before * i * np.log1p(i))))
    spread = (4.0 * (y - before) ** 2 * (-np.log1p(-bets) - bets) / 4.0).sum(axis=1)
    total = bets.sum(axis=1)
    width = (cost + spread) / total if corrected else np.sqrt((2.0 * cost + spread) / total)
    limits = left + (right - left) * ((bets * y).sum(axis=1) / total - width)
    return np.asarray(limits.reshape(np.shape(x)[1:]), dtype=np.float64)


WIDTHS: dict[str, Callable[..., FloatArray]] = {
    "sequence": published_sequence_lower,
    "bernstein": published_bernstein_lower,
}


def published_margin_variable(
    a: FloatArray, strongest: FloatArray, margin: MarginKind = "quantile", order: int = 10
) -> tuple[FloatArray, float]:
    """Return the paper's variable Z for each draw, and the largest value b that its magnitude can have.

    ``a`` are the scores of the class, ``strongest`` the largest of any other class in the same draw. Z is their
    difference ("probability"), or that of ``Phi_M^-1`` of both, M = ``order`` ("quantile").

    >>> published_margin_variable(np.array([1.0]), np.array([0.0]))[0].round(4)
    array([4.5624])
    """
    if margin == "probability":
        return a - strongest, 1.0
    largest = 2.0 * float(published_quantile(1.0, order))
    return published_quantile(a, order) - published_quantile(strongest, order), largest


def published_scores_margin_lower(
    draws: ScoreDraws, alpha: float, margin: MarginKind, *, limit: PublishedLimit, corrected: bool, order: int = 10
) -> float:
    """Return the paper's bound of the margin from the scores of one input. **No guarantee.**

    It is the limit of the mean of Z (``published_margin_variable``) at level alpha, by the paper's ``limit``; for the
    quantile margin, where the class's mean score is below 1/2, its Algorithm 3 instead. ``corrected`` takes the limit's
    width from the theorem that the paper cites rather than as it prints it: its tables fit that, and only the
    probability margin becomes sound by it.

    >>> rows = np.tile([[0.98, 0.01, 0.01], [0.6, 0.4, 0.0]], (150, 1))
    >>> draws = ScoreDraws(rows[:, 0], rows[:, 1:].T, np.zeros((2, 0)), 3)
    >>> round(published_scores_margin_lower(draws, 1e-3, "quantile", limit="bernstein", corrected=False), 4)
    1.4136
    """
    if margin == "quantile" and draws.a.mean() < 0.5:
        return published_bonferroni_lower(draws, alpha, margin, limit=limit, corrected=corrected)
    z, bound = published_margin_variable(draws.a, draws.rivals.max(axis=0), margin, order)
    return float(WIDTHS[limit](np.clip(z, -bound, bound), alpha, -bound, bound, corrected=corrected))


def published_bonferroni_lower(
    draws: ScoreDraws, alpha: float, margin: MarginKind, *, limit: PublishedLimit, corrected: bool
) -> float:
    """Return the paper's baseline bound of the margin, its Algorithm 3, from the scores of one input.

    It bounds the mean score of each of the m classes at level ``alpha/m``, by the paper's ``limit``; ``corrected`` is
    that of ``published_scores_margin_lower``.
    """
    lower, share = WIDTHS[limit], split_alpha(alpha, draws.num_classes)
    low = np.clip(lower(draws.a, share, corrected=corrected), 0.0, 1.0)
    high = np.clip(1.0 - lower(1.0 - draws.rivals.T, share, corrected=corrected).min(), 0.0, 1.0)
    return float(margin_from_limits(margin, low, high))


def lipschitz_radius(margin: float, sigma: float, lipschitz: float | None = None) -> float:
    """Return the paper's radius from a probability margin, rounded down; 0.0 if the margin is not positive.

    It is ``margin / (sqrt(2) L)`` with L the l2-Lipschitz constant of the smoothed soft classifier. Any map into the
    simplex smoothed with sigma has ``L <= 1 / (sigma sqrt(pi))``, so the radius is at least ``sigma sqrt(pi / 2)
    margin`` (T1); the radius that ``Gaussian`` noise gives for this margin is never below that.

    ``lipschitz`` is a known l2 constant of the *soft* base classifier (softmax at temperature T included, not of its
    logits): smoothing does not raise it, so the smaller of both constants is used.

    >>> lipschitz_radius(0.5, 1.0) < lipschitz_radius(0.5, 1.0, lipschitz=0.1) < 0.5 / (2**0.5 * 0.1)
    True
    """
    if not margin > 0.0:
        return 0.0
    slope = 1.0 / (sigma * sqrt(pi))
    if lipschitz is not None:
        slope = min(slope, check_positive("lipschitz", lipschitz))
    radius = nextafter(margin / (sqrt(2.0) * slope), -inf) * RADIUS_ROUNDING
    return radius if radius >= SMALLEST_RADIUS else 0.0


def published(votes: Votes, alpha: float, margin: MarginKind) -> FloatArray:
    """Return the paper's bound of each input's margin by its Algorithms 4 and 6 as printed: **no guarantee**."""
    return published_margin_lower(votes.top, votes.runner_up, votes.n, alpha=alpha, margin=margin)


WAYS = {
    "published": (published_scores_margin_lower, False, "the paper's variable Z, with the width it prints"),
    "cited": (published_scores_margin_lower, True, "the paper's variable Z, with the width of the theorem it cites"),
    "baseline": (published_bonferroni_lower, True, "the paper's Algorithm 3, with the width of the theorem it cites"),
}

_METHODS = (
    Method("published", "votes", published, "the paper's Algorithms 4 and 6 as printed, for reproduction alone"),
    *(
        Method(f"{way}/{limit}", "scores", partial(rule, limit=limit, corrected=cited), summary)
        for (way, (rule, cited, summary)), limit in product(WAYS.items(), get_args(PublishedLimit))
    ),
)
METHODS = {method.name: method for method in _METHODS}


def method_of(name: str) -> Method:
    """Return the method of that name: one of the paper's, or one that ``certify.methods`` knows."""
    return METHODS[name] if name in METHODS else find(name)


PROVED_MARGINS: dict[str, tuple[MarginKind, ...]] = {
    "published/sequence": ("probability",),
    "cited/sequence": ("probability",),
    "cited/bernstein": ("probability",),
    "baseline/sequence": ("probability", "quantile"),
    "baseline/bernstein": ("probability", "quantile"),
}
"""Margins of which an estimator of the paper, by name, is a lower limit at level alpha all the same, rounding aside.

The mean of the paper's Z is at most the first margin, so any valid width gives a limit of that: the widths of the
theorems, and the printed one of the sequence, which wherever it is not vacuous is the wider. None gives a limit of the
second margin.
"""


def is_limit(method: Method, margin: MarginKind) -> bool:
    """Return whether the number that a method returns is a lower limit, at level alpha, of this kind of margin."""
    return method.sound or margin in PROVED_MARGINS.get(method.name, ())


def _of_frequencies(votes: Votes, _: float, margin: MarginKind) -> FloatArray:
    return margin_of(margin, votes.top / votes.n, votes.runner_up / votes.n)


def _of_means(draws: ScoreDraws, _: float, margin: MarginKind) -> float:
    return float(margin_of(margin, draws.a.mean(), np.max(draws.rivals.mean(axis=1))))


ESTIMATES: dict[Reads, Method] = {
    "votes": Method("estimate", "votes", _of_frequencies, "the margin of the frequencies, no limit"),
    "scores": Method("estimate", "scores", _of_means, "the margin of the mean scores, no limit"),
}
"""Margins of the observed frequencies or mean scores: estimates for comparison, not registered as bounds."""
