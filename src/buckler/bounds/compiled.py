"""Compile kernels with numba, whose cache keeps the machine code between processes, since compiling takes seconds.

Numba tells code to be stale by the file of the kernel alone, and would run old code after an edit of a function in
another file that the kernel calls. So all code here is stamped with a digest of every source of this room. It lies
where numba puts it: in ``NUMBA_CACHE_DIR`` if set, ``__pycache__`` beside the sources, or the user's cache, the first
of them that can be written. Whoever can write there decides what is run.

The first compilation in a process is told on the logger ``buckler``, which prints to stderr unless configured.
"""

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., object])

SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()
"""Digest of every source file of ``buckler.bounds``."""

ONCE = "compiling kernels for this machine: some seconds, once"
EVERY_TIME = (
    "compiling kernels: some seconds in every process, since no folder can be written; set NUMBA_CACHE_DIR to one"
)


@cache
def _tell(message: str) -> None:
    logging.getLogger("buckler").warning("buckler: %s", message)


class _Files(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """Files of one kernel's machine code, each named by what it is for: signature of the arguments, and processor.

    It ends with a digest of the code, of what it is for, and of the sources that it was compiled from. A file with
    another digest counts as missing: its kernel is compiled again. Numba names files in an index instead, and two
    processes that compile for other arguments at the same time can write one file under both names.
    """

    def save(self, key: tuple[Any, ...], data: object) -> None:
        code = self._dump(data)
        with self._open_for_write(self._data_path(self._name(key))) as file:
            file.write(code + _seal(key, code))

    def load(self, key: tuple[Any, ...]) -> Any:
        name = self._name(key)
        try:
            whole = Path(self._data_path(name)).read_bytes()
            end = len(whole) - len(_seal(key, b""))
            return self._load_data(name) if whole[end:] == _seal(key, whole[:end]) else None  # stops before the digest
        except FileNotFoundError:
            return None

    def _name(self, key: tuple[Any, ...]) -> str:
        return str(self._data_name(int(hashlib.sha256(repr(key[:2]).encode()).hexdigest()[:16], 16)))


def _seal(key: tuple[Any, ...], code: bytes) -> bytes:
    return hashlib.sha256(f"{SOURCES} {numba.__version__} {key}".encode() + code).digest()


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """Numba's cache of one kernel on disk, telling when it holds nothing; disabled where none can be written."""

    def __init__(self, function: Callable[..., object]) -> None:
        try:
            super().__init__(function)
        except RuntimeError:
            self.disable()
        else:
            self._cache_file = _Files(self._cache_path, self._impl.filename_base, SOURCES)
            if not (numba.config.CACHE_DIR or Path(self._cache_path).is_absolute()):
                self.disable()  # without a home, the user's cache would be wherever the process happens to run

    def load_overload(self, *arguments: Any) -> Any:
        found = super().load_overload(*arguments)
        if found is None:  # it is compiled next
            _tell(ONCE if self._enabled else EVERY_TIME)
        return found


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of numba for every kernel: strict IEEE arithmetic, since proofs rest on it."""


def inner(function: F) -> F:
    """Return a function that numba compiles into the kernels that call it; called from Python it runs uncompiled."""
    return cast(F, register_jitable(no_cpython_wrapper=True, **_OPTIONS)(function))


def compiled(function: F) -> F:
    """Return a function as a kernel that numba compiles when Python first calls it, and keeps on disk."""
    kernel = njit(**_OPTIONS)(function)
    if kernel is not function:  # else NUMBA_DISABLE_JIT
        kernel._cache = _Cache(function)  # noqa: SLF001
    return cast(F, kernel)
