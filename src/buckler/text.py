"""A claim in one sentence, radius and margin rounded down."""

from typing import Any

from buckler.rounding import rounded_down
from buckler.soundness import ENUMERATED_METHOD

ONE_FUNCTION = "true to the last bit if the classifier is one function"
"""What a claim says under a noise that is computed without rounding."""


def sentence(claim: Any) -> str:
    """Return what a ``records.Claim`` says, with all that it rests on."""
    law, exact = claim.law, claim.method == ENUMERATED_METHOD
    level = "error probability" if claim.sound else "a promised, not proved, error probability"
    beside = f"; {ONE_FUNCTION}" if law.idealised is None else f"; idealised: {law.idealised}"
    if exact:
        basis = f"from all {claim.n} copies under {law.describe()} ({claim.margin_kind} margin"
    else:
        scores = claim.map if claim.temperature is None else f"{claim.map} at temperature {claim.temperature:g}"
        chosen = "a class fixed beforehand" if claim.n0 == 0 else f"a class selected on {claim.n0} other draws"
        if claim.winner_alpha:
            chosen = f"the winner of the same draws, tested at {claim.winner_alpha:.2g}"
        basis = (
            f"for {chosen}, from {claim.n} draws of {law.describe()} ({scores}, method {claim.method}, "
            f"{claim.margin_kind} margin"
        )
    if claim.predicted is None and exact:
        return f"{claim.id}: abstained; exact, without error probability, {basis} gives no radius above 0{beside})"
    if claim.predicted is None:
        # Under a law of whole pixels a positive margin may be too small for the first of them.
        few = f"at least {rounded_down(claim.margin, 4)}, too little for any radius"
        shown = few if claim.margin > 0.0 else "not shown to be positive"
        return f"{claim.id}: abstained at {level} {claim.alpha:g} {basis} {shown}{beside})"
    within = (
        f"{claim.id}: the smoothed classifier predicts class {claim.predicted} everywhere within {law.norm} distance "
        f"{rounded_down(claim.radius, 4)} {law.units}"
    )
    margin = rounded_down(claim.margin, 4)
    if exact:
        return f"{within}, that distance included; exact, without error probability, {basis} {margin}{beside})"
    return f"{within}, with {level} at most {claim.alpha:g} {basis} at least {margin}{beside})"
