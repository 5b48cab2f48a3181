"""Samples to decide radii, any-time against 100,000 for every image.

    python benchmarks/anytime.py [LOG.tsv ...] [--targets 0.25,0.5] [--every 1] [--third 0.0] [--mixtures]
    python benchmarks/anytime.py evidence/cifar10-sigma0.50-counts evidence/cifar10-sigma0.25-counts --radii 6
    python benchmarks/anytime.py evidence/cifar10-sigma0.50-counts --precision 0.05

A folder is a run of ``buckler sample`` with votes of 100,000 draws: their frequencies are taken as the truth, and votes
are drawn anew. ``--radii K`` decides a ladder of K radii, sigma/2 apart, for the class that the command certifies
unless told, the winner of the same draws, or for the true class (``--class label``); beside it is the certified
accuracy of ``exact`` at 100,000, on the same votes continued to there. All draws are counted. "certifying" are the
draws of certified inputs up to their last certificate, over Wald's lower limit for a known truth,
``ln(1/alpha) / KL(p || H0)``, both summed over inputs. ``--fitted`` weights the e-values by the truths themselves,
which is more than a prior learned from earlier inputs of the run can know. ``--precision`` certifies as much as there
is, to that share of the radius.

A log is a table of certificates at a fixed 100,000 draws, as the usual script writes it: idx, label, predict (-1 if it
abstained), radius, correct, time, with sigma in the file's name (``..._sigma_0.50.tsv``). Each radius gives back the
vote count behind it; its frequency is taken as the truth, the runner-up holding all of the rest (the hardest case) or
all but a share ``--third``. Votes are then drawn anew, and the fixed-n decision is made on the same votes continued to
100,000. ``--mixtures`` compares the e-values with mixtures over p_A alone, of a fixed prior and of one learned from
earlier images. Without a log, a synthetic set of images stands in.
"""

import argparse
import csv
import math
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import betainc, betaincc, betaln, ndtr, xlogy

from buckler.bounds.evalues import distance_to_null, tangent_mixture
from buckler.certify.ladder import Ladder, radii_for
from buckler.certify.sequential import AnytimeTest, Decided
from buckler.certify.votes import certify_votes
from buckler.noise import Gaussian
from buckler.runs.store.evidence import open_evidence
from buckler.types import FloatArray, IntArray

FIXED_N = 100_000
ABSTAINED = 0.45
"""The probability given to an image whose log abstained: its count is not recorded, only that it is about a half."""


def kl_to_null(p: FloatArray, L: float) -> FloatArray:
    """Return the least ``KL(p || q)`` over q of margin at most L: the best growth of a log e-value in a draw."""
    return np.asarray(0.5 * np.maximum(distance_to_null(p, L), 0.0) ** 2)


@dataclass(frozen=True)
class Images:
    """A set of images with known probabilities of their top class."""

    name: str
    sigma: float
    top: FloatArray


def frequencies(lower: FloatArray, alpha: float) -> FloatArray:
    """Return ``k / n`` for the count k whose Clopper-Pearson lower limit at n = 100,000 is ``lower``."""
    low, high = np.zeros_like(lower), np.full_like(lower, FIXED_N)
    for _ in range(40):
        k = 0.5 * (low + high)
        rare = betainc(np.maximum(k, 1e-9), FIXED_N - k + 1.0, lower) <= alpha
        low, high = np.where(rare, low, k), np.where(rare, k, high)
    return high / FIXED_N


