"""How much a bettor stakes on the next draw, from the wealth so far and the moments of earlier draws.

Were the draws Gaussian with known deviation s, the best test of a candidate m at level alpha and horizon n would be the
z-test, and its wealth a digital option: with wealth K against m and r draws left, hold ``lambda = h / (s sqrt r)``,
where ``h = phi(d) / Phi(d)`` and ``Phi(d) = alpha K``. For small alpha K this is the target-recalculating stake
``sqrt(2 ln(1/(alpha K)) / r) / s`` of Voracek & Orabona (2025). A law of skewness g calls for ``1 + g h / (6 sqrt r)``
times as much, to first order (the saddlepoint of the option, projected on factors linear in y).

Heuristic: any nonnegative number computed from the past is a sound stake, so nothing here needs to be exact.
"""

from math import sqrt

import numpy as np
from scipy.special import ndtri_exp

from buckler.bounds.bets import PRIOR
from buckler.bounds.compiled import compiled, inner
from buckler.types import FloatArray

STEPS = 200
"""Entries of the table of hazards for a unit of x."""

LAST_ROOT = 16
"""Where the table ends, at ``alpha K = exp(-256)``; beyond, ``h`` is ``sqrt(2) x`` to within 1 percent."""

LEAST_VARIANCE = 1e-12
"""Below this a variance is the rounding error of the moments it is computed from."""

LEAST_CORRECTION, MOST_CORRECTION = 0.2, 1.5
"""How far skewness may change a stake: the first-order term is no longer to be trusted beyond."""

_ROOTS: FloatArray = np.arange(1, LAST_ROOT * STEPS + 2) / STEPS
_LOG_DENSITY: FloatArray = -0.5 * ndtri_exp(-(_ROOTS**2)) ** 2 - 0.5 * np.log(2.0 * np.pi)
HAZARDS: FloatArray = np.concatenate([[0.0], np.exp(_LOG_DENSITY + _ROOTS**2)])
"""``h`` where ``alpha K = exp(-x^2)``, for x = 0, 1/200, ..., 16."""


@compiled
def hazard(log_price: float, hazards: FloatArray) -> float:
    """Return ``h`` where ``ln(alpha K)`` is ``log_price < 0``, from the table."""
    x = sqrt(-log_price) * STEPS
    k = int(x)
    if k + 1 >= hazards.size:
        return 1.4142135623730951 * x / STEPS
    return float(hazards[k] + (x - k) * (hazards[k + 1] - hazards[k]))


@inner
def deviation_of(moments: FloatArray) -> float:
    """Return the deviation behind a count and the sums of y and y^2."""
    mean = moments[1] / moments[0]
    return sqrt(max(moments[2] / moments[0] - mean * mean, LEAST_VARIANCE))


@inner
def stake_for(log_price: float, left: int, moments: FloatArray, hazards: FloatArray) -> float:
    """Return the stake of a bettor whose ``ln(alpha K)`` is ``log_price``, with ``left`` draws to go.

    ``moments`` are the count of draws and the sums of y, y^2 and y^3, those of the prior included.
    """
    mean, second, third = moments[1] / moments[0], moments[2] / moments[0], moments[3] / moments[0]
    deviation = deviation_of(moments)
    reach = hazard(log_price, hazards) / sqrt(left)
    skewness = (third - 3.0 * mean * second + 2.0 * mean**3) / deviation**3
    return float(reach / deviation * min(max(1.0 + skewness * reach / 6.0, LEAST_CORRECTION), MOST_CORRECTION))


@inner
def fill_moments(sums: FloatArray, c: float, moments: FloatArray) -> None:
    """Fill in the count and the sums of y, y^2 and y^3 for ``y = (a - c b + c)/(1 + c)``, the prior included.

    ``sums`` are the count and the sums of a, b, aa, ab, bb, aaa, aab, abb and bbb.
    """
    count, z = sums[0], sums[1] - c * sums[2]
    zz = sums[3] - 2.0 * c * sums[4] + c * c * sums[5]
    zzz = sums[6] - 3.0 * c * sums[7] + 3.0 * c * c * sums[8] - c**3 * sums[9]
    scale = 1.0 / (1.0 + c)
    half = 0.5 * PRIOR
    moments[0], moments[1] = PRIOR + count, half + (z + c * count) * scale
    moments[2] = half + (zz + 2.0 * c * z + c * c * count) * scale**2
    moments[3] = half + (zzz + 3.0 * c * zz + 3.0 * c * c * z + c**3 * count) * scale**3


@inner
def add_draws(a: FloatArray, b: FloatArray, sums: FloatArray) -> None:
    """Add draws to ``sums``."""
    sa = sb = saa = sab = sbb = saaa = saab = sabb = sbbb = 0.0
    for i in range(a.size):
        p, q = a[i], b[i]
        pp, qq = p * p, q * q
        sa, sb = sa + p, sb + q
        saa, sab, sbb = saa + pp, sab + p * q, sbb + qq
        saaa, saab, sabb, sbbb = saaa + pp * p, saab + pp * q, sabb + p * qq, sbbb + q * qq
    sums[0] += a.size
    sums[1] += sa
    sums[2] += sb
    sums[3] += saa
    sums[4] += sab
    sums[5] += sbb
    sums[6] += saaa
    sums[7] += saab
    sums[8] += sabb
    sums[9] += sbbb
