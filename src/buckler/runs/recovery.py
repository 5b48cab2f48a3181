"""Recovers the votes behind a log of radii, and which alpha, n and sigma it can have been made with.

The usual tool prints ``radius = sigma Phi^-1(p)`` with p the Clopper-Pearson limit of k votes out of n at level alpha,
so the printed digits leave only a few k, and near the top, where neighbouring counts are far apart, one or none. A log
fits (alpha, n, sigma) if every radius has a count. The largest possible radius is ``sigma Phi^-1(alpha^(1/n))``.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from buckler.certify.votes import margin_lower
from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole, show
from buckler.noise import Gaussian, GridGaussian
from buckler.runs.identity import Identity
from buckler.runs.interop import Log, read_log
from buckler.runs.spec import RunSpec
from buckler.runs.store.shard import Shard
from buckler.runs.store.writer import open_writer
from buckler.types import ArrayLike, BoolArray, FloatArray, IntArray

ALPHAS = (0.1, 0.05, 0.025, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 1e-4, 1e-5, 1e-6)
DRAWS = (100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000, 1_000_000)
SIGMAS = (0.12, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)

RECOVERABLE = {("top_class", "quantile", noise) for noise in (Gaussian.name, GridGaussian.name)}
"""Method, margin and noise of radii that one count of votes gives."""

IN_A_SHARD = 1000
"""Lines of a log in a shard of evidence."""

IMPORTED = "an imported log"
"""Model of a run whose votes were recovered: lower limits of votes, not the votes themselves."""

USUAL_ALPHA, USUAL_DRAWS = 0.001, 100_000
"""Settings that most papers give for their logs."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of a log with (alpha, n, sigma): lines whose radius no count of votes gives, and the largest radius."""

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
    """Return the radius that the usual tool certifies for ``k`` votes of ``n``; negative ones are abstentions.

    >>> radius_of([100_000, 60_000], 100_000, 0.001, 0.5).round(3)
    array([1.906, 0.12 ])
    """
    votes = np.asarray(k, dtype=np.int64)
    limits = margin_lower(votes, n - votes, n, alpha=alpha, margin="quantile", method="top_class")
    return np.asarray(sigma / 2.0 * limits)


def fewest_votes(log: Log, n: int, alpha: float, sigma: float) -> tuple[IntArray, BoolArray]:
    """Return for each line the smallest count whose radius its digits can stand for, and whether there is one.

    Where there is none, the count is the smallest with a larger radius, or ``n + 1``.
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
    """Return the agreement of a log with (alpha, n, sigma)."""
    check_alpha(alpha)
    check_whole("n", n, 1, 10**9)
    check_positive("sigma", sigma)
    _, possible = fewest_votes(log, n, alpha, sigma)
    largest = float(radius_of(n, n, alpha, sigma))
    return Fit(alpha, n, sigma, int((~possible & log.certified).sum()), largest)


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
    selection holds the class that was logged.
    """
    others = int(max(log.labels.max(), log.predicted.max())) + 1
    found, possible = fewest_votes(log, made.n, made.alpha, made.sigma)
    if not possible[log.certified].all():
        raise InvalidInput(f"the log does not fit alpha {made.alpha:g}, n {made.n}, sigma {made.sigma:g}")
    held = np.where(log.certified, found, made.n // 2)
    chosen = np.where(log.certified, log.predicted, log.labels)
    spec = RunSpec(
        model=IMPORTED, data=source, sigma=made.sigma, num_classes=others + 1, n=made.n,
        n0=check_whole("n0", n0, 1), checkpoints=(made.n,), shard_inputs=IN_A_SHARD,
    )  # fmt: skip
    identity = Identity(f"log {source}, read at alpha {made.alpha:g}", _hash(log))
    with open_writer(folder, spec, identity, inputs=len(log.ids)) as writer:
        for start in [start for first, stop in writer.missing() for start in range(first, stop, IN_A_SHARD)]:
            part = slice(start, start + IN_A_SHARD)
            ids, rows = log.ids[part], np.arange(len(log.ids[part]))
            counts, selection = np.zeros((2, len(ids), others + 1), dtype=np.int64)
            counts[rows, chosen[part]] = held[part]
            counts[:, others] = made.n - held[part]
            selection[rows, chosen[part]] = n0
            drawn = Shard(ids, log.labels[part], ("",) * len(ids), selection, counts[:, None], None, 0)
            writer.append(start, replace(drawn, drawn_by=identity.as_dict()))
    return spec


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
    out: Path | None = None,
    n0: int | None = None,
) -> Imported:
    """Return the settings that a log fits, and write the votes behind it to ``out``, with ``n0`` selection draws.

    ``alpha``, ``n`` and ``sigma`` are claims about the log. Writing votes needs all three, and a log that fits them: a
    log fits many settings, and certificates from votes of others than its own do not hold. A log of ``buckler certify
    --tsv`` states them, and another claim is refused.
    """
    if alpha is not None:
        check_alpha(alpha)
    if sigma is not None:
        check_positive("sigma", sigma)
    if n is not None:
        check_whole("n", n, 1, 10**9)
    if n0 is not None and out is None:
        raise InvalidInput("n0 is for the evidence written to out, which is not given")
    log = read_log(path)
    if not log.certified.any():
        raise InvalidInput(f"the log must hold a certified line; {str(path)!r} holds abstentions alone")
    if log.settings:
        stated = _stated(log)
        for name, claimed, found_there in zip(("alpha", "n", "sigma"), (alpha, n, sigma), stated, strict=True):
            if claimed not in {None, found_there}:
                raise InvalidInput(f"{name} must be {found_there:g}, as the log says; got {claimed:g}")
        alpha, n, sigma = stated
    if out is not None and (alpha is None or n is None or sigma is None):
        raise InvalidInput("alpha, n and sigma of the log must be given for votes to be written: it fits many")
    found = find_fits(log, alpha=alpha, n=n, sigma=sigma)
    claim = fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or (found[0].sigma if found else SIGMAS[-1]))
    if not found:
        raise InvalidInput(
            f"the log fits no alpha, n and sigma that were tried, {_misfit(log, claim)} (it may not be made from "
            "Clopper-Pearson limits)"
        )
    if out is not None:
        if not claim.fits:
            raise InvalidInput(f"the log does not fit {_misfit(log, claim)}, so no votes are written")
        write_evidence(log, claim, out, source=path.name, n0=100 if n0 is None else n0)
    return Imported(log, claim, alpha is not None, tuple(found), out)


def _stated(log: Log) -> tuple[float, int, float]:
    """Return alpha, n and sigma of a log that states them; others than the usual tool's radii are refused."""
    try:
        ((method, margin, alpha, n, sigma, noise),) = log.settings
        if (method, margin, noise.partition(":")[0]) in RECOVERABLE and "scale" not in noise:
            return check_alpha(float(alpha)), check_whole("n", int(n), 1, 10**9), check_positive("sigma", float(sigma))
    except ValueError:
        pass
    raise InvalidInput(
        "the log must be of one alpha, n and sigma, method top_class, the quantile margin and Gaussian noise for its "
        f"votes to be recovered; it says {show(log.settings)}"
    )


def _misfit(log: Log, claim: Fit) -> str:
    largest = Decimal(claim.largest).quantize(Decimal("0.0001"), ROUND_FLOOR)
    return (
        f"alpha {claim.alpha:g}, n {claim.n:,}, sigma {claim.sigma:g}: no count gives {claim.misfits} of its "
        f"{int(log.certified.sum())} radii there, where the largest possible is {largest}"
    )
