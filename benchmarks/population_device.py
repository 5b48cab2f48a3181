"""Certified accuracy of a population: few draws of every test image beside many draws of few, on one network.

    python -m benchmarks.population_device --model resnet110:models/cifar10-resnet110-sigma0.25.safetensors \
        --data cifar10.npz --sigma 0.25 --device cuda

``--data`` is a whole test set, as for ``buckler sample``. All of its images get ``--draws`` draws each, whose limits
are those of ``buckler.population_accuracy``; ``--few`` images, evenly spaced, get ``--many`` draws each and are
certified one by one (``by_votes`` of ``benchmarks/population.py``). All limits have level 0.999. Prints a row for each,
with the seconds of drawing by the clock.
"""

import argparse
import time
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.population import DELTA, by_votes
from buckler import population_accuracy
from buckler.runs.open_run import open_run
from buckler.types import IntArray


def main() -> None:
    """Draw both tables of votes and print their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as for buckler sample")
    parser.add_argument("--data", required=True, help="as for buckler sample")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--radii", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--draws", type=int, default=160)
    parser.add_argument("--few", type=int, default=500)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--images", type=int, help="the first images alone", default=None)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    settings: dict[str, Any] = {
        "model": options.model, "data": options.data, "sigma": options.sigma, "n": options.draws, "num_classes": 10,
        "device": options.device, "batch_size": 4096 if cuda else 512, "limit": options.images,
        **({"dtype": "bfloat16", "channels_last": True, "compile": True} if cuda else {}),
    }  # fmt: skip
    with open_run(settings) as run:
        engine, data = run.spec.engine(run.executor.classifier), run.dataset
        labels = data.labels
        if labels is None:
            parser.error("--data must have labels")
        with engine.session():
            few = np.linspace(0, len(data) - 1, min(options.few, len(data))).astype(int)
            for images, n in ((np.arange(len(data)), options.draws), (few, options.many)):
                votes, began = np.zeros((images.size, 10), dtype=np.int64), time.perf_counter()
                for first in range(0, images.size, 1000):
                    part = images[first : first + 1000].tolist()
                    x = np.concatenate([data.load(i, i + 1) for i in part])
                    votes[first : first + len(part)] = engine.votes(x, [data.ids[i] for i in part], "estimation", n)
                seconds = time.perf_counter() - began
                limits = (
                    population_accuracy(votes, labels[images], options.radii, sigma=options.sigma, delta=DELTA).low
                    if n == options.draws
                    else [one_by_one(votes, labels[images], n, radius / options.sigma) for radius in options.radii]
                )
                shown = "  ".join(f"{r:g}: {low:.4f}" for r, low in zip(options.radii, limits, strict=True))
                print(f"{images.size:6} images, {n:7,} draws each: {seconds:8.1f} s   limits at {shown}", flush=True)


def one_by_one(votes: IntArray, labels: IntArray, n: int, deviations: float) -> float:
    """Return the usual limit, at level 0.999 for this radius alone, of images certified one by one."""
    return by_votes(votes[np.arange(len(labels)), labels], n, float(ndtr(deviations)))


if __name__ == "__main__":
    main()
