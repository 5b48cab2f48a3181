"""Power of each discrete method against the best randomised test, a linear programme over all tests.

    python benchmarks/discrete_power.py --n 100 --alpha 1e-3
    python benchmarks/discrete_power.py --samples

For a truth p and a target margin L, the power of a method is the probability that its limit exceeds L. The optimum
maximises the power at p over all randomised tests whose rejection probability is at most alpha along the margin
curve theta = L; the level is imposed on a grid of the curve, so the optimum shown is an upper bound. Targets are
neutral: those at which the optimum is .3, .5 and .7, whatever the limits of the methods are.

``--samples`` prints instead, for each truth and target radius in units of sigma (R2 = sigma M2 / 2), the smallest n on
a geometric grid at which at least 90 % of seeded draws of the counts certify it.
"""

import argparse

import numpy as np
from scipy.special import betaincinv, ndtri

from buckler.bounds.buehler import exact_margin_lower
from buckler.evaluate.audit import multinomial_pmf, outcomes, truths_on_curve
from buckler.evaluate.power import neutral_target
from buckler.types import FloatArray, IntArray

METHODS = ("exact", "bonferroni", "top_class")

TRUTHS = [
    (0.60, 0.10),
    (0.60, 0.30),
    (0.45, 0.25),
    (0.80, 0.05),
    (0.80, 0.15),
    (0.90, 0.05),
    (0.90, 0.02),
    (0.95, 0.01),
    (0.70, 0.01),
    (0.50, 0.05),
    (0.30, 0.05),
    (0.35, 0.20),
]

CASES = [
    (0.60, 0.10, 0.50),
    (0.80, 0.05, 1.00),
    (0.80, 0.15, 0.75),
    (0.90, 0.03, 1.25),
    (0.95, 0.02, 1.50),
    (0.99, 0.005, 2.00),
    (0.45, 0.05, 0.50),
]
"""Probability of the top class and of the runner-up, and a radius."""


def clopper_pearson_lower(k: IntArray, n: int, alpha: float) -> FloatArray:
    """Return the one-sided binomial limit."""
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)


def margins(method: str, x1: IntArray, x2: IntArray, n: int, alpha: float) -> FloatArray:
    """Return limits of the quantile margin."""
    if method == "exact":
        return exact_margin_lower(x1, x2, n, alpha, "quantile")
    if method == "bonferroni":
        return np.asarray(
            ndtri(clopper_pearson_lower(x1, n, alpha / 2)) + ndtri(clopper_pearson_lower(n - x2, n, alpha / 2))
        )
    return np.asarray(2.0 * ndtri(clopper_pearson_lower(x1, n, alpha)))


def needed(method: str, p1: float, p2: float, radius: float, alpha: float, draws: int, largest: int) -> int | None:
    """Return the smallest n of a 5 % grid that certifies the radius in 90 % of the draws, by bisection on the grid."""
    sizes = np.unique(np.round(np.geomspace(10, largest, 1 + int(np.log(largest / 10) / np.log(1.05)))).astype(int))
    low, high = -1, sizes.size
    while high - low > 1:
        middle = (low + high) // 2
        n = int(sizes[middle])
        x = np.random.default_rng(n).multinomial(n, [p1, p2, 1.0 - p1 - p2], size=draws)
        certified = np.mean(margins(method, x[:, 0], x[:, 1], n, alpha) >= 2.0 * radius)
        low, high = (low, middle) if certified >= 0.9 else (middle, high)
    return int(sizes[high]) if high < sizes.size else None


def samples(options: argparse.Namespace) -> None:
    """Print one row for each case."""
    print(f"{'p':>14} {'radius':>7} {'exact':>7} {'bonferroni':>11} {'top_class':>10} {'saving':>14}")
    for p1, p2, radius in CASES:
        row = [needed(method, p1, p2, radius, options.alpha, options.draws, options.largest) for method in METHODS]
        shown = [f"> {options.largest}" if n is None else str(n) for n in row]
        saving = " / ".join("-" if n is None or row[0] is None else f"{n / row[0]:.2f}" for n in row[1:])
        print(f"({p1:.2f}, {p2:.3f}) {radius:6.2f} {shown[0]:>7} {shown[1]:>11} {shown[2]:>10} {saving:>14}")


def main() -> None:
    """Print one row for each truth: the optimum and each method's share of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--points", type=int, default=60, help="points of the margin curve on which level is imposed")
    parser.add_argument("--truths", type=int, default=len(TRUTHS), help="how many rows of the table")
    parser.add_argument("--power", type=float, nargs="+", default=[0.3, 0.5, 0.7], help="optima at which targets lie")
    parser.add_argument("--samples", action="store_true", help="print the draws that a radius takes instead")
    parser.add_argument("--draws", type=int, default=200, help="with --samples: how often counts are drawn")
    parser.add_argument("--largest", type=int, default=10_000, help="with --samples: the most draws that are tried")
    options = parser.parse_args()
    if options.samples:
        samples(options)
        return
    n, alpha = options.n, options.alpha
    counts = outcomes(3, n)
    x1, x2 = counts[:, 0], counts[:, 1]
    shifts = 1.0 - np.concatenate([[0.0], np.geomspace(0.01, 0.75, options.points)])
    limits = {name: margins(name, x1, x2, n, alpha) for name in METHODS}
    print(f"n = {n}, alpha = {alpha:g}, quantile margin; shares of the optimal power")
    print(f"{'p':>14} {'L':>7} {'optimum':>8} " + " ".join(f"{name:>11}" for name in limits))
    shares = []

    def null(L: float) -> FloatArray:
        # Class 2 stands for all further classes, so the runner-up is class 1 along the whole curve.
        return multinomial_pmf(counts, np.unique(truths_on_curve("quantile", L, shifts, 3), axis=0))

    for p1, p2 in TRUTHS[: options.truths]:
        p = np.array([p1, p2, 1.0 - p1 - p2])
        truth = multinomial_pmf(counts, p[None])[0]
        for power in options.power:
            found = neutral_target(truth, null, alpha, power, float(ndtri(p1) - ndtri(p2)))
            if found is None:
                raise SystemExit(f"no test has a power of {power} at {p}")
            L, best = found
            row = {name: float(truth[limit > L].sum()) / best for name, limit in limits.items()}
            shares.append(row)
            print(f"({p1:.2f}, {p2:.2f}) {L:9.4f} {best:8.4f} " + " ".join(f"{v:11.4f}" for v in row.values()))
    for name in limits:
        own = [row[name] for row in shares]
        print(f"{name}: median share {np.median(own):.4f}, mean {np.mean(own):.4f}, lowest {min(own):.4f}")


if __name__ == "__main__":
    main()
