"""The paper's bounds from scores, as printed: the variable Z, two widths with misprints, and the second margin.

First margin: ``Z = X_A - max_j X_j``, whose mean is at most the margin; sound if the width is. Second margin:
``Z = Phi_M^-1(X_A) - max_j Phi_M^-1(X_j)``, whose mean is a mean of quantiles and not the quantile of means that the
radius needs: **unsound**, whatever the width.
"""

from collections.abc import Callable
from math import log
from typing import Literal, get_args

import numpy as np

from buckler.bounds.bounded import check_draws, check_range
from buckler.certify.budget import split
from buckler.certify.margins import margin_from_limits
from buckler.certify.published.quantile import published_quantile
from buckler.errors import InvalidInput, check_alpha, check_choice, check_float_array, check_label, check_whole
from buckler.records import ROW_SUM_TOLERANCE
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

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
    scores: ArrayLike, label: ArrayLike, margin: MarginKind = "quantile", order: int = 10
) -> tuple[FloatArray, float]:
    """Return the paper's ``Z`` for each row of ``scores [n, m]`` or ``[inputs, n, m]``, and the b with Z in [-b, b].

    >>> published_margin_variable([[1.0, 0.0, 0.0]], 0)[0].round(4)
    array([4.5624])
    """
    rows = np.asarray(scores, dtype=np.float64)
    column = np.asarray(label)[..., None, None]
    of_a = np.take_along_axis(rows, column, axis=-1)[..., 0]
    others = np.where(np.arange(rows.shape[-1]) == column, -np.inf, rows).max(axis=-1)
    if margin == "probability":
        return of_a - others, 1.0
    largest = 2.0 * float(published_quantile(1.0, order))
    return published_quantile(of_a, order) - published_quantile(others, order), largest


def published_scores_margin_lower(
    scores: ArrayLike,
    label: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    order: int = 10,
    limit: PublishedLimit = "sequence",
    corrected: bool = False,
    num_classes: int | None = None,
) -> FloatArray:
    """Return the paper's bound of the margin from scores ``[n, m]`` or ``[inputs, n, m]``. **No guarantee.**

    The limit of the mean of Z at level alpha; for the second margin, where the mean of X_A is below 1/2, Algorithm 3
    instead (every class mean at ``alpha/m``). ``corrected`` takes both widths from the theorems that the paper cites
    rather than as it prints them: its tables fit those, and only the first margin becomes sound by it. If
    ``num_classes`` is given, m is that, and a column may stand for several classes with the same scores.

    >>> rows = np.tile([[0.98, 0.01, 0.01], [0.6, 0.4, 0.0]], (150, 1))
    >>> float(published_scores_margin_lower(rows, 0, limit="bernstein").round(4))
    1.4136
    """
    check_choice("margin", margin, get_args(MarginKind))
    check_choice("limit", limit, get_args(PublishedLimit))
    level, M = check_alpha(alpha), check_whole("order", order, 0)
    batch, labels = _check_batch(scores, label, num_classes)
    of_a = np.take_along_axis(batch, labels[:, None, None], axis=2)[..., 0]
    fallback = (of_a.mean(axis=1) < 0.5) & (margin == "quantile")
    lows = np.empty(len(batch))
    if fallback.any():
        lows[fallback] = _bonferroni(batch[fallback], labels[fallback], level, margin, limit, corrected, num_classes)
    if not fallback.all():
        z, bound = published_margin_variable(batch[~fallback], labels[~fallback], margin, M)
        lows[~fallback] = LIMITS[limit](np.clip(z, -bound, bound).T, level, -bound, bound, corrected=corrected)
    return lows.reshape(np.shape(scores)[:-2])


def published_bonferroni_lower(
    scores: ArrayLike,
    label: ArrayLike,
    *,
    alpha: float = 1e-3,
    margin: MarginKind = "quantile",
    limit: PublishedLimit = "sequence",
    corrected: bool = False,
    num_classes: int | None = None,
) -> FloatArray:
    """Return the paper's baseline, its Algorithm 3, from scores ``[n, m]`` or ``[inputs, n, m]``.

    Every class mean has a limit at ``alpha/m``; ``num_classes`` as in ``published_scores_margin_lower``.

    >>> rows = np.tile([[0.98, 0.01, 0.01], [0.6, 0.4, 0.0]], (150, 1))
    >>> float(published_bonferroni_lower(rows, 0, limit="bernstein").round(4))
    0.9661
    """
    check_choice("limit", limit, get_args(PublishedLimit))
    batch, labels = _check_batch(scores, label, num_classes)
    lows = _bonferroni(batch, labels, alpha, margin, limit, corrected, num_classes)
    return lows.reshape(np.shape(scores)[:-2])


def _bonferroni(
    batch: FloatArray,
    labels: IntArray,
    alpha: float,
    margin: MarginKind,
    limit: PublishedLimit,
    corrected: bool,
    num_classes: int | None,
) -> FloatArray:
    lower, (inputs, n, m) = LIMITS[limit], batch.shape
    share, rows = split(alpha, num_classes or m), np.arange(inputs)
    low = np.clip(lower(batch[rows, :, labels].T, share, corrected=corrected), 0.0, 1.0)
    columns = (1.0 - batch).transpose(1, 0, 2).reshape(n, inputs * m)
    high = np.clip(1.0 - lower(columns, share, corrected=corrected), 0.0, 1.0).reshape(inputs, m)
    high[rows, labels] = 0.0
    return margin_from_limits(margin, low, high.max(axis=1))


def _check_batch(scores: ArrayLike, label: ArrayLike, num_classes: int | None) -> tuple[FloatArray, IntArray]:
    """Return scores as ``[inputs, n, columns]`` and one label for each input."""
    values = check_float_array("scores", scores)
    if values.ndim not in {2, 3} or 0 in values.shape or values.shape[-1] < 2:
        raise InvalidInput(f"scores must have shape [n, m] or [inputs, n, m] with m >= 2; got shape {values.shape}")
    excess = values.sum(axis=-1) - 1.0
    if values.min() < 0.0 or (np.abs(excess) if num_classes is None else excess).max() > ROW_SUM_TOLERANCE:
        raise InvalidInput(f"scores must be nonnegative and sum to one within {ROW_SUM_TOLERANCE}")
    labels = np.atleast_1d(check_label(label, values.shape[-1], None if values.ndim == 2 else len(values)))
    return np.minimum(values if values.ndim == 3 else values[None], 1.0), labels
