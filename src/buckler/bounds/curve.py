"""The curve of trinomials with a given margin: where the supremum over ``{q : theta(q) <= L}`` lies (T5).

- quantile margin: ``q1 = Phi(t + L/2)``, ``q2 = Phi(t - L/2)``, ``t <= 0``;
- probability margin: ``q1 = max(L, 0) + r``, ``q2 = max(-L, 0) + r``, ``r = (1 - |L|) t / 2``, ``0 <= t <= 1``.

The third probability is part of a point: where the rival holds nearly everything ``q2`` rounds to 1, and
``1 - q1 - q2`` would be noise. Rounding of the cells is accounted for in F1.
"""

from math import erfc, inf
from typing import NamedTuple

from buckler.bounds.compiled import compiled, inner

SQRT_HALF = 0.7071067811865476
INV_SQRT_TWO_PI = 0.3989422804014327
PROBABILITY = 0
QUANTILE = 1
LARGE = 0.75
"""The complement of a probability up to this keeps its digits; above, it is computed on its own."""


class Trinomial(NamedTuple):
    """Cell probabilities of the class, its rival and the rest."""

    q1: float
    q2: float
    q3: float


@inner
def normal_cells(L: float, a: float, b: float) -> Trinomial:
    """Return ``Phi(b + L/2)``, ``Phi(a - L/2)`` and the rest, without cancellation however far out they lie.

    The rest is the smaller of the two complements, ``1 - q1`` for ``L >= 0`` and ``1 - q2`` for ``L < 0``, less the
    other cell: its error is a few roundoffs of that complement, never of 1.
    """
    u, v = b + 0.5 * L, a - 0.5 * L
    q1, q2 = 0.5 * erfc(-u * SQRT_HALF), 0.5 * erfc(-v * SQRT_HALF)
    if L < 0.0:
        return Trinomial(q1, q2, 0.5 * erfc(v * SQRT_HALF) - q1)
    return Trinomial(q1, q2, 0.5 * erfc(u * SQRT_HALF) - q2)


@compiled
def corner(kind: int, L: float, a: float, b: float) -> Trinomial:
    """Return ``q1`` at parameter ``b`` and ``q2`` at ``a <= b``: on ``[a, b]`` no q1 is larger and no q2 smaller.

    Unless ``q2`` is large, ``q3`` is exactly what the rounded ``q1`` and ``q2`` leave. If it is, and may round to 1,
    ``q3`` is computed on its own.
    """
    if kind == PROBABILITY:
        width = 1.0 - abs(L)
        q1, q2 = max(L, 0.0) + 0.5 * width * b, max(-L, 0.0) + 0.5 * width * a
        q3 = width * (1.0 - 0.5 * (a + b))
    else:
        q1, q2, q3 = normal_cells(L, a, b)
    if q2 <= LARGE:
        d = 1.0 - q2
        q3 = (d - q1) + ((1.0 - d) - q2)
    return Trinomial(q1, q2, max(q3, 0.0))


@compiled
def without_rival(q: Trinomial) -> float:
    """Return ``1 - q2`` without cancellation."""
    return 1.0 - q.q2 if q.q2 <= LARGE else q.q1 + q.q3


@compiled
def curve_point(kind: int, L: float, t: float) -> Trinomial:
    """Return the trinomial at parameter ``t``."""
    return corner(kind, L, t, t)


@compiled
def curve_top(kind: int) -> float:
    """Return the largest parameter, where ``q3 = 0``."""
    return 1.0 if kind == PROBABILITY else 0.0


@compiled
def curve_bottom(kind: int) -> float:
    """Return the infimum of the parameters."""
    return 0.0 if kind == PROBABILITY else -inf
