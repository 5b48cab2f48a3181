"""A run's folder: who may write to it, how a file gets into it whole, and how a damaged one is found.

    manifest.json              specification, its hash, fingerprints, versions
    shards/000000.parquet      votes of a block of inputs
    shards/000000.scores.parquet
    shards/000000.json         the seal: checksums of the files above, written last

A file is written under another name, flushed to the disk and renamed, so it is there whole or not at all. A shard
counts only once its seal is there; without one its files are leftovers of a killed run and are drawn again. The
manifest and the seals hold a checksum of themselves.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buckler.errors import DamagedEvidence, StoreError
from buckler.files import checksum, parse_json, put_in_place, read_text, sync_folder

FORMAT = 1
MANIFEST = "manifest.json"
SHARDS = "shards"
PARTS = {"counts": ".parquet", "scores": ".scores.parquet"}
LARGEST_JSON = 64 * 1024 * 1024
_TEMPORARY = ".tmp-"


def shard_path(root: Path, shard: int, part: str) -> Path:
    """Return where a part of a shard lies: names are made of numbers, never read from a file."""
    suffix = ".json" if part == "seal" else PARTS[part]
    return root / SHARDS / f"{shard:06d}{suffix}"


@contextmanager
def writing(action: str) -> Iterator[None]:
    """Turn what the operating system says into one clear line."""
    try:
        yield
    except StoreError:
        raise
    except OSError as problem:
        raise StoreError(f"cannot {action}: {problem.strerror or problem}; what was finished is kept") from problem


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the folder for one writer; the operating system lets go of it however the writer ends."""
    import fcntl

    with writing(f"write to {str(root)!r}"):
        (root / SHARDS).mkdir(parents=True, exist_ok=True)
        if (root / SHARDS).is_symlink():
            raise StoreError(f"{str(root / SHARDS)!r} must be a folder of its own, not a link")
        handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"another process is writing to {str(root)!r}; wait for it, or use another folder"
            ) from None
        yield
    finally:
        os.close(handle)


def temporary(path: Path) -> Path:
    """Return the name under which a file is written before it is whole."""
    return path.with_name(_TEMPORARY + path.name)


def publish(path: Path) -> None:
    """Flush the temporary file of ``path`` to the disk and give it its name."""
    with writing(f"write {str(path)!r}"):
        put_in_place(temporary(path), path)


def clear_temporary(root: Path) -> None:
    """Remove what a killed run left half written."""
    with writing(f"clean {str(root)!r}"):
        for folder in (root, root / SHARDS):
            for path in folder.glob(_TEMPORARY + "*"):
                path.unlink()


def measure(path: Path) -> dict[str, Any]:
    """Return the size and checksum of a file, as a seal states them."""
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}


def _seal(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON with a checksum of themselves, whole or not at all."""
    text = json.dumps({**values, "seal": _seal(values)}, sort_keys=True, indent=1, allow_nan=False) + "\n"
    with writing(f"write {str(path)!r}"):
        temporary(path).write_text(text, encoding="utf-8")
    publish(path)


def read_sealed(path: Path) -> dict[str, Any]:
    """Return values written by ``write_sealed``, or name the file that is not as it was written."""
    try:
        if path.is_symlink():
            raise ValueError
        values = parse_json(read_text(path, LARGEST_JSON))
        if not isinstance(values, dict) or values.pop("seal", None) != _seal(values) or values.get("format") != FORMAT:
            raise ValueError
    except ValueError:
        raise DamagedEvidence(f"{str(path)!r} is damaged: it is not what was written") from None
    except OSError as problem:
        raise StoreError(f"cannot read {str(path)!r}: {problem.strerror or problem}") from None
    return values


def read_manifest(root: Path) -> dict[str, Any]:
    """Return a run's manifest, with every field of its kind."""
    path = root / MANIFEST
    values = read_sealed(path)
    kinds = {"spec": dict, "owner": dict, "environment": dict, "inputs": int, "shards": int}
    if any(not isinstance(values.get(name), kind) for name, kind in kinds.items()) or not (
        {"spec", "classifier", "data"} <= values["owner"].keys() and 0 < values["shards"] <= values["inputs"]
    ):
        raise DamagedEvidence(f"{str(path)!r} is damaged: it does not describe a run")
    return values


def sealed_shards(root: Path) -> list[int]:
    """Return the numbers of the shards that have a seal, in order."""
    names = (path.stem for path in (root / SHARDS).glob("*.json"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) >= 6)


def check_shard(root: Path, shard: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shard's seal after comparing every file with it, and its owner with the run's."""
    seal_path = shard_path(root, shard, "seal")
    seal = read_sealed(seal_path)
    if seal.get("shard") != shard or seal.get("owner") != dict(owner):
        raise DamagedEvidence(f"{str(seal_path)!r} is damaged: it belongs to another run or shard")
    files = seal.get("files")
    named = isinstance(files, dict) and "counts" in files and files.keys() <= PARTS.keys()
    if not named or not isinstance(files, dict) or not isinstance(seal.get("rows"), int):
        raise DamagedEvidence(f"{str(seal_path)!r} is damaged: it does not name the shard's files")
    for part, expected in files.items():
        path = shard_path(root, shard, part)
        try:
            found = None if path.is_symlink() else measure(path)
        except OSError:
            found = None
        if found != expected:
            raise DamagedEvidence(f"{str(path)!r} is damaged: its checksum is not the one it was sealed with")
    return seal


def remove_shard(root: Path, shard: int) -> None:
    """Remove a shard, its seal first, so that a half removed one does not count."""
    with writing(f"remove shard {shard} of {str(root)!r}"):
        for part in ("seal", *PARTS):
            shard_path(root, shard, part).unlink(missing_ok=True)
        sync_folder(root / SHARDS)
