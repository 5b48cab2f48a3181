"""Compiled kernels, and the machine code that is kept of them between runs, since compiling takes seconds.

Code lies in a folder named by a digest of all sources of this room, in the first of these places that can be written:
``NUMBA_CACHE_DIR`` if set, ``__pycache__`` beside the sources, the user's cache. An edit anywhere in the room is
another folder, so code that its sources no longer describe is never run, whichever file was changed. Without a place,
every process compiles for itself. Each file has its checksum beside it; one that does not match is removed, and
compiled again. The checksums are against accidents: whoever can write to the folder decides what is run.
"""

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core import event

F = TypeVar("F", bound=Callable[..., object])

ROOM = Path(__file__).parent
FOLDER = "kernels-"
OLD = 3
"""Folders of other digests that are kept: of other versions, or of sources that were edited and may be edited back."""


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


def _find_folder() -> Path | None:
    """Return the folder of these sources in the first place that can be written, without damaged files."""
    name = FOLDER + _digest()
    for place in _places():
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            (place / name).mkdir(mode=0o700, exist_ok=True)
            tempfile.TemporaryFile(dir=place / name).close()
            _remove_old(place, name)
            for path in _code(place / name):
                if not _is_whole(path):
                    path.unlink(missing_ok=True)
            return place / name
    return None


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
"""Where machine code is kept, or None."""


class _Compilations(event.Listener):  # type: ignore[misc]
    """Hears what is compiled: the first time is told to whoever asked, and new files get their checksums."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] | None = None
        self._any = False
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        if event.kind == "numba:compile" and event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
            self._any, tell, self.tell = True, self.tell, None
            if tell is not None:
                tell()

    def on_end(self, event: Any) -> None:
        # Code is stored after the end of compiling and before numba lets go of its lock.
        if event.kind == "numba:compiler_lock" and self._any and KERNELS is not None:
            with self._lock, suppress(OSError):  # a file that is left without its checksum is compiled again
                for path in _code(KERNELS):
                    if not _seal(path).exists() or _seal(path).stat().st_mtime_ns < path.stat().st_mtime_ns:
                        draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
                        draft.write_text(hashlib.sha256(path.read_bytes()).hexdigest())
                        draft.replace(_seal(path))


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)
event.register("numba:compiler_lock", _COMPILATIONS)


def tell_when_compiling(call: Callable[[], None] | None) -> None:
    """Call this once, when the next kernel is compiled because its code was not kept; None: say nothing."""
    _COMPILATIONS.tell = call


def compiled(function: F) -> F:
    """Compile a kernel, typed as the Python function it was; strict IEEE arithmetic, since proofs rest on it."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(KERNELS or before)  # read when a kernel is defined; other people's kernels keep their place
    try:
        return cast(F, njit(cache=KERNELS is not None, nogil=True, error_model="numpy")(function))
    finally:
        config.CACHE_DIR = before
