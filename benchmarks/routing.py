"""One system with a noise level for each input (theory T36), from votes that are recorded: no network, no GPU.

    python benchmarks/routing.py
    python benchmarks/routing.py --group 1,9 --n 100000

Nothing is trained for the router: it tells two groups of classes apart with a network that is there already, so the
votes for a group are those for its classes. By default one group is machines (airplane, car, ship, truck), the other
animals. Images of the group get the larger sigma, all others the smaller one. Shown are the shares of images predicted
right and certified to each radius, by the classifier of each sigma alone and by the composition, at alpha in all for
each certificate, from ``--n`` draws of the router and as many of the classifier that it chooses.
"""

import argparse
from pathlib import Path

import numpy as np

from buckler import certify_votes
from buckler.certificates import Certificates
from buckler.certify.budget import routed_level
from buckler.certify.composition import compose_all
from buckler.report.text import TextTable
from buckler.runs.store.evidence import open_evidence

RADII = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    """Compose certificates of recorded votes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=Path, default=Path("evidence/population/few"), help="run of the smaller sigma")
    parser.add_argument("--large", type=Path, default=Path("evidence/cifar10-sigma0.50-counts"), help="of the larger")
    parser.add_argument("--router", type=Path, help="run of the router's votes, by default that of the larger sigma")
    parser.add_argument("--group", default="0,1,8,9", help="classes that get the larger sigma")
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--alpha", type=float, default=1e-3)
    options = parser.parse_args()
    runs = [open_evidence(path) for path in (options.small, options.large, options.router or options.large)]
    votes = [run.counts(options.n) for run in runs]
    ids, truth, level = votes[0].ids, votes[0].labels, routed_level(options.alpha)
    if len({one.contents for one in votes}) > 1 or truth is None:
        parser.error("the runs must be of the same inputs, with labels")
    in_group = np.isin(np.arange(votes[2].values.shape[1]), [int(label) for label in options.group.split(",")])
    routed = np.stack([votes[2].values[:, chosen].sum(axis=1) for chosen in (~in_group, in_group)], axis=1)
    routes = certify_votes(routed, sigma=runs[2].spec.sigma, alpha=level, ids=ids)
    experts = [
        certify_votes(one.values, sigma=run.spec.sigma, alpha=level, ids=ids)
        for one, run in zip(votes[:2], runs[:2], strict=True)
    ]
    chosen = {way.id: experts[int(way.predicted)][i] for i, way in enumerate(routes) if way.predicted is not None}
    system = Certificates.of(compose_all(routes, chosen, options.alpha))
    alone = [
        (f"sigma {run.spec.sigma:g}", certify_votes(one.values, sigma=run.spec.sigma, alpha=options.alpha, ids=ids))
        for one, run in zip(votes[:2], runs[:2], strict=True)
    ]
    rows = [
        (name, *(f"{100.0 * share:.1f}" for share in made.accuracy(truth, RADII)))
        for name, made in (*alone, ("routed", system))
    ]
    large, none = np.mean(routes.predicted == 1), np.mean(routes.abstained)
    sent = f"{large:.0%} of {len(ids)} images got the larger sigma, {none:.0%} none"
    header = ("classifier", *(f"r={radius:g}" for radius in RADII))
    print(TextTable(header, tuple(rows), f"{sent}; n {options.n:,}, alpha {options.alpha:g}").to_text())


if __name__ == "__main__":
    main()
