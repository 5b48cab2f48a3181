"""The inputs of a run, cut into blocks of about ten seconds of work each, as measured while they are drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from buckler.runs.spec import MOST_TOGETHER, RunSpec
from buckler.runs.store.folder import Place
from buckler.runs.store.sealed import temporary
from buckler.sampling.datasets import Dataset
from buckler.types import Float32Array, IntArray

SECONDS = 10.0
"""The work of a block: what a kill or an interrupt can cost."""

GROWTH = 4
"""Times that a block may be larger than the one that was measured: the first ones are too short to measure well."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Inputs one after another, from the one at position ``first``, and the name of the file for their scores."""

    first: int
    ids: tuple[str, ...]
    labels: IntArray | None
    x: Float32Array
    score_file: str = ""

    def groups(self, size: int) -> list["Block"]:
        """Return the block cut where the position of an input is a multiple of ``size``."""
        edges = [0, *range(size - self.first % size, len(self.ids), size), len(self.ids)]
        return [
            Block(self.first + a, self.ids[a:b], None if self.labels is None else self.labels[a:b], self.x[a:b])
            for a, b in pairwise(edges)
        ]


class Blocks:
    """Cuts blocks off the inputs that are missing, one after another as they are asked for, and loads them.

    A block is named by the position of its first input. Where the specification gives the size of a shard, that is the
    size; otherwise it follows the time that the blocks before took, in whole groups of inputs that are drawn together.
    """

    def __init__(
        self, spec: RunSpec, dataset: Dataset, missing: Sequence[tuple[int, int]], *, most: int | None
    ) -> None:
        """Take the ranges of inputs to draw; at most ``most`` inputs are given out."""
        self._spec, self._dataset, self._missing = spec, dataset, missing
        self._left = len(dataset) if most is None else most
        self._size = spec.drawn_together
        self._stops: dict[int, int] = {}

    def __iter__(self) -> Iterator[int]:
        group = self._spec.drawn_together
        for start, stop in self._missing:
            first = start
            while first < stop:
                size = min(self._size, stop - first)
                if size > self._left:
                    size = self._left - self._left % group
                if self._spec.shard_inputs:
                    size = min(group - first % group, stop - first)
                if not 0 < size <= self._left:
                    return
                self._left -= size
                self._stops[first] = first + size
                yield first
                first += size

    def took(self, inputs: int, seconds: float) -> None:
        """Size the blocks to come by the time that one took."""
        group = self._spec.drawn_together
        wanted = min(SECONDS * inputs / max(seconds, 1e-9), GROWTH * inputs, MOST_TOGETHER)
        self._size = max(group, int(wanted) // group * group)

    def load(self, first: int) -> Block:
        """Return a block with its inputs loaded."""
        stop = self._stops[first]
        place = Place(first, stop)
        labels = None if self._dataset.labels is None else self._dataset.labels[first:stop]
        name = temporary(place.path(Path(), "scores")).name
        return Block(first, self._dataset.ids[first:stop], labels, self._dataset.load(first, stop), name)
