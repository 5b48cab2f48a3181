"""One uniform number for each input, to break ties between outcomes at random.

It must be independent of the draws and of every other input's: it is hashed from a seed of its own and the input's id,
under a name that no noise shares.
"""

import hashlib

from buckler.errors import check_whole


def tie_breaker(seed: int, input_id: str) -> float:
    """Return the input's uniform number on [0, 1), a multiple of 2^-53.

    >>> tie_breaker(0, "a") == tie_breaker(0, "a") != tie_breaker(0, "b")
    True
    """
    text = check_whole("seed", seed, 0, 2**53).to_bytes(8, "little") + input_id.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8, person=b"buckler-ties-1").digest()
    return float(int.from_bytes(digest, "little") >> 11) / 2.0**53
