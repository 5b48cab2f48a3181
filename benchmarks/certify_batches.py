"""``certify`` of many inputs beside a loop of it, on the digits and one core: the same certificates, by the clock.

    python benchmarks/certify_batches.py [--images 200] [--n 1000] [--repeat 3]
    python benchmarks/certify_batches.py --device cuda --batch-size 4096

The best of ``--repeat`` timings of either is shown, each after one call that compiles and loads what is needed; both
are run in turn in one process. Beside them is what cannot be saved: the noise and the model alone, in large batches.
Times are of the processor. With ``--device`` a ResNet-110 with random weights stands in, on random images, and times
are by the clock.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import buckler
from buckler.sampling.architectures import build
from buckler.training.digits import digits_split, train_digits


def best(work: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    """Return the shortest time of several runs."""
    spent = []
    for _ in range(repeat):
        start = clock()
        work()
        spent.append(clock() - start)
    return min(spent)


def digits(images: int) -> tuple[Any, Any]:
    """Return the demo's perceptron and some digits."""
    training, test = digits_split()
    model = train_digits(training.inputs, training.labels, sigma=0.25, seed=0, epochs=20)
    return model, test.inputs[:images]


def on_device(device: str, images: int) -> tuple[Any, Any]:
    """Return a ResNet-110 on a device and random images."""
    return build("resnet110", 10).to(device), np.random.default_rng(0).random((images, 3, 32, 32), dtype=np.float32)


def main() -> None:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512, help="of the one call")
    parser.add_argument("--device", help="a torch device, for a ResNet-110 in the place of the digits")
    asked = parser.parse_args()
    if asked.device is None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    model, x = digits(asked.images) if asked.device is None else on_device(asked.device, asked.images)
    clock = time.process_time if asked.device is None else time.perf_counter
    smoothed = buckler.Smoothed(model, sigma=0.25)
    batched = buckler.Smoothed(model, sigma=0.25, batch_size=asked.batch_size)
    together = batched.certify(x, n=asked.n)
    each = [smoothed.certify(point[None], n=asked.n)[0] for point in x]
    alone = best(lambda: [smoothed.certify(point[None], n=asked.n) for point in x], asked.repeat, clock)
    many = best(lambda: batched.certify(x, n=asked.n), asked.repeat, clock)
    same = np.mean([a == b for a, b in zip(together, each, strict=True)])
    print(f"{len(x)} images, n = {asked.n}; equal certificates {same:.3f}")
    print(f"loop of calls    {alone:8.2f} s  {1000 * alone / len(x):8.2f} ms an image")
    print(f"one call         {many:8.2f} s  {1000 * many / len(x):8.2f} ms an image, {alone / many:.1f} times as fast")
    if asked.device is None:
        noise = np.empty((len(x) * asked.n, x.shape[1]), dtype=np.float32)
        generator = np.random.Generator(np.random.Philox(0))
        drawing = best(lambda: generator.standard_normal(dtype=np.float32, out=noise), asked.repeat, clock)
        cuts = range(0, len(noise), 4096)
        running = best(lambda: [model.predict_proba(noise[i : i + 4096]) for i in cuts], asked.repeat, clock)
        print(f"noise and model  {drawing + running:8.2f} s")


if __name__ == "__main__":
    main()
