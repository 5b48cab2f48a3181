"""How far the continuous limits stay from the truth, relative to the central limit theorem; prints tables.

The oracle ``min_j mean_j - z_alpha sd_j / sqrt(n)``, on the same draws, is no certificate: on skewed laws it misses
more often than alpha, and where the deviation is small against ``range / n`` no valid limit for a bounded variable
comes near it. The last column of the first table is the best that a bettor who knows the law of the closest pair could
plan for, ``n KL_inf(law, m) = ln(1/alpha)``, against ``z sd / sqrt(n)``: the fairer yardstick there.

Families: softmax at temperature T of Gaussian logits of deviation ``spread``, m = 10, class 0 ahead of the others by
``gap`` and class 1 ahead of the rest by ``lead`` (0: nine rivals tie, and the smallest of nine limits is compared with
the smallest of nine oracles).

With ``--run`` also the scores of a recorded run, such as ``evidence/cifar10-sigma0.50``: the mean certified first
margin of the true label over its images, and the median of ``(estimate - limit) / (estimate - oracle)``.

Run: python benchmarks/continuous_width.py [--replicates 200] [--run evidence/cifar10-sigma0.50]
"""

import argparse
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri, softmax

from buckler.bounds.betting import star_lower
from buckler.certify.scores import LIMITS, score_margin_lower
from buckler.runs.store.evidence import open_evidence
from buckler.types import FloatArray, IntArray, Limit

ALPHA = 1e-3
FAMILIES = [
    (temperature, gap, spread, lead)
    for temperature in (0.1, 1.0)
    for gap, spread, lead in (
        (1.0, 1.5, 0.0),
        (2.0, 1.5, 1.0),
        (2.0, 3.0, 2.0),
        (4.0, 3.0, 0.0),
        (4.0, 3.0, 3.0),
        (8.0, 3.0, 3.0),
        (4.0, 1.5, 1.5),
        (1.0, 0.5, 0.5),
    )
]
Family = tuple[float, float, float, float]


def rows(rng: np.random.Generator, n: int, family: Family, m: int = 10) -> FloatArray:
    """Return score rows of one family."""
    temperature, gap, spread, lead = family
    z = rng.normal(size=(n, m)) * spread
    z[:, 0] += gap + lead
    z[:, 1] += lead
    return np.asarray(softmax(z / temperature, axis=1))


def oracle(data: FloatArray) -> FloatArray:
    """Return the smallest normal limit over rivals for each replicate of ``[replicates, n, m]``; not a certificate."""
    pairs = data[:, :, :1] - data[:, :, 1:]
    return np.asarray((pairs.mean(axis=1) + float(ndtri(ALPHA)) * pairs.std(axis=1) / sqrt(data.shape[1])).min(axis=1))


def informed(x: FloatArray, n: int) -> float:
    """Return the limit that the best fixed bet for a known law of draws in [-1, 1] plans for."""
    y = (1.0 + x) / 2.0

    def growth(m: float) -> float:
        top = (1.0 - 1e-9) / m

        def slope(bet: float) -> float:
            return float(np.mean((y - m) / (1.0 + bet * (y - m))))

        bet = top if slope(top) > 0.0 else brentq(slope, 0.0, top)
        return float(np.mean(np.log1p(bet * (y - m)))) - log(1.0 / ALPHA) / n

    return 2.0 * float(brentq(growth, 1e-4, y.mean() - 1e-9)) - 1.0


def bonferroni(data: FloatArray, labels: IntArray, limit: Limit) -> FloatArray:
    """Return the first margins of ``[inputs, n, m]`` from a limit of each class mean at alpha/m, the paper's."""
    found, part = [], ALPHA / data.shape[2]
    for rows, label in zip(data, labels.tolist(), strict=True):
        high = 1.0 - float(LIMITS[limit](1.0 - np.delete(rows, label, axis=1), part, 0.0, 1.0).min())
        found.append(float(LIMITS[limit](rows[:, label], part, 0.0, 1.0)) - high)
    return np.array(found)


def margin_variable(data: FloatArray, labels: IntArray, limit: Limit) -> FloatArray:
    """Return the first margins of ``[inputs, n, m]`` from a limit of the mean of ``X_A - max_j X_j``, the paper's."""
    z = [rows[:, k] - np.delete(rows, k, axis=1).max(axis=1) for rows, k in zip(data, labels.tolist(), strict=True)]
    return LIMITS[limit](np.stack(z, axis=1), ALPHA, -1.0, 1.0)


