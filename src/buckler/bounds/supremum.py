"""Supremum of a region's probability over all trinomials whose margin is at most ``L``: its proof, and a search.

**Proof** (``supremum_at_most``) that the supremum is at most alpha. It lies on the margin curve (T5), which is walked
from its top (``q3 = 0``) to its bottom; each piece is bounded in one of two ways. *Monotone cell* (T8): on ``[a, b]``
the probability is at most ``P(q1(b), q2(a))``. *Analytic piece* (T9): the probability is interpolated in Chebyshev
points. The interpolant's maximum is bounded through its coefficients, and its error through how far the probability
grows on a Bernstein ellipse (T9a, ``log_excess``). Along a good ordering's curve the probability is nearly flat, where
monotone cells alone would need a number of cells that grows as the gap between supremum and alpha shrinks; the analytic
pieces need ``O(sqrt(n))`` points whatever that gap.

**Search** (``log_at``, ``margin_at``, ``climb``, ``scan``) for the margin, and the point of the curve, at which the
probability equals alpha. Heuristic from end to end: a wrong guess costs tightness or time, never validity, since
``buehler`` returns no margin that ``supremum_at_most`` has not proved.
"""

from math import ceil, cos, erfc, exp, inf, log, pi, sqrt

import numpy as np

from buckler.bounds.compiled import compiled, inner
from buckler.bounds.trinomial import (
    INV_SQRT_TWO_PI,
    PROBABILITY,
    RELATIVE_ERROR,
    SQRT_HALF,
    Region,
    corner,
    curve_bottom,
    curve_point,
    curve_top,
    region_probabilities,
    region_probability,
)
from buckler.types import FloatArray

INTERPOLANT_ROUNDING = 1e-7
"""Relative error, counted against alpha, that rounding may leave in an interpolant (F4)."""
LONGEST_HALF = 4.0
"""Largest half-width, in the curve's parameter t, of a piece that is interpolated: rounding grows with it (F4)."""
FINEST_ERROR, COARSEST_ERROR = 5e-8, 0.2
"""Relative error allowed to an interpolant beside rounding: finer where the last piece came close to alpha."""
DROP = 1e-10
"""Share of alpha added to a region's probability for the improbable counts of the rival that its sum leaves out, at
either end."""
MOST_HALVINGS = 24
"""Largest number of halvings of an interval in ``polynomial_ceiling``; each divides the slack of the bound by 4."""


@compiled
def log_excess(kind: int, L: float, a: float, b: float, u: float) -> tuple[float, float]:
    """Return two upper bounds of ``log(|q1| + |q2| + |q3|)`` over complex t: Re t in ``[a, b]``, ``|Im t| <= u`` (T9a).

    The ``q_i`` are the probabilities at parameter t of the curve of margin L, as functions of complex t. The first
    bound is by bounds of the moduli that, divided by their sum, have a margin of at most L; inf if none is known. The
    second is the smallest bound known.
    """
    if kind == PROBABILITY:
        if a <= 0.0 or b >= 1.0:
            return inf, inf
        q1, q2, _ = curve_point(kind, L, a)
        v = 0.5 * (1.0 - abs(L)) * u
        excess = 0.5 * v * v * (1.0 / q1 + 1.0 / q2) + v * u / (1.0 - b)
        return excess if L >= 0.0 else inf, excess
    if b >= 0.0:
        return inf, inf
    E = exp(0.5 * u * u)
    x_low, x_high = a + 0.5 * L, b + 0.5 * L
    w0 = 0.5 * erfc(x_low * SQRT_HALF)
    nearest = 0.0 if x_low < 0.0 < x_high else min(abs(x_low), abs(x_high))
    phi = INV_SQRT_TWO_PI * exp(-0.5 * nearest * nearest)
    v_low, v_high = a - 0.5 * L, -a - 0.5 * L
    near = 0.0 if v_low < 0.0 < v_high else min(abs(v_low), abs(v_high))
    # q3 is the Gaussian mass of an interval of length 2|t|: at most 2|t| times the density's maximum, and at most w0.
    slant = E * min(INV_SQRT_TWO_PI * exp(-0.5 * near * near) * u * u / -b, 0.5 * w0 * u * u / (b * b))
    coarse = 0.5 * u * u + slant / E
    inside = coarse if L >= 0.0 else inf
    v_top = b - 0.5 * L
    small1, small2 = 0.5 * erfc(-x_high * SQRT_HALF), 0.5 * erfc(-v_top * SQRT_HALF)
    if (small1 + small2) * E < 0.5:
        both = small1 * (1.0 + max(x_low * x_low, x_high * x_high)) + small2 * (1.0 + max(v_low * v_low, v_top * v_top))
        nearest2 = 0.0 if v_low < 0.0 < v_top else min(abs(v_low), abs(v_top))
        density = phi + INV_SQRT_TWO_PI * exp(-0.5 * nearest2 * nearest2)
        fine = 0.5 * both * u * u * E + (small1 + small2) * (E - 1.0)
        return inside, min(coarse, fine + 0.5 * (density * u * E) ** 2 / (1.0 - (small1 + small2) * E))
    if w0 * E >= 0.5:
        return inside, coarse
    x_far = max(abs(x_low), abs(x_high))
    fine = 0.5 * w0 * (1.0 + x_far * x_far) * u * u * E
    fine += 0.5 * (phi * u * E) ** 2 / (1.0 - w0 * E) + w0 * (E - 1.0) + slant
    fine = min(coarse, fine)
    return fine if L >= 0.0 else inf, fine


