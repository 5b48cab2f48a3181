"""Files that are whole or absent: written beside their place, flushed to the disk, then renamed into it."""

import hashlib
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from buckler.errors import StoreError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place when the block ends without an error.

    What killed processes left of earlier attempts at the same path is removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_host()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        yield temporary
        put_in_place(temporary, path)
    except OSError as problem:
        raise StoreError(f"cannot write {str(path)!r}: {problem.strerror or problem}") from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Flush a file to the disk, give it its name, and flush the name: it is there whole or not at all."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk; Windows cannot open a folder, and flushes names by itself."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _host() -> str:
    """Return this machine's name, in letters that a file's name may have."""
    return re.sub(r"\W", "_", platform.node())


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of ``path`` whose process, on this machine, is no more."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.(\d+)-{_host()}\.part")
    for found in path.parent.iterdir():
        match = ours.fullmatch(found.name)
        if match is not None and not _is_running(int(match[1])):
            with suppress(OSError):
                found.unlink()


def _is_running(process: int) -> bool:
    """Return whether a process may be running; on Windows there is no harmless way to ask, so it may."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
