"""Draws a second under every noise, against the Gaussian, in one process on the same network and images.

    python benchmarks/noise_speed.py --arch resnet110 --device cuda --n 20000
    python benchmarks/noise_speed.py --arch resnet110 --device cpu --threads 1 --n 32 --batch-size 64

Weights are random: speed does not depend on them. On cuda in bfloat16, channels last and compiled, as in a run;
compiling comes first and is not timed. Draws are rounded up to whole batches, since all but the last of a run are full.
The noises take turns, ``--repeat`` times, and each round is printed as it is done; at the end the median rate of each
noise and the median over the rounds of its rate over the Gaussian's. On the host with ``--threads 1`` times are of the
processor, which another program's load changes little. Rows that are run again (one batch in 128, of noises
that are true to the last bit) are part of the time as they come; how many were, and how many of them gave other
bits, is printed.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput import SIZES, network, timed
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine
from buckler.sampling.streams import Request
from buckler.types import FloatArray, Noise

WARM_UP = 2
"""Batches before anything is timed: what is run again has its own kernels, and the second batch is."""


def parser(text: str) -> argparse.ArgumentParser:
    """Return the options of ``in_turn``."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--arch", choices=sorted(SIZES), default="small")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--n", type=int, default=1000, help="draws for each image, at least")
    made.add_argument("--images", type=int, default=8)
    made.add_argument("--batch-size", type=int, help="4096 on cuda, 1024 for resnet50 there, else 256")
    made.add_argument("--threads", type=int, help="of the host; all of its processors unless told")
    made.add_argument("--repeat", type=int, default=5)
    return made


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


def main() -> None:
    """Time every noise and print a table."""
    options = parser(str(__doc__)).parse_args()
    side, _ = SIZES[options.arch]
    noises: list[Noise] = [
        Gaussian(0.5), Gaussian(scale=np.full((3, 1, 1), 0.5)), GridGaussian(0.5), Uniform(0.5), Splitting(2.5),
        DerandomizedSplitting(2.5), Ablation(75, side * side, channels=3),
    ]  # fmt: skip
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
