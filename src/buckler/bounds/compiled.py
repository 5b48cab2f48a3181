"""Compile kernels with numba and keep the machine code between processes, since compiling takes seconds.

Code lies in a folder named by a digest of all sources of this room, in the first of these places that can be written:
``NUMBA_CACHE_DIR`` if set, ``__pycache__`` beside the sources, the user's cache, a private folder among the temporary
files. Any edit in the room gives another digest, so old code is never run with new sources. Where no place can be
written, every process compiles for itself. Each file has its checksum beside it; a file that does not match is removed
and compiled again. Checksums find accidents: whoever can write to the folder decides what is run.

The first compilation in a process is told on the logger ``buckler``, which prints to stderr unless configured.
"""

import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core import event
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., object])

ROOM = Path(__file__).parent
FOLDER = "kernels-"
OLD = 3
"""Number of older kernel folders that are kept: those of other versions, or of sources that may be edited back."""


def _digest() -> str:
    text = hashlib.blake2b(digest_size=16)
    for path in sorted(ROOM.glob("*.py")):
        text.update(path.read_bytes())
    return text.hexdigest()


def _places() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield ROOM / "__pycache__"
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (never raises)
    if Path(user).is_absolute():
        yield Path(user) / "buckler"
    yield Path(os.environ.get("TMPDIR") or "/tmp") / f"buckler-{_user()}"  # noqa: S108  (checked by _is_private)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows has no such number, and no shared temporary folder


def _find_folder() -> Path | None:
    """Return the folder for these sources' machine code, freed of damaged files, in the first writable place."""
    name = FOLDER + _digest()
    for place in _places():
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(place):
                continue
            (place / name).mkdir(mode=0o700, exist_ok=True)
            tempfile.TemporaryFile(dir=place / name).close()
            _remove_old(place, name)
            for path in _code(place / name):
                if not _is_whole(path):
                    path.unlink(missing_ok=True)
            return place / name
    return None


def _is_private(place: Path) -> bool:
    """Return False if ``place``, in a shared temporary folder, is a link or another user owns it or can write to it."""
    found = place.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == _user() and not found.st_mode & 0o022
    return ours or not (place.parent.stat().st_mode & stat.S_ISVTX)


def _remove_old(place: Path, name: str) -> None:
    others = [path for path in place.glob(FOLDER + "*") if path.name != name]
    for path in sorted(others, key=lambda path: -path.stat().st_mtime)[OLD:]:
        shutil.rmtree(path, ignore_errors=True)


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


class _Compilations(event.Listener):  # type: ignore[misc]
    """Listener to numba: logs the first compilation of a kernel of this package, and writes checksums of new files."""

    def __init__(self) -> None:
        self._told = False
        self._lock, self._here = threading.Lock(), threading.local()

    def on_start(self, event: Any) -> None:
        if event.kind == "numba:compiler_lock":
            self._here.held = getattr(self._here, "held", 0) + 1
        elif event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
            self._here.compiled = True
            if not self._told:
                self._told = True
                logging.getLogger("buckler").warning("buckler: %s", ONCE if KERNELS is not None else EVERY_TIME)

    def on_end(self, event: Any) -> None:
        if event.kind != "numba:compiler_lock":
            return
        # Numba stores code before it gives back the outermost hold of its lock.
        self._here.held -= 1
        if self._here.held or not getattr(self._here, "compiled", False) or KERNELS is None:
            return
        self._here.compiled = False
        with self._lock, suppress(OSError):  # a file that is left without its checksum is compiled again
            for path in _code(KERNELS):
                if not _seal(path).exists() or _seal(path).stat().st_mtime_ns < path.stat().st_mtime_ns:
                    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
                    draft.write_text(hashlib.sha256(path.read_bytes()).hexdigest())
                    draft.replace(_seal(path))


ONCE = "compiling kernels for this machine: some seconds, once"
EVERY_TIME = (
    "compiling kernels: some seconds in every process, since no folder can be written; set NUMBA_CACHE_DIR to one"
)
_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)
event.register("numba:compiler_lock", _COMPILATIONS)

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
        return cast(F, njit(cache=KERNELS is not None, **_OPTIONS)(function))
    finally:
        config.CACHE_DIR = before
