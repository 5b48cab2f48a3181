"""Draw until decided.

A ``Decider`` says how many draws each of several inputs wants next, and takes their votes. The scheduler gathers what
the undecided inputs want into shared batches, and a decided input makes room for the next one waiting, so the device
stays full as inputs finish.

The draws of an input are handed over in stream order and in the sizes asked for, whatever the scheduling: what is seen
of an input, and so its decision, is a function of that input alone (for a classifier whose rows do not depend on one
another).
"""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from buckler.errors import InvalidInput, check_whole, check_whole_array
from buckler.sampling.batches import Request
from buckler.sampling.engine import Engine, check_inputs
from buckler.sampling.streams import Stream
from buckler.types import ArrayLike, BoolArray, IntArray


class Decider(Protocol):
    """Sequential decisions about several inputs, by their position."""

    @property
    def n(self) -> IntArray:
        """Draws that each input has had."""

    @property
    def undecided(self) -> IntArray:
        """The inputs that want more draws."""

    def batch_sizes(self, rows: IntArray) -> IntArray:
        """Return how many draws each of these undecided inputs wants next, at least one."""

    def update(self, rows: IntArray, counts: IntArray) -> None:
        """Take the votes ``counts[row, class]`` of these next draws."""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What one round did: the number of draws it made, and the inputs that it decided."""

    drawn: int
    finished: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Inputs whose draws are made together: the draws each has had, and those it wants next; ``later`` ones wait."""

    places: int
    rows: IntArray
    first: IntArray
    wanted: IntArray
    later: IntArray


NONE: IntArray = np.zeros(0, dtype=np.int64)


def filling(wanted: IntArray, rows: int) -> BoolArray:
    """Return which requests to draw now so that batches are full: in order, those that fit into whole batches.

    A batch that is not full costs a device as much as a full one. The first request is always among them.

    >>> filling(np.array([3, 4, 6, 2]), rows=10)
    array([ True,  True, False,  True])
    """
    room = int(wanted.sum()) // rows * rows or rows
    now = np.zeros(wanted.shape, dtype=np.bool_)
    for i, count in enumerate(wanted.tolist()):
        if count <= room or i == 0:
            now[i] = True
            room -= count
    return now


def draw_until_decided(
    engine: Engine,
    x: ArrayLike,
    ids: Sequence[str],
    decider: Decider,
    *,
    width: int | None = None,
    stream: Stream = "estimation",
) -> Generator[Round, None, None]:
    """Draw for all undecided inputs of ``decider``, round after round, and yield what each round did.

    At most ``width`` inputs are under way at once, as many as rows in a batch unless told. Where there is enough to
    draw they form two groups, and while one is drawn, the votes of the other are looked at in a second thread. Between
    two rounds the caller may do what it likes with the inputs that finished, or leave; then it closes the iterator,
    after which ``decider`` stands still. Iterate inside ``engine.session()``.
    """
    inputs = check_inputs(x, ids)
    width = engine.rows if width is None else check_whole("width", width, 1)
    waiting = deque(decider.undecided.tolist())
    if waiting and waiting[-1] >= len(inputs):
        raise InvalidInput(f"decider must be of the {len(inputs)} inputs; got input {waiting[-1]} undecided")

    def look(group: _Group, counts: IntArray | None) -> tuple[_Group, Round]:
        """Hand over the votes of a group; return it with newcomers in free places, and what the round did."""
        left = group.rows
        if counts is not None:
            decider.update(left, counts)
            left = left[np.isin(left, decider.undecided)]
        free = group.places - left.size - group.later.size
        joined = [waiting.popleft() for _ in range(min(free, len(waiting)))]
        # Those that waited come first, so that nobody waits for long.
        rows = np.concatenate([group.later, left, np.array(joined, dtype=np.int64)])
        wanted = check_whole_array("batch_sizes()", decider.batch_sizes(rows), low=1) if rows.size else NONE
        now = filling(wanted, engine.rows)
        done = Round(int(group.wanted.sum()), np.setdiff1d(group.rows, left))
        return _Group(group.places, rows[now], decider.n[rows[now]], wanted[now], rows[~now]), done

    def draw(group: _Group) -> IntArray:
        spans = zip(group.first.tolist(), (group.first + group.wanted).tolist(), strict=True)
        requests = [Request(row, start, stop) for row, (start, stop) in enumerate(spans)]
        return engine.draw(inputs[group.rows], [ids[i] for i in group.rows], stream, requests).counts[:, 0]

    def begin(places: int) -> _Group:
        return look(_Group(places, NONE, NONE, NONE, NONE), None)[0]

    most = min(width, len(waiting))
    # Two groups only where either fills half a batch from the start.
    asked = decider.batch_sizes(decider.undecided[:most])
    places = [most - most // 2, most // 2] if most > 1 and asked.sum() >= engine.rows else [most]
    ready = deque(begin(count) for count in places if most)
    # Every call of the decider from here on is made by this one thread, in turn.
    with ThreadPoolExecutor(1) as second:
        looking: Future[tuple[_Group, Round]] | None = None
        while ready or looking is not None:
            group = ready.popleft() if ready else None
            counts = None if group is None else draw(group)
            before, looking = looking, None if group is None else second.submit(look, group, counts)
            if before is not None:
                again, done = before.result()
                if again.rows.size:
                    ready.append(again)
                yield done