@compiled
def log_growth(kind: int, L: float, n: int, b: float, half: float, alpha: float) -> float:
    """Return an upper bound of ``log(|P| / max(P*, alpha))`` on the Bernstein ellipse around ``[b - 2 half, b]`` (T9).

    P is a region's probability under n draws as a function of the complex parameter t of the curve of margin L, and P*
    its supremum along the curve, real t.
    """
    inside, best = log_excess(kind, L, b - 2.25 * half, b + 0.25 * half, 0.75 * half)
    return min(n * inside, n * best - log(alpha))


@compiled
def polynomial_ceiling(coefficients: FloatArray, m: int, values: FloatArray, goal: float) -> tuple[float, float]:
    """Return an upper bound of a Chebyshev series of degree ``m`` on [-1, 1], and the angle where it was largest.

    ``values`` are the series at the angles ``pi k / m``. Intervals are halved until their bounds are at most ``goal``,
    or MOST_HALVINGS is reached.
    """
    bend = 0.0
    for k in range(1, m + 1):
        bend += k * k * abs(coefficients[k])
    ceiling, where = -inf, 0.0
    for cell in range(m):
        # Halving cells, depth first: at depth e the cell is pi / (m 2^e) wide.
        depth, index = 0, 0
        left = values[cell]
        ends = np.empty(MOST_HALVINGS + 1)
        ends[0] = values[cell + 1]
        while True:
            width = pi / (m * 2.0**depth)
            right = ends[depth]
            bound = max(left, right) + 0.125 * width * width * bend
            if bound <= goal or depth == MOST_HALVINGS:
                if bound > ceiling:
                    ceiling = bound
                    where = pi * cell / m + width * (index if left > right else index + 1)
                if depth == MOST_HALVINGS and bound > goal:
                    return ceiling, where
                left = right
                while depth > 0 and index % 2 == 1:
                    depth -= 1
                    index //= 2
                if depth == 0:
                    break
                index += 1
                ends[depth] = ends[depth - 1]
                continue
            angle = pi * cell / m + width * (index + 0.5)
            x, ahead, beyond = cos(angle), 0.0, 0.0
            for k in range(m, 0, -1):
                ahead, beyond = 2.0 * x * ahead - beyond + coefficients[k], ahead
            middle = x * ahead - beyond + coefficients[0]
            depth += 1
            index *= 2
            ends[depth] = middle
    return ceiling, where


