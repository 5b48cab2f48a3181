"""The limit that no valid method for scores can pass, beside every method, on recorded scores; prints a table.

Each image's recorded scores are taken as its law. Draws are made from it, every method is run on them, and the mean
certified first margin of the true label (abstentions count as 0) is compared with the bound of T20 in docs/theory.md,
which holds for every valid lower limit of the mean of a bounded variable. In the problem with many classes each rival
gives such a bound, and the smallest at each margin counts; rivals are tried in the order of their means, and leaving
some out only raises the bound. The threshold c is chosen on half of the simulated runs and evaluated on the other half.

The last line is what the central limit theorem would give, which is no certificate: at small n it lies above the bound.

Run: python benchmarks/continuous_limit.py evidence/cifar10-sigma0.50 [--images 125] [--runs 200] [--draws 100 300 1000]
"""

import argparse
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from buckler.certificate import LEAST_UNIFORM
from buckler.certify.scores import as_scores, draws_of, limit_of
from buckler.runs.store.evidence import open_evidence
from buckler.types import FloatArray, IntArray, Limit

ALPHA = 1e-3
GRID = 192
"""Candidate means between 1/2 and the truth: left sums over them bound the integral from above."""

RIVALS = 2
Method = Callable[[FloatArray, IntArray, FloatArray], FloatArray]


def pairwise(limit: Limit, *, randomised: bool = False) -> Method:
    """Return the method of a limit, as a function of scores, labels and the uniform numbers of inputs."""

    def method(x: FloatArray, label: IntArray, u: FloatArray) -> FloatArray:
        scores, numbers = as_scores("scores", x), u if randomised else np.ones(len(x))
        given = [draws_of(scores, i, int(label[i]), uniform=float(numbers[i])) for i in range(len(x))]
        return np.array([limit_of(limit, draws, ALPHA, "probability") for draws in given])

    return method


METHODS: dict[str, Method] = {
    "pairwise/randomised_star": pairwise("star", randomised=True),
    "pairwise/star": pairwise("star"),
    "pairwise/sequence": pairwise("sequence"),
}


def best_stakes(y: FloatArray, candidates: FloatArray) -> FloatArray:
    """Return ``argmax over 0 <= l <= 1/m of mean(ln(1 + l (y - m)))`` for each candidate m, by bisection."""
    low, high = np.zeros(candidates.size), 1.0 / candidates
    gaps = y[None, :] - candidates[:, None]
    for _ in range(60):
        middle = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = (gaps / (1.0 + middle[:, None] * gaps)).mean(axis=1) > 0.0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return low


def exceedance(y: FloatArray, candidates: FloatArray, chosen: FloatArray, judged: FloatArray) -> FloatArray:
    """Return, for each candidate mean, a bound of the probability that a valid limit exceeds it.

    ``chosen`` and ``judged`` are indices ``[runs, n]`` into the law's values ``y``: the first choose c, the second are
    evaluated at it.
    """
    found = np.ones(candidates.size)
    for k, (m, stake) in enumerate(zip(candidates, best_stakes(y, candidates), strict=True)):
        gains = np.log1p(stake * (y - m))
        first, second = gains[chosen].sum(axis=1), gains[judged].sum(axis=1)
        levels = np.append(first, log(1.0 / ALPHA) + np.linspace(-4.0, 0.0, 9))
        costs = np.exp(levels) * ALPHA + np.maximum(0.0, -np.expm1(levels[:, None] - first)).mean(axis=1)
        c = levels[costs.argmin()]
        found[k] = min(1.0, np.exp(c) * ALPHA + np.maximum(0.0, -np.expm1(c - second)).mean())
    return found


def unreachable(scores: FloatArray, label: int, n: int, runs: int, rng: np.random.Generator) -> float:
    """Return the bound of the mean certified first margin at n draws, for one image's law."""
    means = scores.mean(axis=0)
    rivals = [j for j in np.argsort(-means) if j != label][:RIVALS]
    top = (1.0 + float(means[label] - means[rivals[0]])) / 2.0
    if top <= 0.5:
        return 2.0 * ALPHA * 0.5
    candidates = np.linspace(0.5, top, GRID, endpoint=False)
    chosen, judged = rng.integers(len(scores), size=(2, runs // 2, n))
    bounds = np.minimum.reduce(
        [exceedance((scores[:, label] - scores[:, j] + 1.0) / 2.0, candidates, chosen, judged) for j in rivals]
    )
    below = np.minimum.accumulate(bounds).sum() * (top - 0.5) / GRID
    return 2.0 * float(below + ALPHA * (1.0 - top))


def normal(rows: FloatArray, label: int) -> float:
    """Return the central limit theorem's figure, which is no certificate."""
    pairs = rows[:, label, None] - np.delete(rows, label, axis=1)
    return float((pairs.mean(axis=0) + float(ndtri(ALPHA)) * pairs.std(axis=0) / sqrt(len(rows))).min())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a folder with recorded scores")
    parser.add_argument("--images", type=int, default=125)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs behind the bound, for each image")
    parser.add_argument("--replicates", type=int, default=8, help="times that every method is run, for each image")
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 300, 1000])
    options = parser.parse_args()
    evidence = open_evidence(options.run)
    laws = [(scores.values[0], int(label or 0)) for scores, _, label in evidence.scores(None, "softmax", 1.0)]
    laws = laws[:: max(1, len(laws) // options.images)][: options.images]
    print(f"{options.run.name}, {len(laws)} images, temperature 1, alpha = {ALPHA}: mean certified first margin")
    print(f"{'':>29} " + " ".join(f"{f'n = {n}':>17}" for n in options.draws))
    columns: dict[str, list[float]] = {}
    for n in options.draws:
        rng = np.random.default_rng(n)
        bound = np.mean([unreachable(law, label, n, options.runs, rng) for law, label in laws])
        drawn = np.stack([law[rng.integers(len(law), size=n)] for law, _ in laws for _ in range(options.replicates)])
        labels = np.repeat([label for _, label in laws], options.replicates)
        columns.setdefault("no valid method above", []).append(float(bound))
        uniform = np.maximum(1.0 - rng.random(len(labels)), LEAST_UNIFORM)
        for name, method in METHODS.items():
            columns.setdefault(name, []).append(float(np.maximum(method(drawn, labels, uniform), 0.0).mean()))
        figures = [max(0.0, normal(rows, label)) for rows, label in zip(drawn, labels.tolist(), strict=True)]
        columns.setdefault("normal (no certificate)", []).append(float(np.mean(figures)))
    most = columns["no valid method above"]
    for name, values in columns.items():
        cells = [f"{value:.4f} ({100.0 * value / top:5.1f} %)" for value, top in zip(values, most, strict=True)]
        print(f"{name:>29} " + " ".join(f"{cell:>17}" for cell in cells))


if __name__ == "__main__":
    main()
