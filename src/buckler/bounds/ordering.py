"""The likelihood-ratio ordering of trinomial outcomes: profile deviance, value of an outcome, boundary of a region.

**Deviance.** Counts are first shifted: ``a = y + 1/2`` for the probability margin, ``a = y + (-1/4, 3/5, 3/5)`` for the
quantile margin, whose regions reach cells with few counts. There the exact binomial tail of ``X >= k`` behaves like the
deviance of about ``k - 1/3``, that of ``X <= k`` like ``k + 2/3`` (Peizer and Pratt, 1968); a shift of 1/2 would rank
one or two votes above outcomes that Clopper-Pearson ranks higher. With ``N`` the sum of ``a``, the profile deviance of
a margin ``L`` is ``D(y; L) = 2 min {sum a_i log(a_i / (N q_i)) : theta(q) = L}``. An outcome ``y`` *reaches* ``L`` if
``D(y; L) >= z^2`` and its estimate ``theta(a / N)`` lies above ``L``; ``z = Phi^-1(1 - alpha)``.

**Ordering.** The set of outcomes that reach ``L`` is up-closed and shrinks as ``L`` grows (T6). Its boundary runs
parallel to the margin curve, in standard errors, so that the probability along the curve is close to alpha everywhere;
that brings the limit close to the optimum. Margins are taken from the grid ``k * STEP``. The value of an outcome is the
largest index ``k`` that it reaches with ``GUARD`` to spare, and ``R_k`` is the set of outcomes that reach ``k`` without
the guard: whatever rounding does, ``R_k`` then holds every outcome with a value of ``k`` or more (F3). A decision
closer than ``NEAR`` is taken again from one fixed start, so that it depends on ``(y, k)`` alone.
"""

from math import exp, log, sqrt

import numpy as np
from scipy.special import ndtri

from buckler.bounds.compiled import compiled, inner
from buckler.bounds.trinomial import INV_SQRT_TWO_PI, PROBABILITY, QUANTILE, normal_cells
from buckler.types import IntArray

STEP = 2.0**-30
"""Step of the grid of margins; so fine that it does not affect limits."""
GUARD = 2.0 * 150.0 * 2.0**-53
"""Twice the rounding error of D, for each draw and 200 more (F3)."""
NEAR = 1e-5
"""A deviance this close to ``z^2`` is computed again from COLD. The error of a rough fit is far smaller."""
COLD = -0.7
"""Fixed start of every decisive fit. Heuristic: affects speed, not results."""
SMALLEST_Z = 0.5
"""Lower clamp of z, for alpha above 0.31; any z makes a valid ordering, one near 0 a useless one."""
TIGHT, ROUGH = 1e-10, 1e-5
"""Last relative step of the fit, by Newton's rule, which leaves an error of about its square: far below NEAR in D."""


@inner
def quantile_fit(a1: float, a2: float, a3: float, L: float, start: float, tolerance: float) -> float:
    """Return the ``t < 0`` that minimises ``-sum a_i log q_i`` on the quantile curve, which is convex in ``t``.

    Convex because ``Phi`` is log-concave and ``q3`` is the Gaussian mass of an interval whose ends are linear in t.
    """
    t = start
    low, high = -60.0, 0.0
    for _ in range(100):
        u, v = t + 0.5 * L, t - 0.5 * L
        q1, q2, q3 = normal_cells(L, t, t)
        f1, f2 = INV_SQRT_TWO_PI * exp(-0.5 * u * u), INV_SQRT_TWO_PI * exp(-0.5 * v * v)
        if q1 < 1e-280 or q2 < 1e-280:
            low = t
            t = 0.5 * (low + high)
            continue
        if q3 <= 0.0:
            high = t
            t = 0.5 * (low + high)
            continue
        m1, m2, m3 = f1 / q1, f2 / q2, (f1 + f2) / q3
        slope = a3 * m3 - a1 * m1 - a2 * m2
        if slope > 0.0:
            high = t
        else:
            low = t
        bend = a1 * m1 * (u + m1) + a2 * m2 * (v + m2) + a3 * (m3 * m3 - (u * f1 + v * f2) / q3)
        step = -slope / bend if bend > 0.0 else 0.0
        after = t + step
        if not low < after < high or bend <= 0.0:
            after = 0.5 * (low + high)
        if abs(after - t) <= tolerance * abs(t):
            return after
        t = after
    return t


