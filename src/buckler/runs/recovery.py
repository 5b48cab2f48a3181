"""Recovers the votes behind a log of radii, and which alpha, n and sigma it can have been made with.

The usual tool prints ``radius = sigma Phi^-1(p)`` with p the Clopper-Pearson limit of k votes out of n at level alpha,
so the printed digits leave only a few k, and near the top, where neighbouring counts are far apart, one or none. A log
fits (alpha, n, sigma) if every radius has a count. The largest possible radius is ``sigma Phi^-1(alpha^(1/n))``.

A log of buckler says how it was made. Where its method looks at the runner-up too, a radius stands for many pairs of
counts (top, runner-up); all of them have at least the votes that it takes without any runner-up, and no rival has more
than where one rival holds all other votes.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from buckler.certify.discrete import margin_lower
from buckler.certify.registry import sound_methods
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.noise import Gaussian, GridGaussian
from buckler.runs.identity import Identity
from buckler.runs.interop import Log, Rounding, read_log
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
"""Settings that most papers give for their logs."""

RIVALS = 9
"""Classes that the votes of an imported log are spread over at most, beside the certified one; fewer certify less."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of a log with (alpha, n, sigma): lines whose radius no count of votes gives, and the largest radius."""

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
    """Return the radius that a method certifies for ``k`` votes of ``n``; negative ones are abstentions.

    The other votes are all those of ``one`` rival, or of ``none``: the best case of a method that looks at the
    runner-up.

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
    """Return for each line the smallest count whose radius its digits can stand for, and whether there is one.

    Where there is none, the count is the smallest with a larger radius, or ``n + 1``.
    """
    low, first = np.unique(log.low, return_index=True)
    few, enough = np.zeros(low.size, dtype=np.int64), np.full(low.size, n + 1, dtype=np.int64)
    while (enough - few > 1).any():
        middle = (few + enough) // 2
        reached = radius_of(np.minimum(middle, n), n, alpha, sigma, method, against=against) >= low
        few, enough = np.where(reached, few, middle), np.where(reached, middle, enough)
    possible = enough <= n
    if method == "top_class":  # one count gives the radius, so not every radius has one
        possible &= radius_of(np.minimum(enough, n), n, alpha, sigma) <= log.high[first]
    back = np.searchsorted(low, log.low)
    return enough[back], possible[back]


def fit(log: Log, alpha: float, n: int, sigma: float, method: str = "top_class") -> Fit:
    """Return the agreement of a log with (alpha, n, sigma), made by the usual tool's method or another."""
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
    """Return the agreement of a log with the settings that it states; refuse settings without recoverable votes."""
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
    """Return the settings among those tried that a log fits; a given one is dropped only if nothing fits it.

    First come the usual n, the sigma with the least room above the log's largest radius (any larger one fits a log of
    small radii), and the largest alpha, which stands for the fewest votes.
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
    """Write the votes behind a log as the evidence of a run, and return its specification.

    **Guarantee.** If the log was made with the settings of ``made``, certificates from this evidence are at most those
    from the true votes: unknown counts are taken at their worst. A radius stands for the smallest count that gives it;
    all other votes are in one class after the last; an abstention is a tie between its label and that class. The
    selection holds the class that was logged. A method that looks at the runner-up gets several further classes, the
    first with at least the votes of any rival.
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


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A log, its agreement with a claim (what was ``claimed``, or the usual settings), and the settings it fits."""

    log: Log
    claim: Fit
    claimed: bool
    fits: tuple[Fit, ...]
    out: Path | None

    def as_dict(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        return {
            "lines": len(self.log.ids),
            "certified": int(self.log.certified.sum()),
            "fitted": asdict(self.fits[0]),
            "claimed": asdict(self.claim),
            "claim_fits": self.claim.fits,
            "also_fits": [{"alpha": f.alpha, "n": f.n, "sigma": f.sigma} for f in self.fits[1:]],
            "out": None if self.out is None else str(self.out),
        }

    def sentences(self) -> list[str]:
        """Return the findings as sentences."""
        certified, chosen, claim = int(self.log.certified.sum()), self.fits[0], self.claim
        fitted = f"alpha {chosen.alpha:g}, n {chosen.n:,}, sigma {chosen.sigma:g}"
        text = [f"{len(self.log.ids)} lines, {certified} certified, {len(self.log.ids) - certified} abstentions."]
        if self.log.origins:
            text.append(f"Fits what it says: method {chosen.method}, {fitted}.")
        else:
            text.append(f"Fits {fitted}: every radius has its count of votes.")
        if not claim.fits:
            word = "claimed" if self.claimed else "usual"
            text.append(f"Does NOT fit the {word} {_misfit(self.log, claim)}.")
        others = [f.alpha for f in self.fits[1:] if (f.n, f.sigma) == (chosen.n, chosen.sigma)]
        if others:
            alphas = ", ".join(f"{a:g}" for a in others)
            text.append(f"Fits as well: alpha {alphas}; the log alone cannot tell them apart.")
        sigmas = sorted({f.sigma for f in self.fits} - {chosen.sigma})
        if sigmas:
            text.append(f"Larger sigmas fit as well ({', '.join(f'{s:g}' for s in sigmas)}): give sigma to be sure.")
        if self.out is not None:
            text.append(f"Votes written to {self.out}; certify them with: buckler certify {self.out} --alpha 0.001")
        return text


def import_log(
    path: Path,
    *,
    alpha: float | None = None,
    n: int | None = None,
    sigma: float | None = None,
    rounding: Rounding | None = None,
    out: Path | None = None,
    n0: int | None = None,
) -> Imported:
    """Return the settings that a log fits, and write the votes behind it to ``out``, with ``n0`` selection draws.

    ``alpha``, ``n`` and ``sigma`` are claims about the log. Writing votes needs all three, and a log that fits them: a
    log fits many settings, and certificates from votes of others than its own do not hold. A log of buckler states
    them, and another claim is refused.
    """
    if alpha is not None:
        check_alpha(alpha)
    if sigma is not None:
        check_positive("sigma", sigma)
    if n is not None:
        check_whole("n", n, 1, 10**9)
    if n0 is not None and out is None:
        raise InvalidInput("n0 is for the evidence written to out, which is not given")
    log = read_log(path, rounding)
    if not log.certified.any():
        raise InvalidInput(f"the log must hold a certified line; {str(path)!r} holds abstentions alone")
    if log.origins:
        claim = fit_as_stated(log)
        for name, claimed in (("alpha", alpha), ("n", n), ("sigma", sigma)):
            if claimed not in {None, getattr(claim, name)}:
                raise InvalidInput(f"{name} must be {getattr(claim, name):g}, as the log says; got {claimed:g}")
        if rounding == "nearest":
            raise InvalidInput("rounding must be 'down' for a log that says how it was made; got 'nearest'")
        found = [claim] if claim.fits else []
    else:
        if out is not None and (alpha is None or n is None or sigma is None):
            raise InvalidInput("alpha, n and sigma of the log must be given for votes to be written: it fits many")
        found = find_fits(log, alpha=alpha, n=n, sigma=sigma)
        claim = fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or (found[0].sigma if found else SIGMAS[-1]))
    if not found:
        raise InvalidInput(
            f"the log fits no alpha, n and sigma that were tried, {_misfit(log, claim)} (it may not be made from "
            "Clopper-Pearson limits, or be rounded down)"
        )
    if out is not None:
        if not claim.fits:
            raise InvalidInput(f"the log does not fit {_misfit(log, claim)}, so no votes are written")
        write_evidence(log, claim, out, source=path.name, n0=100 if n0 is None else n0)
    return Imported(log, claim, alpha is not None, tuple(found), out)


def _misfit(log: Log, claim: Fit) -> str:
    largest = Decimal(claim.largest).quantize(Decimal("0.0001"), ROUND_FLOOR)
    return (
        f"alpha {claim.alpha:g}, n {claim.n:,}, sigma {claim.sigma:g}: no count gives {claim.misfits} of its "
        f"{int(log.certified.sum())} radii there, where the largest possible is {largest}"
    )
