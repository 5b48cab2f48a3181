"""Compute every figure of docs/errata.md and print them, one table for each erratum.

    python benchmarks/errata.py          all of them, in about half a minute
    python benchmarks/errata.py E1 E7    some

A test compares what is computed here with what the page says.
"""

import sys
from collections.abc import Callable, Iterable
from itertools import product
from math import sqrt

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, xlogy

from buckler.certify.scores import as_scores, draws_of
from buckler.certify.votes import margin, vote_margin_lower
from buckler.evaluate.audit import CountsBound, audit_discrete
from buckler.paper.estimators import (
    METHODS,
    published_bernstein_lower,
    published_bisection,
    published_fast_bisection,
    published_margin_lower,
    published_margin_variable,
)
from buckler.paper.signomial import (
    curve_infimum,
    published_counted,
    published_program,
    published_quantile,
    published_starts,
    upper_region,
)
from buckler.types import FloatArray, IntArray, MarginKind

Figures = dict[str, str]

N, ALPHA = 100, 0.001
SMALL = "m = 3, n = 20, alpha = .05"
FINE = 1e-6
"""Where bisections end that are judged by their misses: near enough to the printed infimum not to be what is judged."""
LEAK = 1.65e-6
"""What each rival of a near-one-hot row gets: a softmax of logits 13.3 apart."""


def score_limits(name: str, scores: FloatArray, labels: Iterable[int], alpha: float, margin: MarginKind) -> FloatArray:
    """Return the limit of each input by a method for scores, whether it has a guarantee or not."""
    method = METHODS[name]
    record = as_scores("scores", scores)
    return np.array([method.limit(draws_of(record, i, k), alpha, margin) for i, k in enumerate(labels)])


def binary_miss(p: float, kind: MarginKind, order: int = 10) -> float:
    """Return the published bound's exact miss probability at the truth (p, 1 - p, 0), n = 100, alpha = .001."""
    k = np.arange(N + 1)
    lows = published_margin_lower(N - k, k, N, alpha=ALPHA, margin=kind, order=order, tolerance=FINE)
    log_pmf = gammaln(N + 1.0) - gammaln(k + 1.0) - gammaln(N - k + 1.0) + xlogy(N - k, p) + xlogy(k, 1.0 - p)
    return float(np.exp(log_pmf)[lows > margin(kind, p, 1.0 - p)].sum())


def worst_miss(kind: MarginKind, *, inclusive: bool = False, zero: bool = False) -> float:
    """Return the published bound's worst miss probability; its 0 is taken for an abstention unless ``zero``."""

    def bound(counts: IntArray) -> FloatArray:
        top, other, n = counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)
        lows = published_margin_lower(top, other, n, alpha=0.05, margin=kind, inclusive=inclusive, tolerance=FINE)
        return lows if zero else np.where(lows > 0.0, lows, -np.inf)

    return audited(bound, kind)


def audited(bound: CountsBound, kind: MarginKind) -> float:
    """Return the worst miss probability found in the setting ``SMALL``."""
    return audit_discrete(bound, margin=kind, num_classes=3, n=20, alpha=0.05, points=24).miss


def e1() -> Figures:
    """Return the figures of the strict inequality."""
    truth = float(margin("quantile", 0.995, 0.005))
    beyond = next(M for M in range(100) if 2.0 * published_quantile(1.0, M) > truth)
    just_below = float(ndtr(published_quantile(1.0, 10) - 1e-5))
    return {
        "largest valid bound at (100, 0), second margin": f"{vote_margin_lower(N, 0, N, method='top_class'):.5f}",
        "published bound at (100, 0), M = 10": f"{published_margin_lower(N, 0, N):.3f}",
        "published bound at (100, 0), M = 25": f"{published_margin_lower(N, 0, N, order=25):.3f}",
        "published bound at (100, 0), exact quantile": f"{published_margin_lower(N, 0, N, estimate='exact'):+.0f}",
        "true second margin of p = (.995, .005, 0)": f"{truth:.3f}",
        "smallest M whose bound at (100, 0) exceeds that": f"{beyond}",
        "miss probability at p = (.995, .005, 0), M = 25": f"{binary_miss(0.995, 'quantile', 25):.3f}",
        "miss probability at a true margin just below 4.562, M = 10": f"{binary_miss(just_below, 'quantile'):.3f}",
        "miss probability at p = (.999, .001, 0), first margin": f"{binary_miss(0.999, 'probability'):.3f}",
        f"worst miss probability found, first margin ({SMALL})": f"{worst_miss('probability'):.3f}",
        f"worst miss probability found, second margin ({SMALL})": f"{worst_miss('quantile'):.3f}",
    }


def near_one_hot(*classes: int) -> FloatArray:
    """Return rows over three classes that give all but ``LEAK`` for each rival to the class named."""
    return np.where(np.eye(3)[list(classes)] == 1.0, 1.0 - 2.0 * LEAK, LEAK)


