"""A classifier that was never trained under noise: smoothed as it is, behind a denoiser, and beside trained ones.

    python benchmarks/denoised.py cifar10.npz --device cuda --cards models
    python benchmarks/denoised.py cifar10.npz --images 4 --max-n 500 --rate-seconds 1
    python benchmarks/denoised.py cifar10.npz --device cuda --classifier mine.safetensors

For each sigma three smoothed classifiers draw for the same images until a ladder of radii is decided (alpha in total
for the ladder, at most ``--max-n`` draws): the clean classifier as it is, the same behind the denoiser, and the network
that was trained under that noise. Shown are the shares of images predicted right and certified to each radius. Then the
rate of the pair in the engine, noise and counting included, beside what its two networks allow, each run alone on one
batch that is ready: one over the sum of their times. And the most memory of the device during n draws for each image
and during four times as many. On cuda the networks run as in a run with ``--dtype bfloat16 --channels-last --compile``.

``--classifier WEIGHTS`` takes another classifier, one that took no part in the training of the denoiser, as ``buckler
train --sigma 0`` writes it. ``--cards FOLDER`` writes the shares into the cards of the clean classifier and of the
denoiser, after each sigma.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.noise import Gaussian
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.denoised import Denoised
from buckler.sampling.engine import Engine, draw_until_decided
from buckler.sampling.weights import load_denoiser, load_network
from buckler.sampling.zoo import bundled, read_card, write_card
from buckler.types import AnyArray

CLEAN, DENOISER = "cifar10-resnet20x3-clean", "cifar10-denoiser"
RADII = (0.25, 0.5, 0.75, 1.0)
SELECTION = 100


class Alone(nn.Module):
    """The denoiser by itself, its answer made small enough to be brought back."""

    def __init__(self, denoiser: nn.Module, sigma: float) -> None:
        """Hold the denoiser and what it is told."""
        super().__init__()
        self.denoiser, self.sigma = denoiser, sigma

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of each colour of the estimate."""
        colours: torch.Tensor = self.denoiser(x, self.sigma).mean(dim=(2, 3))
        return colours


def images(path: Path, count: int) -> tuple[AnyArray, AnyArray]:
    """Return evenly spaced test images in [0, 1], channels first, and their labels."""
    with np.load(path, allow_pickle=False) as file:
        x, y = (file[f"{name}_test" if f"{name}_test" in file else name] for name in ("x", "y"))
    y = y.reshape(-1)
    every = max(1, len(x) // count)
    x, y = x[::every][:count], y[::every][:count]
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)), y.astype(np.int64)


def ready(module: nn.Module, options: argparse.Namespace, num_classes: int = 10) -> Classifier:
    """Return the module as a run on the device would have it."""
    fast: dict[str, Any] = {}
    if options.device.startswith("cuda"):
        fast = {"dtype": "bfloat16", "channels_last": True, "compile": not options.plain}
    return as_classifier(module, num_classes=num_classes, device=options.device, **fast)


def climb(classifier: Classifier, x: AnyArray, y: AnyArray, sigma: float, options: argparse.Namespace) -> list[float]:
    """Return the share of images that are predicted right and certified to each radius, and print it."""
    engine = Engine(classifier, sigma=sigma, batch_size=options.batch_size)
    ids = [str(i) for i in range(len(x))]
    ladder = Ladder(RADII, Gaussian(sigma), options.alpha, options.max_n)
    with engine.session():
        engine.votes(x[:1], ids[:1], "selection", 1)  # compiles, which is not timed
        start = time.perf_counter()
        chosen = engine.votes(x, ids, "selection", SELECTION).argmax(axis=1)
        test = AnytimeTest(ladder, chosen, engine.num_classes)
        for _ in draw_until_decided(engine, x, ids, test):
            pass
    certificates = [test.decided(i, name, SELECTION).certificate for i, name in enumerate(ids)]
    right = [c.predicted == label for c, label in zip(certificates, y, strict=True)]
    reached = [c.radius for c in certificates]
    shares = [float(np.mean([ok and r >= radius for ok, r in zip(right, reached, strict=True)])) for radius in RADII]
    seconds = time.perf_counter() - start
    print(
        " | ".join(f"{share:6.1%}" for share in shares), f"| {int(test.n.sum()):,} draws, {seconds:.0f} s |", flush=True
    )
    return shares


def rate_alone(classifier: Classifier, x: AnyArray, options: argparse.Namespace) -> float:
    """Return the rows a second of a network by itself, on one batch that is ready."""
    batch = torch.from_numpy(np.resize(x, (options.batch_size, *x.shape[1:]))).to(classifier.device)
    with classifier.session():
        classifier(batch).sum().item()
        rows, start = 0, time.perf_counter()
        while time.perf_counter() - start < options.rate_seconds:
            for _ in range(8 if batch.is_cuda else 1):
                answer = classifier(batch)
                rows += len(batch)
            answer.sum().item()
        return rows / (time.perf_counter() - start)


