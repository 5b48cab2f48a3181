"""Certified accuracy under noise on the grid against noise in float32, on the networks of ``models/``.

    python benchmarks/laws_accuracy.py --data cifar10_test500.npz --n 100000 --device cuda --out accuracy/

For each sigma, ``buckler sample`` draws from the same network under both laws (bfloat16, channels last and compiled on
cuda), and ``buckler certify`` at alpha .001 counts the images that are right and certified to each radius, the class by
selection. The table has both counts of a cell, gaussian first. Runs are kept in ``--out`` and gone on with.
"""

import argparse
from pathlib import Path

import numpy as np

from buckler.runs.certify import certify_evidence
from buckler.runs.opening import open_run
from buckler.runs.sample import sample
from buckler.runs.store.evidence import open_evidence
from buckler.types import IntArray

SIGMAS = ("0.12", "0.25", "0.50", "1.00")
STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Radii of the table, in units of sigma."""


def right(sigma: str, law: str, options: argparse.Namespace) -> tuple[IntArray, tuple[int, int], int]:
    """Return how many images are right and certified to each radius, what was run again, and how many there are."""
    folder = Path(options.out) / f"cifar10-sigma{sigma}-{law}"
    settings = {
        "model": f"resnet110:{options.models}/cifar10-resnet110-sigma{sigma}.safetensors", "data": options.data,
        "sigma": float(sigma), "n": options.n, "law": law, "device": options.device, "limit": options.limit,
        **({"dtype": "bfloat16", "channels_last": True, "compile": True} if options.device == "cuda" else {}),
    }  # fmt: skip
    with open_run({key: value for key, value in settings.items() if value is not None}) as run:
        sample(run.spec, run.executor, run.dataset, folder)
    evidence = open_evidence(folder)
    certificates, labels = certify_evidence(evidence, alpha=1e-3)
    if labels is None:
        raise SystemExit("the data must have labels")
    radii = np.array([c.radius if c.predicted == y else -1.0 for c, y in zip(certificates, labels, strict=True)])
    reached = [int((radii >= max(step * float(sigma), 1e-12)).sum()) for step in STEPS]
    return np.array(reached), evidence.replayed, len(certificates)


def main() -> None:
    """Draw what is missing and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="CIFAR-10 images as bytes, with labels")
    parser.add_argument("--models", default="models")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sigma", action="append", choices=SIGMAS)
    parser.add_argument("--out", default="accuracy")
    options = parser.parse_args()
    print("| sigma | " + " | ".join(f"r = {step:g} sigma" for step in STEPS) + " | run again, other bits |")
    print("|---|" + "---|" * (len(STEPS) + 1), flush=True)
    for sigma in options.sigma or SIGMAS:
        before, _, _ = right(sigma, "gaussian", options)
        after, (compared, differed), images = right(sigma, "grid", options)
        cells = [f"{a} / {b}" for a, b in zip(before, after, strict=True)]
        print(f"| {sigma} | {' | '.join(cells)} | {compared:,}, {differed:,} |", flush=True)
    print(f"Of {images} images, gaussian / grid; n {options.n:,}, alpha 0.001.")


if __name__ == "__main__":
    main()
