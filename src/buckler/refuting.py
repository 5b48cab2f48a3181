"""Refutations of inputs in hand: their certificates or classes -> points, in groups that fill batches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from buckler.errors import InvalidInput, show
from buckler.many import Inputs
from buckler.progress import Show
from buckler.records import Certificate
from buckler.refutations import Refutation
from buckler.sampling.streams import content_id
from buckler.types import FloatArray, IntArray, Law

if TYPE_CHECKING:
    from buckler.evaluate.attacks import Attack

BATCHES = 4
"""Batches that a step of the search fills, at most."""


class RefuteOptions(TypedDict, total=False):
    """Options of ``Smoothed.refute``, by name."""

    max_radius: float
    alpha: float
    max_n: int
    seed: int | None
    attack: "Attack"


def refute_each(
    inputs: Inputs,
    certificates: Sequence[Certificate] | None,
    value_range: tuple[float, float] | None,
    options: RefuteOptions,
    tell: Show,
) -> list[Refutation]:
    """Return the refutation of each input; on an interrupt, of the first groups."""
    if inputs.engine.classifier.backend != "torch":  # which may not even be installed
        raise InvalidInput(f"an attack needs gradients, so a torch module; got {show(inputs.engine.classifier)}")
    from buckler.evaluate.attacks import Attack
    from buckler.evaluate.refutations import MAX_DRAWS, REACH, Refuting
    from buckler.sampling.gradients import Attacked

    engine, total = inputs.engine, len(inputs.ids)
    law, attack = engine.law, options.get("attack", Attack())
    labels, start = _claims(inputs, certificates, law)
    how = Refuting(
        law, options.get("alpha", 1e-3), options.get("max_n", MAX_DRAWS), options.get("max_radius", REACH * law.unit),
        value_range, attack,
    )  # fmt: skip
    size = max(1, BATCHES * engine.rows // (attack.searches * attack.draws))
    made: list[Refutation] = []
    try:
        for first in range(0, total, size):
            part = slice(first, min(first + size, total))
            group, seen = inputs.part(part), float(first)

            def tick(draws: int) -> None:
                nonlocal seen
                seen += draws / how.draws
                tell(min(seen, part.stop), total)  # noqa: B023  (called before the next group)

            model = Attacked(engine, group.ids)
            with model.session():
                made += how.refute(model, group.ids, group.x, labels[part], start[part], tick)
            tell(len(made), total)
    except KeyboardInterrupt:
        if not made:
            raise
    return made


def _claims(inputs: Inputs, certificates: Sequence[Certificate] | None, law: Law) -> tuple[IntArray, FloatArray]:
    """Return the class of each input and the distance at which its search begins."""
    from buckler.evaluate.refutations import to_refute

    if (certificates is None) == (inputs.labels is None):
        raise InvalidInput("certificates or labels must be given, and not both")
    if inputs.labels is not None or certificates is None:
        return np.asarray(inputs.labels), np.zeros(len(inputs.ids))
    if len(certificates) != len(inputs.ids):
        raise InvalidInput(f"certificates must be one for each of {len(inputs.ids)} inputs; got {len(certificates)}")
    for certificate, x in zip(certificates, inputs.x, strict=True):
        if certificate.id.startswith("x-") and not certificate.id.startswith(content_id(x)):  # "-2": it comes again
            raise InvalidInput(f"certificate {certificate.id!r} is of another input than the one given with it")
    claims = [to_refute(certificate, law) for certificate in certificates]
    return np.array([label for label, _ in claims]), np.array([radius for _, radius in claims])