@compiled
def supremum_at_most(kind: int, L: float, region: Region, alpha: float) -> tuple[bool, float]:
    """Return whether a region's probability is proved at most ``alpha`` for margins up to ``L``, and a parameter t.

    The proof goes along the curve of margin L, from its top down; t is where it ended.

    **Guarantee.** ``(True, _)`` is returned only if ``sup {P_q : theta(q) <= L} <= alpha``: the walk covers the whole
    curve, each piece is bounded from above, and three errors are counted against alpha: ``RELATIVE_ERROR``,
    ``INTERPOLANT_ROUNDING`` and that of each interpolant, bounded relative to the larger of supremum and alpha (T9).
    """
    n, drop = region.n, DROP * alpha
    goal = alpha * (1.0 - RELATIVE_ERROR)
    top, bottom = curve_top(kind), curve_bottom(kind)
    # Room for every degree m below: (room + growth) / log 2 with growth at most ``most``, error at least FINEST_ERROR.
    most_points = ceil(2.0 * (log(4.0 / FINEST_ERROR) - log(alpha)) / log(2.0)) + 2
    values, coefficients, points = np.empty(most_points), np.empty(most_points), np.empty((most_points, 3))
    cosines = np.empty(2 * most_points)
    b, cell, half, skip = top, 0.1 / n, 1.0 / n, 0
    error = FINEST_ERROR
    while True:
        if b <= bottom or region_probability(region, corner(kind, L, bottom, b), drop) <= goal:
            return True, b
        if b - bottom < 1e-20:
            return False, b
        if half < 0.25 * cell or skip == 0:
            a = max(b - cell, bottom)
            if region_probability(region, corner(kind, L, a, b), drop) <= goal:
                b = a
                cell *= 1.6
                continue
            cell *= 0.5
            skip = 3
        skip -= 1
        half = min(4.0 * half, 0.4 * (b - bottom), LONGEST_HALF)
        room = log(4.0 / error)
        # Points for a width w, (room + growth) / w with growth = fixed + w^2, are fewest where w^2 = room + fixed.
        most = room if L >= 0.0 else room - 2.0 * log(alpha)
        growth = log_growth(kind, L, n, b, half, alpha)
        while growth > most and half > 0.5 * cell:
            half *= max(0.98 * sqrt(most / growth), 0.2)  # the growth is nearly quadratic in the width
            growth = log_growth(kind, L, n, b, half, alpha)
        if growth > most:
            if cell < 1e-14:
                return False, b
            skip = 0
            continue
        m = ceil((room + growth) / log(2.0))
        middle = b - half
        for k in range(2 * m):
            cosines[k] = cos(pi * k / m)
        for k in range(m + 1):
            points[k, 0], points[k, 1], points[k, 2] = curve_point(kind, L, middle + half * cosines[k])
        region_probabilities(region, points[: m + 1], drop, values)
        for k in range(m + 1):
            if values[k] > goal:
                return False, middle + half * cosines[k]
        for k in range(m + 1):
            total = 0.5 * (values[0] + (values[m] if k % 2 == 0 else -values[m]))
            at = 0
            for i in range(1, m):
                at += k
                if at >= 2 * m:
                    at -= 2 * m
                total += values[i] * cosines[at]
            coefficients[k] = total * (2.0 / m)
        coefficients[0] *= 0.5
        coefficients[m] *= 0.5
        allowed = goal - alpha * (INTERPOLANT_ROUNDING + error)
        ceiling, angle = polynomial_ceiling(coefficients, m, values, allowed)
        if ceiling > allowed:
            if error > FINEST_ERROR:
                error = FINEST_ERROR
                continue
            return False, middle + half * cos(angle)
        error = min(max(0.3 * (1.0 - ceiling / alpha), FINEST_ERROR), COARSEST_ERROR)
        b -= 2.0 * half
        cell = max(cell, 0.5 * half)


WIDEST = 80.0
"""Largest quantile margin of the search: beyond, ``Phi`` underflows."""
SCANNED = 16
"""Number of points of the curve that ``scan`` evaluates together."""
FIRST_STEP, STRETCH, LONGEST_STEP = 0.3, 1.5, 0.12
"""First step of ``scan`` from the top of the curve, in units of ``1/n``, where one count more of the rest matters; how
many times longer each next one is; and the longest, in t: an eighth of a normal deviation."""
LONGEST_SHIFT, LONGEST_SHARE = 0.04, 0.3
"""Longest step of ``scan`` for probability margins: in t, and as a share of the distance to the bottom, t = 0."""
MAXIMISER_TOLERANCE = 3e-4
"""Accuracy of the t that ``climb`` returns, relative to ``reach``; the maximum is accurate to about its square."""
GOLDEN = 0.6180339887498949
FLAT = 1e-13
"""Distance of the log probability from log alpha at which ``margin_at`` stops: about the rounding error."""


@inner
def log_at(kind: int, L: float, t: float, region: Region, drop: float) -> float:
    """Return the log of a region's probability at ``curve_point(kind, L, t)``, at least log 1e-300.

    The probability is too large by at most ``2 * drop`` (``region_probability``).
    """
    return log(max(region_probability(region, curve_point(kind, L, t), drop), 1e-300))


@inner
def margin_at(kind: int, L: float, t: float, region: Region, alpha: float) -> float:
    """Return the margin at which a region has probability ``alpha`` at parameter ``t`` of its curve; L is a guess."""
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
    """Return where, along the curve of margin ``L``, a region's probability has a local maximum: the parameter there.

    Golden section searches within ``reach`` of the parameter ``t``; ``drop`` is that of ``region_probability``.
    """
    top = curve_top(kind)
    low, high = t - reach, min(t + reach, top)
    if kind == PROBABILITY:
        low = max(low, 0.0)
    x, y = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    f, g = log_at(kind, L, x, region, drop), log_at(kind, L, y, region, drop)
    while high - low > MAXIMISER_TOLERANCE * reach:
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
    """Return, of a few points of the curve of margin ``L``, the t at which a region is likeliest, and their spacing."""
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
