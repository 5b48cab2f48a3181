"""Search for Buehler's limit: the margin and the point of the curve at which a region's probability meets alpha.

Heuristic from end to end: a wrong guess costs tightness or time, never validity, since ``buehler`` returns no margin
that ``margin_curve`` has not proved.
"""

from math import inf, log, sqrt

import numpy as np

from buckler.bounds.compiled import inner
from buckler.bounds.margin_curve import DROP
from buckler.bounds.trinomial import (
    PROBABILITY,
    Region,
    corner,
    curve_bottom,
    curve_point,
    curve_top,
    region_probabilities,
    region_probability,
)

WIDEST = 80.0
"""Largest quantile margin of the search: beyond, ``Phi`` underflows."""
SCANNED = 16
"""Points of a scan that are evaluated together."""
FIRST_STEP, STRETCH, LONGEST_STEP = 0.3, 1.5, 0.12
"""A scan's first step from the top, in units of ``1/n``, where one count more of the rest matters; then each this many
times longer, up to an eighth of a normal deviation."""
LONGEST_SHIFT, LONGEST_SHARE = 0.04, 0.3
"""For probability margins no step is longer than this, nor than this share of what is left to the bottom."""
CLOSE = 3e-4
"""Relative accuracy of a maximiser; the maximum itself is accurate to about the square of it."""
GOLDEN = 0.6180339887498949
FLAT = 1e-13
"""The search stops where the log probability is this close to its goal, about the rounding error."""


@inner
def log_at(kind: int, L: float, t: float, region: Region, drop: float) -> float:
    """Return the log of the probability at one point of the curve."""
    return log(max(region_probability(region, curve_point(kind, L, t), drop), 1e-300))


@inner
def margin_at(kind: int, L: float, t: float, region: Region, alpha: float) -> float:
    """Return the margin at which the probability, at parameter ``t``, meets ``alpha``, found from a first guess L."""
    drop = DROP * alpha
    limit = 1.0 if kind == PROBABILITY else WIDEST
    goal = log(alpha)
    step = 0.5 / sqrt(region.n)  # half a standard error, doubled until the margin is bracketed
    low = high = min(max(L, -limit), limit)
    f_low = f_high = log_at(kind, low, t, region, drop) - goal
    while f_low > 0.0 and low > -limit:
        high, f_high = low, f_low
        low = max(low - step, -limit)
        f_low = log_at(kind, low, t, region, drop) - goal
        step *= 2.0
    while f_high <= 0.0 and high < limit:
        low, f_low = high, f_high
        high = min(high + step, limit)
        f_high = log_at(kind, high, t, region, drop) - goal
        step *= 2.0
    if f_high <= 0.0 or f_low > 0.0:
        return high if f_high <= 0.0 else low
    # False position with the Illinois rule; a plain halving whenever the bracket does not shrink fast enough.
    g_low, g_high, side, width = f_low, f_high, 0, inf
    for i in range(200):
        if high - low <= 4e-16 * max(abs(low), abs(high), 0.25):
            break
        x = low - g_low * (high - low) / (g_high - g_low)
        if i % 3 == 2:
            if high - low > 0.25 * width:
                x = 0.5 * (low + high)
            width = high - low
        if not low < x < high:
            return low if abs(f_low) < abs(f_high) else high
        f = log_at(kind, x, t, region, drop) - goal
        if abs(f) < FLAT:
            return x
        if f > 0.0:
            high, f_high, g_high = x, f, f
            if side == 1:
                g_low *= 0.5
            side = 1
        else:
            low, f_low, g_low = x, f, f
            if side == -1:
                g_high *= 0.5
            side = -1
    return low


@inner
def climb(kind: int, L: float, t: float, reach: float, region: Region, drop: float) -> float:
    """Return a local maximiser along the curve, by golden section within ``reach`` of ``t``."""
    top = curve_top(kind)
    low, high = t - reach, min(t + reach, top)
    if kind == PROBABILITY:
        low = max(low, 0.0)
    x, y = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    f, g = log_at(kind, L, x, region, drop), log_at(kind, L, y, region, drop)
    while high - low > CLOSE * reach:
        if f > g:
            high, y, g = y, x, f
            x = high - GOLDEN * (high - low)
            f = log_at(kind, L, x, region, drop)
        else:
            low, x, f = x, y, g
            y = low + GOLDEN * (high - low)
            g = log_at(kind, L, y, region, drop)
    best = 0.5 * (low + high)
    if kind == PROBABILITY and low <= 0.0 and log_at(kind, L, 0.0, region, drop) >= max(f, g):
        best = 0.0
    if high >= top and log_at(kind, L, top, region, drop) >= max(f, g):
        best = top
    return best


@inner
def scan(kind: int, L: float, region: Region, alpha: float) -> tuple[float, float]:
    """Return the best of a few parameters along the curve, finer towards its two ends, and the local spacing."""
    n, drop = region.n, DROP * alpha
    bottom = curve_bottom(kind)
    ts, steps, values = np.empty(SCANNED), np.empty(SCANNED), np.empty(SCANNED)
    points = np.empty((SCANNED, 3))
    t, step = curve_top(kind), FIRST_STEP / n
    best, where, reach = -inf, t, step
    ended = False
    while not ended:
        count = 0
        while count < SCANNED and not ended:
            points[count, 0], points[count, 1], points[count, 2] = curve_point(kind, L, t)
            ts[count], steps[count] = t, step
            ended = region_probability(region, corner(kind, L, bottom, t), drop) <= alpha
            step = min(STRETCH * step, LONGEST_STEP)
            if kind == PROBABILITY:
                step = min(step, LONGEST_SHIFT, LONGEST_SHARE * t)
                ended = ended or step < 0.01 / n
            t -= step
            count += 1
        region_probabilities(region, points[:count], drop, values)
        for i in range(count):
            if values[i] > best:
                best, where, reach = values[i], ts[i], steps[i]
    return where, reach
