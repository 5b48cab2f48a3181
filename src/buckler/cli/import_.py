"""``buckler import``: the field's usual log of radii -> counts evidence, and which alpha it was really made with."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from buckler.errors import InvalidInput, check_alpha, check_positive, check_whole
from buckler.rounding import rounded_down
from buckler.runs.interop import Log, Rounding, read_log
from buckler.runs.recovery import USUAL_ALPHA, USUAL_DRAWS, Fit, find_fits, fit, write_evidence


def import_(
    log: Annotated[Path, typer.Argument(help="Text file: idx, label, predict, radius, correct, time; tabs between.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the evidence, to be read by buckler certify; only looked at if absent."),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Noise of the log, as claimed.  [default: the smallest usual one that fits]")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help=f"Draws, as claimed.  [default: {USUAL_DRAWS}]")] = None,
    alpha: Annotated[float | None, typer.Option(help=f"Level, as claimed.  [default: {USUAL_ALPHA}]")] = None,
    n0: Annotated[int, typer.Option(help="Selection draws, as claimed.")] = 100,
    rounding: Annotated[str, typer.Option(help="How its radii were rounded: nearest or down.")] = "nearest",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Read a log of certified radii, find which alpha, n and sigma it fits, and write the votes behind it.

    A radius printed with three digits stands for a few counts of votes, or for none: so the log itself tells whether it
    can have been made as claimed. Unknown votes are taken at their worst: the smallest count, one bucket for all other
    classes. A claim that fits is used; otherwise, of the levels that fit, the one that stands for the fewest votes.

    Examples:

      buckler import sigma_0.50.tsv --sigma 0.5

      buckler import sigma_0.50.tsv --sigma 0.5 --out imported/

      buckler certify imported/ --alpha 0.001 --tsv again.tsv
    """
    for check, value in ((check_alpha, alpha), (lambda v: check_positive("sigma", v), sigma)):
        if value is not None:
            check(value)
    check_whole("n", USUAL_DRAWS if n is None else n, 1, 10**9)
    lines = read_log(log, cast(Rounding, rounding))
    if not lines.certified.any():
        raise InvalidInput(f"the log must hold a certified line; {str(log)!r} holds abstentions alone")
    found = find_fits(lines, alpha=alpha, n=n, sigma=sigma)
    if not found:
        raise InvalidInput(f"the log fits no alpha, n and sigma that were tried{_how_badly(lines, alpha, n, sigma)}")
    chosen = found[0]
    claim = fit(lines, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma or chosen.sigma)
    if out is not None:
        write_evidence(lines, chosen, out, source=log.name, n0=n0)
    if as_json:
        print(json.dumps(_as_dict(lines, chosen, claim, found, out)))
    elif not quiet:
        word = "usual" if alpha is None and n is None else "claimed"
        text = _sentences(lines, chosen, claim, word, found, out)
        Console().print("\n".join(text), soft_wrap=True, highlight=False)


def _how_badly(log: Log, alpha: float | None, n: int | None, sigma: float | None) -> str:
    if sigma is None:
        return "; give --sigma"
    tried = fit(log, alpha or USUAL_ALPHA, n or USUAL_DRAWS, sigma)
    return (
        f": at alpha {tried.alpha:g}, n {tried.n}, sigma {sigma:g} no count of votes gives {tried.misfits} of its "
        f"{int(log.certified.sum())} radii (perhaps they were not made from Clopper-Pearson limits, or --rounding down)"
    )


def _as_dict(log: Log, chosen: Fit, claim: Fit, found: list[Fit], out: Path | None) -> dict[str, Any]:
    return {
        "lines": len(log.ids),
        "certified": int(log.certified.sum()),
        "fitted": asdict(chosen),
        "claimed": asdict(claim),
        "claim_fits": claim.fits,
        "also_fits": [{"alpha": f.alpha, "n": f.n, "sigma": f.sigma} for f in found[1:]],
        "out": None if out is None else str(out),
    }


def _sentences(log: Log, chosen: Fit, claim: Fit, word: str, found: list[Fit], out: Path | None) -> list[str]:
    certified = int(log.certified.sum())
    text = [
        f"{len(log.ids)} lines, {certified} certified, {len(log.ids) - certified} abstentions.",
        f"Fits alpha {chosen.alpha:g}, n {chosen.n:,}, sigma {chosen.sigma:g}: every radius has its count of votes.",
    ]
    if not claim.fits:
        text.append(
            f"Does NOT fit the {word} alpha {claim.alpha:g}, n {claim.n:,}, sigma {claim.sigma:g}: no count gives "
            f"{claim.misfits} of the radii there, where the largest possible is {rounded_down(claim.largest, 4)}."
        )
    others = [f.alpha for f in found[1:] if (f.n, f.sigma) == (chosen.n, chosen.sigma)]
    if others:
        text.append(f"Fits as well: alpha {', '.join(f'{a:g}' for a in others)}; the log alone cannot tell them apart.")
    sigmas = sorted({f.sigma for f in found} - {chosen.sigma})
    if sigmas:
        text.append(f"Larger sigmas fit as well ({', '.join(f'{s:g}' for s in sigmas)}): give --sigma to be sure.")
    if out is not None:
        text.append(f"Votes written to {out}; certify them with: buckler certify {out} --alpha 0.001")
    return text
