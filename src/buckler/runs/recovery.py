"""The votes behind a log of radii.

The usual tool prints ``radius = sigma Phi^-1(p)`` with p the Clopper-Pearson limit of k votes out of n at level alpha,
so the printed digits leave only a few k, and near the top, where neighbouring counts are far apart, one or none. A log
therefore shows which (alpha, n, sigma) it can have been made with: those for which every radius has a count. The
largest possible radius is ``sigma Phi^-1(alpha^(1/n))``.

A log of ours says how it was made. Where its method looks at the runner-up too, a radius stands for many pairs of
counts (top, runner-up); all of them have at least the votes that it takes without any runner-up, and no rival has more
than where one rival holds all other votes.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.certify.registry import sound_methods
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.noise import Gaussian, GridGaussian
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

RIVALS = 9
"""Classes that the votes of an imported log are spread over at most, beside the certified one; fewer certify less."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a log agrees with having been made at (alpha, n, sigma): lines whose radius no count of votes gives."""

    alpha: float
    n: int
    sigma: float
    misfits: int
    largest: float
    method: str = "top_class"

    @property
    def fits(self) -> bool:
        """Whether every radius of the log is possible."""
        return self.misfits == 0


def radius_of(
    k: ArrayLike,
    n: int,
    alpha: float,
    sigma: float,
    method: str = "top_class",
    *,
    against: Literal["one", "none"] = "one",
) -> FloatArray:
    """Return the radius that a method finds for ``k`` votes of ``n``; where it is negative, a tool abstains.

    The method is the usual tool's by default. The other votes are all of ``one`` rival, or of ``none``: so scattered
    that no rival has any, the best case of a method that looks at the runner-up.

    >>> radius_of([100_000, 60_000], 100_000, 0.001, 0.5).round(3)
    array([1.906, 0.12 ])
    """
    votes = np.asarray(k, dtype=np.int64)
    rival = n - votes if against == "one" else np.zeros_like(votes)
    limits = margin_lower(votes, rival, n, alpha=alpha, margin="quantile", method=method)
    return np.asarray(sigma / 2.0 * limits)


def fewest_votes(
    log: Log, n: int, alpha: float, sigma: float, method: str = "top_class", *, against: Literal["one", "none"] = "one"
) -> tuple[IntArray, BoolArray]:
    """Return for each line the smallest count whose radius it can stand for, and whether there is one.

    Where there is none, the count is the smallest whose radius is larger, or ``n + 1``.
    """
    low, first = np.unique(log.low, return_index=True)
    few, enough = np.zeros(low.size, dtype=np.int64), np.full(low.size, n + 1, dtype=np.int64)
    while (enough - few > 1).any():
        middle = (few + enough) // 2
        reached = radius_of(np.minimum(middle, n), n, alpha, sigma, method, against=against) >= low
        few, enough = np.where(reached, few, middle), np.where(reached, middle, enough)
    possible = enough <= n
    if method == "top_class":  # which knows one count alone, so that not every radius is that of some votes
        possible &= radius_of(np.minimum(enough, n), n, alpha, sigma) <= log.high[first]
    back = np.searchsorted(low, log.low)
    return enough[back], possible[back]


def fit(log: Log, alpha: float, n: int, sigma: float, method: str = "top_class") -> Fit:
    """Return how a log agrees with (alpha, n, sigma), and a method if it is not the usual tool's."""
    check_alpha(alpha)
    check_whole("n", n, 1, 10**9)
    check_positive("sigma", sigma)
    largest = float(radius_of(n, n, alpha, sigma, method))
    if method == "top_class":
        _, possible = fewest_votes(log, n, alpha, sigma)
    else:
        possible = log.low <= largest
    return Fit(alpha, n, sigma, int((~possible & log.certified).sum()), largest, method)


def fit_as_stated(log: Log) -> Fit:
    """Return how a log agrees with what it says itself, or say why the votes behind it cannot be recovered."""
    if len(log.origins) != 1:
        raise InvalidInput(f"the log must have been made in one way; it says {len(log.origins)}")
    told = log.origins[0]
    if told.sigma is None or (told.law != Gaussian.name and told.law.partition(":")[0] != GridGaussian.name):
        # The grid's radii are those of Gaussian noise, before inputs are rounded; those of a scale are its own.
        raise InvalidInput(f"the log must be of Gaussian noise for its votes to be recovered; it says {told.law!r}")
    ours = {method.name for method in sound_methods("votes")}
    if told.method not in ours or told.margin != "quantile":
        raise InvalidInput(
            f"the log must be of votes and the quantile margin for its votes to be recovered; it says that it was made "
            f"by {told.method!r} from the {told.margin} margin"
        )
    return fit(log, told.alpha, told.n, told.sigma, told.method)


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

    A method that looks at the runner-up gets several buckets, the first with at least the votes of any rival.
    """
    classes = int(max(log.labels.max(), log.predicted.max())) + 1
    held, rival = _worst_votes(log, made)
    if (held > made.n).any():
        raise InvalidInput(f"the log does not fit alpha {made.alpha:g}, n {made.n}, sigma {made.sigma:g}")
    buckets = int((-(-(made.n - held) // np.maximum(rival, 1))).max(initial=1))
    spec = RunSpec(
        model="an imported log", data=source, sigma=made.sigma, num_classes=classes + buckets, n=made.n,
        n0=check_whole("n0", n0, 1), checkpoints=(made.n,), shard_inputs=IN_A_SHARD,
    )  # fmt: skip
    chosen = np.where(log.certified, log.predicted, log.labels)
    identity = Identity(f"log {source}, read at alpha {made.alpha:g}", _hash(log))
    with open_writer(folder, spec, identity, inputs=len(log.ids)) as writer:
        starts = [start for first, stop in writer.missing() for start in range(first, stop, IN_A_SHARD)]
        for start in starts:
            part = slice(start, start + IN_A_SHARD)
            ids, rows = log.ids[part], np.arange(len(log.ids[part]))
            counts, selection = np.zeros((2, len(ids), classes + buckets), dtype=np.int64)
            counts[rows, chosen[part]] = held[part]
            for bucket in range(buckets):
                counts[:, classes + bucket] = np.minimum(rival[part], made.n - counts.sum(axis=1))
            selection[rows, chosen[part]] = n0
            drawn = Shard(ids, log.labels[part], ("",) * len(ids), selection, counts[:, None], None, 0)
            writer.append(start, replace(drawn, drawn_by=identity.as_dict()))
    return spec


def _worst_votes(log: Log, made: Fit) -> tuple[IntArray, IntArray]:
    """Return for each line the fewest votes of its class, n + 1 if none will do, and the most of any rival."""
    settings = (made.n, made.alpha, made.sigma, made.method)
    most, possible = fewest_votes(log, *settings)  # what it takes against one rival: it has all the other votes
    least = most if made.method == "top_class" else fewest_votes(log, *settings, against="none")[0]
    held = np.where(log.certified, np.where(possible, least, made.n + 1), made.n // 2)
    rest = made.n - held
    # Raising the runner-up certifies less, so it may be as high as it takes for all votes to have a place.
    rival = np.where(log.certified & (least < most), np.maximum(made.n - most, -(-rest // RIVALS)), rest)
    return held, rival


def _hash(log: Log) -> str:
    digest = hashlib.blake2b(digest_size=16, person=b"buckler-log-1")
    digest.update("\0".join(log.ids).encode())
    for values in (log.labels, log.predicted, log.low, log.high):
        digest.update(values.tobytes())
    return digest.hexdigest()
