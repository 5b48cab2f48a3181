"""How sure the bundled CIFAR-10 networks are under their noise, and what they certify, from votes that are recorded.

    python benchmarks/networks.py

For each network: in how many of 500 test images the true class has at least a share p of the votes, from all recorded
draws; then the images that are right and certified to each radius, from ``--n`` draws at ``--alpha``. A mean radius is
not shown: it grows by making sure images surer, whatever becomes of the others (Sun et al., arXiv 2410.06895).
"""

import argparse
from pathlib import Path

import numpy as np

from buckler.report.text import TextTable
from buckler.runs.certify import certify_evidence
from buckler.runs.store.evidence import open_evidence

SHARES = (0.1, 0.5, 0.9, 0.99, 0.999)
RADII = (0.25, 0.5, 0.75, 1.0, 1.5)
RUNS = {
    "sigma 0.12": "cifar10-sigma0.12-counts",
    "sigma 0.25": "cifar10-sigma0.25-counts",
    "sigma 0.25, consistency": "population/few",
    "sigma 0.5": "cifar10-sigma0.50-counts",
    "sigma 1": "cifar10-sigma1.00-counts",
}
"""Name of each network -> folder of its votes."""


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", type=Path, default=Path("evidence"))
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--alpha", type=float, default=1e-3)
    options = parser.parse_args()
    sure, certified = [], []
    for name, folder in RUNS.items():
        run = open_evidence(options.evidence / folder)
        votes = run.counts()
        if votes.labels is None:
            parser.error(f"{folder} has no labels")
        p = votes.values[np.arange(len(votes.ids)), votes.labels] / run.spec.n
        sure.append((name, *(f"{100.0 * np.mean(p >= share):.1f}" for share in SHARES)))
        made = certify_evidence(run, alpha=options.alpha, n=options.n, certified_class="winner")
        certified.append((name, *(f"{100.0 * share:.1f}" for share in made.accuracy(radii=RADII))))
    print(TextTable(("images in %", *(f"p>={share:g}" for share in SHARES)), tuple(sure)).to_text())
    print()
    header = ("right and certified, %", *(f"r={radius:g}" for radius in RADII))
    best = ("best", *(f"{max(float(row[k + 1]) for row in certified):.1f}" for k in range(len(RADII))))
    print(TextTable(header, (*certified, best)).to_text())


if __name__ == "__main__":
    main()
