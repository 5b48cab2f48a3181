"""Random words that a test chooses itself."""

from typing import Any

import numpy as np

from buckler.noise.words import Words


def chosen_words(first: Any, second: Any = 0) -> Words:
    """Return words ``[rows, count]`` with these further bits, one number for all or one for each word."""
    words = np.array(first, dtype=np.uint64)
    further = np.broadcast_to(np.array(second, dtype=np.uint64), words.shape)
    return Words(words, lambda rows: further[rows])
