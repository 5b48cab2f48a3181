"""The miss probability of a discrete bound: by enumeration of every outcome, or for one pair of classes at any n.

For a truth p the miss probability is ``P_p(bound(X) > margin(p))``, a finite sum. As a function of p it jumps where the
margin passes a value b of the bound, and just below such a jump it is ``P_p(bound(X) >= b)``: so the worst truths lie
on the curves ``margin(p) = b - 0``. The audit searches those curves, with the remaining mass spread in several ways,
refines the worst, and adds truths spread over the whole simplex. Class 0 is the certified class A. A bound that does
not treat its rivals alike is tried with every rival in every role (``orders``).

**One pair.** A bound ``low(top, runner_up, n)`` that never rises with ``runner_up`` is, whatever the number of classes,
at most ``low(X_A, X_j, n)`` for each rival j, and the margin is that of the closest one. So its miss probability is at
most ``P(low(X_A, X_j, n) > margin(p_A, p_j))``, a sum over two counts of the trinomial (A, j, all the rest). If the
bound also never falls as ``top`` rises, the outcomes that miss fill columns ``{x1 >= c(x2)}``: the boundary of a level
is found with a few evaluations a column, and its probability is a sum of binomial tails. Both are SciPy's here: what is
audited is not its own judge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from math import factorial
from typing import get_args

import numpy as np
from scipy.special import betainc, gammaln, ndtr

from buckler.certify.votes import margin
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole
from buckler.types import ArrayLike, FloatArray, IntArray, MarginKind

CountsBound = Callable[[IntArray], FloatArray]
"""Outcomes ``[k, m]``, class 0 being certified -> lower limits ``[k]`` of its margin."""

LARGEST_MARGIN = 12.0
_CELLS = 4_000_000
MOST_ORDERS = 720
"""Largest number of orders of the rivals at which all are tried: those of six rivals."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The worst miss probability found for a bound of promised level alpha, and the truth that shows it."""

    margin: MarginKind
    num_classes: int
    n: int
    alpha: float
    miss: float
    truth: tuple[float, ...]
    truths: int
    collapsed: bool = False
    """Whether one pair of any number of classes was audited: the truth is then (p_A, p_j, all the rest)."""

    @property
    def passed(self) -> bool:
        """Whether no truth was found that misses more often than promised (1e-9 is the error of the sums)."""
        return self.miss <= self.alpha * (1.0 + 1e-9)

    def __str__(self) -> str:
        p = ", ".join(f"{x:.6g}" for x in self.truth)
        classes = "any m" if self.collapsed else f"m={self.num_classes}"
        return (
            f"{'passed' if self.passed else 'FAILED'}: worst miss probability {self.miss:.6g} at a promised "
            f"{self.alpha:g} ({self.margin} margin, {classes}, n={self.n}, p=({p}), {self.truths} truths)"
        )


def outcomes(num_classes: int, n: int) -> IntArray:
    """Return every vector of ``num_classes`` counts with sum ``n``, one a row.

    >>> outcomes(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    bars = np.array(list(combinations(range(n + num_classes - 1), num_classes - 1)), dtype=np.int64)
    ends = np.full((len(bars), 1), -1, dtype=np.int64)
    stops = np.full((len(bars), 1), n + num_classes - 1, dtype=np.int64)
    return np.diff(np.hstack([ends, bars, stops]), axis=1) - 1


def audit_discrete(
    bound: CountsBound,
    *,
    margin: MarginKind,
    num_classes: int,
    n: int,
    alpha: float,
    points: int = 40,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Return the worst miss probability of ``bound`` over truths on and near its jumps, and all over the simplex.

    ``points`` truths are tried along each jump's curve, each with several splits of the remaining mass. ``progress``
    is called with the jumps searched so far and in all.
    """
    check_choice("margin", margin, get_args(MarginKind))
    m, draws, level = check_whole("num_classes", num_classes, 2), check_whole("n", n, 1), check_alpha(alpha)
    counts = outcomes(m, draws)
    lows = _checked_limits(bound(counts), len(counts))
    worst = partial(_worst, counts, lows, margin)
    rng = np.random.default_rng(0)

    spread = np.vstack([rng.dirichlet(np.full(m, a), 400) for a in (0.1, 0.5, 1.0, 3.0)])
    spread[::2] = np.take_along_axis(spread[::2], np.argsort(-spread[::2], axis=1), axis=1)
    roles = [tuple(range(1, m))] if treats_rivals_alike(counts, lows) else orders(m)
    spread = _in_roles(spread, roles)
    best_miss, best_truth, tried = worst(spread)
    shifts = np.linspace(0.0, 1.0, points)
    jumps = np.unique(lows[np.isfinite(lows) | (lows > 0)])
    for i, b in enumerate(jumps):
        if progress is not None:
            progress(i, len(jumps))
        level_below = min(b, LARGEST_MARGIN) - 1e-9 * (1.0 + min(abs(b), LARGEST_MARGIN))
        truths = _in_roles(truths_on_curve(margin, level_below, shifts, m), roles)
        miss, truth, count = worst(truths)
        tried += count
        if miss > best_miss:
            best_miss, best_truth = miss, truth
            near = nearest_shift(margin, level_below, truth)
            fine = np.clip(near + np.linspace(-1.0, 1.0, 81) / points, 0.0, 1.0)
            miss, truth, count = worst(_in_roles(truths_on_curve(margin, level_below, fine, m), roles))
            tried += count
            if miss > best_miss:
                best_miss, best_truth = miss, truth
    return Audit(margin, m, draws, level, best_miss, tuple(float(x) for x in best_truth), tried)


