"""Samples to decide a target radius, any-time against 100,000 for every image.

    python benchmarks/anytime.py [LOG.tsv ...] [--targets 0.25,0.5] [--every 1] [--third 0.0]

A log is a table of certificates at a fixed 100,000 draws, as the usual script writes it: idx, label, predict (-1 if it
abstained), radius, correct, time, with sigma in the file's name (``..._sigma_0.50.tsv``). Each radius gives back the
vote count behind it; its frequency is taken as the truth, the runner-up holding all of the rest (the hardest case) or
all but a share ``--third``. Votes are then drawn anew, and the fixed-n decision is made on the same votes continued to
100,000. Without a log, a synthetic set of images stands in.
"""

import argparse
import csv
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import betainc, ndtr

from buckler.bounds.evalues import kl_to_null
from buckler.certify.anytime import AnytimeTest
from buckler.certify.ladder import Ladder
from buckler.types import FloatArray

FIXED_N = 100_000
ABSTAINED = 0.45
"""The probability given to an image whose log abstained: its count is not recorded, only that it is about a half."""


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
    test = AnytimeTest(Ladder((target,), images.sigma, alpha, FIXED_N), np.zeros(len(truths)), 3)
    while (rows := test.undecided).size:
        test.update(rows, rng.multinomial(test.batch_sizes(rows), truths[rows]))
    decided = [test.decided(row, str(row)) for row in range(len(truths))]
    n = test.n
    yes = np.array([d.decision == "certified" for d in decided])
    top = np.array([dict(d.votes).get(0, 0) for d in decided]) + rng.binomial(FIXED_N - n, truths[:, 0])
    usual = (top > 0) & (betainc(np.maximum(top, 1), FIXED_N - top + 1.0, ndtr(0.5 * margin)) <= alpha)
    ratio = float(np.median(n[yes] / limits[yes])) if yes.any() else math.nan
    return (
        f"{target:6.2f} {n.size:7d} {yes.mean():7.4f} {usual.mean():7.4f} {100 * (yes & ~usual).mean():6.2f} "
        f"{100 * (usual & ~yes).mean():6.2f} {n.mean():9.1f} {FIXED_N / n.mean():7.1f} {np.median(n):8.1f} "
        f"{FIXED_N / np.median(n):7.0f} {ratio:6.2f} {time.perf_counter() - start:7.1f}"
    )


def main() -> None:
    """Print a table for each log."""
    parser = argparse.ArgumentParser(description="Samples to decide a target radius, any-time against 100,000 each.")
    parser.add_argument("logs", nargs="*", type=Path, help="logs of certificates at n=100,000; none: synthetic images")
    parser.add_argument("--targets", default="0.25,0.5,0.75,1.0", help="target radii, separated by commas")
    parser.add_argument("--alpha", type=float, default=1e-3, help="error probability of both methods")
    parser.add_argument("--third", type=float, default=0.0, help="share of the other votes not held by the runner-up")
    parser.add_argument("--every", type=int, default=1, help="use every k-th image of a log")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    for images in [read_log(path, options.every, rng) for path in options.logs] or [synthetic(rng)]:
        print(f"{images.name}: sigma {images.sigma:g}, alpha {options.alpha:g}, third-class share {options.third:g}")
        print("target  images  any-time  fixed  only any  only fix  mean n   fewer  median   fewer  n/limit  seconds")
        for target in map(float, options.targets.split(",")):
            print(measure(images, target, options.alpha, options.third, rng), flush=True)


if __name__ == "__main__":
    main()
