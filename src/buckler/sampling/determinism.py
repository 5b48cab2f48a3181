"""Test whether a classifier is one function of its input: rows run a second time must give the same bits.

Certificates that hold for the computed floats need one function. Kernels may depend on the shape of a batch, so batches
have one shape. Here one batch in ``EVERY`` is run again in reverse order, with rows of an earlier batch in the place of
some, so that rows have other places and other neighbours. Equal bits are evidence and no proof. The engine warns of
differences, and raises under noise whose copies are enumerated.
"""

from collections.abc import Callable
from typing import Any

EVERY = 128
"""Batches between two replays: they take less than a hundredth of the time."""

KEPT = 64
"""Largest number of rows of an earlier batch in a replay."""


class Replay:
    """Counter of rows run a second time and of rows whose logits differ, for arrays of NumPy or torch."""

    def __init__(self, run: Callable[[Any], Any], reverse: Callable[[Any], Any], bits: Callable[[Any], Any]) -> None:
        """Take functions: ``run(batch)`` -> logits, ``reverse(rows)``, and ``bits(numbers)`` -> integers."""
        self._run, self._reverse, self._bits = run, reverse, bits
        self._batches, self._differed, self._compared = 0, 0, 0
        self._kept: tuple[Any, Any] | None = None
        self._last: tuple[Any, Any] | None = None

    def look(self, batch: Any, logits: Any) -> None:
        """Record a batch and its logits; run the second batch again, and then every ``EVERY``-th."""
        self._last = batch, logits
        if self._batches % EVERY == 1:
            self._again()
        if self._batches % EVERY == 0:
            rows = max(1, min(KEPT, len(batch) // 2))
            # Copies, so that the batch can be freed.
            self._kept = self._reverse(batch[:rows]), self._reverse(logits[:rows])
        self._batches += 1

    def _again(self) -> None:
        assert self._last is not None  # noqa: S101  (set by look)
        batch, logits = map(self._reverse, self._last)
        if self._kept is not None and self._kept[0].shape[1:] == batch.shape[1:]:
            rows = len(self._kept[0])
            batch[:rows], logits[:rows] = self._kept
        differs = (self._bits(self._run(batch)) != self._bits(logits)).any(1)
        # On a device the sum is computed asynchronously; reading it waits.
        self._differed = self._differed + differs.sum()
        self._compared += len(batch)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows compared and different; if none was compared yet, run the last batch again now."""
        if self._compared == 0 and self._last is not None:
            self._again()
        self._last = None
        return self._compared, int(self._differed)
