"""Limits of margins -> certificates, and the class that each certificate is about."""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from buckler.certificate import ABSTAINED, Certificate, Claim
from buckler.certificates import Certificates
from buckler.certify import budget
from buckler.certify.settings import Settings
from buckler.errors import InvalidInput, check_label
from buckler.types import ArrayLike, FloatArray, IntArray


class ChosenClass(NamedTuple):
    """The class to certify for each input, -1 for an abstention, and how it was chosen.

    ``n0`` selection draws chose it, 0 where none were made; the limit holds at level ``alpha``, since ``winner_alpha``
    was spent on the winner's test.
    """

    classes: IntArray
    n0: IntArray
    alpha: float
    winner_alpha: float


def choose_class(
    alpha: float,
    inputs: int,
    num_classes: int,
    *,
    labels: ArrayLike | None,
    selected: tuple[IntArray, IntArray] | None,
    winner: Callable[[float], IntArray],
) -> ChosenClass:
    """Return the class of each input: its label, the class selected on other draws, or the winner of these draws.

    **Guarantee.** A limit at the level returned, for the class returned, exceeds its margin or is about a class that is
    not the smoothed prediction with probability at most ``alpha`` (T18d). ``winner(level)`` returns the class with the
    most votes where it passes the winner's test at that level, else -1.
    """
    none = np.zeros(inputs, dtype=np.int64)
    if labels is not None and selected is not None:
        raise InvalidInput("labels and selection cannot both choose the class; got both")
    if labels is not None:
        return ChosenClass(np.atleast_1d(check_label(labels, num_classes, inputs, "labels")), none, alpha, 0.0)
    if selected is not None:
        return ChosenClass(*selected, alpha, 0.0)
    share = budget.winner_share(alpha)
    return ChosenClass(winner(share), none, budget.rest(alpha, share), share)


def make_certificates(
    settings: Settings,
    chosen: ChosenClass,
    low: FloatArray,
    n: IntArray,
    ids: Sequence[str],
    kind: type[Claim] = Certificate,
) -> Certificates:
    """Return the certificates that the limits ``low`` of the margins give, an abstention where there is no radius.

    **Guarantee.** Each certificate is wrong with probability at most ``settings.alpha``, as its limit and the choice of
    its class are. The radius is the noise's for the limit, rounded down. With ``kind=Claim`` records come back that
    promise nothing, for a method without a guarantee.
    """
    lows = np.where(chosen.classes == ABSTAINED, -inf, low)
    # One radius for all inputs that share a limit: a million inputs are not rare.
    values, place = np.unique(lows, return_inverse=True)
    radii = np.array([settings.noise.radius(value, settings.margin) for value in values.tolist()])[place]
    predicted = np.where(radii > 0.0, chosen.classes, ABSTAINED)
    first = kind(
        id=ids[0],
        predicted=int(predicted[0]) if radii[0] > 0.0 else None,
        radius=float(radii[0]),
        margin_kind=settings.margin,
        margin=float(lows[0]),
        alpha=settings.alpha,
        n=int(n[0]),
        n0=int(chosen.n0[0]),
        winner_alpha=chosen.winner_alpha,
        noise=settings.noise,
        map=settings.map,
        temperature=settings.temperature,
        method=settings.method.name,
        sound=settings.method.sound,
        score_dtype=settings.score_dtype,
        seed=settings.seed,
    )
    return Certificates((first,), ids, predicted, radii, lows, n, chosen.n0).checked()


def names_or_numbers(ids: Sequence[str] | None, inputs: int) -> Sequence[str]:
    """Return the ids, one for each input, or ``input 0``, ``input 1`` and so on."""
    if ids is None:
        return [f"input {i}" for i in range(inputs)]
    if len(ids) != inputs or len(set(ids)) != len(ids):
        raise InvalidInput(f"ids must be {inputs} different names, one for each input; got {len(ids)}")
    return ids
