"""How well ``buckler plan --like`` foretells the draws of ``buckler decide``, on recorded runs.

    python benchmarks/planning.py [--evidence evidence] [--alpha 0.001] [--max-n 100000]

For each network of the recorded evidence with votes of many draws, their frequencies are taken as the truth. ``decide``
is run on votes drawn anew from them, and its draws are compared with three plans: from another recorded run of 1,000
draws of the same network, from the draws and from the votes of decisions about every other input, and
from a typical data set.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest
from buckler.noise import Gaussian
from buckler.runs.plan import plan
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import Drawing, write_decisions

PAIRS = (
    ("cifar10-sigma0.25-counts", "cifar10-sigma0.25"),
    ("cifar10-sigma0.50-counts", "cifar10-sigma0.50"),
    ("cifar10-sigma1.00-counts", "cifar10-sigma1.00"),
)
MODEL = {"answers": "answers:recorded", "weights": {}, "environment": {}}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", type=Path, default=Path("evidence"))
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--max-n", type=int, default=100_000)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    columns = " ".join(f"{name:>14}" for name in ("run of 1,000", "decisions", "their votes", "typical"))
    print(f"{'run':>26} {'radii':>18} {'draws':>10} {columns}")
    for truth, pilot in PAIRS:
        evidence = open_evidence(args.evidence / truth)
        sigma = float(evidence.spec.sigma or 0.0)
        votes = evidence.counts().values
        shares = votes / votes.sum(axis=1, keepdims=True)
        for radii in ((sigma,), tuple(0.5 * sigma * step for step in range(1, 5))):
            ladder = Ladder(radii, Gaussian(sigma), args.alpha, args.max_n, winner=True)
            test = AnytimeTest(ladder, len(shares), shares.shape[1])
            while (rows := test.undecided).size:
                test.update(rows, rng.multinomial(test.batch_sizes(rows), shares[rows]))
            drawn = int(test.n.sum())
            made = [test.decided(row, str(row)) for row in range(0, len(shares), 2)]
            with tempfile.TemporaryDirectory() as folder:
                same, other = Path(folder) / "same.parquet", Path(folder) / "other.parquet"
                for path, said in ((same, list(radii)), (other, [0.5 * radius for radius in radii])):
                    origin = {"radii": said, "alpha": args.alpha, "final_n": args.max_n, "drawn_by": [MODEL]}
                    write_decisions(path, made, [Drawing("", 0)] * len(made), {**origin, "replayed": [0, 0]})
                forecasts = [
                    plan(
                        inputs=len(shares), num_classes=shares.shape[1], n=args.max_n, rate=1.0, noise=Gaussian(sigma),
                        radii=radii, alpha=args.alpha, like=like,
                    ).anytime_samples
                    for like in (min(args.evidence.glob(pilot)), same, other, None)
                ]  # fmt: skip
            cells = " ".join(f"{t:>8,} {t / drawn:>5.2f}" for t in forecasts)
            print(f"{truth:>26} {','.join(f'{r:g}' for r in radii):>18} {drawn:>10,} {cells}")


if __name__ == "__main__":
    main()
