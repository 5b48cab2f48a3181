"""Certificates and refutations of the same inputs -> both sides of the truth: certified below, refuted above.

With probability at least ``1 - delta`` at most ``false_certificates(N, alpha, delta)`` brackets of N inputs are wrong,
abstentions among the N (T19, T22): refutations inside of certified balls, more often than that, mean that something is
broken, not bad luck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from buckler.certificate import Bracket, Refutation
from buckler.certificates import Certificates
from buckler.errors import InvalidInput, check_float_array, check_whole
from buckler.evaluate.curves import false_certificates
from buckler.types import ArrayLike, FloatArray

CAUSES = (
    "the usual causes: sigma or radius in other units than the model's input (0 to 255 against 0 to 1), normalisation "
    "outside of the model, another dtype or device, another model, or a bound that does not hold"
)


def alarm(brackets: Sequence[Bracket], inputs: int, delta: float) -> str | None:
    """Return a warning if more refutations lie inside of certified balls than chance allows, and else None.

    **Guarantee.** If every certificate and every refutation keeps its promise, a warning comes with probability at
    most ``delta``, inputs being drawn for independently (T22). ``inputs`` are all that were to be certified, those that
    abstained included, since which are attacked depends on the draws: where all abstain but by error, all that are
    certified are false.
    """
    inside = [bracket for bracket in brackets if bracket.contradicts]
    check_whole("inputs", inputs, len(brackets))
    if not inside:
        return None
    allowed = false_certificates(inputs, min(max(b.alpha for b in brackets), 0.999), delta)
    if len(inside) <= allowed:
        return None
    first = inside[0].refutation
    return (
        f"ALARM: {len(inside)} of {len(brackets)} certificates are contradicted by refutations inside of their balls, "
        f"and chance allows {allowed}, of {inputs} inputs; the first is {first.id!r}, certified to "
        f"{inside[0].certified:.4g}, refuted at {first.radius:.4g}; {CAUSES}"
    )


@dataclass(frozen=True, slots=True, eq=False)
class BracketCurve:
    """Accuracy against radius: at least ``certified``, at most ``refuted``, and unknown between, as observed."""

    radii: FloatArray
    certified: FloatArray
    refuted: FloatArray
    attacked: int
    inputs: int

    @property
    def known(self) -> FloatArray:
        """The certified accuracy that holds from each radius up to the next one: the lower edge of what is unknown."""
        return np.append(self.certified[1:], self.certified[-1:])


def bracket_curve(certificates: Certificates, refutations: Sequence[Refutation], radii: ArrayLike) -> BracketCurve:
    """Return both sides for the inputs of a run: certified and right, and right as far as is not refuted.

    An input counts against the upper side at radius r if another class is certified, or if its true class is refuted at
    a distance of at most r. Inputs that were not attacked, or not certified at all, stay unknown there.
    """
    if certificates.labels is None:
        raise InvalidInput("labels must be known to tell accuracy; this run has none")
    r = check_float_array("radii", radii)
    found: Mapping[str, Refutation] = {made.id: made for made in refutations}
    certified, refuted = np.zeros_like(r), np.zeros_like(r)
    for certificate, label in zip(certificates, certificates.labels.tolist(), strict=True):
        if certificate.predicted is not None and certificate.predicted != label:
            continue
        made = found.get(certificate.id)
        lost = made is not None and made.radius is not None and made.label == label
        refuted += r < (made.radius if lost else np.inf)  # type: ignore[union-attr,operator]
        certified += (r <= certificate.radius) & (not certificate.abstained)
    total = len(certificates)
    return BracketCurve(r, certified / total, refuted / total, sum(c.id in found for c in certificates), total)
