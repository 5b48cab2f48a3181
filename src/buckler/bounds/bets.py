"""Predictable bets: from draws seen so far to the stake on the next one, one path for every candidate mean.

The variable is ``y_i = (a_i - c_i b_i + c_i) / (1 + c_i)`` in [0, 1], for draws a and b in [0, 1] and a slope
``c_i >= 0`` fixed before draw i; a plain variable is the case c = 0, y = a. A gambler who holds that the mean exceeds
the candidate m stakes ``min(lambda_i, CAP / m)``, and the wealth is multiplied by ``1 + stake (y_i - m)``.

**Why one path.** The factor falls as m rises, capped or not, as long as ``lambda_i`` is the same for every candidate.
So wealth falls in m, the rejected candidates are an interval, and a bisection finds its end. Stakes that react to each
candidate's own wealth, as target-recalculating bets are published, lose this; here they react to the wealth of one
*reference* candidate, the limit that the draws so far foretell. That costs some width; the limit of a plain mean avoids
it (``cells``), while second margins, whose slope changes on the way, use this path.

**The stake** (``star``). Were y Gaussian with known variance, the best test at level alpha and horizon n would be the
z-test, whose wealth is a digital option: with wealth K and r draws left, hold ``lambda = phi(d) / (Phi(d) s sqrt r)``
where ``Phi(d) = alpha K``. For small alpha K this is the target-recalculating stake ``sqrt(2 ln(1/(alpha K)) / r) / s``
of Voracek & Orabona (2025). The reference m solves ``Phi(-(mean - m) sqrt r / s) = alpha K(m)``: the candidate whose
test is now as likely to succeed as to fail. ``ln K`` near it is carried as a parabola. Kelly's rule to third order
tempers the stake: the factor is not an exponential, and a law with a long lower tail punishes large stakes. None of
this needs to be exact: any number computed from the past is a sound stake.

``plain`` stakes are ``sqrt(2 ln(1/alpha) / (n s^2))`` (Waudby-Smith & Ramdas 2024).

Moments come from the draws so far, beside ``PRIOR`` = 2 imagined draws, one at 0 and one at 1. They are renewed
after every draw at first, and later on after every ``1/PACE`` of the draws so far: an option is hedged the better the
more often, but ``HURRIED`` will do where there are very many columns.
"""

from math import erfc, exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from buckler.bounds.compiled import compiled
from buckler.types import FloatArray, IntArray

CAP = 0.99
"""The largest share of the wealth that one draw can lose."""

PACE, HURRIED = 64, 8
"""Renewals of the stake while the number of draws grows by itself."""

PRIOR = 2.0
"""How many imagined draws, half of them at 0 and half at 1, the estimates start from."""


def _log_normal_cdf(d: float) -> float:
    if d > -37.0:
        return log(0.5 * erfc(-d * 0.7071067811865476))
    return -0.5 * d * d - log(-d) - 0.9189385332046727


_log_normal_cdf_compiled: Any = compiled(_log_normal_cdf)


def _foretell(
    mean: float, deviation: float, left: int, log_goal: float, r: float, k0: float, k1: float, k2: float
) -> tuple[float, float]:
    """Return the reference candidate and its Gaussian stake, given ``ln K(m) = k0 + k1 (m-r) + k2 (m-r)^2``.

    Newton's method inside of a bracket on ``ln Phi(d(m)) - ln(alpha K(m))``, which rises through its zero.
    """
    root = sqrt(left) / deviation
    low, high = mean - 40.0 / root - 1.0, mean
    m = r if low < r < high else mean - 3.0 / root
    d, hazard = 0.0, 0.0
    for _ in range(40):
        d = (m - mean) * root
        log_cdf = _log_normal_cdf_compiled(d)
        hazard = exp(-0.5 * d * d - 0.9189385332046727 - log_cdf)
        miss = log_cdf + log_goal - (k0 + k1 * (m - r) + k2 * (m - r) ** 2)
        slope = hazard * root - k1 - 2.0 * k2 * (m - r)
        if miss > 0.0:
            high = m
        else:
            low = m
        following = m - miss / slope if slope > 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        step = following - m
        m = following
        if abs(step) * root < 0.1:
            break
    # The last step is short, so the hazard follows by its own slope, h' = -h (d + h).
    move = (m - mean) * root - d
    hazard *= 1.0 - (d + hazard) * move
    return m, hazard / (deviation * sqrt(left))


_foretell_compiled: Any = compiled(_foretell)


def _kelly(stake: float, deviation: float, loss: float) -> float:
    """Return a Gaussian stake tempered by Kelly's rule, ``gain = lambda M2 + lambda^2 loss``, loss = -M3 about r."""
    gain = stake * deviation * deviation
    second = deviation * deviation + gain * gain
    return 2.0 * gain / (second + sqrt(second * second + 4.0 * gain * loss))


_kelly_compiled: Any = compiled(_kelly)


def _carry(m: float, old: FloatArray, new: FloatArray) -> tuple[float, float]:
    """Return where candidate m of one tabulated curve lies on another, and the ratio of their slopes there."""
    k = int(np.searchsorted(old, m))
    k = min(max(k, 1), old.size - 1)
    rise = max(old[k] - old[k - 1], 1e-300)
    ratio = max(new[k] - new[k - 1], 1e-300) / rise
    return new[k - 1] + (m - old[k - 1]) * ratio, 1.0 / ratio


_carry_compiled: Any = compiled(_carry)


