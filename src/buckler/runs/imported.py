"""A log of radii -> what it can have been made with, in words and as evidence."""

from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.runs.interop import Log, Rounding, read_log
from buckler.runs.recovery import USUAL_ALPHA, USUAL_DRAWS, Fit, find_fits, fit, fit_as_stated, write_evidence


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A log, how it agrees with a claim, and everything that it ``fits``, the chosen one first.

    The claim is what was ``claimed``, or else what the field's papers usually say.
    """

    log: Log
    claim: Fit
    claimed: bool
    fits: tuple[Fit, ...]
    out: Path | None

    def as_dict(self) -> dict[str, Any]:
        """Return what was found, as plain values."""
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
        """Return what was found, for people."""
        certified, chosen, claim = int(self.log.certified.sum()), self.fits[0], self.claim
        fitted = f"alpha {chosen.alpha:g}, n {chosen.n:,}, sigma {chosen.sigma:g}"
        text = [f"{len(self.log.ids)} lines, {certified} certified, {len(self.log.ids) - certified} abstentions."]
        if self.log.origins:
            text.append(f"Fits what it says: method {chosen.method}, {fitted}.")
        else:
            text.append(f"Fits {fitted}: every radius has its count of votes.")
        if not claim.fits:
            largest = Decimal(claim.largest).quantize(Decimal("0.0001"), ROUND_FLOOR)
            word = "claimed" if self.claimed else "usual"
            text.append(
                f"Does NOT fit the {word} alpha {claim.alpha:g}, n {claim.n:,}, sigma {claim.sigma:g}: no count gives "
                f"{claim.misfits} of the radii there, where the largest possible is {largest}."
            )
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
    """Return what a log fits, and write the votes behind it to ``out`` if given, with a selection of ``n0`` draws.

    ``alpha``, ``n`` and ``sigma`` are claims; one that fits is used. A log that says how it was made is believed, and
    a claim that is not what it says is refused. Votes are written for the n and sigma that are claimed, or said, alone:
    with others, what is certified from them does not hold. Of the levels that fit, where none is claimed, the largest
    is taken, which stands for the fewest votes.
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
    if out is not None and not log.origins and (n is None or sigma is None):
        raise InvalidInput(
            "n and sigma must be given for votes to be written: a log fits many, and what is certified from others "
            "does not hold"
        )
    if log.origins:
        claim = fit_as_stated(log)
        for name, claimed in (("alpha", alpha), ("n", n), ("sigma", sigma)):
            if claimed not in {None, getattr(claim, name)}:
                raise InvalidInput(f"{name} must be {getattr(claim, name):g}, as the log says; got {claimed:g}")
        if rounding == "nearest":
            raise InvalidInput("rounding must be 'down' for a log that says how it was made; got 'nearest'")
        found = [claim] if claim.fits else []
    else:
        found = find_fits(log, alpha=alpha, n=n, sigma=sigma)
    if not found:
        raise InvalidInput(f"the log fits no alpha, n and sigma that were tried{_how_badly(log, alpha, n, sigma)}")
    if not log.origins:
        claim = fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or found[0].sigma)
    if out is not None:
        if not log.origins and (found[0].n, found[0].sigma) != (n, sigma):
            raise InvalidInput(f"the log does not fit n {n:,} and sigma {sigma:g}, so no votes are written")
        write_evidence(log, found[0], out, source=path.name, n0=100 if n0 is None else n0)
    return Imported(log, claim, alpha is not None, tuple(found), out)


def _how_badly(log: Log, alpha: float | None, n: int | None, sigma: float | None) -> str:
    if sigma is None and not log.origins:
        return "; sigma was not given"
    tried = fit_as_stated(log) if log.origins else fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or 1.0)
    return (
        f": at alpha {tried.alpha:g}, n {tried.n}, sigma {tried.sigma:g} no count of votes gives {tried.misfits} of "
        f"its {int(log.certified.sum())} radii (perhaps not made from Clopper-Pearson limits, or rounded down)"
    )
