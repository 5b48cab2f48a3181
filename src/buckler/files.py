"""Writes files whole or not at all: under a temporary name, flushed to the disk, then renamed; and sealed JSON files.

Only plain files are written or read: a device or a FIFO may have no end, and must not be replaced. A sealed file has a
format number, this package's version and a checksum. There is one format: a file of another is refused and left alone.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from math import isfinite
from pathlib import Path
from typing import Any

from buckler import __version__
from buckler.errors import DamagedEvidence, StoreError, first_repeated, show


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, which replaces ``path`` when the block ends without an error.

    If ``path`` is a link, its target is replaced. Temporary files that killed processes left for ``path`` are removed;
    of two processes that write to one path at once, one raises StoreError.
    """
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        check_plain(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f".{escape(place.name)}.*.part"):
            left.unlink(missing_ok=True)
        yield temporary
        put_in_place(temporary, place)
    except OSError as problem:
        raise StoreError(f"cannot write {str(path)!r}: {problem.strerror or problem}") from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_plain(path: Path) -> None:
    """Raise OSError if ``path`` exists and is not a plain file (a folder, a device, a FIFO)."""
    with suppress(FileNotFoundError):
        _check_mode(path.stat().st_mode)


def _check_mode(mode: int) -> None:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    if not stat.S_ISREG(mode):
        raise OSError(f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file")


def read_text(path: Path, largest: int) -> str:
    """Return the text (UTF-8) of a plain file of at most ``largest`` bytes; OSError or ValueError for anything else."""
    # Non-blocking, since opening a FIFO would wait for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_mode(os.fstat(handle).st_mode)
        with open(handle, "rb", closefd=False) as file:
            data = file.read(largest + 1)
    finally:
        os.close(handle)
    if len(data) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return data.decode("utf-8")


def put_in_place(temporary: Path, path: Path) -> None:
    """Flush the file at ``temporary`` to the disk, rename it to ``path``, and flush the folder of ``path``."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk; do nothing on Windows, which cannot open a folder."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """Return the SHA-256 of the content of a plain file, in hexadecimal digits."""
    check_plain(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError for a repeated key, NaN or infinity, or deep nesting."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := first_repeated(key for key, _ in pairs)) is not None:
        raise ValueError(f"it has the key {show(twice)} twice")
    return dict(pairs)


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"it holds the number {show(text)}")
    return number


SEALED_FORMAT = 4
LARGEST_JSON = 64 * 1024 * 1024
TEMPORARY = ".tmp-"
"""Format number of sealed files; their largest size in bytes; prefix of the names of files not yet whole."""


@contextmanager
def writing(action: str) -> Iterator[None]:
    """Raise an OSError of the block as a StoreError of one line, ``cannot <action>: ...``."""
    try:
        yield
    except StoreError:
        raise
    except OSError as problem:
        raise StoreError(f"cannot {action}: {problem.strerror or problem}; what was finished is kept") from problem


def temporary(path: Path) -> Path:
    """Return the path, beside ``path``, under which its file is written until it is whole (see ``publish``)."""
    return path.with_name(TEMPORARY + path.name)


def publish(path: Path) -> None:
    """Flush the file at ``temporary(path)`` to the disk and rename it to ``path``."""
    with writing(f"write {str(path)!r}"):
        put_in_place(temporary(path), path)


def seal_of(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of values that JSON can hold, in hexadecimal digits, whatever the order of their keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with three more: the ``format`` number, this package's ``version`` and a checksum, the ``seal``."""
    whole = {"format": SEALED_FORMAT, "version": __version__, **values}
    return {**whole, "seal": seal_of(whole)}


def unsealed(values: Any, path: Path) -> dict[str, Any]:
    """Return values that ``sealed`` made, as read from ``path``, without the checksum, which is compared.

    StoreError for a file of another format, ValueError for one that was changed.
    """
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    number = values.get("format")
    if type(number) is int and number != SEALED_FORMAT:
        raise StoreError(
            f"{str(path)!r} has format {number}, written by buckler {show(values.get('version'), 30)}; this is buckler "
            f"{__version__}, which reads format {SEALED_FORMAT} alone"
        )
    rest = {key: value for key, value in values.items() if key != "seal"}
    if type(number) is not int or values.get("seal") != seal_of(rest):
        raise ValueError("its checksum is not that of its content")
    return rest


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values to ``path`` as JSON with a checksum (``sealed``), whole or not at all."""
    text = json.dumps(sealed(values), sort_keys=True, indent=1, allow_nan=False) + "\n"
    with writing(f"write {str(path)!r}"):
        temporary(path).write_text(text, encoding="utf-8")
    publish(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the values in a file of ``write_sealed``, without the checksum, which is compared.

    DamagedEvidence for a missing or changed file or a link, StoreError for one that cannot be read.
    """
    try:
        if path.is_symlink():
            raise ValueError("it is a link")
        return unsealed(parse_json(read_text(path, LARGEST_JSON)), path)
    except FileNotFoundError:
        raise DamagedEvidence(f"{str(path)!r} is damaged: it is missing") from None
    except ValueError as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {show(str(problem), 100)[1:-1]}") from None
    except StoreError:
        raise
    except OSError as problem:
        raise StoreError(f"cannot read {str(path)!r}: {problem.strerror or problem}") from None


def usable_cores() -> int:
    """Return the number of processor cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