def treats_rivals_alike(counts: IntArray, lows: FloatArray) -> bool:
    """Return whether limits of all outcomes stay the same when two rivals trade places; then truths may be sorted.

    >>> counts = outcomes(3, 2)
    >>> treats_rivals_alike(counts, counts[:, 1:].max(axis=1)), treats_rivals_alike(counts, counts[:, 1])
    (True, False)
    """
    order = np.lexsort(counts.T)
    for j in range(1, counts.shape[1] - 1):  # trades of neighbours make up every order
        traded = counts.copy()
        traded[:, [j, j + 1]] = counts[:, [j + 1, j]]
        if not np.array_equal(lows[np.lexsort(traded.T)], lows[order]):
            return False
    return True


def orders(num_classes: int) -> list[tuple[int, ...]]:
    """Return the orders of classes 1 to m - 1 to try: all, or beyond six the rotations of one and of its reverse.

    >>> orders(4)
    [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)]
    """
    rivals = tuple(range(1, num_classes))
    if factorial(len(rivals)) <= MOST_ORDERS:
        return list(permutations(rivals))
    circles = [rivals[k:] + rivals[:k] for k in range(len(rivals))]
    return circles + [order[::-1] for order in circles]


def _in_roles(truths: FloatArray, roles: list[tuple[int, ...]]) -> FloatArray:
    """Return the distinct truths that result when each truth's rivals are put in each of the orders ``roles``."""
    if len(roles) == 1:
        return truths
    return np.unique(np.vstack([truths[:, [0, *order]] for order in roles]), axis=0)


def multinomial_pmf(counts: IntArray | FloatArray, truths: FloatArray) -> FloatArray:
    """Return the probability of each outcome ``[k, m]`` under each truth ``[t, m]``: ``[t, k]``.

    >>> multinomial_pmf(outcomes(2, 2), np.array([[0.25, 0.75]])).round(4)
    array([[0.5625, 0.375 , 0.0625]])
    """
    x = np.asarray(counts, dtype=np.float64)
    log_ways = gammaln(x[0].sum() + 1.0) - gammaln(x + 1.0).sum(axis=1)
    # A probability of zero stands as 1e-300: outcomes that need it vanish, and one matrix product does it all.
    return np.asarray(np.exp(log_ways + np.log(np.maximum(truths, 1e-300)) @ x.T))


