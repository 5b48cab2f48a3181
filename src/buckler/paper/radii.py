"""R1, the paper's radius from the probability margin through a Lipschitz constant; R1+ of ``noise`` is never below it.

``R1 = M1 / (sqrt(2) L)`` with L the l2-Lipschitz constant of the smoothed soft classifier. Any map into the simplex
smoothed with sigma has ``L <= 1 / (sigma sqrt(pi))``, so ``R1 = sigma sqrt(pi / 2) M1`` (T1).
"""

from math import inf, nextafter, pi, sqrt

from buckler.errors import check_positive
from buckler.noise.gaussian import ROUNDING, SMALLEST


def lipschitz_radius(margin: float, sigma: float, lipschitz: float | None = None) -> float:
    """Return R1, rounded down; 0.0 if the margin is not positive.

    ``lipschitz`` is a known l2 constant of the *soft* base classifier (softmax at temperature T included, not of its
    logits): smoothing does not raise it, so the smaller of both constants is used.

    >>> lipschitz_radius(0.5, 1.0) < lipschitz_radius(0.5, 1.0, lipschitz=0.1) < 0.5 / (2**0.5 * 0.1)
    True
    """
    if not margin > 0.0:
        return 0.0
    slope = 1.0 / (sigma * sqrt(pi))
    if lipschitz is not None:
        slope = min(slope, check_positive("lipschitz", lipschitz))
    radius = nextafter(margin / (sqrt(2.0) * slope), -inf) * ROUNDING
    return radius if radius >= SMALLEST else 0.0