def read_log(path: Path, every: int, rng: np.random.Generator) -> Images:
    """Return the images of a log; a radius is spread evenly over the interval its three digits stand for."""
    found = re.search(r"sigma_(\d+\.\d+)", path.name)
    if found is None:
        raise SystemExit(f"the name of a log must hold its sigma, as in ..._sigma_0.50.tsv; got {path.name}")
    sigma = float(found.group(1))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[::every]
    radius = np.array([float(row["radius"]) for row in rows])
    # The largest radius that n draws can give tells which alpha a log was made with.
    alpha = 1e-3 if radius.max() / sigma < 3.82 else 1e-2
    last_digit = 10.0 ** (np.floor(np.log10(np.maximum(radius, 1e-3))) - 2.0)
    lower = ndtr((radius + rng.uniform(-0.5, 0.5, radius.size) * last_digit) / sigma)
    top = np.where([int(row["predict"]) < 0 for row in rows], ABSTAINED, frequencies(lower, alpha))
    return Images(path.stem, sigma, np.minimum(top, 1.0))


def synthetic(rng: np.random.Generator) -> Images:
    """Return 500 images whose normal quantiles of the top probability spread like those of a trained network."""
    return Images("synthetic", 0.5, np.maximum(ndtr(rng.normal(1.2, 1.2, 500)), ABSTAINED))


def measure(images: Images, target: float, alpha: float, third: float, rng: np.random.Generator) -> str:
    """Return one line of the table: decide ``target`` for every image, and compare with the fixed n."""
    start = time.perf_counter()
    margin = 2.0 * target / images.sigma
    rest = 1.0 - images.top
    truths = np.stack([images.top, rest * (1.0 - third), rest * third], axis=-1)
    limits = math.log(1.0 / alpha) / np.maximum(kl_to_null(truths, margin), 1e-300)
    test = AnytimeTest(Ladder((target,), Gaussian(images.sigma), alpha, FIXED_N, winner=True), len(truths), 3)
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), truths[rows]))
    decided = [test.decided(row, str(row)) for row in range(len(truths))]
    n = test.n
    yes = np.array([d.certificate.predicted == 0 for d in decided])
    top = np.array([dict(d.votes).get(0, 0) for d in decided]) + rng.binomial(FIXED_N - n, truths[:, 0])
    usual = (top > 0) & (betainc(np.maximum(top, 1), FIXED_N - top + 1.0, ndtr(0.5 * margin)) <= alpha)
    ratio = float(np.median(n[yes] / limits[yes])) if yes.any() else math.nan
    return (
        f"{target:6.2f} {n.size:7d} {yes.mean():7.4f} {usual.mean():7.4f} {100 * (yes & ~usual).mean():6.2f} "
        f"{100 * (usual & ~yes).mean():6.2f} {n.mean():9.1f} {FIXED_N / n.mean():7.1f} {np.median(n):8.1f} "
        f"{FIXED_N / np.median(n):7.0f} {ratio:6.2f} {time.perf_counter() - start:7.1f}"
    )


