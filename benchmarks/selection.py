"""Mean certified radius with no selection draws, beside the protocol of two samples with as many draws in all.

    python benchmarks/selection.py evidence/cifar10-sigma0.50-counts evidence/cifar10-sigma0.25-counts

A run's votes of 100,000 draws give the frequencies that are taken as the truth; votes are drawn anew from them. The
class is the one with the most votes of all draws, tested to be the winner (T18d), or the top class of 100 of them.
"""

import argparse
from pathlib import Path

import numpy as np

from buckler.certify.votes import certify_votes
from buckler.runs.store.evidence import open_evidence

N0 = 100


def main() -> None:
    """Print mean radii for totals of 200, 1,100 and 10,100 draws."""
    parser = argparse.ArgumentParser(description="Mean radius: no selection draws against 100 of them.")
    parser.add_argument("runs", nargs="+", type=Path, help="runs of buckler sample with votes")
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{'run':>28} {'draws':>7} {'100 + rest':>11} {'winner':>8} {'ratio':>6}")
    for folder in args.runs:
        evidence, rng = open_evidence(folder), np.random.default_rng(args.seed)
        votes = np.concatenate([shard.counts[:, -1] for shard in evidence.read_shards()])
        truths = votes / votes.sum(axis=1, keepdims=True)
        for total in (200, 1_100, 10_100):
            first, rest = rng.multinomial(N0, truths), rng.multinomial(total - N0, truths)
            asked = {"noise": evidence.spec.noise, "alpha": args.alpha}
            two = certify_votes(rest, selection=first, **asked).radii.mean()
            one = certify_votes(first + rest, **asked).radii.mean()
            print(f"{folder.name:>28} {total:>7,} {two:>11.4f} {one:>8.4f} {one / two:>6.3f}")


if __name__ == "__main__":
    main()
