"""Power of each discrete method against the best randomised test, a linear programme over all tests.

    python benchmarks/discrete_power.py --n 100 --alpha 1e-3

For a truth p and a target margin L, the power of a method is the probability that its limit exceeds L. The optimum
maximises the power at p over all randomised tests whose rejection probability is at most alpha along the margin
curve theta = L; the level is imposed on a grid of the curve, so the optimum shown is an upper bound. Targets are
neutral: those at which the optimum is .3, .5 and .7, whatever the limits of the methods are.
"""

import argparse

import numpy as np
from scipy.special import betaincinv, ndtri

from buckler.bounds.buehler import exact_margin_lower
from buckler.evaluate.audit import multinomial_pmf, outcomes, truths_on_curve
from buckler.evaluate.power import neutral_target
from buckler.types import FloatArray, IntArray

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


def clopper_pearson_lower(k: IntArray, n: int, alpha: float) -> FloatArray:
    """Return the one-sided binomial limit."""
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)


def main() -> None:
    """Print one row for each truth: the optimum and each method's share of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--points", type=int, default=60, help="points of the margin curve on which level is imposed")
    parser.add_argument("--truths", type=int, default=len(TRUTHS), help="how many rows of the table")
    parser.add_argument("--power", type=float, nargs="+", default=[0.3, 0.5, 0.7], help="optima at which targets lie")
    options = parser.parse_args()
    n, alpha = options.n, options.alpha
    counts = outcomes(3, n)
    x1, x2 = counts[:, 0], counts[:, 1]
    shifts = 1.0 - np.concatenate([[0.0], np.geomspace(0.01, 0.75, options.points)])
    low, missing = clopper_pearson_lower(x1, n, alpha / 2), clopper_pearson_lower(n - x2, n, alpha / 2)
    limits = {
        "exact": exact_margin_lower(x1, x2, n, alpha, "quantile"),
        "bonferroni": ndtri(low) + ndtri(missing),
        "top_class": 2.0 * ndtri(clopper_pearson_lower(x1, n, alpha)),
    }
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