def draws_to_certify(images: Images, target: float, alpha: float, rng: np.random.Generator) -> str:
    """Return the draws to certify a target by the ladder's e-values, and by mixtures over p_A of a fixed and a learned
    Beta prior above the threshold, for images whose Wald limit is at most 20,000.

    The learned prior has the moments of what the earlier images above the threshold were found to have, fitted anew
    every 50 images. All three are held to the whole of alpha, at looks 2 % apart.
    """
    margin, needed = 2.0 * target / images.sigma, math.log(1.0 / alpha)
    least = float(ndtr(0.5 * margin))
    limits = needed / np.maximum(
        kl_to_null(np.stack([images.top, 1.0 - images.top, 0.0 * images.top], -1), margin), 1e-9
    )
    p, limit = images.top[limits < 20_000], limits[limits < 20_000]
    looks = np.unique(np.geomspace(4, FIXED_N, 500).astype(np.int64))
    top = np.cumsum(rng.binomial(np.diff(looks, prepend=0), p[:, None]), axis=1)
    rest = looks - top
    null = xlogy(top, least) + rest * math.log1p(-least)

    def first(log_wealth: FloatArray) -> IntArray:
        reached = log_wealth >= needed
        return np.where(reached.any(axis=-1), reached.argmax(axis=-1), looks.size - 1)

    def beta(rows: slice, a: float, b: float) -> FloatArray:
        k, m = top[rows] + a, rest[rows] + b
        return np.asarray(
            betaln(k, m) - betaln(a, b) + np.log(np.maximum(betaincc(k, m, least), 1e-300) / betaincc(a, b, least))
            - null[rows]
        )  # fmt: skip

    wealth, estimates = tangent_mixture(margin).log_wealth, np.zeros(0)
    found: dict[str, list[IntArray]] = {"ladder": [], "fixed": [], "learned": []}
    for start in range(0, p.size, 50):
        rows, prior = slice(start, start + 50), (0.5, 0.5)
        if estimates.size > 10 and (spread := estimates.var()) > 0.0:
            mean = estimates.mean()
            size = max(mean * (1.0 - mean) / spread - 1.0, 0.1)
            prior = (mean * size, (1.0 - mean) * size)
        found["ladder"].append(first(wealth(top[rows], rest[rows], looks)))
        found["fixed"].append(first(beta(rows, 0.5, 0.5)))
        found["learned"].append(stops := first(beta(rows, *prior)))
        share = (top[np.arange(start, start + stops.size), stops] + 0.5) / (looks[stops] + 1.0)
        estimates = np.concatenate([estimates, share[share > least]])
    drawn = [looks[np.concatenate(stops)] for stops in found.values()]
    cells = [f"{n.mean():9.1f} {np.median(n):7.1f} {n.sum() / limit.sum():6.3f}" for n in drawn]
    return f"{target:6.2f} {p.size:7d} " + "  ".join(cells)


@dataclass(frozen=True)
class Recorded:
    """A run with votes: frequencies of every class, and the true class; by label or by winner."""

    name: str
    rule: str
    sigma: float
    truths: FloatArray
    labels: IntArray

    @property
    def fixed(self) -> IntArray | None:
        """The classes that are certified, or None for the winner."""
        return self.labels if self.rule == "label" else None


def read_run(folder: Path, rule: str) -> Recorded:
    """Return the votes of a finished run as frequencies."""
    evidence = open_evidence(folder)
    shards = list(evidence.read_shards())
    if any(shard.labels is None for shard in shards):
        raise SystemExit(f"{folder} must hold labels")
    votes = np.concatenate([shard.counts[:, -1] for shard in shards])
    labels = np.concatenate([np.asarray(shard.labels) for shard in shards])
    return Recorded(
        folder.name, rule, float(evidence.spec.noise.unit), votes / votes.sum(axis=1, keepdims=True), labels
    )


def climb(run: Recorded, ladder: Ladder, rng: np.random.Generator) -> tuple[AnytimeTest, IntArray]:
    """Return the test after every input is decided, and the votes of the same draws continued to 100,000."""
    test = AnytimeTest(ladder, len(run.labels) if run.fixed is None else run.fixed, run.truths.shape[1])
    votes = np.zeros(run.truths.shape, dtype=np.int64)
    while (rows := test.undecided).size:
        more = rng.multinomial(test.batch_sizes(rows), run.truths[rows])
        votes[rows] += more
        test.update(rows, more)
    return test, votes + rng.multinomial(FIXED_N - test.n, run.truths)


def closest(run: Recorded) -> FloatArray:
    """Return the probabilities of the true class, of its runner-up and of all others."""
    rows = np.arange(len(run.labels))
    others = run.truths.copy()
    others[rows, run.labels] = -1.0
    first, second = run.truths[rows, run.labels], others.max(axis=1)
    return np.stack([first, second, np.maximum(1.0 - first - second, 0.0)], axis=1)


