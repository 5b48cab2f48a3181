"""Noise on a grid, on a device: the same draws as on the host, their chi-square, and what they cost.

    python benchmarks/laws_device.py --device cuda
    python benchmarks/laws_device.py --device cuda --arch resnet50 --n 4000 --skip-draws
    python benchmarks/laws_device.py --device cpu --arch small --n 200 --equal 100000 --chi 1000000

First, of ``--equal`` draws made on the device, how many are not those of the host, to the bit. Second, chi-square of
``--chi`` draws against the law's own probabilities, cells of fewer than ten expected draws put together, with its
p-value. Third, samples a second of the engine under ``gaussian`` and under ``grid``, as a run draws them: on cuda in
bfloat16, channels last and compiled; rows that are run again elsewhere are part of the time of ``grid``, and how many
of them gave other bits is printed. Weights are random: speed does not depend on them.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.special import chdtrc

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput import SIZES, network, timed
from buckler.laws import Gaussian, GridGaussian
from buckler.sampling.batches import Batch, Piece, Request
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.device_words import device_words
from buckler.sampling.engine import Engine
from buckler.sampling.noise import NOISE_BLOCK, Address, words
from buckler.types import AnyArray, IntArray, Law

VALUES = 3072
"""Values of an input in the first two parts: an image of CIFAR-10."""

LEAST_EXPECTED = 10.0
"""Expected draws of a cell of chi-square, at least."""

FIRST = Address(0, "0", "estimation")


def steps(law: GridGaussian, blocks: range, device: str) -> IntArray:
    """Return the noise of whole blocks around 0, in steps, made where the engine makes it on this device."""
    drawn = device_words(law, torch.device(device))
    if drawn is None:
        return np.concatenate([law.noise(words(FIRST.at(b), NOISE_BLOCK, VALUES)) for b in blocks]).astype(np.int64)
    drawn.load(np.zeros((1, VALUES), dtype=np.float32))
    out = torch.empty((NOISE_BLOCK * len(blocks), VALUES), device=device)
    part: Batch = tuple(Piece(0, block, 0, NOISE_BLOCK) for block in blocks)
    drawn.write(out, part, [FIRST])
    return law.indices(out.cpu().numpy())


def chi_square(law: GridGaussian, seen: AnyArray) -> tuple[float, int, float]:
    """Return chi-square of counts of the steps -L, ..., L, its degrees of freedom and the p-value."""
    edges = np.concatenate([[0.0], law.thresholds.astype(np.float64) / 2.0**64, [1.0]])
    expected = np.diff(edges) * seen.sum()
    order = np.searchsorted(np.cumsum(expected), np.arange(LEAST_EXPECTED, seen.sum(), LEAST_EXPECTED))
    starts = np.unique(np.concatenate([[0], order + 1]))
    starts = starts[starts < len(expected)]
    e, s = np.add.reduceat(expected, starts), np.add.reduceat(seen, starts)
    few = e < LEAST_EXPECTED  # the last cell alone can be short
    if few[-1]:
        e, s = np.append(e[:-2], e[-2:].sum()), np.append(s[:-2], s[-2:].sum())
    statistic = float(((s - e) ** 2 / e).sum())
    return statistic, len(e) - 1, float(chdtrc(len(e) - 1, statistic))


def check_draws(law: GridGaussian, options: argparse.Namespace) -> None:
    """Print the first two parts."""
    each = NOISE_BLOCK * VALUES
    blocks = range(-(-options.equal // each))
    different = total = 0
    for some in (blocks[a : a + 8] for a in range(0, len(blocks), 8)):
        host = np.concatenate([law.noise(words(FIRST.at(b), NOISE_BLOCK, VALUES)) for b in some])
        different += int((steps(law, some, options.device) != host).sum())
        total += host.size
    where = "the device's kernel" if device_words(law, torch.device(options.device)) else "the host: no CUDA here"
    print(f"{total:,} draws of {where}: {different} are not those of the host")
    half = len(law.thresholds) // 2
    seen = np.zeros(2 * half + 1, dtype=np.int64)
    more = range(len(blocks), len(blocks) + -(-options.chi // each))
    for some in (more[a : a + 32] for a in range(0, len(more), 32)):
        seen += np.bincount((steps(law, some, options.device) + half).ravel(), minlength=len(seen))
    statistic, freedom, p = chi_square(law, seen)
    print(f"{seen.sum():,} draws: chi-square {statistic:,.1f} with {freedom:,} degrees of freedom, p = {p:.3f}")


def speed(law: Law, options: argparse.Namespace) -> tuple[float, tuple[int, int]]:
    """Return samples a second of the engine, the best of some timings, and what was run again."""
    cuda = options.device.startswith("cuda")
    side, m = SIZES[options.arch]
    rows = options.batch_size or ({"resnet110": 4096, "resnet50": 1024, "small": 4096}[options.arch] if cuda else 256)
    classifier = as_classifier(
        network(options.arch).eval(), num_classes=m, device=options.device, dtype="bfloat16" if cuda else "float32",
        channels_last=cuda, compile=cuda,
    )  # fmt: skip
    engine = Engine(classifier, law=law, batch_size=rows, workers=options.threads)
    x = GridGaussian(0.5).values(np.random.default_rng(0).integers(0, 256, size=(options.images, 3, side, side)))
    ids = [str(i) for i in range(options.images)]

    def draw(n: int = options.n) -> None:
        engine.draw(x, ids, "estimation", [Request(i, 0, n) for i in range(len(ids))])

    with engine.session():
        for _ in range(2):
            draw(max(1, -(-rows // options.images)))
        best = min(timed(draw, options.device) for _ in range(options.repeat))
        return options.images * options.n / best, engine.replayed()


def main() -> None:
    """Check, time, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--arch", choices=sorted(SIZES), default="resnet110")
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--n", type=int, default=100_000, help="draws for each image")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--threads", type=int, help="threads that make noise on the host")
    parser.add_argument("--equal", type=int, default=10**7, help="draws compared with those of the host")
    parser.add_argument("--chi", type=int, default=10**8, help="draws for chi-square")
    parser.add_argument("--skip-draws", action="store_true", help="speed alone")
    parser.add_argument("--repeat", type=int, default=3, help="the best of this many timings is shown")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    law = GridGaussian(options.sigma)
    if not options.skip_draws:
        check_draws(law, options)
    before, _ = speed(Gaussian(options.sigma), options)
    after, (compared, differed) = speed(law, options)
    rates = f"gaussian {before:,.0f} samples/s, grid {after:,.0f} ({after / before:.3f})"
    print(f"{options.arch} on {options.device}: {rates}")
    print(f"rows run again elsewhere: {compared:,}, of which {differed:,} gave other bits")


if __name__ == "__main__":
    main()