def over_claiming() -> tuple[FloatArray, FloatArray]:
    """Return rows and weights of a law whose Z is above its second margin."""
    return near_one_hot(0, 1, 2), np.array([0.755, 0.147, 0.098])


def under_claiming() -> tuple[FloatArray, FloatArray]:
    """Return rows and weights of a law whose Z is below its second margin, with a mean of X_A above 1/2."""
    return np.vstack([[[2 / 3, 1 / 6, 1 / 6]], near_one_hot(1, 2)]), np.array([0.78, 0.11, 0.11])


def true_margin(rows: FloatArray, weights: FloatArray) -> float:
    """Return the second margin of class 0 under a law of rows."""
    means = weights @ rows
    return float(margin("quantile", means[0], means[1:].max()))


def mean_of_clipped_z(rows: FloatArray, weights: FloatArray) -> float:
    """Return the mean of Z with the exact quantile of scores clipped to [1e-6, 1 - 1e-6]."""
    z = ndtri(np.clip(rows, 1e-6, 1.0 - 1e-6))
    return float(weights @ (z[:, 0] - z[:, 1:].max(axis=1)))


def e2() -> Figures:
    """Return the figures of the mean of quantiles."""
    rows, weights = over_claiming()
    truth = true_margin(rows, weights)
    rng = np.random.default_rng(0)
    runs = rows[rng.choice(3, size=(40, 5000), p=weights)]
    lows = score_limits("cited/sequence", runs, np.zeros(40, dtype=np.int64), ALPHA, "quantile")
    z, under = (rows[:, 0], rows[:, 1:].max(axis=1)), under_claiming()
    return {
        "near-one-hot scores: true second margin": f"{truth:.2f}",
        "mean of Z, exact quantile clipped at 1e-6": f"{mean_of_clipped_z(rows, weights):.2f}",
        **{f"mean of Z, M = {M}": f"{weights @ published_margin_variable(*z, order=M)[0]:.2f}" for M in (10, 50)},
        "share of 40 runs whose bound exceeds the truth (n = 5000, M = 10)": f"{(lows > truth).mean():.2f}",
        "a swapping runner-up: true second margin": f"{true_margin(*under):.2f}",
        "a swapping runner-up: mean of Z, exact quantile clipped at 1e-6": f"{mean_of_clipped_z(*under):.2f}",
    }


def e3() -> Figures:
    """Return the figures of the empirical Bernstein inequality."""
    draws = np.tile([0.8, 1.0], 50)
    printed = draws.mean() - published_bernstein_lower(draws, ALPHA)
    stated = draws.mean() - published_bernstein_lower(draws, ALPHA, corrected=True)
    worst = max(bernoulli_miss(n, 0.05) for n in (2, 5, 10, 20, 50, 100, 300))
    return {
        "printed width (50 draws of .8 and 50 of 1, delta = .001)": f"{printed:.4f}",
        "width of the theorem": f"{stated:.4f}",
        "worst miss probability over Bernoulli laws (n up to 300, delta = .05)": f"{worst:.4f}",
    }


def bernoulli_miss(n: int, delta: float) -> float:
    """Return the printed bound's worst miss probability over Bernoulli truths, each just below one of its values."""
    k = np.arange(n + 1)
    lows = published_bernstein_lower((np.arange(n)[:, None] < k).astype(np.float64), delta)
    p = np.unique(lows[lows > 0.0])[:, None] - 1e-12
    log_pmf = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) + xlogy(k, p) + xlogy(n - k, 1.0 - p)
    return float((np.exp(log_pmf) * (lows > p)).sum(axis=1).max(initial=0.0))


def e4() -> Figures:
    """Return the figures of the confidence sequence."""
    found = {}
    for n in (100, 300, 500):
        rows = np.tile([1.0, 0.0, 0.0], (n, 1))
        low = {
            cited: score_limits(f"{way}/sequence", rows[None], [0], ALPHA, "probability")[0]
            for cited, way in enumerate(("published", "cited"))
        }
        found[f"bound of the first margin when every row is (1, 0, 0), n = {n}, as printed"] = f"{low[False]:.3f}"
        found[f"the same with the width of the theorem, n = {n}"] = f"{low[True]:.3f}"
    return found


def e5() -> Figures:
    """Return the figures of the correction over classes."""

    def low(classes: int) -> str:
        return f"{vote_margin_lower(80, 5, N, alpha=2.0 * ALPHA / classes, method='bonferroni'):.3f}"

    def bound(counts: IntArray) -> FloatArray:
        top, other, n = counts[:, 0], counts[:, 1:].max(axis=1), counts.sum(axis=1)
        return vote_margin_lower(top, other, n, alpha=2.0 * 0.05 / 3.0, method="bonferroni")

    return {
        "bound at (80, 5), alpha/m, m = 10": low(10),
        "bound at (80, 5), alpha/m, m = 1000": low(1000),
        "bound at (80, 5), alpha/2, any m": f"{vote_margin_lower(80, 5, N, alpha=ALPHA, method='bonferroni'):.3f}",
        f"worst miss probability found for alpha/m ({SMALL})": f"{audited(bound, 'quantile'):.4f}",
    }