@compiled
def profile(
    kind: int, y1: float, y2: float, n: int, L: float, start: float, tolerance: float = TIGHT
) -> tuple[float, float, float, float]:
    """Return the deviance D at the margin ``L``, its slope in y1, ``a1 - N q1`` at the fit, and the fitted t."""
    a1, a2, a3 = y1 + 0.5, y2 + 0.5, n - y1 - y2 + 0.5
    if kind == QUANTILE:
        a1, a2, a3 = y1 - 0.25, y2 + 0.6, n - y1 - y2 + 0.6
    total = a1 + a2 + a3
    if kind == QUANTILE:
        t = quantile_fit(a1, a2, a3, L, start, tolerance)
        q1, q2, q3 = normal_cells(L, t, t)
    else:
        # Cells r, r + |L| and w - 2 r, w = 1 - |L|: the likelihood equation is 2 N r^2 - b r - a |L| w = 0, a the count
        # of the cell r, with one positive root, taken without cancellation.
        far = abs(L)
        w, a = 1.0 - far, a1 if L < 0.0 else a2
        b = (a1 + a2) * w - 2.0 * (a + a3) * far
        root = sqrt(b * b + 8.0 * total * a * far * w)
        r = (b + root) / (4.0 * total) if b >= 0.0 else 2.0 * a * far * w / (root - b)
        t, q3 = far + 2.0 * r, w - 2.0 * r
        q1, q2 = (r, r + far) if L < 0.0 else (r + far, r)
    if q1 <= 0.0 or q2 <= 0.0 or q3 <= 0.0:
        return 1e300, 0.0, a1 - total * q1, t
    r1, r2, r3 = log(a1 / (total * q1)), log(a2 / (total * q2)), log(a3 / (total * q3))
    return 2.0 * (a1 * r1 + a2 * r2 + a3 * r3), 2.0 * (r1 - r3), a1 - total * q1, t


@compiled
def reaches(kind: int, y1: int, y2: int, n: int, k: int, zz: float) -> bool:
    """Return whether ``y`` reaches the margin ``k * STEP``, fitted from the fixed start."""
    if kind == QUANTILE and y1 == 0:
        return False
    deviance, _, excess, _ = profile(kind, y1, y2, n, k * STEP, COLD, TIGHT)
    return excess > 0.0 and deviance >= zz


@compiled
def value(kind: int, x1: int, x2: int, n: int, zz: float) -> int:
    """Return the value of ``x``: an index that it reaches with the guard to spare, the next not; or the lowest."""
    needed = zz + GUARD * (n + 200)
    low = int((-1.0 if kind == PROBABILITY else -40.0) / STEP)
    high = -low
    while high - low > 1:
        k = (low + high) // 2
        if reaches(kind, x1, x2, n, k, needed):
            low = k
        else:
            high = k
    return low


@inner
def settled(y: int, first: int, j: int, n: int, deviance: float, slope: float, zz: float) -> bool:
    """Return whether D and its slope at ``y`` show that ``first`` reaches the margin and ``first - 1`` does not.

    D lies above its tangent and below a parabola (T7; of quantile margins only for ``L >= 0``). Both must clear
    ``z^2`` by ``NEAR``, where any evaluation of D decides alike. The tangent at a ``first`` below the estimate would be
    negative, so a ``first`` that passes lies above it.
    """
    ahead, behind = first - y, first - 1 - y
    far = max(abs(ahead), abs(behind)) + 1.0
    a1, a3 = y - far, n - y - j - far
    if a1 < far or a3 < far:
        return False
    bend = behind * behind * (1.0 / a1 + 1.0 / a3)
    return deviance + slope * ahead >= zz + NEAR and deviance + slope * behind + bend < zz - NEAR


@inner
def first_reaching(
    kind: int, j: int, n: int, k: int, zz: float, floor: int, guess: int, start: float
) -> tuple[int, float]:
    """Return the smallest ``y1 >= floor`` with ``(y1, j)`` reaching ``k``, or ``n - j + 1``; and the next start."""
    low, high = floor - 1, n - j + 1
    y = min(max(guess, floor), n - j)
    t = start
    jump = 1
    while high - low > 1:
        deviance, slope, excess, t = profile(kind, y, j, n, k * STEP, t, ROUGH)
        above = excess > 0.0
        inside = above and deviance >= zz
        if not above or abs(deviance - zz) < NEAR:
            inside = reaches(kind, y, j, n, k, zz)
        if inside:
            high = y
        else:
            low = y
        if above and slope > 0.0:
            root = y + (zz - deviance) / slope
            if low < root < high and (kind == PROBABILITY or k >= 0):
                first = int(root) + 1
                if settled(y, first, j, n, deviance, slope, zz):
                    return first, t
            y = int(min(max(root, -1.0), n + 1.0)) + 1
            if inside and y >= high:
                y = high - 1
        else:
            y = low + jump
            jump *= 2
        y = min(max(y, low + 1), high - 1)
    return high, t


@compiled
def fill_boundary(kind: int, n: int, k: int, zz: float, c: IntArray) -> int:
    """Fill ``c`` with the boundary of ``R_k``, column by column, and return how many columns are nonempty.

    For the quantile margin outcomes with ``x1 = 0`` are ordered below all others: no limit but -inf holds there, and
    kept out of every other region they cost those nothing.
    """
    t, last, rise = COLD, 1 if kind == QUANTILE else 0, 0
    for j in range(n + 1):
        level, t = first_reaching(kind, j, n, k, zz, last, last + rise, t)
        if level > n - j:
            return j
        rise = level - last if j > 0 else 0
        last = level
        c[j] = level
    return n + 1


def deviance_needed(alpha: float) -> float:
    """Return ``z^2``, the deviance with which an outcome reaches a margin."""
    return max(-float(ndtri(alpha)), SMALLEST_Z) ** 2


def boundary(kind: int, n: int, k: int, zz: float) -> IntArray:
    """Return the boundary of ``R_k``."""
    c = np.zeros(n + 1, dtype=np.int64)
    return c[: fill_boundary(kind, n, k, zz, c)].copy()
