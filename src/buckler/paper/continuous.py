"""The paper's bounds from scores, as printed: the variable Z, two widths with misprints, and the second margin.

First margin: ``Z = X_A - max_j X_j``, whose mean is at most the margin; sound if the width is. Second margin:
``Z = Phi_M^-1(X_A) - max_j Phi_M^-1(X_j)``, whose mean is a mean of quantiles and not the quantile of means that the
radius needs: **unsound**, whatever the width.
"""

from collections.abc import Callable
from math import log
from typing import Literal

import numpy as np

from buckler.bounds.bounded import check_draws, check_range
from buckler.certify.budget import split
from buckler.certify.margins import margin_from_limits
from buckler.certify.methods import Draws
from buckler.errors import check_alpha
from buckler.paper.quantile import published_quantile
from buckler.types import ArrayLike, FloatArray, MarginKind

PublishedLimit = Literal["sequence", "bernstein"]
LARGEST_BET = 0.5


def published_bernstein_lower(
    x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, *, corrected: bool = False
) -> FloatArray:
    """Return the paper's empirical Bernstein bound (its first Proposition), for ``x`` of shape [n] or [n, columns].

    ``mean - sqrt(2 V ln(1/alpha)/n) - 7 (high - low) ln(1/alpha) / (3 (n - 1))``. The theorem it cites has
    ``ln(2/alpha)``, used if ``corrected``. Not rounded outward.

    >>> round(float(published_bernstein_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.699834
    """
    left, right = check_range(low, high)
    draws = check_draws(x, left, right, least=2)
    n = draws.shape[1]
    cost = log((2.0 if corrected else 1.0) / check_alpha(alpha))
    width = np.sqrt(2.0 * draws.var(axis=1, ddof=1) * cost / n) + 7.0 * (right - left) * cost / (3.0 * (n - 1))
    return np.asarray((draws.mean(axis=1) - width).reshape(np.shape(x)[1:]), dtype=np.float64)


def published_sequence_lower(
    x: ArrayLike, alpha: float, low: float = 0.0, high: float = 1.0, *, corrected: bool = False
) -> FloatArray:
    """Return the lower end of the paper's PrPl-EB interval (its second Proposition) after the last draw.

    ``(sum l_i X_i)/(sum l_i) - sqrt((2 ln(2/alpha) + sum v_i psi(l_i)) / sum l_i)`` with the draws scaled to [0, 1].
    The theorem it cites has ``(ln(2/alpha) + sum v_i psi(l_i)) / sum l_i``, used if ``corrected``. Bets, variances and
    psi, for which the paper points to a missing equation, are those of that theorem: ``v_i = 4 (X_i - mu_{i-1})^2``,
    ``l_i = min(1/2, sqrt(2 ln(2/alpha) / (s2_{i-1} i ln(1 + i))))``, ``psi(l) = (-ln(1 - l) - l)/4``.

    >>> round(float(published_sequence_lower(np.tile([0.8, 1.0], 50), 0.001)), 6)
    0.344112
    """
    left, right = check_range(low, high)
    y = (check_draws(x, left, right) - left) / (right - left)
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


LIMITS: dict[str, Callable[..., FloatArray]] = {
    "sequence": published_sequence_lower,
    "bernstein": published_bernstein_lower,
}


def published_margin_variable(
    a: FloatArray, strongest: FloatArray, margin: MarginKind = "quantile", order: int = 10
) -> tuple[FloatArray, float]:
    """Return the paper's ``Z`` for each draw, from the scores of A and the largest other ones, and the b with |Z| <= b.

    >>> published_margin_variable(np.array([1.0]), np.array([0.0]))[0].round(4)
    array([4.5624])
    """
    if margin == "probability":
        return a - strongest, 1.0
    largest = 2.0 * float(published_quantile(1.0, order))
    return published_quantile(a, order) - published_quantile(strongest, order), largest


def published_scores_margin_lower(
    draws: Draws, alpha: float, margin: MarginKind, *, limit: PublishedLimit, corrected: bool, order: int = 10
) -> float:
    """Return the paper's bound of the margin from the scores of one input. **No guarantee.**

    The limit of the mean of Z at level alpha; for the second margin, where the mean of X_A is below 1/2, Algorithm 3
    instead. ``corrected`` takes the width from the theorem that the paper cites rather than as it prints it: its tables
    fit that, and only the first margin becomes sound by it.

    >>> rows = np.tile([[0.98, 0.01, 0.01], [0.6, 0.4, 0.0]], (150, 1))
    >>> draws = Draws(rows[:, 0], rows[:, 1:].T, np.zeros((2, 0)), 3)
    >>> round(published_scores_margin_lower(draws, 1e-3, "quantile", limit="bernstein", corrected=False), 4)
    1.4136
    """
    if margin == "quantile" and draws.a.mean() < 0.5:
        return published_bonferroni_lower(draws, alpha, margin, limit=limit, corrected=corrected)
    z, bound = published_margin_variable(draws.a, draws.rivals.max(axis=0), margin, order)
    return float(LIMITS[limit](np.clip(z, -bound, bound), alpha, -bound, bound, corrected=corrected))


def published_bonferroni_lower(
    draws: Draws, alpha: float, margin: MarginKind, *, limit: PublishedLimit, corrected: bool
) -> float:
    """Return the paper's baseline, its Algorithm 3, from the scores of one input: every class mean at ``alpha/m``."""
    lower, share = LIMITS[limit], split(alpha, draws.num_classes)
    low = np.clip(lower(draws.a, share, corrected=corrected), 0.0, 1.0)
    high = np.clip(1.0 - lower(1.0 - draws.rivals.T, share, corrected=corrected).min(), 0.0, 1.0)
    return float(margin_from_limits(margin, low, high))
