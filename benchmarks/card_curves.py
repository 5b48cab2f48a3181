"""The certified-accuracy curve and the distribution of p_A of recorded votes, written into the card of their network.

    python benchmarks/card_curves.py evidence/cifar10-sigma0.50-counts models

The first 10,000 draws of each image are certified by ``exact`` at alpha .001. p_A is the share of them that vote for
the image's label; the card has its quantiles over the images. It has no average radius: that grows with the radii of
inputs that are easy already, and says little about the others (Sun, Mao, Mueller and Vechev, *Average certified radius
is a poor metric for randomized smoothing*, arXiv 2410.06895).
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from buckler.evaluate.curves import certified_accuracy
from buckler.runs.certify import certify_by_each
from buckler.runs.store.evidence import Evidence, open_evidence
from buckler.sampling.zoo import read_card, write_card

ALPHA, N = 1e-3, 10_000
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def table_of(evidence: Evidence, name: str) -> dict[str, Any]:
    """Return the table of a card: radii up to the largest that ``N`` votes of ``N`` certify, and quantiles of p_A."""
    sigma = evidence.spec.sigma
    run = certify_by_each(evidence, ["exact"], alpha=ALPHA, n=N)
    if run.labels is None:
        raise SystemExit(f"{name} must hold labels")
    largest = sigma * float(stats.norm.ppf(ALPHA ** (1.0 / N)))
    radii = [radius for radius in RADII if radius < largest]
    shares = certified_accuracy(run.certificates[0], run.labels, radii).accuracy
    votes = np.concatenate(run.votes)
    right = votes[np.arange(len(votes)), run.labels] / votes.sum(axis=1)
    named = [f"{radius:g}" for radius in radii]
    return {
        "sigma": sigma, "alpha": ALPHA, "draws": f"{N:,} draws each", "inputs": len(right),
        "accuracy": {radius: float(share) for radius, share in zip(named, shares, strict=True)},
        "p_a": {f"{q:g}": round(float(np.quantile(right, q)), 4) for q in QUANTILES},
        "command": f"buckler sweep {name} --n {N} --radii {','.join(named)}",
    }  # fmt: skip


def main() -> None:
    """Write the table into the card of the network that the run names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of buckler sample, with selection draws and labels")
    parser.add_argument("models", type=Path, help="folder of the cards")
    options = parser.parse_args()
    for run in options.runs:
        evidence = open_evidence(run)
        card = read_card(options.models / f"{Path(evidence.spec.model).stem}.json")
        table = table_of(evidence, str(run))
        _, page = write_card(options.models, replace(card, certified=(table,)))
        print(f"{page}: {table['accuracy']} p_A {table['p_a']}", flush=True)


if __name__ == "__main__":
    main()
