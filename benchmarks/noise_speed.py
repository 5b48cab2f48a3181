"""Draws a second under every noise, against the Gaussian, in one process on the same network and images.

    python benchmarks/noise_speed.py --arch resnet110 --device cuda --n 20000
    python benchmarks/noise_speed.py --arch resnet110 --device cpu --threads 1 --n 32 --batch-size 64
    python benchmarks/noise_speed.py --noises gaussian grid --arch resnet50 --device cuda --n 4000
    python benchmarks/noise_speed.py --draws --device cuda
    python benchmarks/noise_speed.py --draws --device cpu --equal 100000 --chi 1000000

Weights are random: speed does not depend on them. On cuda in bfloat16, channels last and compiled, as in a run;
compiling comes first and is not timed. Draws are rounded up to whole batches, since all but the last of a run are full.
The noises take turns, ``--repeat`` times, and each round is printed as it is done; at the end the median rate of each
noise and the median over the rounds of its rate over the Gaussian's. On the host with ``--threads 1`` times are of the
processor, which another program's load changes little. Rows that are run again (one batch in 128, of noises
that are true to the last bit) are part of the time as they come; how many were, and how many of them gave other
bits, is printed.

``--draws`` checks noise on a grid instead. First, of ``--equal`` draws made on the device, how many are not those of
the host, to the bit. Second, chi-square of ``--chi`` draws against the noise's own probabilities, cells of fewer than
ten expected draws put together, with its p-value.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.special import chdtrc

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput import SIZES, network, timed
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.device import device_copies
from buckler.sampling.engine import Engine
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, PhiloxNoise, Request
from buckler.types import AnyArray, FloatArray, IntArray, Noise

WARM_UP = 2
"""Batches before anything is timed: what is run again has its own kernels, and the second batch is."""

VALUES = 3072
"""Values of an input for ``--draws``: an image of CIFAR-10."""

LEAST_EXPECTED = 10.0
"""Expected draws of a cell of chi-square, at least."""

FIRST = Address(0, "0", "estimation")


def in_turn(noises: Sequence[Noise], options: argparse.Namespace) -> Iterator[tuple[FloatArray, list[str]]]:
    """Yield draws a second under each noise, round by round, and what each has run again so far."""
    if options.threads:
        torch.set_num_threads(options.threads)
    cuda = options.device.startswith("cuda")
    side, m = SIZES[options.arch]
    rows = options.batch_size or ((1024 if options.arch == "resnet50" else 4096) if cuda else 256)
    x = np.random.default_rng(0).integers(0, 256, size=(options.images, 3, side, side)) / 255.0
    ids = [str(i) for i in range(options.images)]
    classifier = as_classifier(
        network(options.arch).to(options.device).eval(), num_classes=m, device=options.device,
        dtype="bfloat16" if cuda else "float32", channels_last=cuda, compile=cuda,
    )  # fmt: skip
    total = -(-options.images * options.n // rows) * rows
    share, more = divmod(total, options.images)
    requests = [Request(i, 0, share + (i < more)) for i in range(options.images)]
    engines = [Engine(classifier, noise=noise, batch_size=rows, workers=options.threads) for noise in noises]

    def seconds(engine: Engine) -> float:
        if options.threads == 1 and not cuda:
            start = time.process_time()
            engine.draw(x, ids, "estimation", requests)
            return time.process_time() - start
        return timed(lambda: engine.draw(x, ids, "estimation", requests), options.device)

    with engines[0].session():
        start = time.perf_counter()
        for engine in engines:
            engine.draw(x, ids, "estimation", [Request(0, 0, WARM_UP * rows)])
        warm = time.perf_counter() - start
        name = torch.cuda.get_device_name(options.device) if cuda else f"CPU, {torch.get_num_threads()} threads"
        print(f"{options.arch}, 3 x {side} x {side}, {options.images} images, {total:,} draws, batch {rows}, {name}")
        print(f"first batches, compiling and loading included: {warm:.1f} s (not counted below)", flush=True)
        for _ in range(options.repeat):
            rates = np.array([total / seconds(engine) for engine in engines])
            yield rates, ["{:,} ({:,})".format(*engine.replayed()) for engine in engines]


def steps(noise: GridGaussian, blocks: range, device: str) -> IntArray:
    """Return the noise of whole blocks around 0, in steps, made where the engine makes it on this device."""
    drawn = device_copies(noise, torch.device(device), "philox")
    if drawn is None:
        reached = [noise.numbers(PhiloxNoise().words(FIRST.at(b), NOISE_BLOCK, VALUES)) for b in blocks]
        return np.concatenate(reached).astype(np.int64) - noise.reach
    drawn.load(np.zeros((1, VALUES), dtype=np.float32))
    out = torch.empty((NOISE_BLOCK * len(blocks), VALUES), device=device)
    part = Batch.of(Request(0, blocks.start * NOISE_BLOCK, blocks.stop * NOISE_BLOCK))
    drawn.write(out, part, [FIRST])
    return noise.indices(out.cpu().numpy())


def chi_square(noise: GridGaussian, seen: AnyArray) -> tuple[float, int, float]:
    """Return chi-square of counts of the steps -L, ..., L, its degrees of freedom and the p-value."""
    edges = np.concatenate([[0.0], noise.thresholds[0].astype(np.float64) / 2.0**64, [1.0]])
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


def check_draws(noise: GridGaussian, options: argparse.Namespace) -> None:
    """Compare draws with the host's, and with the probabilities."""
    each = NOISE_BLOCK * VALUES
    blocks = range(-(-options.equal // each))
    different = total = 0
    for some in (blocks[a : a + 8] for a in range(0, len(blocks), 8)):
        host = steps(noise, some, "cpu")
        different += int((steps(noise, some, options.device) != host).sum())
        total += host.size
    on_host = device_copies(noise, torch.device(options.device), "philox") is None
    where = "the host: no CUDA here" if on_host else "the device's kernel"
    print(f"{total:,} draws of {where}: {different} are not those of the host", flush=True)
    half = noise.reach
    seen = np.zeros(2 * half + 1, dtype=np.int64)
    more = range(len(blocks), len(blocks) + -(-options.chi // each))
    for some in (more[a : a + 32] for a in range(0, len(more), 32)):
        seen += np.bincount((steps(noise, some, options.device) + half).ravel(), minlength=len(seen))
    statistic, freedom, p = chi_square(noise, seen)
    print(
        f"{seen.sum():,} draws: chi-square {statistic:,.1f} with {freedom:,} degrees of freedom, p = {p:.3f}",
        flush=True,
    )


def main() -> None:
    """Time the noises and print a table, or check the draws of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(SIZES), default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, default=1000, help="draws for each image, at least")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--batch-size", type=int, help="4096 on cuda, 1024 for resnet50 there, else 256")
    parser.add_argument("--threads", type=int, help="of the host; all of its processors unless told")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--noises", nargs="+", help="names of noises, the first to compare with; all unless told")
    parser.add_argument("--draws", action="store_true", help="check draws of noise on a grid instead")
    parser.add_argument("--equal", type=int, default=10**7, help="draws compared with those of the host")
    parser.add_argument("--chi", type=int, default=10**8, help="draws for chi-square")
    options = parser.parse_args()
    if options.draws:
        check_draws(GridGaussian(0.5), options)
        return
    side, _ = SIZES[options.arch]
    every_noise: list[Noise] = [
        Gaussian(0.5), Gaussian(scale=np.full((3, 1, 1), 0.5)), GridGaussian(0.5), Uniform(0.5), Splitting(2.5),
        DerandomizedSplitting(2.5), Ablation(75, side * side, channels=3),
    ]  # fmt: skip
    first = {noise.name: noise for noise in reversed(every_noise)}
    noises = [first[name] for name in options.noises] if options.noises else every_noise
    found = []
    for rates, again in in_turn(noises, options):
        found.append((rates, again))
        print("draws/s " + " ".join(f"{rate:11,.1f}" for rate in rates), flush=True)
    every = np.array([rates for rates, _ in found])
    shares = np.median(every / every[:, :1], axis=0)
    print(f"{'':<66}{'draws/s':>12}{'share':>8}{'run again (other bits)':>24}")
    for noise, rate, share, rows in zip(noises, np.median(every, axis=0), shares, found[-1][1], strict=True):
        print(f"{noise.describe():<66}{rate:>12,.1f}{share:>8.3f}{rows:>24}")


if __name__ == "__main__":
    main()
