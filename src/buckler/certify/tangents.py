"""The second margin through tangents: from a mean of ``X_A - c X_j`` to a limit of ``Phi^-1(p_A) - Phi^-1(p_j)``.

For ``L >= 0`` the line of slope c that touches ``psi_L(b) = Phi(L + Phi^-1(b))`` from above has the height ``h_L(c) =
Phi(t + L/2) - c Phi(t - L/2)``, ``t = -ln(c)/L``; a mean shown to be above it shows the margin to be above L, at the
same alpha (T10, T11). Nothing is proved below L = 0, where the curve is convex: the limit is then -inf. The slope may
come from anywhere but the draws it is used on: from a selection sample, or, for betting, step by step from the draws
before. ``heights`` rounds up by ``HEIGHT_SLACK`` (1 + c) (F9).
"""

from math import inf, log

import numpy as np
from scipy.special import ndtr, ndtri

from buckler.bounds.betting import Candidates
from buckler.types import FloatArray, IntArray

SLOPES: FloatArray = 2.0 ** (np.arange(13) / 2.0)
"""The slopes c of ``X_A - c X_j`` that may be chosen: 1 to 64, each sqrt(2) times the one before."""

HEIGHT_SLACK = 1e-14
"""``heights`` are raised by this times ``1 + c`` against rounding (F9)."""
LARGEST_REPORTED_MARGIN = 16.0
"""Largest quantile margin that limits from scores report: beyond, double precision loses both normal tails."""

_GRID: FloatArray = np.concatenate([[0.0], np.geomspace(1e-3, LARGEST_REPORTED_MARGIN, 1600)])


def heights(margin: FloatArray | float, slopes: FloatArray | float) -> FloatArray:
    """Return the largest ``p_A - c p_j`` of two classes with quantile margin at most L, rounded up.

    ``margin`` is L, at least 0, and ``slopes`` are c, at least 1; they broadcast. The value, ``h_L(c) = Phi(t + L/2) -
    c Phi(t - L/2)`` with ``t = -ln(c)/L``, is the height of the line of slope c that touches ``p_A = Phi(L +
    Phi^-1(p_j))``.

    >>> heights(1.0, np.array([1.0, 2.0])).round(6)
    array([0.382925, 0.19061 ])
    """
    margin, slopes = np.broadcast_arrays(np.asarray(margin, dtype=np.float64), np.asarray(slopes, dtype=np.float64))
    t = -np.log(slopes) / np.maximum(margin, 1e-300)
    height = ndtr(t + 0.5 * margin) - slopes * ndtr(t - 0.5 * margin)
    return np.asarray(np.where(margin > 0.0, np.maximum(height, 0.0), 0.0) + HEIGHT_SLACK * (1.0 + slopes))


def margin_from_height(value: FloatArray | float, slope: FloatArray | float) -> FloatArray:
    """Return the lower limit of a quantile margin that follows from a lower limit ``value`` of ``E[X_A - c X_j]``.

    c is ``slope``, at least 1; the two arguments broadcast. The result is the largest L with ``heights(L, c) <=
    value``, rounded down, or -inf if not even L = 0 is one.

    **Guarantee.** If ``value <= E[X_A - c X_j]``, with X_A and X_j the scores of the class and its rival, then the
    result is at most ``Phi^-1(E X_A) - Phi^-1(E X_j)``.

    >>> round(float(margin_from_height(0.19061, 2.0)), 4)
    1.0
    """
    value, slope = np.broadcast_arrays(np.asarray(value, dtype=np.float64), np.asarray(slope, dtype=np.float64))
    low, high = np.zeros(value.shape), np.full(value.shape, LARGEST_REPORTED_MARGIN)
    for _ in range(40):
        middle = 0.5 * (low + high)
        under = heights(middle, slope) <= value
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return np.asarray(np.where(heights(0.0, slope) <= value, low, -np.inf))


_TABLE: FloatArray = heights(_GRID[None, :], SLOPES[:, None])


def means_of(margin: FloatArray | float) -> FloatArray:
    """Return, for each slope c of ``SLOPES``, the largest mean of ``(X_A - c X_j + c)/(1 + c)``, ``[..., slopes]``.

    It is the largest under a quantile margin of at most ``margin``, ``[...]``, rounded up; X_A and X_j are scores.
    """
    return (heights(np.asarray(margin)[..., None], SLOPES) + SLOPES) / (1.0 + SLOPES) + HEIGHT_SLACK