def fit(run: Recorded, ladder: Ladder) -> None:
    """Weight the e-values of a ladder by the truths of its own inputs, a tenth being left as it was."""
    three, mixtures = closest(run), []
    for mixture in ladder.mixtures:
        growth = kl_to_null(three, mixture.L)
        some = growth > 9.0 / FIXED_N
        n = 9.0 / growth[some]
        terms = n[:, None] * (three[some] @ mixture.logs.T)
        shares = np.exp(terms - terms.max(axis=1, keepdims=True))
        shares = np.sqrt(n)[:, None] * shares / shares.sum(axis=1, keepdims=True)
        weights = 0.9 * shares.sum(axis=0) / max(shares.sum(), 1e-9) + 0.1 * np.exp(mixture.log_weights)
        mixtures.append(replace(mixture, log_weights=np.log(weights) - 1e-12))
    object.__setattr__(ladder, "mixtures", tuple(mixtures))


def over_limit(run: Recorded, ladder: Ladder, found: list[Decided], alpha: float) -> tuple[float, float]:
    """Return the draws up to the last certificate, and Wald's limits for them, summed over inputs of the true class."""
    three, drawn, limits = closest(run), 0.0, 0.0
    passed = np.array(
        [len(d.certified_at) if d.certificate.predicted == y else 0 for d, y in zip(found, run.labels, strict=True)]
    )
    for k in range(1, len(ladder) + 1):
        rows = np.flatnonzero(passed == k)
        limit = math.log(1.0 / alpha) / np.maximum(kl_to_null(three[rows], ladder.margins[k - 1]), 1e-300)
        likely = limit < 10 * FIXED_N  # a truth that has not the margin, or hardly, has no limit
        drawn += sum(found[row].certified_at[-1] for row in rows[likely])
        limits += float(limit[likely].sum())
    return drawn, limits


def table_of(run: Recorded, rungs: int, alpha: float, repeat: int, fitted: bool, rng: np.random.Generator) -> None:
    """Print draws and certified accuracies of the ladder sigma/2, ..., rungs sigma/2 beside those of the fixed n."""
    start = time.perf_counter()
    radii = tuple(0.5 * run.sigma * k for k in range(1, rungs + 1))
    ladder = Ladder(radii, Gaussian(run.sigma), alpha, FIXED_N, winner=run.fixed is None)
    if fitted:
        fit(run, ladder)
    draws, reached, fixed, over = [], [], [], []
    for _ in range(repeat):
        test, votes = climb(run, ladder, rng)
        found = [test.decided(row, str(row)) for row in range(len(run.labels))]
        whole = certify_votes(votes, sigma=run.sigma, alpha=alpha, labels=run.fixed)
        draws.append(test.n)
        over.append(over_limit(run, ladder, found, alpha))
        reached.append(
            [d.certificate.radius * (d.certificate.predicted == y) for d, y in zip(found, run.labels, strict=True)]
        )
        fixed.append(np.where(whole.predicted == run.labels, whole.radii, 0.0))
    n, (drawn, limits) = np.array(draws), np.sum(over, axis=0)
    print(
        f"{run.name}: {len(run.labels)} images, class {run.rule}, sigma {run.sigma:g}, alpha {alpha:g}, {rungs} radii"
        f"{', fitted' if fitted else ''}: mean n {n.mean():.0f} ({FIXED_N / n.mean():.1f} times fewer), median "
        f"{np.median(n):.0f} ({FIXED_N / np.median(n):.0f} times fewer), certifying {drawn / limits:.2f} of Wald's "
        f"limit, {time.perf_counter() - start:.0f} s"
    )
    # A radius that exact certifies exactly would be rounded below it: compared at a hair less.
    ours = np.array([(np.array(reached) >= r).mean() for r in radii])
    theirs = np.array([(np.array(fixed) >= r * (1.0 - 1e-9)).mean() for r in radii])
    for name, values in {"radius": np.array(radii), "ladder": ours, "exact at 100,000": theirs}.items():
        print(f"{name:>18}" + "".join(f"{value:8.4f}" for value in values))
    print(
        f"{'at most':>18}{(theirs - ours).max():8.4f} below; standard error of mean n {n.std() / math.sqrt(n.size):.0f}"
    )


