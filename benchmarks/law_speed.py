"""Draws a second under every law, against the Gaussian, in one process on the same network and images.

    python benchmarks/law_speed.py --arch resnet110 --device cuda --n 20000
    python benchmarks/law_speed.py --arch small --device cpu --n 500

Weights are random: speed does not depend on them. On cuda in bfloat16, channels last and compiled, as in a run. The
laws take turns, ``--repeat`` times, and the best time of each is shown.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput import SIZES, network, timed
from buckler.laws import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.sampling.batches import Request
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.engine import Engine
from buckler.types import Law


def main() -> None:
    """Time every law and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(SIZES), default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, default=1000, help="draws for each image")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    side, m = SIZES[options.arch]
    rows = options.batch_size or ({"resnet110": 4096, "resnet50": 1024, "small": 4096}[options.arch] if cuda else 256)
    x = np.random.default_rng(0).integers(0, 256, size=(options.images, 3, side, side)) / 255.0
    ids = [str(i) for i in range(options.images)]
    classifier = as_classifier(
        network(options.arch).to(options.device).eval(), num_classes=m, device=options.device,
        dtype="bfloat16" if cuda else "float32", channels_last=cuda, compile=cuda,
    )  # fmt: skip
    laws: list[Law] = [
        Gaussian(0.5), Gaussian(scale=np.full((3, 1, 1), 0.5)), GridGaussian(0.5), Uniform(0.5), Splitting(2.5),
        DerandomizedSplitting(2.5), Ablation(75, side * side),
    ]  # fmt: skip
    engines = [Engine(classifier, law=law, batch_size=rows) for law in laws]
    best = [np.inf] * len(laws)

    def draw(engine: Engine, n: int) -> None:
        engine.draw(x, ids, "estimation", [Request(i, 0, n) for i in range(len(ids))])

    with engines[0].session():
        for engine in engines:
            draw(engine, max(1, -(-rows // options.images)))
        for _ in range(options.repeat):
            for i, engine in enumerate(engines):
                best[i] = min(best[i], timed(lambda engine=engine: draw(engine, options.n), options.device))
    total = options.images * options.n
    name = torch.cuda.get_device_name(options.device) if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{options.arch}, 3 x {side} x {side}, {options.images} images x {options.n:,} draws, {name}")
    print(f"{'':<66}{'seconds':>9}{'draws/s':>12}{'share':>8}")
    for law, seconds in zip(laws, best, strict=True):
        print(f"{law.describe():<66}{seconds:>9.3f}{total / seconds:>12,.0f}{best[0] / seconds:>8.3f}")


if __name__ == "__main__":
    main()
