"""Compiled kernels whose cache on disk is never out of date.

Machine code is kept between runs, since compiling takes seconds. Left alone, the cache of a kernel is renewed when its
own file changes, but not when a kernel *it calls* in another file does: a bound could go on computing what its sources
no longer say. So every kernel of this room is stamped with a digest of all sources of the room.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def _digest() -> str:
    text = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text.update(path.read_bytes())
    return text.hexdigest()


SOURCES = _digest()


def compiled(function: F) -> F:
    """Compile a kernel, typed as the Python function it was; strict IEEE arithmetic, since proofs rest on it."""
    kernel = njit(cache=True, nogil=True, error_model="numpy")(function)
    kernel._cache._cache_file._source_stamp = SOURCES  # noqa: SLF001  (numba offers no public key for its cache)
    return cast(F, kernel)
