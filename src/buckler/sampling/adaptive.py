"""Draw until decided.

A ``Decider`` says how many draws each of several inputs wants next, and takes their votes. The scheduler gathers what
the undecided inputs want into shared batches, and a decided input makes room for the next one waiting, so the device
stays full as inputs finish.

The draws of an input are handed over in stream order and in the sizes asked for, whatever the scheduling: what is seen
of an input, and so its decision, is a function of that input alone (for a classifier whose rows do not depend on one
another).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from buckler.errors import InvalidInput, check_whole, check_whole_array
from buckler.sampling.batches import Request
from buckler.sampling.engine import Engine, check_inputs
from buckler.sampling.noise import Stream
from buckler.types import ArrayLike, IntArray


class Decider(Protocol):
    """Sequential decisions about several inputs, by their position."""

    @property
    def n(self) -> IntArray:
        """Draws that each input has had."""
        ...

    @property
    def undecided(self) -> IntArray:
        """The inputs that want more draws."""
        ...

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws each of these undecided inputs wants next, at least one."""
        ...

    def update(self, rows: IntArray, counts: IntArray) -> None:
        """Take the votes ``counts[row, class]`` of these next draws."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What one round did: the number of draws it made, and the inputs that it decided."""

    drawn: int
    finished: IntArray


def draw_until_decided(
    engine: Engine,
    x: ArrayLike,
    ids: Sequence[str],
    decider: Decider,
    *,
    width: int | None = None,
    stream: Stream = "estimation",
) -> Iterator[Round]:
    """Draw for all undecided inputs of ``decider``, round after round, and yield what each round did.

    At most ``width`` inputs are under way at once, as many as rows in a batch unless told. Between two rounds the
    caller may do what it likes with those that finished, or leave. Iterate inside ``engine.session()``.
    """
    inputs = check_inputs(x, ids)
    width = engine.rows if width is None else check_whole("width", width, 1)
    while (active := decider.undecided[:width]).size:
        if active[-1] >= len(inputs):
            raise InvalidInput(f"decider must be of the {len(inputs)} inputs; got input {active[-1]} undecided")
        wanted = check_whole_array("batch_sizes()", decider.batch_sizes(active), low=1)
        first = decider.n[active]
        spans = zip(first.tolist(), (first + wanted).tolist(), strict=True)
        requests = [Request(row, start, stop) for row, (start, stop) in enumerate(spans)]
        drawn = engine.draw(inputs[active], [ids[i] for i in active], stream, requests)
        decider.update(active, drawn.counts[:, 0])
        yield Round(int(wanted.sum()), np.setdiff1d(active, decider.undecided))