def rate_in_engine(classifier: Classifier, x: AnyArray, sigma: float, n: int, options: argparse.Namespace) -> float:
    """Return the draws a second of plain sampling."""
    engine = Engine(classifier, sigma=sigma, batch_size=options.batch_size)
    ids = [str(i) for i in range(len(x))]
    with engine.session():
        engine.votes(x[:1], ids[:1], "selection", options.batch_size)
        start = time.perf_counter()
        engine.votes(x, ids, "estimation", n)
        return len(x) * n / (time.perf_counter() - start)


def speed(pair: Classifier, parts: Mapping[str, Classifier], x: AnyArray, options: argparse.Namespace) -> None:
    """Print the rates and the memory of the pair at the last sigma."""
    alone = {name: rate_alone(part, x, options) for name, part in parts.items()}
    allowed = 1.0 / sum(1.0 / rate for rate in alone.values())
    sigma = options.sigmas[-1]
    guess = rate_in_engine(pair, x, sigma, max(1, options.batch_size // len(x)), options)
    n = max(1, int(options.rate_seconds * guess / len(x)))
    peaks, rate = [], 0.0
    for draws in (n, 4 * n):
        if pair.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        rate = rate_in_engine(pair, x, sigma, draws, options)
        peaks.append(torch.cuda.max_memory_allocated() / 2**30 if pair.device.startswith("cuda") else float("nan"))
    print(", ".join(f"{name} alone {value:,.0f} rows/s" for name, value in alone.items()), flush=True)
    share = f"{rate / allowed:.0%} of it (batch {options.batch_size})"
    print(f"both allow {allowed:,.0f} rows/s; the pair {rate:,.0f} draws/s, {share}")
    print(f"memory of the device: {peaks[0]:.2f} GiB at n = {n:,}, {peaks[1]:.2f} GiB at n = {4 * n:,}")


def write_cards(folder: Path, shares: Mapping[tuple[str, float], list[float]], inputs: int, options: Any) -> None:
    """Put the shares into the cards, in the place of those of the same sigmas."""
    for name, row in ((CLEAN, "as it is"), (DENOISER, "denoised")):
        tables = tuple(
            {
                "sigma": sigma, "alpha": options.alpha, "inputs": inputs,
                "draws": f"at most {options.max_n:,} draws each, until decided",
                "accuracy": {f"{radius:g}": share for radius, share in zip(RADII, found, strict=True)},
                "command": f"python benchmarks/denoised.py {options.data.name} --device {options.device} "
                f"--images {options.images} --max-n {options.max_n}",
            }
            for (kind, sigma), found in shares.items() if kind == row
        )  # fmt: skip
        card, new = read_card(folder / f"{name}.json"), {table["sigma"] for table in tables}
        kept = (table for table in card.certified if table["sigma"] not in new)
        write_card(folder, replace(card, certified=tuple(sorted((*kept, *tables), key=lambda table: table["sigma"]))))


def main() -> None:
    """Draw, and print the table row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="an .npz with x_test (uint8, channels last) and y_test, or x and y")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--sigmas", type=lambda text: [float(part) for part in text.split(",")], default=[0.25, 0.5])
    parser.add_argument("--max-n", type=int, default=20_000)
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, help="rows of a batch; 2048 on cuda, else 128")
    parser.add_argument("--rate-seconds", type=float, default=5.0, help="about how long each rate is measured; 0: not")
    parser.add_argument("--plain", action="store_true", help="do not compile")
    parser.add_argument("--classifier", type=Path, help="weights of another clean classifier than the bundled one")
    parser.add_argument("--cards", type=Path, help="folder of cards to write the shares into")
    options = parser.parse_args()
    if options.classifier is not None and options.cards is not None:
        parser.error("--cards are those of the bundled classifier; leave out --classifier")
    options.batch_size = options.batch_size or (2048 if options.device.startswith("cuda") else 128)
    x, y = images(options.data, options.images)
    clean = load_network(options.classifier or bundled(CLEAN, "classifier")[1])
    denoiser = load_denoiser(bundled(DENOISER, "denoiser")[1])
    plain = ready(clean, options)
    heading = " | ".join(f"r={radius:g}" for radius in RADII)
    print(f"{len(x)} images, alpha {options.alpha:g}, at most {options.max_n:,} draws each, {options.device}")
    print(f"| sigma | classifier | {heading} | |\n|---|---|{'---|' * (len(RADII) + 1)}", flush=True)
    shares = {}
    for sigma in options.sigmas:
        pair = ready(Denoised(denoiser, clean, sigma=sigma), options)
        trained = ready(load_network(bundled(f"cifar10-resnet110-sigma{sigma:.2f}", "classifier")[1]), options)
        rows = (("as it is", plain), ("denoised", pair), ("trained under noise", trained))
        for row, classifier in rows:
            print(f"| {sigma:g} | {row} |", end=" ", flush=True)
            shares[row, sigma] = climb(classifier, x, y, sigma, options)
        if options.cards is not None:
            write_cards(options.cards, shares, len(x), options)
    if options.rate_seconds > 0:
        alone = ready(Alone(denoiser, options.sigmas[-1]), options, num_classes=3)
        speed(pair, {"denoiser": alone, "classifier": plain}, x, options)


if __name__ == "__main__":
    main()
