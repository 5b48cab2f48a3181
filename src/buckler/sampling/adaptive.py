"""Draw until decided, or hopeless, or out of budget.

Each input brings a ``Decider``, which says how many draws it wants next and what follows from them. The scheduler
gathers what the undecided inputs want into shared batches, and a finished input makes room for the next one waiting, so
the device stays full as inputs finish.

Draws are handed to a decider in stream order and in the sizes it asked for, whatever the scheduling: what it sees, and
so its decision, is a function of its input alone (for a classifier whose rows do not depend on one another).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np

from buckler.errors import InvalidInput, check_choice, check_whole
from buckler.sampling.engine import Engine, check_inputs
from buckler.sampling.noise import Float32Array, Stream
from buckler.sampling.plan import Request
from buckler.types import ArrayLike, Decision, IntArray


class Decider(Protocol):
    """A sequential decision about one input."""

    def batch_size(self) -> int:
        """Return how many draws are wanted next, at least one."""
        ...

    def update(self, counts: IntArray) -> Decision:
        """Take the class counts of these next draws, and say where things stand."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How one input ended: its decision, the votes of all draws the decider saw, and their number."""

    decision: Decision
    counts: IntArray
    n: int


@dataclass(slots=True)
class _Pending:
    position: int
    decider: Decider
    counts: IntArray
    n: int = 0


def draw_until_decided(
    engine: Engine,
    x: ArrayLike,
    ids: Sequence[str],
    deciders: Sequence[Decider],
    *,
    max_n: int,
    width: int | None = None,
    stream: Stream = "estimation",
    finished: Callable[[int, Outcome], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Return one outcome for each input; ``undecided`` means that ``max_n`` draws did not settle it.

    At most ``width`` inputs are under way at once (as many as rows in a batch unless told); a finished input makes room
    for the next. ``finished`` is called with each position and outcome as it comes, so that other work can go on.
    Call inside ``engine.session()``.
    """
    inputs = check_inputs(x, ids)
    if len(deciders) != len(inputs):
        raise InvalidInput(f"deciders must be one for each of {len(inputs)} inputs; got {len(deciders)}")
    max_n = check_whole("max_n", max_n, 1)
    width = engine.rows if width is None else check_whole("width", width, 1)
    outcomes: list[Outcome | None] = [None] * len(inputs)
    waiting = iter(range(len(inputs)))
    active: list[_Pending] = []
    while True:
        while len(active) < width and (position := next(waiting, None)) is not None:
            active.append(_Pending(position, deciders[position], np.zeros(engine.num_classes, dtype=np.int64)))
        if not active:
            return [outcome for outcome in outcomes if outcome is not None]
        drawn = _round(engine, inputs, ids, active, max_n, stream)
        if progress is not None:
            progress(sum(int(c.sum()) for c in drawn))
        still: list[_Pending] = []
        for pending, counts in zip(active, drawn, strict=True):
            pending.counts += counts
            pending.n += int(counts.sum())
            decision = check_choice("decision", pending.decider.update(counts), get_args(Decision))
            if decision == "undecided" and pending.n < max_n:
                still.append(pending)
                continue
            outcome = Outcome(decision, pending.counts, pending.n)
            outcomes[pending.position] = outcome
            if finished is not None:
                finished(pending.position, outcome)
        active = still


def _round(
    engine: Engine, inputs: Float32Array, ids: Sequence[str], active: list[_Pending], max_n: int, stream: Stream
) -> list[IntArray]:
    """Return the counts of what each active input asks for next, all drawn in shared batches."""
    requests = []
    for row, pending in enumerate(active):
        wanted = check_whole("batch_size()", pending.decider.batch_size(), 1)
        requests.append(Request(row, pending.n, min(pending.n + wanted, max_n)))
    where = [pending.position for pending in active]
    drawn = engine.draw(inputs[where], [ids[i] for i in where], stream, requests)
    return [drawn.counts[row, 0] for row in range(len(active))]
