"""Compile kernels with numba, and keep the machine code between processes, since compiling takes seconds.

Numba alone would run a kernel's old machine code after an edit of a function in another file that it calls. So code
lies in a folder named by a digest of all sources of this room, in the first of these places that can be written:
``NUMBA_CACHE_DIR`` if set, ``__pycache__`` beside the sources, the user's cache. Where none can be written, every
process compiles for itself. Each file has its checksum beside it; a file that does not match is removed and compiled
again. Checksums find accidents: whoever can write to the folder decides what is run.

The first compilation in a process is told on the logger ``buckler``, which prints to stderr unless configured.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., object])

ROOM = Path(__file__).parent
FOLDER = "kernels-"
OLD = 3
"""Number of older kernel folders that are kept: those of other versions, or of sources that may be edited back."""


def _places() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield ROOM / "__pycache__"
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (never raises)
    if Path(user).is_absolute():
        yield Path(user) / "buckler"


def _find_folder() -> Path | None:
    """Return the folder for these sources' machine code, freed of damaged files, in the first writable place."""
    sources = hashlib.blake2b(digest_size=16)
    for path in sorted(ROOM.glob("*.py")):
        sources.update(path.read_bytes())
    for place in _places():
        folder = place / (FOLDER + sources.hexdigest())
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            others = [path for path in place.glob(FOLDER + "*") if path != folder]
            for path in sorted(others, key=lambda path: -path.stat().st_mtime)[OLD:]:
                shutil.rmtree(path, ignore_errors=True)
            for path in _code(folder):
                if not _is_whole(path):
                    path.unlink(missing_ok=True)
            return folder
    return None


def _code(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.nb[ic]") if path.is_file()]


def _seal(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _is_whole(path: Path) -> bool:
    try:
        return _seal(path).read_bytes() == hashlib.sha256(path.read_bytes()).hexdigest().encode()
    except OSError:
        return False


KERNELS = _find_folder()
"""The folder in which compiled kernels are kept between processes; None if no place can be written."""

ONCE = "compiling kernels for this machine: some seconds, once"
EVERY_TIME = (
    "compiling kernels: some seconds in every process, since no folder can be written; set NUMBA_CACHE_DIR to one"
)


@cache
def _tell() -> None:
    """Log that kernels are compiled, once in a process."""
    logging.getLogger("buckler").warning("buckler: %s", EVERY_TIME if KERNELS is None else ONCE)


def _seal_new(folder: Path) -> None:
    """Write the checksum of each file that has none, or an older one; a file left without is compiled again."""
    with suppress(OSError):
        for path in _code(folder):
            if not _seal(path).exists() or _seal(path).stat().st_mtime_ns < path.stat().st_mtime_ns:
                draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
                draft.write_text(hashlib.sha256(path.read_bytes()).hexdigest())
                draft.replace(_seal(path))


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of numba for every kernel: strict IEEE arithmetic, since proofs rest on it."""


def inner(function: F) -> F:
    """Return a function that kernels call compiled, its code kept with theirs; Python calls it as plain Python."""
    return cast(F, register_jitable(no_cpython_wrapper=True, **_OPTIONS)(function))


def compiled(function: F) -> F:
    """Compile a kernel that Python calls; it keeps the type of the function."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(KERNELS or before)  # read when a kernel is defined; other people's kernels keep their place
    try:
        kernel = njit(cache=KERNELS is not None, **_OPTIONS)(function)
    finally:
        config.CACHE_DIR = before
    if kernel is function:  # NUMBA_DISABLE_JIT
        return function
    files = kernel._cache  # noqa: SLF001  (its files are read and written while numba holds its lock)
    load, save = files.load_overload, files.save_overload

    def load_or_tell(*arguments: Any) -> Any:
        found = load(*arguments)
        if found is None:  # it is compiled next, and then saved
            _tell()
        return found

    def save_and_seal(*arguments: Any) -> None:
        save(*arguments)
        if KERNELS is not None:
            _seal_new(KERNELS)

    files.load_overload, files.save_overload = load_or_tell, save_and_seal
    return cast(F, kernel)
