"""Which draws share a batch: a function of the requests and the batch size, never of what happened to be pending.

Requests are cut at block boundaries into pieces, and pieces are laid end to end and cut again into batches of exactly
``rows`` rows (the last one may be shorter). Inputs share batches, so a batch is full even where one input needs few
draws.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from buckler.errors import InvalidInput
from buckler.sampling.streams import NOISE_BLOCK
from buckler.types import IntArray

MOST_DRAWS = 2**30
"""Draws of one input at most. What drawing takes from alpha is computed for no more (T24)."""


@dataclass(frozen=True, slots=True)
class Request:
    """Draws ``[start, stop)`` of the input at a position, ``stop`` being at most ``MOST_DRAWS``."""

    input: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``[low, high)`` of one noise block of one input."""

    input: int
    block: int
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    @property
    def first(self) -> int:
        """The index, within the stream, of the first draw."""
        return self.block * NOISE_BLOCK + self.low

    def cut(self, rows: int) -> tuple["Piece", "Piece"]:
        """Return the first ``rows`` draws and the others."""
        middle = self.low + rows
        return Piece(self.input, self.block, self.low, middle), Piece(self.input, self.block, middle, self.high)


Batch = tuple[Piece, ...]


def pieces(requests: Iterable[Request]) -> Iterator[Piece]:
    """Yield the requests cut at block boundaries, in order."""
    for request in requests:
        if request.stop > MOST_DRAWS:
            raise InvalidInput(f"an input can have at most {MOST_DRAWS} draws; got {request.stop}")
        draw = request.start
        while draw < request.stop:
            block, low = divmod(draw, NOISE_BLOCK)
            high = min(NOISE_BLOCK, low + request.stop - draw)
            yield Piece(request.input, block, low, high)
            draw += high - low


def batches(parts: Iterable[Piece], rows: int) -> Iterator[Batch]:
    """Yield batches of exactly ``rows`` rows; only the last may be shorter.

    >>> [[(p.input, p.first, len(p)) for p in b] for b in batches(pieces([Request(0, 0, 3), Request(1, 0, 3)]), 4)]
    [[(0, 0, 3), (1, 0, 1)], [(1, 1, 2)]]
    """
    batch: list[Piece] = []
    room = rows
    for part in parts:
        rest = part
        while len(rest) >= room:
            fitting, rest = rest.cut(room)
            yield (*batch, fitting)
            batch, room = [], rows
        if len(rest):
            batch.append(rest)
            room -= len(rest)
    if batch:
        yield tuple(batch)


def size(batch: Batch) -> int:
    """Return the number of rows of a batch."""
    return sum(len(piece) for piece in batch)


def span(batch: Batch, low: int, high: int) -> Batch:
    """Return rows ``[low, high)`` of a batch."""
    found: list[Piece] = []
    position = 0
    for piece in batch:
        a, b = max(low - position, 0), min(high - position, len(piece))
        if a < b:
            found.append(Piece(piece.input, piece.block, piece.low + a, piece.low + b))
        position += len(piece)
    return tuple(found)


def inputs_of(batch: Batch) -> IntArray:
    """Return the position of the input of each row."""
    return np.repeat(np.array([p.input for p in batch], dtype=np.int64), [len(p) for p in batch])


def draws_of(batch: Batch) -> IntArray:
    """Return the index within its stream of each row's draw."""
    return np.concatenate([np.arange(p.first, p.first + len(p), dtype=np.int64) for p in batch])
