"""Time of one exact limit on one core, and its ratio to a general-purpose global optimiser at n = 100.

    python benchmarks/discrete_speed.py

Up to n = 1000 the first limit in a plateau also finds that plateau; "first" and "again" are the same limits computed
twice.

The optimiser solves the same two-variable programme, the supremum of the region's probability over {theta(q) <= L},
by differential evolution with a bisection over L on top, to an accuracy of 1e-4 in L; it proves nothing.
"""

import argparse
import time

import numpy as np
from scipy.optimize import Bounds, differential_evolution
from scipy.special import ndtr, ndtri

from buckler.bounds.buehler import buehler_lower, outcome_region
from buckler.bounds.trinomial import Trinomial, make_region, region_probability
from buckler.types import FloatArray, MarginKind

MARGINS: list[MarginKind] = ["probability", "quantile"]


def mixed_pairs(n: int, many: int, seed: int) -> list[tuple[int, int]]:
    """Return count pairs of confident, hesitant and lost inputs."""
    rng = np.random.default_rng(seed)
    p = np.sort(rng.dirichlet([1.5, 0.4, 0.4], size=many), axis=1)[:, ::-1]
    return [tuple(rng.multinomial(n, row)[:2].tolist()) for row in p]


def timed(pairs: list[tuple[int, int]], n: int, alpha: float, margin: MarginKind) -> list[float]:
    """Return the milliseconds that each limit takes."""
    spent = []
    for x1, x2 in pairs:
        start = time.perf_counter()
        buehler_lower(x1, x2, n, alpha, margin)
        spent.append(1e3 * (time.perf_counter() - start))
    return spent


def by_global_optimiser(x1: int, x2: int, n: int, alpha: float) -> float:
    """Return the limit of the quantile margin as a general-purpose solver finds it."""
    region = make_region(n, outcome_region(x1, x2, n, alpha, "quantile")[0])

    def supremum(L: float) -> float:
        def loss(v: FloatArray) -> float:
            q2 = float(v[0])
            q1 = min(float(v[1]) * float(ndtr(ndtri(q2) + L)), 1.0 - q2)
            return -float(region_probability(region, Trinomial(q1, q2, max(1.0 - q1 - q2, 0.0)), 1e-30))

        bounds = Bounds([1e-9, 1e-9], [1.0 - 1e-9, 1.0])
        return -float(differential_evolution(loss, bounds, seed=0, tol=1e-8, popsize=15, maxiter=300).fun)

    low, high = -4.0, 4.0
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if supremum(middle) <= alpha else (low, middle)
    return low


def main() -> None:
    """Print medians and maxima, then the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--pairs", type=int, default=40, help="count pairs at each n (fewer from n = 1e5)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--optimiser", type=int, default=1, help="pairs given to the general-purpose optimiser")
    options = parser.parse_args()
    for margin in MARGINS:
        buehler_lower(7, 1, 10, options.alpha, margin)
    print(f"{'n':>8} {'margin':>12} {'median ms, first':>17} {'again':>9} {'largest ms, first':>18} {'again':>9}")
    typical = 0.0
    for n in options.sizes:
        for margin in MARGINS:
            pairs = mixed_pairs(n, options.pairs if n < 100_000 else max(options.pairs // 3, 1), n)
            first, again = timed(pairs, n, options.alpha, margin), timed(pairs, n, options.alpha, margin)
            medians = f"{np.median(first):17.3f} {np.median(again):9.3f}"
            print(f"{n:8d} {margin:>12} {medians} {max(first):18.3f} {max(again):9.3f}")
    for x1, x2 in mixed_pairs(100, options.optimiser, 1):
        start = time.perf_counter()
        ours = buehler_lower(x1, x2, 100, options.alpha, "quantile")
        middle = time.perf_counter()
        theirs = by_global_optimiser(x1, x2, 100, options.alpha)
        typical = (time.perf_counter() - middle) / (middle - start)
        print(f"n = 100, ({x1}, {x2}): exact {ours:.5f}, global optimiser {theirs:.4f}, {typical:.0f} times slower")


if __name__ == "__main__":
    main()
