"""Whether a classifier is one function of its input: rows run again at other places, among other rows, to the bit.

A certificate that is true to the last bit is about one function. Kernels may depend on the shape of a batch, so that is
fixed; whether they depend on a row's place or its companions is asked here. Now and then a batch is run again in
reverse order, some of its rows replaced by rows of earlier batches, and every row must give the bits that it gave
before. Evidence, not proof: any difference is counted, and certificates say so.
"""

from collections.abc import Callable
from typing import Any

EVERY = 128
"""Batches between two replays, after the first: less than a hundredth of the work."""

KEPT = 64
"""Rows of an earlier batch that a replay brings among others, at most."""


class Replay:
    """Counts rows that were run again, and those of them that gave other bits; for arrays of NumPy and of torch."""

    def __init__(self, run: Callable[[Any], Any], reverse: Callable[[Any], Any], bits: Callable[[Any], Any]) -> None:
        """``run`` gives the logits of a batch, ``reverse`` its rows in reverse order, ``bits`` numbers as integers."""
        self._run, self._reverse, self._bits = run, reverse, bits
        self._batches, self._differed, self._compared = 0, 0, 0
        self._kept: tuple[Any, Any] | None = None
        self._last: tuple[Any, Any] | None = None

    def look(self, batch: Any, logits: Any) -> None:
        """Take note of a batch and its logits; the second one and then every ``EVERY``-th is run again."""
        self._last = batch, logits
        if self._batches % EVERY == 1:
            self._again()
        if self._batches % EVERY == 0:
            rows = max(1, min(KEPT, len(batch) // 2))
            # Copies: the batch is not held.
            self._kept = self._reverse(batch[:rows]), self._reverse(logits[:rows])
        self._batches += 1

    def _again(self) -> None:
        assert self._last is not None  # noqa: S101  (a batch was looked at)
        batch, logits = map(self._reverse, self._last)
        if self._kept is not None and self._kept[0].shape[1:] == batch.shape[1:]:
            rows = len(self._kept[0])
            batch[:rows], logits[:rows] = self._kept
        differs = (self._bits(self._run(batch)) != self._bits(logits)).any(1)
        # On a device this is a number that is still being computed: it is waited for when it is read.
        self._differed = self._differed + differs.sum()
        self._compared += len(batch)

    def counts(self) -> tuple[int, int]:
        """Return the number of rows compared, and how many differed; a batch that was the only one is run again now."""
        if self._compared == 0 and self._last is not None:
            self._again()
        self._last = None
        return self._compared, int(self._differed)
