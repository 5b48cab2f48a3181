"""The sentence of a claim, written from its record alone; radius and margin are rounded down."""

from typing import Any

from buckler.rounding import rounded_down
from buckler.soundness import ENUMERATED_METHOD
from buckler.types import Noise

ONE_FUNCTION = "true to the last bit if the classifier is one function"
"""What a claim says under a noise that is computed without rounding."""


def ball(noise: Noise, radius: str | None = None) -> str:
    """Return where a certificate under a noise holds, in words: which points of which ball, open or closed.

    >>> from buckler.noise import Gaussian
    >>> ball(Gaussian(0.5), "0.25")
    'everywhere in the open l2 ball of radius 0.25, in the units of the input'
    """
    size = "" if radius is None else f" of radius {radius}"
    return f"{noise.holds_at} in the {'closed' if noise.closed else 'open'} {noise.norm} ball{size}, {noise.units}"


def sentence(claim: Any) -> str:
    """Return what a ``records.Claim`` says, with all that it rests on."""
    noise, exact = claim.noise, claim.method == ENUMERATED_METHOD
    level = "error probability" if claim.sound else "a promised, not proved, error probability"
    beside = f"; {ONE_FUNCTION}" if noise.idealised is None else f"; idealised: {noise.idealised}"
    if exact:
        basis = f"from all {claim.n} copies under {noise.describe()} ({claim.margin_kind} margin"
    else:
        scores = claim.map if claim.temperature is None else f"{claim.map} at temperature {claim.temperature:g}"
        scores += f" kept as {claim.score_dtype}" if claim.score_dtype != "float32" else ""
        chosen = "a class fixed beforehand" if claim.n0 == 0 else f"a class selected on {claim.n0} other draws"
        if claim.winner_alpha:
            chosen = f"the winner of the same draws, tested at {claim.winner_alpha:.2g}"
        basis = (
            f"for {chosen}, from {claim.n} draws of {noise.describe()} ({scores}, method {claim.method}, "
            f"{claim.margin_kind} margin"
        )
    if claim.predicted is None and exact:
        return f"{claim.id}: abstained; exact, without error probability, {basis} gives no radius above 0{beside})"
    if claim.predicted is None:
        # Under a noise that certifies whole pixels a positive margin may be too small for the first of them.
        few = f"at least {rounded_down(claim.margin, 4)}, too little for any radius"
        shown = few if claim.margin > 0.0 else "may be 0 or below"
        return f"{claim.id}: abstained at {level} {claim.alpha:g} {basis} {shown}{beside})"
    within = (
        f"{claim.id}: the smoothed classifier predicts class {claim.predicted} "
        f"{ball(noise, rounded_down(claim.radius, 4))}"
    )
    margin = rounded_down(claim.margin, 4)
    if exact:
        return f"{within}; exact, without error probability, {basis} {margin}{beside})"
    return f"{within}, with {level} at most {claim.alpha:g} {basis} at least {margin}{beside})"
