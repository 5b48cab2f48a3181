"""The corners in which a kernel's buffers are fullest, each a line of its own on stdout when it was reached.

Run by ``test_compiled`` as a program, with numba's bounds checking on: there a write past an end raises IndexError.
"""

import numpy as np
from numpy.polynomial.chebyshev import chebval

from buckler.bounds.betting import NO_EARLIER, Pair, cells_limit, star_lower
from buckler.bounds.buehler import buehler_lower
from buckler.bounds.means import sequence_lower
from buckler.bounds.supremum import polynomial_ceiling
from buckler.certify.tangents import MARGINS, SLOPES
from tests.simulation import score_margin_lower


def near_constant_scores() -> None:
    """A window just wide enough that each of its nodes ends a cell, cut at once: one cell becomes a hundred."""
    for n, earlier, alpha in [(64, 0.705, 1e-3), (80, 0.87, 1e-6), (96, 0.76, 1e-6)]:
        rows, selection = np.tile([0.97, 0.03], (n, 1)), np.tile([earlier, 1.0 - earlier], (500_000, 1))
        assert float(score_margin_lower(rows, 0, alpha, "quantile", selection=selection)) > 0.0


def slopes_that_change_at_every_draw() -> None:
    """As many blocks as draws: in a row of a thousand draws, and of fewer."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 40, 1000):
        a = rng.random(n)
        pair = Pair(a, (1.0 - a) * rng.random(n), SLOPES, np.arange(n) % 13, NO_EARLIER)
        assert cells_limit(pair, MARGINS, 1e-3, 16.0) < 16.0


def points_of_an_interpolant() -> None:
    """The smallest alpha and negative margins, where an interpolant has its highest degree."""
    for margin in ("quantile", "probability"):
        for x1, x2, n in [(1, 9999, 10_000), (300, 600, 1000), (5, 5000, 10_000), (900, 50, 1000), (0, 3, 3)]:
            assert buehler_lower(x1, x2, n, 1e-12, margin) < 4.0
            assert buehler_lower(x1, x2, n, 0.3, margin) < 4.0


def any_number_of_draws() -> None:
    """Short and long columns, of every law, through each kernel of means."""
    rng = np.random.default_rng(1)
    for n in (1, 2, 31, 32, 33, 64, 65, 1023, 20_000):
        for x in (rng.beta(3.0, 1.0, n), np.ones(n), np.zeros(n), np.full(n, 0.7)):
            assert max(float(limit(x, 1e-3)) for limit in (star_lower, sequence_lower)) <= 1.0


def cells_halved_to_the_end() -> None:
    """A goal just below a maximum between two points, which no number of halvings proves."""
    coefficients = np.array([0.0, 0.3, -1.0, 0.2])
    points = np.cos(np.pi * np.arange(4) / 3)
    values, series = chebval(points, coefficients), chebval(np.cos(np.linspace(0.0, np.pi, 100_001)), coefficients)
    ceiling, _ = polynomial_ceiling(coefficients, 3, values, float(series.max()) - 1e-6)
    assert ceiling > series.max() - 1e-6


if __name__ == "__main__":
    for reach in (
        cells_halved_to_the_end,
        near_constant_scores,
        slopes_that_change_at_every_draw,
        points_of_an_interpolant,
        any_number_of_draws,
    ):
        reach()
        print(reach.__name__, flush=True)
