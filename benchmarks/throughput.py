"""Samples a second: the engine against a plain loop, in the same process, on the same network and images.

    python benchmarks/throughput.py --arch resnet110 --device cuda --n 20000
    python benchmarks/throughput.py --arch resnet50 --device cuda --n 4000
    python benchmarks/throughput.py --arch small --device cpu --n 1000

The plain loop is what certification scripts usually do: one image a batch, float32, the noise made by torch, and a wait
for the device to count each batch. The engine runs as it would in a run: addressed noise, batches across inputs, votes
on the device; on cuda in bfloat16, channels last and compiled (each can be switched off). Weights are random: speed
does not depend on them. Compiling is timed apart. Only torch and NumPy are needed.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from buckler.sampling.classifiers import Dtype, as_classifier
from buckler.sampling.engine import Engine
from buckler.sampling.streams import Request
from buckler.types import AnyArray

SIZES = {"resnet110": (32, 10), "resnet50": (224, 1000), "small": (28, 10)}


def small() -> nn.Module:
    """Return a small convolutional network for 28 x 28 images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 36, 10),
    )  # fmt: skip


def network(arch: str) -> nn.Module:
    """Return an untrained network."""
    torch.manual_seed(0)
    if arch == "small":
        return small()
    from buckler.sampling.architectures import build  # noqa: PLC0415  (not needed for the small network)

    return build(arch, SIZES[arch][1])


def plain_loop(module: nn.Module, x: torch.Tensor, sigma: float, n: int, batch: int, m: int) -> AnyArray:
    """Return the votes for one image, as certification scripts usually count them."""
    counts = np.zeros(m, dtype=np.int64)
    left = n
    with torch.no_grad():
        while left > 0:
            rows = min(batch, left)
            left -= rows
            repeated = x.repeat((rows, 1, 1, 1))
            votes = module(repeated + torch.randn_like(repeated) * sigma).argmax(1)
            counts += np.bincount(votes.cpu().numpy(), minlength=m)
    return counts


def timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds that ``work`` takes, the device included."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Time both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(SIZES), default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, default=1000, help="draws for each image")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--plain-batch", type=int, default=1000, help="batch of the plain loop")
    parser.add_argument("--batch-size", type=int, help="batch of the engine")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction)
    parser.add_argument("--threads", type=int, help="CPU threads of torch")
    parser.add_argument("--repeat", type=int, default=3, help="the best of this many timings is shown, for both")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    cuda = options.device.startswith("cuda")
    side, m = SIZES[options.arch]
    dtype: Dtype = options.dtype or ("bfloat16" if cuda else "float32")
    compiled = cuda if options.compile is None else options.compile
    last = cuda if options.channels_last is None else options.channels_last
    rows = options.batch_size or ({"resnet110": 4096, "resnet50": 1024, "small": 4096}[options.arch] if cuda else 256)

    module = network(options.arch).to(options.device).eval()
    x = np.random.default_rng(0).random((options.images, 3, side, side), dtype=np.float32)
    ids = [str(i) for i in range(options.images)]
    total = options.images * options.n
    images = torch.from_numpy(x).to(options.device)

    def plain() -> None:
        for image in images:
            plain_loop(module, image, options.sigma, options.n, options.plain_batch, m)

    def ours() -> tuple[float, float, int]:
        classifier = as_classifier(
            module, num_classes=m, device=options.device, dtype=dtype, channels_last=last, compile=compiled
        )
        engine = Engine(classifier, sigma=options.sigma, batch_size=rows, workers=options.threads)

        def draw(n: int = options.n) -> None:
            engine.draw(x, ids, "estimation", [Request(i, 0, n) for i in range(len(ids))])

        with engine.session():
            first = timed(lambda: draw(max(1, -(-rows // options.images))), options.device)
            draw(max(1, -(-rows // options.images)))
            return first, min(timed(draw, options.device) for _ in range(options.repeat)), engine.rows

    first, seconds, used = ours()
    plain_loop(module, images[0], options.sigma, min(options.n, 2 * options.plain_batch), options.plain_batch, m)
    theirs = min(timed(plain, options.device) for _ in range(options.repeat))

    name = torch.cuda.get_device_name(options.device) if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{options.arch}, 3 x {side} x {side}, {options.images} images x {options.n:,} draws, {name}")
    print(f"{'':<72}{'seconds':>10}{'samples/s':>14}{'ratio':>8}")

    def row(label: str, seconds: float) -> None:
        print(f"{label:<72}{seconds:>10.3f}{total / seconds:>14,.0f}{theirs / seconds:>8.2f}")

    row(f"plain loop (float32, batch {options.plain_batch})", theirs)
    settings = ", ".join([dtype, *(["channels last"] if last else []), *(["compiled"] if compiled else [])])
    row(f"engine ({settings}, batch {used})", seconds)
    print(f"first batch, compiling and loading included: {first:.1f} s (not counted above)")


if __name__ == "__main__":
    main()