MARGINS = Candidates(_GRID, np.ascontiguousarray(means_of(_GRID)), means_of, -inf, 1e-9)
"""Candidate quantile margins for a limit by betting; below 0 none is rejected."""


def best_slopes(moments: FloatArray, n: int, alpha: float) -> IntArray:
    """Return for each rival the index in ``SLOPES`` of the slope c that predicts the largest limit of its margin.

    Row j of ``moments`` holds the count of draws seen and their sums of a, b, aa, ab and bb (``earlier_moments``), a
    being scores of the class and b of rival j. The prediction for n draws is ``mean - s sqrt(2 ln(1/alpha)/n) -
    (1 + c) ln(1/alpha)/(3 n)``, Bernstein's limit of the mean of ``a - c b``, whose deviation is s, less one standard
    error of the mean itself, turned into a margin: too large a slope proves nothing, one too small a little less. Two
    imagined draws of (1/2, 1/2) and variance 1/4 damp the choice towards c = 1 while few draws have been seen. A choice
    needs no proof, so the margin is interpolated from a table.
    """
    count = moments[:, :1] + 2.0
    a, b = (moments[:, 1:2] + 1.0) / count, (moments[:, 2:3] + 1.0) / count
    spread_a = np.maximum((moments[:, 3:4] + 1.0) / count - a * a, 0.0)
    spread_b = np.maximum((moments[:, 5:6] + 1.0) / count - b * b, 0.0)
    together = (moments[:, 4:5] + 0.5) / count - a * b
    variance = np.maximum(spread_a - 2.0 * SLOPES * together + SLOPES**2 * spread_b, 0.0)
    price = -log(alpha) / n
    deviations = np.sqrt(2.0 * price) + 1.0 / np.sqrt(count)
    predicted = a - SLOPES * b - deviations * np.sqrt(variance) - (1.0 + SLOPES) * price / 3.0
    margins = np.empty_like(predicted)
    for k in range(SLOPES.size):
        margins[:, k] = np.interp(predicted[:, k], _TABLE[k], _GRID)
    margins = np.where(predicted > 0.0, margins, predicted)
    return np.asarray(margins.argmax(axis=1), dtype=np.int64)


def predictable_slopes(a: FloatArray, rivals: FloatArray, earlier: FloatArray, alpha: float) -> IntArray:
    """Return the index in ``SLOPES`` of the slope for each rival and draw, ``[rivals, n]``.

    ``a[n]`` are scores of the class, ``rivals[rivals, n]`` those of the others. The slope is chosen anew after 16, 32,
    64, ... draws, from the draws before and from ``earlier``, a row of ``earlier_moments`` for each rival.
    """
    n = a.size
    index = np.empty(rivals.shape, dtype=np.int64)
    starts = [0]
    while (following := max(16, 2 * starts[-1])) < n:
        starts.append(following)
    moments = earlier.copy()
    for k, start in enumerate(starts):
        stop = starts[k + 1] if k + 1 < len(starts) else n
        index[:, start:stop] = best_slopes(moments, n, alpha)[:, None]
        block, others = a[start:stop], rivals[:, start:stop]
        seen = [
            np.full(len(rivals), float(stop - start)),
            np.full(len(rivals), block.sum()),
            others.sum(axis=1),
            np.full(len(rivals), block @ block),
            others @ block,
            np.einsum("ij,ij->i", others, others),
        ]
        moments[:, : len(seen)] += np.stack(seen, axis=1)
    return index


def estimate(a: FloatArray, rivals: FloatArray) -> FloatArray:
    """Return the quantile margin of the mean scores over each rival's, rounded down: limits are cut at it.

    ``a[n]`` are scores of the class, ``rivals[rivals, n]`` those of the others; -inf where it is not a number.
    """
    top, others = np.clip(a.mean(), 0.0, 1.0), np.clip(rivals.mean(axis=1), 0.0, 1.0)
    with np.errstate(invalid="ignore"):
        gap: FloatArray = ndtri(top) - ndtri(others)
    slack = 1e-13 * (1.0 + np.abs(np.where(np.isfinite(gap), gap, 0.0)))
    return np.asarray(np.where(np.isnan(gap), -np.inf, gap - slack))
