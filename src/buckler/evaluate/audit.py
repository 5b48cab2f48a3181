"""The worst miss probability of a discrete bound, by enumeration of every outcome.

For a truth p the miss probability is ``P_p(bound(X) > margin(p))``, a finite sum. As a function of p it jumps where the
margin passes a value b of the bound, and just below such a jump it is ``P_p(bound(X) >= b)``: so the worst truths lie
on the curves ``margin(p) = b - 0``. The audit searches those curves, with the remaining mass spread in several ways,
refines the worst, and adds truths spread over the whole simplex. Class 0 is the certified class A. A bound that does
not treat its rivals alike is tried with every rival in every role (``orders``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from math import factorial
from typing import get_args

import numpy as np
from scipy.special import gammaln, ndtr

from buckler.certify.votes import margin
from buckler.errors import InvalidInput, check_alpha, check_choice, check_whole
from buckler.types import FloatArray, IntArray, MarginKind

CountsBound = Callable[[IntArray], FloatArray]
"""A bound: votes ``counts[outcomes, classes]``, class 0 being certified -> a lower limit of its margin for each."""

LARGEST_MARGIN = 12.0
"""Largest margin at which truths are tried, where a bound's limits are larger."""
_CELLS = 4_000_000
MOST_ORDERS = 720
"""Largest number of orders of the rivals (the classes but the certified one) at which ``orders`` returns them all."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Worst probability ``miss``, of all ``truths`` tried, that a bound exceeds the margin; alpha was promised.

    ``truth`` holds the classes' probabilities that show it, those of the certified class first.
    """

    margin: MarginKind
    num_classes: int
    n: int
    alpha: float
    miss: float
    truth: tuple[float, ...]
    truths: int

    @property
    def passed(self) -> bool:
        """Whether ``miss`` is at most alpha, but for a relative 1e-9, the error of the sums."""
        return self.miss <= self.alpha * (1.0 + 1e-9)

    def __str__(self) -> str:
        p = ", ".join(f"{x:.6g}" for x in self.truth)
        return (
            f"{'passed' if self.passed else 'FAILED'}: worst miss probability {self.miss:.6g} at a promised "
            f"{self.alpha:g} ({self.margin} margin, m={self.num_classes}, n={self.n}, p=({p}), {self.truths} truths)"
        )


def outcomes(num_classes: int, n: int) -> IntArray:
    """Return every way in which ``n`` draws can fall on ``num_classes`` classes, as counts, one outcome a row.

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
    """Return an ``Audit`` of ``bound``: the largest probability found that it exceeds the true margin.

    ``bound`` takes all outcomes of ``n`` draws, ``[outcomes, num_classes]``, and returns a limit for each, which should
    exceed the margin with probability at most ``alpha``. Truths, the classes' probabilities, are tried all over the
    simplex and on the curves where the margin is just below one of these limits; at each the miss probability is summed
    over all outcomes. ``points`` truths are tried along each curve, each with several splits of the remaining mass.
    ``progress`` is called with the number of curves searched so far, and of all.
    """
    check_choice("margin", margin, get_args(MarginKind))
    m, draws, level = check_whole("num_classes", num_classes, 2), check_whole("n", n, 1), check_alpha(alpha)
    counts = outcomes(m, draws)
    lows = np.asarray(bound(counts), dtype=np.float64)
    if lows.shape != (len(counts),) or np.isnan(lows).any():
        came = "NaN among them" if lows.shape == (len(counts),) else f"shape {lows.shape}"
        raise InvalidInput(f"bound must return {len(counts)} limits, one an outcome, without NaN; got {came}")
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
    """Return whether the limits ``lows`` of all outcomes ``counts`` stay the same when any two rivals trade places.

    Rivals are the classes but the first.

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
    """Return orders in which to put classes 1 to m - 1, of m: all of them, or for more than six some.

    Those are the rotations of one order and of its reverse, in which each class comes to every place.

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
    """Return the multinomial probability of each of ``counts[outcomes, m]`` under each of ``truths[t, m]``.

    ``truths`` hold the m classes' probabilities; what comes back is ``[t, outcomes]``.

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
    """Return the probabilities of class and rival at points of the curve on which their margin is ``level``.

    ``shift``, from 0 to 1, says where on the curve: 1 is the end at which they add up to 1.
    """
    if kind == "quantile":
        t = -8.0 * (1.0 - shift) ** 2
        return ndtr(t + level / 2.0), ndtr(t - level / 2.0)
    total = abs(level) + (1.0 - abs(level)) * shift
    return (total + level) / 2.0, (total - level) / 2.0


def nearest_shift(kind: MarginKind, level: float, truth: FloatArray) -> float:
    """Return the shift of ``curve_pair``, to 1/4000, at which the class is as likely as under ``truth[0]``."""
    grid = np.linspace(0.0, 1.0, 4001)
    top, _ = curve_pair(kind, level, grid)
    return float(grid[np.abs(top - truth[0]).argmin()])


def truths_on_curve(kind: MarginKind, level: float, shift: FloatArray, m: int) -> FloatArray:
    """Return probabilities of m classes, one truth a row, under which the margin of class 0 is at most ``level``.

    Classes 0 and 1 have those of ``curve_pair`` at each ``shift``, and the others share the rest in several ways.
    """
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
