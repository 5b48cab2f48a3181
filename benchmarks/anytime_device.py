"""Draws a second while deciding a ladder of radii, beside the engine's plain rate, in one process on one network.

    python benchmarks/anytime_device.py --model resnet110:models/cifar10-resnet110-sigma0.50.safetensors \
        --data cifar10_test500.npz --sigma 0.5 --device cuda
    python benchmarks/anytime_device.py --images 40 --max-n 4000

The plain rate is of ``--plain-n`` draws for every image; the ladder is K radii, sigma/2 apart, of the class with the
most votes, with at most ``--max-n`` draws. Times by the clock for all images: of the ladder, and of
``--max-n`` draws each at the plain rate. Without a model, a small untrained network and random images stand in: they
run anywhere, and say little about a trained network on a device.
"""

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.noise import Gaussian
from buckler.runs.open_run import open_run
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.engine import Engine, draw_until_decided
from buckler.types import AnyArray


def stand_in(images: int) -> tuple[Classifier, AnyArray]:
    """Return a small untrained network, and random images."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10))
    x = np.random.default_rng(0).normal(0.0, 2.0, (images, 3, 16, 16)).astype(np.float32)
    return as_classifier(module.eval(), num_classes=10), x


def main() -> None:
    """Time both and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as for buckler sample; none: a small stand-in")
    parser.add_argument("--data", help="as for buckler sample, with --model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--radii", type=int, default=6)
    parser.add_argument("--max-n", type=int, default=100_000)
    parser.add_argument("--plain-n", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, help="rows of a batch")
    parser.add_argument("--repeat", type=int, default=2, help="the best of this many timings is shown, for both")
    options = parser.parse_args()
    if options.model is None:
        classifier, x = stand_in(options.images)
        measure(classifier, x, options.batch_size or 512, options)
        return
    cuda = options.device.startswith("cuda")
    settings: dict[str, Any] = {
        "model": options.model, "data": options.data, "sigma": options.sigma, "n": options.max_n, "num_classes": 10,
        "limit": options.images, "device": options.device, "batch_size": options.batch_size or (4096 if cuda else 512),
        **({"dtype": "bfloat16", "channels_last": True, "compile": True} if cuda else {}),
    }  # fmt: skip
    with open_run(settings) as run:
        classifier = run.executor.classifier
        measure(classifier, run.dataset.load(0, len(run.dataset)), run.spec.batch_size, options)


def measure(classifier: Classifier, x: AnyArray, rows: int, options: argparse.Namespace) -> None:
    """Draw plainly and up the ladder in turns, and print rates and times."""
    engine = Engine(classifier, sigma=options.sigma, batch_size=rows)
    ids = [str(i) for i in range(len(x))]
    radii = tuple(0.5 * options.sigma * k for k in range(1, options.radii + 1))
    ladder = Ladder(radii, Gaussian(options.sigma), options.alpha, options.max_n, winner=True)
    plain, climbing, draws = [], [], 0
    with engine.session():
        for _ in range(options.repeat):
            start = time.perf_counter()
            engine.votes(x, ids, "estimation", options.plain_n)
            plain.append(time.perf_counter() - start)
            test = AnytimeTest(ladder, len(x), engine.num_classes)
            start = time.perf_counter()
            for _ in draw_until_decided(engine, x, ids, test):
                pass
            climbing.append(time.perf_counter() - start)
            draws = int(test.n.sum())
    rate, deciding = len(x) * options.plain_n / min(plain), draws / min(climbing)
    whole = len(x) * options.max_n / rate
    print(f"{len(x)} images, {classifier.device}, batch {engine.rows}, sigma {options.sigma:g}, {options.radii} radii")
    print(f"engine {rate:,.0f} draws/s; deciding {deciding:,.0f} draws/s ({deciding / rate:.0%} of it)")
    print(
        f"ladder {min(climbing):.1f} s for {draws:,} draws; {options.max_n:,} draws each {whole:.1f} s at that rate: "
        f"{whole / min(climbing):.1f} times faster by the clock, {len(x) * options.max_n / draws:.1f} times in draws"
    )


if __name__ == "__main__":
    main()
