"""Random words: 64 uniform bits for each number that a copy needs, and 64 more where those do not decide.

A word and its further bits are a uniform number u below 2^128: the word is its upper half. Comparing u with a threshold
needs the further bits only where the word equals the threshold's upper half, which has probability 2^-64, so they are
drawn only there. What is left of total variation is below ``K 2^-128`` for a number that is compared with K thresholds
(T24, T26, T30).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from buckler.types import BoolArray, IntArray, WordArray

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Random 64-bit words ``first[rows, count]``, ``count`` for each noisy copy, and a function that draws more bits.

    ``more(rows)`` returns 64 further bits for each word of these rows, ``[len(rows), count]``. A word and its further
    bits are the upper and the lower half of one uniform number u below 2^128.
    """

    first: WordArray
    more: Callable[[IntArray], WordArray]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, rows: slice) -> "Words":
        low = rows.start or 0
        return Words(self.first[low : rows.stop], lambda some: self.more(some + low))

    def second(self, places: IntArray) -> WordArray:
        """Return the 64 further bits of the words at ``places``, which are indices of ``first.ravel()``."""
        rows, columns = np.divmod(places, self.first.shape[1])
        return self.more(rows)[np.arange(len(rows)), columns]

    def reached(self, high: WordArray, low: WordArray, places: IntArray) -> IntArray:
        """Return, for each word at ``places`` of ``first.ravel()``, how many thresholds are at most its number u.

        ``high`` and ``low`` are the upper and the lower 64 bits of the thresholds ``2^64 high + low``, in rising order.

        >>> words = Words(np.array([[5, 6]], np.uint64), lambda rows: np.array([[3, 0]], np.uint64)[rows])
        >>> words.reached(np.array([5, 5], np.uint64), np.array([3, 4], np.uint64), np.array([0, 1]))
        array([1, 2])
        """
        words = self.first.ravel()[places]
        found = np.searchsorted(high, words, side="right")
        tied = np.flatnonzero(high[found - 1] == words) if high.size else found[:0]
        for i, second in zip(tied.tolist(), self.second(places[tied]) if tied.size else (), strict=True):
            start = int(np.searchsorted(high, words[i]))
            found[i] = start + np.searchsorted(low[start : found[i]], second, side="right")
        return found

    def below(self, count: int) -> IntArray:
        """Return a whole number from 0 to ``count - 1`` for each word, ``floor(u count / 2^128)``; count is below 2^31.

        **Guarantee.** Each is within ``count 2^-130`` of uniform in total variation (T26).

        >>> Words(np.array([[0, 2**63 - 1, 2**63]], np.uint64), lambda rows: np.zeros((1, 3), np.uint64)).below(10)
        array([[0, 4, 5]])
        """
        number = np.uint64(count)
        found = ((self.first >> HALF) * number + ((self.first & LOW) * number >> HALF) >> HALF).view(np.int64)
        # The lower 64 bits of word * count: the further bits add less than count to them, which may carry.
        rest = self.first * number
        close = np.flatnonzero(rest.ravel() > np.uint64(2**64 - count))
        if close.size:
            added = [int(second) * count >> 64 for second in self.second(close)]
            found.ravel()[close] += [int(r) + a >> 64 for r, a in zip(rest.ravel()[close], added, strict=True)]
        return found

    def smallest(self, keep: int) -> BoolArray:
        """Return a mask ``[rows, count]`` of the words, True where u is one of the ``keep`` smallest of its row."""
        last = np.partition(self.first, keep - 1, axis=1)[:, keep - 1 : keep]
        found: BoolArray = self.first <= last
        for row in np.flatnonzero(found.sum(axis=1) > keep).tolist():
            order = np.lexsort((self.more(np.array([row]))[0], self.first[row]))
            found[row] = False
            found[row, order[:keep]] = True
        return found
