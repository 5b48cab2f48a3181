"""Certified l1 accuracy of a splitting network on CIFAR-10, without chance and with votes, beside published figures.

    python benchmarks/l1_cifar.py --data cifar10.npz --weights models/cifar10-resnet110-splitting2.50.safetensors \
        --device cuda --every 20 --n 10000

Without chance: every one of the 510 lambda copies of each image, error probability 0 (theory T29). The published
figures are those of Levine and Feizi (*Improved, deterministic smoothing for L1 certified robustness*, ICML 2021) at
the best lambda for each radius, on the whole test set with a larger network.

With votes (``--n`` draws, 0 for none): the same draws certified by the exact limit of the first margin, and by
``2 lambda (p_A - 1/2)`` from Clopper and Pearson's limit of p_A alone, as other tools do (method top_class).

``--cards`` writes what is certified without chance into the card beside the weights.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certificate import Certificate
from buckler.certify.votes import certify_votes
from buckler.evaluate.curves import certified_accuracy
from buckler.noise import DerandomizedSplitting, Splitting
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset, open_dataset
from buckler.sampling.engine import Engine
from buckler.sampling.models import resolve_model
from buckler.sampling.zoo import read_card, write_card
from buckler.types import Noise

RADII = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
PUBLISHED = {1.0: 0.631, 2.0: 0.513, 3.0: 0.427, 4.0: 0.336}
TOGETHER = 50
"""Inputs drawn together."""


def votes(classifier: Classifier, data: Dataset, noise: Noise, stream: Any, n: int, rows: int) -> Any:
    """Return the votes of n copies of every input, and print their rate; what is compiled first is not in it."""
    engine = Engine(classifier, noise=noise, seed=0, batch_size=rows)
    found = []
    with engine.session():
        engine.votes(data.load(0, 1), data.ids[:1], stream, min(n, 2 * rows))
        start = time.perf_counter()
        for first in range(0, len(data), TOGETHER):
            last = min(first + TOGETHER, len(data))
            found.append(engine.votes(data.load(first, last), data.ids[first:last], stream, n))
            took = time.perf_counter() - start
            print(f"{last} images x {n:,} copies in {took:.1f} s, {last * n / took:,.0f} a second", flush=True)
    return np.concatenate(found)


def row(name: str, values: Sequence[float]) -> None:
    """Print a row of the table."""
    cells = (f"{value:>8.3f}" if np.isfinite(value) else f"{'':>8}" for value in values)
    print(f"{name:<36}" + "".join(cells), flush=True)


def accuracies(name: str, certificates: list[Certificate], labels: Any) -> list[float]:
    """Return the certified accuracy at each radius, and print it."""
    found = [float(value) for value in certified_accuracy(certificates, labels, RADII).accuracy]
    row(name, found)
    return found


def write_table(weights: Path, noise: DerandomizedSplitting, shares: Sequence[float], inputs: int) -> None:
    """Put the table, of radii that this lambda can reach, into the card in the place of an older one."""
    table = {
        "lam": noise.lam, "alpha": 0, "inputs": inputs, "draws": f"each of the {noise.total:,} copies once",
        "accuracy": {f"{radius:g}": share for radius, share in zip(RADII, shares, strict=True) if radius < noise.lam},
        "command": shlex.join(["python", *(word for word in sys.argv if word != "--cards")]),
    }  # fmt: skip
    write_card(weights.parent, replace(read_card(weights.with_suffix(".json")), certified=(table,)))


def main() -> None:
    """Draw, certify, print a table, each row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help=".npz file with x_test and y_test, or a CIFAR-10 folder")
    parser.add_argument("--model", default="resnet110", help="architecture of the weights")
    parser.add_argument("--weights", default="models/cifar10-resnet110-splitting2.50.safetensors")
    parser.add_argument("--lam", type=float, default=2.5)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--n", type=int, default=10_000, help="draws for the votes; 0 for none")
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--cards", action="store_true", help="write into the card beside the weights")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    classifier = resolve_model(
        f"{options.model}:{options.weights}", device=options.device, dtype=options.dtype, compile=options.compile,
        channels_last=cuda,
    )  # fmt: skip
    data = open_dataset(options.data).select(every=options.every, limit=options.limit)
    labels = data.labels
    noise = DerandomizedSplitting(options.lam)
    counts = votes(classifier, data, noise, "estimation", noise.total, options.batch_size)
    print(f"certified accuracy at l1 radius, lambda {options.lam:g}, alpha {options.alpha:g} for votes")
    print(f"{'':<36}" + "".join(f"{radius:>8.1f}" for radius in RADII))
    row("published, best lambda", [PUBLISHED.get(radius, np.nan) for radius in RADII])
    shares = accuracies("without chance, alpha 0", list(certify_votes(counts, noise=noise)), labels)
    if options.cards:
        write_table(Path(options.weights), noise, shares, len(data))
    if options.n:
        chance = Splitting(options.lam)
        first = votes(classifier, data, chance, "selection", 100, options.batch_size)
        drawn = votes(classifier, data, chance, "estimation", options.n, options.batch_size)
        for method, name in (("exact", "first margin"), ("top_class", "2 lambda (p_A - 1/2)")):
            made = certify_votes(
                drawn, noise=chance, selection=first, margin="probability", method=method,
                alpha=options.alpha,
            )  # fmt: skip
            accuracies(f"votes, {name}", list(made), labels)
            row(f"mean radius, {name}", [float(np.mean([one.radius for one in made]))])


if __name__ == "__main__":
    main()