def _worst(counts: IntArray, lows: FloatArray, kind: MarginKind, truths: FloatArray) -> tuple[float, FloatArray, int]:
    """Return (largest miss probability over the rows of ``truths``, the row that has it, number of rows)."""
    best, where = -1.0, 0
    step = max(1, _CELLS // len(counts))
    for start in range(0, len(truths), step):
        p = truths[start : start + step]
        value = margin(kind, p[:, 0], p[:, 1:].max(axis=1))
        miss = (multinomial_pmf(counts, p) * (lows[None] > value[:, None])).sum(axis=1)
        if miss.max() > best:
            best, where = float(miss.max()), start + int(miss.argmax())
    return best, truths[where], len(truths)


def curve_pair(kind: MarginKind, level: float, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (p_A, p_j) along the curve ``margin = level``; shift 1 is the binary end ``p_A + p_j = 1``."""
    if kind == "quantile":
        t = -8.0 * (1.0 - shift) ** 2
        return ndtr(t + level / 2.0), ndtr(t - level / 2.0)
    total = abs(level) + (1.0 - abs(level)) * shift
    return (total + level) / 2.0, (total - level) / 2.0


def nearest_shift(kind: MarginKind, level: float, truth: FloatArray) -> float:
    """Return where on the curve ``margin = level`` the class is as likely as under ``truth``, to 1/4000."""
    grid = np.linspace(0.0, 1.0, 4001)
    top, _ = curve_pair(kind, level, grid)
    return float(grid[np.abs(top - truth[0]).argmin()])


def truths_on_curve(kind: MarginKind, level: float, shift: FloatArray, m: int) -> FloatArray:
    """Return truths whose margin is at most ``level``: the curve, with the remaining mass spread in several ways."""
    if kind == "probability" and abs(level) > 1.0:
        return np.eye(m)[:1] if level > 1.0 else np.eye(m)[1:2]
    top, other = curve_pair(kind, level, shift)
    if m == 2:
        return np.column_stack([top, 1.0 - top])[-1:]
    rest = np.maximum(0.0, 1.0 - top - other)
    spreads = []
    for k in range(1, m - 1):  # the rest on one further class, on two, ...
        p = np.zeros((len(shift), m))
        p[:, 0], p[:, 1] = top, other
        p[:, 2 : 2 + k] = rest[:, None] / k
        spreads.append(p)
    tied = np.zeros((len(shift), m))  # as much of the rest as may tie with the runner-up, class after class
    tied[:, 0], tied[:, 1] = top, other
    left = rest.copy()
    for j in range(2, m):
        tied[:, j] = left if j == m - 1 else np.minimum(left, other)
        left -= tied[:, j]
    spreads.append(tied)
    return np.vstack(spreads)


PairBound = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""Counts of the class, of the runner-up, and draws in all -> lower limits of the margin between the two."""

COLUMN_DEVIATIONS = 12.0
"""Columns further from their mean than this many deviations, and 100 more, hold less than 1e-30."""


LIMIT_ROUNDING = 1e-8
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
        c = limit_boundary(bound, below, draws)
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


def limit_boundary(bound: PairBound, level: float, n: int) -> IntArray:
    """Return ``c``: in column ``x2 = j`` the outcomes with ``x1 >= c[j]`` have a limit above ``level``.

    ``c[j] = n - j + 1`` where there are none. All columns are bisected together.
    """
    j = np.arange(n + 1)
    low, high = np.full(n + 1, -1), n - j + 1
    while (open_ := np.flatnonzero(high - low > 1)).size:
        middle = (low[open_] + high[open_]) // 2
        inside = _limits(bound, middle, j[open_], n) > level
        high[open_[inside]], low[open_[~inside]] = middle[inside], middle[~inside]
    _check_monotone(bound, high, level, n)
    return high


def _check_monotone(bound: PairBound, c: IntArray, level: float, n: int) -> None:
    """Refuse a bound that has outcomes beside the boundary, or at an end of a column, on the wrong side."""
    j = np.arange(n + 1)
    doubt = LIMIT_ROUNDING * (1.0 + abs(level))
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
    reach = COLUMN_DEVIATIONS * np.sqrt(n * p2 * (1.0 - p2)) + 100.0
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
    return _checked_limits(bound(top.copy(), runner_up.copy(), np.full(top.shape, n)), top.size)


def _checked_limits(found: ArrayLike, count: int) -> FloatArray:
    """Return the limits that a bound gave as an array ``[count]``; another shape or NaN raises InvalidInput."""
    lows = np.asarray(found, dtype=np.float64)
    if lows.shape != (count,) or np.isnan(lows).any():
        came = "NaN among them" if lows.shape == (count,) else f"shape {lows.shape}"
        raise InvalidInput(f"bound must return {count} limits, one an outcome, without NaN; got {came}")
    return lows
