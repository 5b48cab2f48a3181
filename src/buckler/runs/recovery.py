"""The votes behind a log of radii.

The usual tool prints ``radius = sigma Phi^-1(p)`` with p the Clopper-Pearson limit of k votes out of n at level alpha,
so the printed digits leave only a few k, and near the top, where neighbouring counts are far apart, one or none. A log
therefore shows which (alpha, n, sigma) it can have been made with: those for which every radius has a count. The
largest possible radius is ``sigma Phi^-1(alpha^(1/n))``.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.runs.identity import Identity
from buckler.runs.interop import Log
from buckler.runs.spec import RunSpec
from buckler.runs.store.shard import Shard
from buckler.runs.store.writer import open_writer
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

ALPHAS = (0.1, 0.05, 0.025, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 1e-4, 1e-5, 1e-6)
DRAWS = (100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000, 1_000_000)
SIGMAS = (0.12, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)

IN_A_SHARD = 1000
"""Lines of a log in a shard of evidence."""

USUAL_ALPHA, USUAL_DRAWS = 0.001, 100_000
"""What the field's papers say their logs were made with."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a log agrees with having been made at (alpha, n, sigma): lines whose radius no count of votes gives."""

    alpha: float
    n: int
    sigma: float
    misfits: int
    largest: float

    @property
    def fits(self) -> bool:
        """Whether every radius of the log is possible."""
        return self.misfits == 0


def radius_of(k: ArrayLike, n: int, alpha: float, sigma: float) -> FloatArray:
    """Return the radius that the usual tool finds for ``k`` votes of ``n``; where it is negative, that tool abstains.

    >>> radius_of([100_000, 60_000], 100_000, 0.001, 0.5).round(3)
    array([1.906, 0.12 ])
    """
    votes = np.asarray(k, dtype=np.int64)
    limits = margin_lower(votes, n - votes, n, alpha=alpha, margin="quantile", method="top_class")
    return np.asarray(sigma / 2.0 * limits)


def fewest_votes(log: Log, n: int, alpha: float, sigma: float) -> tuple[IntArray, BoolArray]:
    """Return for each line the smallest count whose radius it can stand for, and whether there is one.

    Where there is none, the count is the smallest whose radius is larger, or ``n + 1``.
    """
    low, first = np.unique(log.low, return_index=True)
    few, enough = np.zeros(low.size, dtype=np.int64), np.full(low.size, n + 1, dtype=np.int64)
    while (enough - few > 1).any():
        middle = (few + enough) // 2
        reached = radius_of(np.minimum(middle, n), n, alpha, sigma) >= low
        few, enough = np.where(reached, few, middle), np.where(reached, middle, enough)
    possible = (enough <= n) & (radius_of(np.minimum(enough, n), n, alpha, sigma) <= log.high[first])
    back = np.searchsorted(low, log.low)
    return enough[back], possible[back]


def fit(log: Log, alpha: float, n: int, sigma: float) -> Fit:
    """Return how a log agrees with (alpha, n, sigma)."""
    check_alpha(alpha)
    check_whole("n", n, 1, 10**9)
    check_positive("sigma", sigma)
    _, possible = fewest_votes(log, n, alpha, sigma)
    return Fit(alpha, n, sigma, int((~possible & log.certified).sum()), float(radius_of(n, n, alpha, sigma)))


def find_fits(log: Log, *, alpha: float | None = None, n: int | None = None, sigma: float | None = None) -> list[Fit]:
    """Return everything tried that a log fits, best first; what is given is left only where nothing fits it.

    Among the rest come first the usual n, then the sigma that leaves the least room above the log's largest radius (any
    larger one fits a log of small radii), then the largest alpha, which stands for the fewest votes.
    """
    draws = (n,) if n is not None else (USUAL_DRAWS,)
    sigmas = (sigma,) if sigma is not None else SIGMAS
    alphas = tuple(dict.fromkeys((*([] if alpha is None else [alpha]), *ALPHAS)))
    highest = float(log.low.max())
    for some_draws, some_sigmas in ((draws, sigmas), (DRAWS, sigmas), (draws, SIGMAS), (DRAWS, SIGMAS)):
        tried = [(a, d, s) for s in some_sigmas for d in some_draws for a in alphas]
        reachable = [(a, d, s) for a, d, s in tried if float(radius_of(d, d, a, s)) >= highest]
        found = [made for a, d, s in reachable if (made := fit(log, a, d, s)).fits]
        if found:
            return sorted(found, key=lambda f: (f.sigma, f.n != USUAL_DRAWS, f.n, f.alpha != alpha, -f.alpha))
    return []


def write_evidence(log: Log, made: Fit, folder: str | Path, *, source: str, n0: int = 100) -> RunSpec:
    """Write the votes behind a log as a run's evidence, and return its specification.

    Everything unknown is taken at its worst: of the counts that a radius can stand for, the smallest; all other votes
    in one bucket, a class of its own after the last; an abstention as a tie between its label and that bucket. The
    selection holds the class that was logged. So what is certified from it holds, and may be less than could be.
    """
    classes = int(max(log.labels.max(), log.predicted.max())) + 1
    spec = RunSpec(
        model="an imported log", data=source, sigma=made.sigma, num_classes=classes + 1, n=made.n,
        n0=check_whole("n0", n0, 1), checkpoints=(made.n,), shard_inputs=IN_A_SHARD,
    )  # fmt: skip
    votes, possible = fewest_votes(log, made.n, made.alpha, made.sigma)
    if not possible[log.certified].all():
        raise InvalidInput(f"the log does not fit alpha {made.alpha:g}, n {made.n}, sigma {made.sigma:g}")
    chosen = np.where(log.certified, log.predicted, log.labels)
    held = np.where(log.certified, votes, made.n // 2)
    rows = np.arange(len(log.ids))
    counts, selection = np.zeros((2, len(rows), classes + 1), dtype=np.int64)
    counts[rows, chosen], counts[rows, classes] = held, made.n - held
    selection[rows, chosen] = n0
    origin = f"log {source}, read at alpha {made.alpha:g}"
    with open_writer(folder, spec, Identity(origin, _hash(log)), inputs=len(rows)) as writer:
        starts = [start for first, stop in writer.missing() for start in range(first, stop, IN_A_SHARD)]
        for start in starts:
            part = slice(start, start + IN_A_SHARD)
            unknown = tuple("" for _ in log.ids[part])
            shard = Shard(log.ids[part], log.labels[part], unknown, selection[part], counts[part, None], None, 0)
            writer.append(start, shard)
    return spec


def _hash(log: Log) -> str:
    digest = hashlib.blake2b(digest_size=16, person=b"buckler-log-1")
    digest.update("\0".join(log.ids).encode())
    for values in (log.labels, log.predicted, log.low, log.high):
        digest.update(values.tobytes())
    return digest.hexdigest()