def precision_of(run: Recorded, precision: float, alpha: float, rng: np.random.Generator) -> None:
    """Print what a precision costs, beside the fixed n whose ``exact`` certificates have the same median radius."""
    start = time.perf_counter()
    test, votes = climb(
        run,
        Ladder(
            radii_for(Gaussian(run.sigma), precision), Gaussian(run.sigma), alpha, FIXED_N, precision=precision,
            winner=run.fixed is None,
        ),
        rng,
    )  # fmt: skip
    radius = np.array([test.decided(row, str(row)).certificate.radius for row in range(len(run.labels))])
    low, high = 10, FIXED_N
    while high - low > max(1, low // 100):
        n = (low + high) // 2
        counts = np.array([rng.multinomial(n, truth) for truth in run.truths])
        whole = certify_votes(counts, sigma=run.sigma, alpha=alpha, labels=run.fixed)
        enough = np.median(whole.radii) >= np.median(radius)
        low, high = (low, n) if enough else (n, high)
    best = certify_votes(votes, sigma=run.sigma, alpha=alpha, labels=run.fixed).radii
    some = best > 0.0
    share = radius[some] / best[some]
    print(
        f"{run.name}: {len(radius)} images, class {run.rule}, sigma {run.sigma:g}, alpha {alpha:g}, precision "
        f"{precision:g}: mean n {test.n.mean():.0f}, median {np.median(test.n):.0f}; median radius "
        f"{np.median(radius):.3f}, that of exact at a fixed n of {high}; radius over that of exact at 100,000: mean "
        f"{share.mean():.3f}, a tenth below {np.quantile(share, 0.1):.3f}; {time.perf_counter() - start:.0f} s"
    )


def main() -> None:
    """Print a table for each log or run."""
    parser = argparse.ArgumentParser(description="Samples to decide radii, any-time against 100,000 each.")
    parser.add_argument("logs", nargs="*", type=Path, help="logs at n=100,000, or runs; none: synthetic images")
    parser.add_argument("--radii", type=int, help="for runs: decide a ladder of this many radii, sigma/2 apart")
    parser.add_argument("--precision", type=float, help="for runs: certify as much as there is, to this share")
    parser.add_argument("--class", dest="rule", choices=["winner", "label"], default="winner", help="for runs")
    parser.add_argument("--fitted", action="store_true", help="for --radii: e-values weighted by the truths themselves")
    parser.add_argument("--mixtures", action="store_true", help="for logs: draws to certify, beside other mixtures")
    parser.add_argument("--repeat", type=int, default=1, help="for --radii: votes are drawn anew this many times")
    parser.add_argument("--targets", default="0.25,0.5,0.75,1.0", help="target radii, separated by commas")
    parser.add_argument("--alpha", type=float, default=1e-3, help="error probability of both methods")
    parser.add_argument("--third", type=float, default=0.0, help="share of the other votes not held by the runner-up")
    parser.add_argument("--every", type=int, default=1, help="use every k-th image of a log")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.radii or options.precision:
        for run in (read_run(folder, options.rule) for folder in options.logs):
            if options.radii:
                table_of(run, options.radii, options.alpha, options.repeat, options.fitted, rng)
            if options.precision:
                precision_of(run, options.precision, options.alpha, rng)
        return
    for images in [read_log(path, options.every, rng) for path in options.logs] or [synthetic(rng)]:
        print(f"{images.name}: sigma {images.sigma:g}, alpha {options.alpha:g}, third-class share {options.third:g}")
        if options.mixtures:
            print(
                "target  images  mean, median, over Wald's limit: the ladder's e-values; Beta(1/2, 1/2); Beta learned"
            )
            for target in map(float, options.targets.split(",")):
                print(draws_to_certify(images, target, options.alpha, rng), flush=True)
            continue
        print("target  images  any-time  fixed  only any  only fix  mean n   fewer  median   fewer  n/limit  seconds")
        for target in map(float, options.targets.split(",")):
            print(measure(images, target, options.alpha, options.third, rng), flush=True)


if __name__ == "__main__":
    main()
