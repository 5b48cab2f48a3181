"""The miss probability of a bound of one pair of classes, at any n, over the trinomial (A, j, all the rest).

A bound ``low(top, runner_up, n)`` that never rises with ``runner_up`` is, whatever the number of classes, at most
``low(X_A, X_j, n)`` for each rival j, and the margin is that of the closest one. So its miss probability is at most

    P(low(X_A, X_j, n) > margin(p_A, p_j)),

a sum over two counts. If the bound also never falls as ``top`` rises, the outcomes that miss fill columns
``{x1 >= c(x2)}``: the boundary of a level is found with a few evaluations a column instead of at every outcome, and its
probability is a sum of binomial tails. Both are SciPy's here: what is audited is not its own judge.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import betainc

from buckler.errors import InvalidInput, check_alpha, check_whole
from buckler.evaluate.audit import LARGEST_MARGIN, Audit, curve_pair, nearest_shift
from buckler.types import FloatArray, IntArray, MarginKind

PairBound = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""Counts of the class, of the runner-up, and draws in all -> lower limits of the margin between the two."""

SPREAD = 12.0
"""Columns further from their mean than this many deviations, and 100 more, hold less than 1e-30."""


NOISE = 1e-8
"""How far, relative to ``1 + |limit|``, rounding may let neighbouring limits be out of order."""


