"""Inputs -> any-time certificates of a target radius fixed beforehand: drawn until decided, across inputs.

The inputs under way share the device's batches, and one that is decided makes room for the next.
"""

from collections.abc import Callable, Sequence

import numpy as np

from buckler.certify.anytime import AnytimeTest
from buckler.errors import InvalidInput, check_alpha, check_label, check_positive, check_whole
from buckler.records import Certificate
from buckler.sampling.adaptive import Outcome, draw_until_decided
from buckler.sampling.engine import Engine
from buckler.sampling.plan import Request
from buckler.types import ArrayLike, IntArray


def certify_until_decided(
    engine: Engine,
    x: ArrayLike,
    ids: Sequence[str],
    *,
    target_radius: float,
    alpha: float = 1e-3,
    max_n: int = 100_000,
    n0: int = 100,
    labels: ArrayLike | None = None,
    finished: Callable[[Certificate], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Certificate]:
    """Return one certificate for each input: ``target_radius`` certified, or an abstention.

    **Guarantee.** Each is wrong with probability at most ``alpha``, whenever drawing stopped: target, alpha and sigma
    are fixed beforehand, and the class is ``labels`` or the top class of ``n0`` separate selection draws. ``n`` of a
    certificate is the number of estimation draws that were used, at most ``max_n``.

    ``finished`` is called with each certificate as it comes, ``progress`` with the number of draws made since.
    """
    check_alpha(alpha)
    check_positive("target_radius", target_radius)
    check_whole("max_n", max_n, 1)
    selection_draws = 0 if labels is not None else check_whole("n0", n0, 0)
    if labels is None and selection_draws == 0:
        raise InvalidInput("n0 must be at least 1 when no label is given; got 0")
    with engine.session():
        chosen = _selected(engine, x, ids, selection_draws) if labels is None else labels
        classes = check_label(chosen, engine.num_classes, len(ids))
        tests = [AnytimeTest(int(c), engine.num_classes, engine.sigma, target_radius, alpha, max_n) for c in classes]
        certificates: list[Certificate | None] = [None] * len(ids)

        def settle(position: int, outcome: Outcome) -> None:
            del outcome  # the test itself holds the decision and the draws
            certificate = tests[position].certificate(ids[position], selection_draws)
            certificates[position] = certificate
            if finished is not None:
                finished(certificate)

        draw_until_decided(engine, x, ids, tests, max_n=max_n, finished=settle, progress=progress)
    return [certificate for certificate in certificates if certificate is not None]


def _selected(engine: Engine, x: ArrayLike, ids: Sequence[str], n0: int) -> IntArray:
    votes = engine.draw(x, ids, "selection", [Request(i, 0, n0) for i in range(len(ids))]).counts[:, 0]
    return np.asarray(votes.argmax(axis=1), dtype=np.int64)