def e6() -> Figures:
    """Return the figures of the signomial programme against the curve."""
    agree = 0
    kinds: tuple[MarginKind, ...] = ("probability", "quantile")
    for (x1, x2), kind in product([(12, 0), (10, 2), (10, 1), (9, 3)], kinds):
        pair = [
            published_margin_lower(x1, x2, 12, alpha=0.05, margin=kind, solver=solver, tolerance=1e-4)
            for solver in ("curve", "signomial")
        ]
        agree += int(abs(float(pair[0] - pair[1])) <= 2e-4)
    top = published_program(published_counted(1.0, N, "probability", 0), N, 0.5, "probability")
    return {
        "monomials of the objective at (100, 0)": f"{len(top.objective)}",
        "variables on the boundary curve": "1",
        "bounds of 8 on which programme and curve agree (n = 12, both to 1e-4)": f"{agree}",
    }


def e7() -> Figures:
    """Return the figures of the fast algorithm at counts (64, 36) of 100, first margin."""
    counted = published_counted(0.28, N, "probability", 0)
    region = upper_region(counted, N)
    start = published_starts(64, 36, N, "probability")[0]

    def solve(L: float) -> float:
        return curve_infimum(region, L, "probability", 0)

    def fast_solve(L: float) -> float:
        return published_program(counted, N, L, "probability").fast_solve(start)

    return {
        "FastSolveSignomial at L = .07": f"{fast_solve(0.07):.4f}",
        "the infimum at L = .07": f"{solve(0.07):.4f}",
        "Algorithm 4": f"{published_bisection(solve, 0.28, ALPHA):.4f}",
        "Algorithm 5": f"{published_fast_bisection(solve, fast_solve, 0.28, ALPHA):.4f}",
    }


def e8(T: float = 0.1, x: float = 0.1, sigma: float = 0.05) -> Figures:
    """Return the figures of R1 for logits (x, -x), whose constant is sqrt(2); the smoothed boundary is at x = 0."""
    z = np.linspace(-10.0, 10.0, 20001)
    weights = np.exp(-z * z / 2.0)
    first_margin = float((weights * np.tanh((x + sigma * z) / T)).sum() / weights.sum())
    return {
        "true first margin": f"{first_margin:.3f}",
        "true radius": f"{x:.3f}",
        "R1 with the constant of the logits": f"{first_margin / (sqrt(2.0) * sqrt(2.0)):.3f}",
        "R1 with the constant of the soft classifier": f"{first_margin / (sqrt(2.0) * sqrt(2.0) / (2.0 * T)):.3f}",
    }


def e9() -> Figures:
    """Return the figures of the gate."""
    q = np.arange(1, N) / N
    loss = ndtri(q) - published_quantile(q, 10)
    q1, q2 = np.tril_indices(len(q))
    return {
        f"worst miss probability found with the inequality mended, over alpha ({SMALL})": (
            f"{worst_miss('quantile', inclusive=True) / 0.05:.2f}"
        ),
        "pairs q1 >= q2 on a grid of .01": f"{len(q1)}",
        "of them with a Taylor margin above the true one, M = 10": f"{int((loss[q1] < loss[q2] - 1e-12).sum())}",
    }


def e10() -> Figures:
    """Return the figures of the bisection that starts at 0."""
    low = published_margin_lower(10, 60, N, margin="probability")
    return {
        "published bound at (10, 60), first margin": f"{low:.1f}",
        "the estimate there": "-0.5",
        f"worst miss probability found if 0 is read as a bound, first margin ({SMALL})": (
            f"{worst_miss('probability', zero=True):.3f}"
        ),
    }


ERRATA: dict[str, Callable[[], Figures]] = {
    "E1": e1,
    "E2": e2,
    "E3": e3,
    "E4": e4,
    "E5": e5,
    "E6": e6,
    "E7": e7,
    "E8": e8,
    "E9": e9,
    "E10": e10,
}


def main(names: list[str]) -> None:
    """Print the tables of the errata named, or of all."""
    if unknown := [name for name in names if name not in ERRATA]:
        sys.exit(f"arguments must be of {', '.join(ERRATA)}; got {unknown[0]!r}")
    for name in names or list(ERRATA):
        print(f"\n{name}\n\n| figure | computed |\n|---|---|")
        for figure, computed in ERRATA[name]().items():
            print(f"| {figure} | {computed} |")


if __name__ == "__main__":
    main(sys.argv[1:])
