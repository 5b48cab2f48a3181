"""Certified accuracy under noise on the grid against noise in float32, on the networks of ``models/``.

    python benchmarks/noise_accuracy.py --data cifar10_test500.npz --n 100000 --device cuda --out accuracy/
    python benchmarks/noise_accuracy.py --data cifar10_test500.npz --n 10000 --device cuda --kept evidence

For each sigma, ``buckler sample`` draws from the same network under both laws (bfloat16, channels last and compiled on
cuda), and ``buckler certify`` at alpha .001 counts the images that are right and certified to each radius, the class by
selection. The table has both counts of a cell, gaussian first, then the share of all draws whose answer was right: of n
draws for each image, it is known far better than how many of them pass a radius, which chance moves by a few. Runs are
kept in ``--out`` and gone on with. With ``--kept FOLDER`` the gaussian votes are those of the runs of at least ``2 n``
draws on the same images that lie there, ``cifar10-sigma0.50-counts`` and so on; and a third count of each cell shows
what chance alone does: the gaussian's next n draws, the class chosen by its first 100.
"""

import argparse
from pathlib import Path

import numpy as np

from buckler.certificate import Certificate
from buckler.certify.votes import certify_votes
from buckler.runs.open_run import open_run
from buckler.runs.sample import sample
from buckler.runs.store.evidence import Evidence, open_evidence

SIGMAS = ("0.12", "0.25", "0.50", "1.00")
STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Radii of the table, in units of sigma."""


def drawn(sigma: str, law: str, options: argparse.Namespace) -> Evidence:
    """Return the votes of a network under a law, drawn now where they are missing."""
    if options.kept is not None and law == "gaussian":
        return open_evidence(Path(options.kept) / f"cifar10-sigma{sigma}-counts")
    folder = Path(options.out) / f"cifar10-sigma{sigma}-{law}"
    settings = {
        "model": f"resnet110:{options.models}/cifar10-resnet110-sigma{sigma}.safetensors", "data": options.data,
        "sigma": float(sigma), "n": options.n, "noise": law, "device": options.device, "limit": options.limit,
        **({"dtype": "bfloat16", "channels_last": True, "compile": True} if options.device == "cuda" else {}),
    }  # fmt: skip
    with open_run({key: value for key, value in settings.items() if value is not None}) as run:
        sample(run.spec, run.executor, run.dataset, folder)
    return open_evidence(folder)


def right(evidence: Evidence, sigma: float, n: int, *, later: bool = False) -> tuple[list[int], float, tuple[str, ...]]:
    """Return how many images are right and certified to each radius, the share of right draws, and all images' names.

    ``later`` takes draws n to 2 n in the place of the first n, and the first 100 in the place of the selection.
    """
    votes, selection, labels = evidence.counts(n)
    if labels is None or selection is None:
        raise SystemExit("the data must have labels, and the run draws for a selection")
    counts, chosen = votes.values, selection.values
    if later:
        counts, chosen = evidence.counts(2 * n)[0].values - counts, evidence.counts(100)[0].values
    made = certify_votes(counts, selection=chosen, noise=evidence.spec.noise, alpha=1e-3)
    assert not isinstance(made, Certificate)
    radii = np.array([c.radius if c.predicted == y else -1.0 for c, y in zip(made, labels, strict=True)])
    reached = [int((radii >= max(step * sigma, 1e-12)).sum()) for step in STEPS]
    return reached, float(counts[np.arange(len(labels)), labels].sum() / (n * len(labels))), votes.ids


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
    parser.add_argument("--kept", help="folder with runs under gaussian noise; else they are drawn too")
    options = parser.parse_args()
    if options.kept is not None and options.limit is not None:
        parser.error("--limit is for runs that are drawn now: --kept has all of its images")
    steps = " | ".join(f"r = {step:g} sigma" for step in STEPS)
    print(f"| sigma | {steps} | draws that are right | run again, other bits |")
    print("|---|" + "---|" * (len(STEPS) + 2), flush=True)
    for sigma in options.sigma or SIGMAS:
        before = drawn(sigma, "gaussian", options)
        found = [right(before, float(sigma), options.n)]
        chance = [] if options.kept is None else [right(before, float(sigma), options.n, later=True)]
        grid = drawn(sigma, "grid", options)
        found = [*found, right(grid, float(sigma), options.n), *chance]
        if found[0][2] != found[1][2]:
            raise SystemExit(f"--kept has other images than {options.data}")
        cells = [" / ".join(map(str, counts)) for counts in zip(*(reached for reached, _, _ in found), strict=True)]
        shares = " / ".join(f"{share:.2%}" for _, share, _ in found)
        again = "{:,}, {:,}".format(*grid.replayed)
        print(f"| {sigma} | {' | '.join(cells)} | {shares} | {again} |", flush=True)
    third = " / gaussian again" if options.kept is not None else ""
    print(f"Of {len(found[0][2])} images, gaussian / grid{third}; n {options.n:,}, alpha 0.001.")


if __name__ == "__main__":
    main()