def audit_collapsed(
    bound: PairBound,
    *,
    margin: MarginKind,
    n: int,
    alpha: float,
    points: int = 40,
    jumps: int = 48,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Return the worst miss probability found of ``bound`` for one pair of any number of classes.

    ``jumps`` outcomes, from all over the simplex and its edges, are where the bound is asked for a value; ``points``
    truths are tried along the curve just below each value, and more near the worst. A bound that rises with the
    runner-up or falls with the class, at any outcome that was looked at, is refused: this audit would prove nothing.
    """
    draws, level = check_whole("n", n, 1), check_alpha(alpha)
    seen = spread_outcomes(draws, check_whole("jumps", jumps, 1))
    values = np.unique(_limits(bound, seen[:, 0], seen[:, 1], draws))
    values = values[values > (-1.0 if margin == "probability" else -np.inf)]  # no margin is lower than these
    coarse = np.linspace(0.0, 1.0, check_whole("points", points, 2))
    best, truth, tried = 0.0, (1.0, 0.0, 0.0), 0
    for i, value in enumerate(values):
        if progress is not None:
            progress(i, len(values))
        below = float(min(value, LARGEST_MARGIN) - 1e-9 * (1.0 + min(abs(value), LARGEST_MARGIN)))
        c = boundary(bound, below, draws)
        miss, where = _worst_on_curve(margin, below, coarse, draws, c)
        tried += coarse.size
        if miss > best:
            near = nearest_shift(margin, below, np.array(where))
            fine = np.clip(near + np.linspace(-1.0, 1.0, 81) / points, 0.0, 1.0)
            best, truth = max((miss, where), _worst_on_curve(margin, below, fine, draws, c))
            tried += fine.size
    return Audit(margin, 3, draws, level, best, truth, tried, collapsed=True)


def _worst_on_curve(
    margin: MarginKind, below: float, shifts: FloatArray, n: int, c: IntArray
) -> tuple[float, tuple[float, float, float]]:
    p1, p2 = (np.ones(1), np.zeros(1)) if margin == "probability" and below > 1.0 else curve_pair(margin, below, shifts)
    misses = [pair_probability(n, float(a), float(b), c) for a, b in zip(p1, p2, strict=True)]
    k = int(np.argmax(misses))
    return misses[k], (float(p1[k]), float(p2[k]), max(0.0, 1.0 - float(p1[k] + p2[k])))


def spread_outcomes(n: int, count: int) -> IntArray:
    """Return ``count`` or fewer different outcomes ``[k, 2]`` all over the simplex: its edges, and a lattice inside.

    >>> spread_outcomes(10, 8).tolist()
    [[1, 3], [3, 5], [4, 5], [5, 5], [7, 0], [9, 0], [10, 0]]
    """
    place = np.arange(count) * 0.6180339887498949 % 1.0  # fractions of the golden ratio fill any interval evenly
    share = (np.arange(count) + 0.5) / count
    top = np.rint(n * np.where(place < 0.75, 1.0 - share**2, share)).astype(np.int64)
    top[0] = n
    kind = np.arange(count) % 4  # none for the rival, all that is left, and two lots in between
    rival = np.rint((n - top) * np.select([kind == 0, kind == 1], [0.0, 1.0], place)).astype(np.int64)
    return np.unique(np.stack([top, np.minimum(rival, n - top)], axis=1), axis=0)


def boundary(bound: PairBound, level: float, n: int) -> IntArray:
    """Return ``c``: in column ``x2 = j`` the outcomes with ``x1 >= c[j]`` have a limit above ``level``.

    ``c[j] = n - j + 1`` where there are none. Columns are filled in between those known, whose boundaries bracket
    theirs, so that all take about four evaluations each.
    """
    c = np.full(n + 1, -1, dtype=np.int64)
    step = 1 << n.bit_length()
    while step:
        j = np.arange(0, n + 1, step)
        j = j[c[j] < 0]
        known = np.flatnonzero(c >= 0)
        low, high = np.full(j.size, -1), n - j + 1
        if known.size:
            after = np.searchsorted(known, j)
            low = c[known[after - 1]] - 1
            right = np.append(np.where(c[known] <= n - known, c[known], n + 1), n + 1)[after]
            high = np.minimum(high, right)
        high = np.maximum(high, low + 1)
        while (open_ := np.flatnonzero(high - low > 1)).size:
            middle = (low[open_] + high[open_]) // 2
            inside = _limits(bound, middle, j[open_], n) > level
            high[open_[inside]], low[open_[~inside]] = middle[inside], middle[~inside]
        c[j] = np.minimum(high, n - j + 1)
        step //= 2
    _check_monotone(bound, c, level, n)
    return c


def _check_monotone(bound: PairBound, c: IntArray, level: float, n: int) -> None:
    """Refuse a bound that has outcomes beside the boundary, or at an end of a column, on the wrong side."""
    j = np.arange(n + 1)
    doubt = NOISE * (1.0 + abs(level))
    for x1, inside in ((c, True), (n - j, True), (c - 1, False), (np.zeros_like(c), False)):
        there = (x1 >= 0) & (x1 <= n - j) & ((x1 >= c) if inside else (x1 < c))
        lows = _limits(bound, x1[there], j[there], n)
        if (lows < level - doubt if inside else lows > level + doubt).any():
            raise InvalidInput("bound must not fall as top rises nor rise with runner_up to be audited pair by pair")


def pair_probability(n: int, p1: float, p2: float, c: IntArray) -> float:
    """Return ``P(X1 >= c[X2])`` of a trinomial: for each x2 a binomial probability times a binomial tail.

    >>> round(pair_probability(2, 0.5, 0.25, np.array([1, 1, 1])), 6)
    0.75
    """
    reach = SPREAD * np.sqrt(n * p2 * (1.0 - p2)) + 100.0
    j = np.arange(max(0, int(n * p2 - reach)), min(n, int(n * p2 + reach)) + 1)
    level, left = c[j], n - j
    tails = np.where(level <= 0, 1.0, 0.0)
    some = (level > 0) & (level <= left)
    share = min(1.0, p1 / (1.0 - p2)) if p2 < 1.0 else 0.0
    tails[some] = betainc(level[some], left[some] - level[some] + 1.0, share)
    # Weights by the ratios of neighbours, made to sum to one: gammaln would lose the digits that large n leaves.
    logs = np.cumsum(np.log((n - j[:-1]) * max(p2, 1e-300) / ((j[:-1] + 1.0) * max(1.0 - p2, 1e-300))))
    weights = np.exp(np.append(0.0, logs) - logs.max(initial=0.0))
    return float(weights @ tails / weights.sum())


def _limits(bound: PairBound, top: IntArray, runner_up: IntArray, n: int) -> FloatArray:
    if not top.size:
        return np.empty(0)
    lows = np.asarray(bound(top.copy(), runner_up.copy(), np.full(top.shape, n)), dtype=np.float64)
    if lows.shape != top.shape or np.isnan(lows).any():
        raise InvalidInput(f"bound must return {top.size} limits without NaN, one an outcome; got shape {lows.shape}")
    return lows
