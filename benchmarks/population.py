"""Certified accuracy of a population from few draws, simulated from recorded certificates.

    python benchmarks/population.py LOG --sigma 0.25 --radius 0.5
    python benchmarks/population.py --run evidence/population/few --sigma 0.25 --radii 0.25 0.5
    python benchmarks/population.py LOG --sigma 0.25 --radius 0.5 --pilots
    python benchmarks/population.py --picture docs/images/population.png

LOG is a table (tabs) of certificates from 100,000 draws of each input, with the columns ``predict``, ``radius`` and
``correct``: the usual log of this field. The probability of the true class follows from a radius; where the certificate
is missing or of another class it is drawn uniformly below what that leaves. A population of inputs is drawn from the
log with replacement, votes of n draws are simulated, and the limits at level 0.999 are averaged over seeds:

- ``h``: ``buckler.population_accuracy``; ``list``: the same for the fixed list of inputs;
- ``votes``: the usual way, every input certified by Clopper-Pearson at level .001, the false ones paid;
- ``known``: the limit that would be had if every probability were known.

The last line is common practice: 500 inputs with 100,000 draws each. ``--run`` prints the limits of common practice
from a recorded run instead, each at level 0.999 for its radius alone. The picture shows a polynomial below its step.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import betaincinv, ndtr

from buckler import population_accuracy
from buckler.bounds.bernstein import below_step, binomial_pmf, fitted_pmf
from buckler.bounds.binomial import clopper_pearson_lower
from buckler.runs.store.evidence import open_evidence
from buckler.types import BoolArray, FloatArray, IntArray

RECORDED = 100_000
DELTA = 1e-3


def recorded_probabilities(log: Path, sigma: float, seed: int = 0) -> FloatArray:
    """Return the probability of the true class of each input of a log."""
    with log.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    radius = np.array([float(row["radius"]) for row in rows])
    right = np.array([row["correct"] == "1" for row in rows])
    votes = np.arange(RECORDED // 2, RECORDED + 1)
    # The largest radius that the level allows tells which level the log was made at.
    alpha = 0.001 if radius.max() < sigma * 3.82 else 0.01
    limits = betaincinv(votes, RECORDED - votes + 1, alpha)
    share = votes[np.minimum(np.searchsorted(limits, ndtr(radius / sigma)), votes.size - 1)] / RECORDED
    left = np.where([row["predict"] == "-1" for row in rows], 0.5, 1.0 - share)
    return np.where(right & (radius > 0.0), share, left * np.random.default_rng(seed).random(len(rows)))


def mean_limit(right: BoolArray, level: float) -> float:
    """Return the Clopper-Pearson limit of a share."""
    return float(clopper_pearson_lower(int(right.sum()), right.size, level))


def by_votes(votes: IntArray, n: int, t: float) -> float:
    """Return the best of the limits from inputs certified at level a, a = .1, .01, .001: the false ones are paid.

    A certificate of level a is false with probability at most a, so the share of certified inputs is at most the
    certified accuracy plus a. The best of several is too good, which is in favour of the usual way.
    """
    found = [0.0]
    for level in (0.1, 0.01, 0.001):
        certified = clopper_pearson_lower(votes, n, level) > t
        found.append((mean_limit(certified, DELTA) - level) / (1.0 - level))
    return max(found)


def simulated(
    p: FloatArray, n: int, inputs: int, sigma: float, radius: float, seed: int, pilot: float | None
) -> list[float]:
    """Return the truth, the limits, and the seconds that the first of them took."""
    rng, t = np.random.default_rng([seed, n, inputs]), float(ndtr(radius / sigma))
    drawn = rng.choice(p, inputs)
    votes = rng.binomial(n, drawn)
    counts = np.stack([votes, n - votes], axis=1)
    labels, began = np.zeros(inputs, dtype=np.int64), time.perf_counter()
    limits = [
        population_accuracy(counts, labels, radius, sigma=sigma, delta=DELTA, pilot=pilot, fixed_list=fixed).low[0]
        for fixed in (False, True)
    ]
    seconds = 0.5 * (time.perf_counter() - began)
    return [float(np.mean(drawn > t)), *limits, by_votes(votes, n, t), mean_limit(drawn > t, DELTA), seconds]


def draw(path: Path) -> None:
    """Draw h for 40 and 320 draws, and their polynomials below the step at t = Phi(1)."""
    t = float(ndtr(1.0))
    p = np.linspace(0.5, 1.0, 2001)
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for n, look in ((40, "C0o-"), (320, "C1.-")):
        h = below_step(n, t, fitted_pmf(np.zeros(0, dtype=np.int64), n), 10_000, DELTA)
        left.plot(np.arange(n + 1) / n, h, look, lw=0.7, ms=3, label=f"n = {n}")
        right.plot(p, binomial_pmf(n, p) @ h, look[:2], label=f"n = {n}")
    right.plot([0.5, t, t, 1.0], [0, 0, 1, 1], "k-", lw=0.8, label="1[p > t]")
    left.set(xlim=(0.5, 1.01), xlabel="share of votes k/n", ylabel="h(k)", title="the value of a count")
    right.set(xlabel="probability p of the true class", title="its mean, never above the step")
    for axes in (left, right):
        axes.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Print one row for each number of draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--picture", type=Path, help="draw the polynomials instead, to this file")
    parser.add_argument("--run", type=Path, help="print the limits of common practice from this run instead")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.25, 0.5], help="of --run")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--radius", type=float, default=0.5)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--draws", type=int, nargs="+", default=[40, 160, 320, 1000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pilots", action="store_true", help="compare shares of pilot inputs instead")
    options = parser.parse_args()
    if options.picture is not None:
        draw(options.picture)
        return
    if options.run is not None:
        evidence = open_evidence(options.run)
        votes = evidence.counts()
        right, n = votes.values[np.arange(len(votes.labels)), votes.labels], int(votes.values[0].sum())
        for radius in options.radii:
            print(f"r = {radius:g}: {by_votes(right, n, float(ndtr(radius / options.sigma))):.4f}")
        return
    if options.log is None:
        parser.error("a log of certificates, --run or --picture must be given")
    p = recorded_probabilities(options.log, options.sigma)
    exactly = (options.sigma, options.radius)
    if options.pilots:
        shares = (None, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
        titles = ["default" if share is None else f"{share:.2f}" for share in shares]
        print(f"{'inputs':>8} {'draws':>6} " + " ".join(f"{title:>13}" for title in titles) + "   (population, list)")
        for inputs in (500, 2000, options.inputs):
            for n in options.draws:
                rows = [
                    np.mean([simulated(p, n, inputs, *exactly, s, share) for s in range(options.seeds)], axis=0)
                    for share in shares
                ]
                print(f"{inputs:8} {n:6} " + " ".join(f"{row[1]:6.4f} {row[2]:6.4f}" for row in rows))
        return
    print(f"{'inputs':>8} {'draws':>8} {'truth':>7} {'known':>7} {'h':>7} {'list':>7} {'votes':>7} {'seconds':>8}")
    for n in options.draws:
        truth, h, listed, votes, known, seconds = np.mean(
            [simulated(p, n, options.inputs, *exactly, seed, None) for seed in range(options.seeds)], axis=0
        )
        print(f"{options.inputs:8} {n:8} {truth:7.4f} {known:7.4f} {h:7.4f} {listed:7.4f} {votes:7.4f} {seconds:8.2f}")
    usual = []
    for seed in range(options.seeds):
        drawn = np.random.default_rng([seed, RECORDED]).choice(p, 500)
        t = float(ndtr(options.radius / options.sigma))
        usual.append((np.mean(drawn > t), by_votes(np.random.default_rng(seed).binomial(RECORDED, drawn), RECORDED, t)))
    print(
        f"{500:8} {RECORDED:8} {np.mean(usual, axis=0)[0]:7.4f} {'':7} {'':7} {'':7} {np.mean(usual, axis=0)[1]:7.4f}"
    )


if __name__ == "__main__":
    main()
