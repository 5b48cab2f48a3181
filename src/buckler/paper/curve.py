"""The infimum of the printed objective along the boundary of its feasible set.

``Pi(theta~ | q)`` is the probability of a set of outcomes that is closed under losing a vote for class 1 and gaining
one for class 2, so it falls with q1 and rises with q2: its infimum over ``{g(q) <= L}`` lies on the curve
``g(q) = L``, and the paper's programme in several variables is a search along one. This is a search (a grid and three
zooms), not a proof: enough for an estimator that has none.
"""

from math import pi

import numpy as np

from buckler.bounds.trinomial import Region, make_region, region_probabilities
from buckler.paper.quantile import published_quantile, published_quantile_inverse
from buckler.types import FloatArray, IntArray, MarginKind

GRID, ZOOM, ZOOMS = 49, 13, 3
DROP = 1e-15


def upper_region(counted: IntArray, n: int) -> Region:
    """Return the region of the outcomes *not* counted: ``x1 >= counted[x2]``, ``counted`` one for each x2 in 0 .. n.

    ``counted[x2]`` outcomes ``x1 = 0, 1, ...`` of column x2 belong to the event of ``Pi``.
    """
    open_columns = counted <= n - np.arange(n + 1)
    return make_region(n, np.ascontiguousarray(counted[: int(open_columns.sum())]))


def curve_infimum(region: Region, L: float, margin: MarginKind, order: int, below: float = 0.0) -> float:
    """Return ``inf Pi(theta~ | q)`` over ``g(q) <= L``, the event being everything outside of ``region``.

    For the second margin q is in ``chi^2 = {q1 >= 1/2}``. The search ends at the first value under ``below``, which is
    then returned: whoever asks whether the infimum is smaller need not know by how much.
    """
    low, high = _ends(L, margin, order)
    best, t = -1.0, low + (high - low) * 0.5 * (1.0 - np.cos(pi * np.arange(GRID) / (GRID - 1)))
    for _ in range(1 + ZOOMS):
        q1, q2 = _point(t, L, margin, order)
        tails = np.empty(t.size)
        d = 1.0 - q2
        region_probabilities(region, np.stack([q1, q2, (d - q1) + ((1.0 - d) - q2)], axis=1), DROP, tails)
        k = int(np.argmax(tails))
        best = max(best, float(tails[k]))
        if 1.0 - min(best, 1.0) < below:
            break
        t = np.linspace(t[max(k - 1, 0)], t[min(k + 1, len(t) - 1)], ZOOM)
    return 1.0 - min(best, 1.0)


def _ends(L: float, margin: MarginKind, order: int) -> tuple[float, float]:
    """Return the range of the curve's parameter: q1 + q2 for the first margin, Phi_M^-1(q1) for the second."""
    if margin == "probability":
        return min(abs(L), 1.0), 1.0
    largest = float(published_quantile(1.0, order))
    high = min(L / 2.0, largest)
    return min(max(0.0, L - largest), high), high


def _point(t: FloatArray, L: float, margin: MarginKind, order: int) -> tuple[FloatArray, FloatArray]:
    if margin == "probability":
        return np.minimum((t + L) / 2.0, 1.0), np.maximum((t - L) / 2.0, 0.0)
    q1, q2 = published_quantile_inverse(np.stack([t, t - L]), order)
    return q1, np.minimum(q2, 1.0 - q1)
