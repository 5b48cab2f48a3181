"""Samples needed to certify a radius with 90 % power, by method.

    python benchmarks/discrete_samples.py

For each truth (top class, runner-up) and target radius in units of sigma (R2 = sigma M2 / 2), the smallest n on a
geometric grid at which at least 90 % of seeded draws of the counts certify it.
"""

import argparse

import numpy as np
from scipy.special import betaincinv, ndtri

from buckler.bounds.buehler import exact_margin_lower
from buckler.types import FloatArray, IntArray

CASES = [
    (0.60, 0.10, 0.50),
    (0.80, 0.05, 1.00),
    (0.80, 0.15, 0.75),
    (0.90, 0.03, 1.25),
    (0.95, 0.02, 1.50),
    (0.99, 0.005, 2.00),
    (0.45, 0.05, 0.50),
]


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


def main() -> None:
    """Print one row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--largest", type=int, default=10_000)
    options = parser.parse_args()
    print(f"{'p':>14} {'radius':>7} {'exact':>7} {'bonferroni':>11} {'top_class':>10} {'saving':>14}")
    for p1, p2, radius in CASES:
        row = [
            needed(method, p1, p2, radius, options.alpha, options.draws, options.largest)
            for method in ("exact", "bonferroni", "top_class")
        ]
        shown = [f"> {options.largest}" if n is None else str(n) for n in row]
        saving = " / ".join("-" if n is None or row[0] is None else f"{n / row[0]:.2f}" for n in row[1:])
        print(f"({p1:.2f}, {p2:.3f}) {radius:6.2f} {shown[0]:>7} {shown[1]:>11} {shown[2]:>10} {saving:>14}")


if __name__ == "__main__":
    main()
