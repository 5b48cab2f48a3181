"""Noise on a grid, on a device: the same draws as on the host, their chi-square, and what they cost.

    python benchmarks/noise_device.py --device cuda
    python benchmarks/noise_device.py --device cuda --arch resnet50 --n 4000 --skip-draws
    python benchmarks/noise_device.py --device cpu --threads 1 --n 32 --batch-size 64 --equal 100000 --chi 1000000

First, of ``--equal`` draws made on the device, how many are not those of the host, to the bit. Second, chi-square of
``--chi`` draws against the law's own probabilities, cells of fewer than ten expected draws put together, with its
p-value. Third, draws a second of the engine under ``gaussian`` and under ``grid`` in turn, as in ``noise_speed.py``.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.special import chdtrc

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.noise_speed import in_turn, parser
from buckler.noise import Gaussian, GridGaussian
from buckler.sampling.device import device_copies
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, Piece, words
from buckler.types import AnyArray, IntArray

VALUES = 3072
"""Values of an input in the first two parts: an image of CIFAR-10."""

LEAST_EXPECTED = 10.0
"""Expected draws of a cell of chi-square, at least."""

FIRST = Address(0, "0", "estimation")


def steps(noise: GridGaussian, blocks: range, device: str) -> IntArray:
    """Return the noise of whole blocks around 0, in steps, made where the engine makes it on this device."""
    drawn = device_copies(noise, torch.device(device), "philox")
    if drawn is None:
        return np.concatenate([noise.noise(words(FIRST.at(b), NOISE_BLOCK, VALUES)) for b in blocks]).astype(np.int64)
    drawn.load(np.zeros((1, VALUES), dtype=np.float32))
    out = torch.empty((NOISE_BLOCK * len(blocks), VALUES), device=device)
    part: Batch = tuple(Piece(0, block, 0, NOISE_BLOCK) for block in blocks)
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
    """Print the first two parts."""
    each = NOISE_BLOCK * VALUES
    blocks = range(-(-options.equal // each))
    different = total = 0
    for some in (blocks[a : a + 8] for a in range(0, len(blocks), 8)):
        host = np.concatenate([noise.noise(words(FIRST.at(b), NOISE_BLOCK, VALUES)) for b in some])
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
    """Check, time, and print."""
    parsed = parser(str(__doc__))
    parsed.set_defaults(arch="resnet110", n=100_000, repeat=3)
    parsed.add_argument("--sigma", type=float, default=0.5)
    parsed.add_argument("--equal", type=int, default=10**7, help="draws compared with those of the host")
    parsed.add_argument("--chi", type=int, default=10**8, help="draws for chi-square")
    parsed.add_argument("--skip-draws", action="store_true", help="speed alone")
    options = parsed.parse_args()
    noise = GridGaussian(options.sigma)
    if not options.skip_draws:
        check_draws(noise, options)
    found = []
    for rates, again in in_turn([Gaussian(options.sigma), noise], options):
        found.append((rates[1] / rates[0], again[1]))
        print(f"gaussian {rates[0]:,.1f} draws/s, grid {rates[1]:,.1f} ({rates[1] / rates[0]:.3f})", flush=True)
    middle = np.median([share for share, _ in found])
    print(f"{options.arch} on {options.device}: grid over gaussian {middle:.3f}, the median of {len(found)}")
    print(f"rows run again elsewhere (of which with other bits): {found[-1][1]}")


if __name__ == "__main__":
    main()
