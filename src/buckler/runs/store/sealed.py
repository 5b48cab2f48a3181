"""JSON files that hold a checksum of themselves, a format and the version that wrote them: the manifest and the seals.

The promise of a format: a file has the fields ``format``, ``version`` and ``seal``; fields that a reader does not know
mean nothing to it, and where they would, the format is another number. What is of a newer format is never taken for
damage, and never removed.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buckler import __version__
from buckler.errors import DamagedEvidence, NewerFormat, StoreError, show
from buckler.files import parse_json, put_in_place, read_text

FORMAT = 1
LARGEST_JSON = 64 * 1024 * 1024
TEMPORARY = ".tmp-"


@contextmanager
def writing(action: str) -> Iterator[None]:
    """Turn what the operating system says into one clear line."""
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


def _seal(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON with the format, our version and a checksum of it all, whole or not at all."""
    whole = {"format": FORMAT, "version": __version__, **values}
    text = json.dumps({**whole, "seal": _seal(whole)}, sort_keys=True, indent=1, allow_nan=False) + "\n"
    with writing(f"write {str(path)!r}"):
        temporary(path).write_text(text, encoding="utf-8")
    publish(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Return values written by ``write_sealed``, or name the file that is newer, or not as it was written."""
    try:
        if path.is_symlink():
            raise ValueError
        values = parse_json(read_text(path, LARGEST_JSON))
        if not isinstance(values, dict):
            raise ValueError
        made = values.get("format")
        if type(made) is int and made > FORMAT:  # before the checksum, which may be made in another way there
            raise newer(path, f"format {made}", values)
        if values.pop("seal", None) != _seal(values) or type(made) is not int or made != FORMAT:
            raise ValueError
    except ValueError:
        raise DamagedEvidence(f"{str(path)!r} is damaged: it is not what was written") from None
    except NewerFormat:
        raise
    except OSError as problem:
        raise StoreError(f"cannot read {str(path)!r}: {problem.strerror or problem}") from None
    return values


def newer(path: Path, what: str, values: Mapping[str, Any]) -> NewerFormat:
    """Return the error for a file with something that this version does not know."""
    version = values.get("version")
    writer = show(version, 30).strip("'") if isinstance(version, str) else "of an unknown version"
    return NewerFormat(f"{str(path)!r} was made by a newer version ({what}, buckler {writer}); this is {__version__}")