def first_margins(n: int, replicates: int) -> None:
    """Print the median distance of every limit from the true first margin, over that of the oracle."""
    others: list[tuple[Callable[..., FloatArray], Limit]] = [
        (way, limit)
        for limit in ("star", "sequence")
        for way in (bonferroni, margin_variable)  # type: ignore[misc]
    ]
    names = [*LIMITS, *(f"{way.__name__[:8]}/{limit[:6]}" for way, limit in others), "star, n0=100"]
    print(f"\nFirst margin, n = {n}, alpha = {ALPHA}: median(truth - limit) / median(truth - oracle)")
    print(f"{'T gap spread lead':>19} {'sd':>5} " + " ".join(f"{name:>15}" for name in names) + f" {'informed':>9}")
    everything: list[list[float]] = []
    for family in FAMILIES:
        rng = np.random.default_rng(1)
        known = rows(rng, 100000, family)
        pair = known[:, 0] - known[:, 1]
        truth, deviation = float(pair.mean()), float(pair.std())
        data = np.stack([rows(rng, n, family) for _ in range(replicates)])
        label = np.zeros(replicates, dtype=np.int64)
        reach = float(np.median(truth - oracle(data)))
        before = np.stack([rows(rng, 100, family) for _ in range(replicates)])
        lows = [score_margin_lower(data, label, ALPHA, "probability", limit) for limit in LIMITS]  # type: ignore[arg-type]
        lows += [way(data, label, limit) for way, limit in others]
        lows.append(score_margin_lower(data, label, ALPHA, "probability", selection=before))
        ratios = [float(np.median(truth - low)) / reach for low in lows]
        best = (truth - informed(pair, n)) / (-float(ndtri(ALPHA)) * deviation / sqrt(n))
        everything.append(ratios)
        print(
            f"{family[0]:>6} {family[1]:>4} {family[2]:>3} {family[3]:>3} {deviation:5.2f} "
            + " ".join(f"{r:15.3f}" for r in ratios)
            + f" {best:9.3f}"
        )
    medians = np.median(everything, axis=0)
    print(f"{'median':>25} " + " ".join(f"{value:15.3f}" for value in medians))


def recorded(root: Path, n: int) -> None:
    """Print how every limit does on the first n recorded draws of each image; abstentions count as 0 in the mean."""
    rows, labels = [], []
    for scores, _, label in open_evidence(root).scores(n, "softmax", 1.0):
        rows.append(scores.values[0])
        labels.append(label or 0)
    data, label = np.stack(rows), np.array(labels)
    order = np.stack([np.append(k, np.delete(np.arange(data.shape[2]), k)) for k in label])
    ahead = np.take_along_axis(data, order[:, None, :], axis=2)
    pairs = ahead[:, :, :1] - ahead[:, :, 1:]
    guess, best = pairs.mean(axis=1).min(axis=1), oracle(ahead)
    shown = (guess > 0.0) & (guess - best > 0.0)
    print(f"\n{root.name}, {len(data)} images, temperature 1, n = {n}, alpha = {ALPHA}")
    print(f"{'limit':>12} {'mean margin':>12} {'width/oracle':>13}")
    lows = {limit: score_margin_lower(data, label, ALPHA, "probability", limit=limit) for limit in LIMITS}  # type: ignore[arg-type]
    for name, low in [*lows.items(), ("oracle", best)]:
        ratio = np.median(((guess - low) / (guess - best))[shown])
        print(f"{name:>12} {np.maximum(low, 0.0).mean():12.4f} {ratio:13.3f}")


def halves(data: FloatArray) -> float:
    """Return the second margin by limits at alpha/2 for class 0 and alpha/2 for the largest rival, the baseline."""
    low = float(star_lower(data[:, 0], ALPHA / 2.0))
    high = 1.0 - float(star_lower(1.0 - data[:, 1:], ALPHA / 2.0).min())
    return float(ndtri(low) - ndtri(high)) if low > 0.0 and high < 1.0 else 0.0


def second_margins(n: int, replicates: int) -> None:
    """Print the mean certified second margin, abstentions counted as 0, of every way to choose slopes."""
    ways: dict[str, Callable[[FloatArray, FloatArray], float]] = {
        "halves": lambda x, _: halves(x),
        "adaptive": lambda x, _: float(score_margin_lower(x, 0, ALPHA, "quantile")),
        "adaptive+sel": lambda x, s: float(score_margin_lower(x, 0, ALPHA, "quantile", selection=s)),
    }
    print(f"\nSecond margin, n = {n}, alpha = {ALPHA}, selection of 100: mean of max(0, limit)")
    print(f"{'T gap spread lead':>19} {'truth':>6} " + " ".join(f"{name:>12}" for name in ways))
    totals = np.zeros(len(ways))
    for family in FAMILIES:
        rng = np.random.default_rng(2)
        mean = rows(rng, 100000, family).mean(axis=0)
        found = []
        for _ in range(replicates):
            data, before = rows(rng, n, family), rows(rng, 100, family)
            found.append([max(0.0, way(data, before)) for way in ways.values()])
        means = np.mean(found, axis=0)
        totals += means / len(FAMILIES)
        truth = float(ndtri(mean[0]) - ndtri(mean[1:].max()))
        print(
            f"{family[0]:>6} {family[1]:>4} {family[2]:>3} {family[3]:>3} {truth:6.3f} "
            + " ".join(f"{v:12.3f}" for v in means)
        )
    print(f"{'mean':>26} " + " ".join(f"{v:12.3f}" for v in totals))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--run", type=Path, help="a folder with recorded scores")
    options = parser.parse_args()
    replicates = options.replicates
    for n in (100, 300, 500) if options.run else ():
        recorded(options.run, n)
    for n in (100, 500):
        first_margins(n, replicates)
    for n in (100, 500, 2000):
        second_margins(n, max(5, replicates // (5 if n < 2000 else 20)))


if __name__ == "__main__":
    main()