def _estimate(count: float, total: float, squares: float, c: float, scale: float) -> tuple[float, float]:
    """Return the mean and deviation of y from the sums of ``a - c b`` and of its square, beside the prior draws."""
    weight = PRIOR + count
    mean = (PRIOR * 0.5 + (total + c * count) * scale) / weight
    spread = 0.0
    if count > 0.0:
        spread = max((squares - total * total / count) * scale * scale, 0.0)
    return mean, sqrt((PRIOR * 0.25 + spread) / weight)


_estimate_compiled: Any = compiled(_estimate)


def _plan(
    a: FloatArray,
    b: FloatArray,
    slopes: FloatArray,
    index: IntArray,
    curves: FloatArray,
    head: FloatArray,
    log_goal: float,
    star: bool,
    y: FloatArray,
    stakes: FloatArray,
    candidate: float,
    goal: float,
    pace: int,
) -> tuple[float, bool]:
    """Fill ``y`` and ``stakes`` for one pair of columns; return the last reference, and whether all was in vain.

    Where only limits below ``candidate`` matter (and the slope never changes), planning ends as soon as the wealth
    against it reaches the goal: this column's limit is above. ``candidate = 1`` never is rejected.

    ``index[i]`` picks the slope at step i; ``curves[s]`` are the candidate means of slope s along one common
    parameter, used to carry the reference over a change of slope. ``head`` holds the count and the sums of a, b, aa,
    ab, bb over draws seen before (zeros if none; a seventh entry is not used here).
    """
    n = a.size
    count, sa, sb, saa, sab, sbb = head[0], head[1], head[2], head[3], head[4], head[5]
    r, k0, k1, k2 = 0.5, 0.0, 0.0, 0.0
    product, stake, held, scale = 1.0, 0.0, 0.0, 1.0
    due, current = 0, index[0]
    cubes = 0.0
    wealth, most, bold = 1.0, CAP / candidate, 0.0
    for i in range(n):
        s = index[i]
        c = slopes[s]
        if i >= due or s != current:
            due = i + 1 + i // pace
            k0 += log(product)
            product = 1.0
            if s != current:
                r, ratio = _carry_compiled(r, curves[current], curves[s])
                k1, k2 = k1 * ratio, k2 * ratio * ratio
                current = s
            scale = 1.0 / (1.0 + c)
            mean, deviation = _estimate_compiled(count, sa - c * sb, saa - 2.0 * c * sab + c * c * sbb, c, scale)
            if star:
                m, stake = _foretell_compiled(mean, deviation, n - i, log_goal, r, k0, k1, k2)
                k0, k1, r = k0 + k1 * (m - r) + k2 * (m - r) ** 2, k1 + 2.0 * k2 * (m - r), m
                stake = _kelly_compiled(stake, deviation, max(max(r, 0.0) ** 3 - cubes, 0.0) / (PRIOR + count))
                held = min(stake, CAP / r) if r > 0.0 else stake
            else:
                stake = sqrt(2.0 * log_goal / n) / deviation
            if not stake > 0.0:
                # Never so by the formulas; a stake that is no number, or against the mean, would break the proof.
                stake = held = 0.0
            bold = min(stake, most)
        stakes[i] = stake
        p, q = a[i], b[i]
        x = (p - c * q + c) * scale
        if x > 1.0:
            x = 1.0
        elif x < 0.0:
            x = 0.0
        y[i] = x
        wealth *= 1.0 + bold * (x - candidate)
        if wealth >= goal:
            return r, True
        if wealth < 1e-200:
            wealth = 0.0
        if star:
            cubes += (x - r) ** 3
            factor = 1.0 + held * (x - r)
            product *= factor
            if product < 1e-200 or product > 1e200:
                k0 += log(product)
                product = 1.0
            # A heavy loss bends ln K only close to r; taken at its face it would mislead the parabola further off.
            slope = held / factor if factor > 0.5 else 2.0 * held
            k1 -= slope
            k2 -= 0.5 * slope * slope
        count += 1.0
        sa += p
        sb += q
        saa += p * p
        sab += p * q
        sbb += q * q
    return r, False


plan_compiled: Any = compiled(_plan)


class Plan(NamedTuple):
    """One column's scaled draws and its stakes, with the last reference candidate."""

    y: FloatArray
    stakes: FloatArray
    slope_index: IntArray
    guess: float


NO_HEAD: FloatArray = np.zeros(7)


def head_of(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the moments of draws seen beforehand, such as a selection sample, for ``plan``."""
    return np.array([a.size, a.sum(), b.sum(), a @ a, a @ b, b @ b, ((a - b) ** 3).sum()], dtype=np.float64)


def plan(
    a: FloatArray,
    b: FloatArray,
    slopes: FloatArray,
    index: IntArray,
    curves: FloatArray,
    log_goal: float,
    *,
    star: bool = True,
    head: FloatArray = NO_HEAD,
) -> Plan:
    """Return the scaled draws and stakes of one pair of columns; stake i uses draws before i alone.

    >>> made = plan(np.ones(4), np.zeros(4), np.ones(1), np.zeros(4, dtype=np.int64), np.array([[0.0, 1.0]]), 7.0)
    >>> made.stakes.round(4)
    array([0.875 , 1.0232, 1.0847, 1.0058])
    """
    y, stakes = np.empty_like(a), np.empty_like(a)
    guess, _ = plan_compiled(a, b, slopes, index, curves, head, log_goal, star, y, stakes, 1.0, np.inf, PACE)
    return Plan(y, stakes, index, float(guess))
