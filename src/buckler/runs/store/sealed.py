"""Sealed JSON files (the manifest and the seals of shards): a format number, the writer's version and a checksum.

There is one format. A file with another number is refused and left alone: it is not damaged, and never set aside.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buckler import __version__
from buckler.errors import DamagedEvidence, StoreError, show
from buckler.files import parse_json, put_in_place, read_text

SEALED_FORMAT = 4
LARGEST_JSON = 64 * 1024 * 1024
TEMPORARY = ".tmp-"


@contextmanager
def writing(action: str) -> Iterator[None]:
    """Turn an OSError into a StoreError of one line."""
    try:
        yield
    except StoreError:
        raise
    except OSError as problem:
        raise StoreError(f"cannot {action}: {problem.strerror or problem}; what was finished is kept") from problem


def temporary(path: Path) -> Path:
    """Return the name under which a file is written before it is whole."""
    return path.with_name(TEMPORARY + path.name)


def publish(path: Path) -> None:
    """Flush the temporary file of ``path`` to the disk and give it its name."""
    with writing(f"write {str(path)!r}"):
        put_in_place(temporary(path), path)


def seal_of(values: Mapping[str, Any]) -> str:
    """Return the checksum of values, whatever the order of their keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the format number, this version and a checksum of it all."""
    whole = {"format": SEALED_FORMAT, "version": __version__, **values}
    return {**whole, "seal": seal_of(whole)}


def unsealed(values: Any, path: Path) -> dict[str, Any]:
    """Return what ``sealed`` made, without the checksum; refuse another format, and raise ValueError for damage."""
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
    """Write values as sealed JSON, whole or not at all."""
    text = json.dumps(sealed(values), sort_keys=True, indent=1, allow_nan=False) + "\n"
    with writing(f"write {str(path)!r}"):
        temporary(path).write_text(text, encoding="utf-8")
    publish(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the values of a sealed file; a missing, linked or changed file is damaged, an unreadable one is not."""
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
