"""The folder of a run: its shards, and how damaged ones are found and set aside.

    manifest.json                     specification, number of inputs, hash of the data, models that drew
    shards/000000-000119.parquet      votes of the inputs 0 to 119
    shards/000000-000119.scores.parquet
    shards/000000-000119.json         the seal: checksums of the files above and who drew them, written last
    begun-000120.json                 votes of an input that is under way, where one takes long
    damaged/                          files that ``repair`` found damaged

A file is written under another name, flushed to the disk and renamed, so it is there whole or not at all. A shard
counts once it has a seal; files without one are leftovers of a killed run.

Damage is a file that is missing, is a link, or can be read and has another checksum. A file that cannot be read (an
I/O error, missing permission) is an error, never damage: it may be whole.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from buckler.errors import DamagedEvidence, InvalidInput, StoreError
from buckler.files import checksum, sync_folder
from buckler.runs.identity import is_record, records_in
from buckler.runs.spec import RunSpec, from_dict, hash_of
from buckler.runs.store.sealed import TEMPORARY, read_sealed, writing

MANIFEST = "manifest.json"
SHARDS = "shards"
DAMAGED = "damaged"
LOG_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
"""Columns of the usual log of radii, which is told from other files by the first four."""

USUAL_ALPHA, USUAL_DRAWS = 0.001, 100_000
"""The alpha and number of draws that most papers state for their logs."""

SHARD_ENDINGS = {"counts": ".parquet", "scores": ".scores.parquet"}
_NAME = re.compile(r"(\d{6,12})-(\d{6,12})", re.ASCII)


_BEGUN = re.compile(r"begun-\d{6,12}\.json", re.ASCII)


def begun_name(first: int) -> str:
    """Return the file name for the partial votes of the input at position ``first``."""
    return f"begun-{first:06d}.json"


def begun_names(root: Path) -> list[str]:
    """Return the sorted names of the files of partial votes in a run's folder."""
    return sorted(path.name for path in root.glob("begun-*.json") if _BEGUN.fullmatch(path.name))


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The inputs ``[first, stop)`` of a shard, which its files are named by."""

    first: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the shard's files without their endings."""
        return f"{self.first:06d}-{self.stop - 1:06d}"

    @property
    def count(self) -> int:
        """The number of inputs."""
        return self.stop - self.first

    def path(self, root: Path, part: str) -> Path:
        """Return the path of the ``seal``, ``counts`` or ``scores``: made of numbers, never read from a file."""
        return root / SHARDS / (self.name + (".json" if part == "seal" else SHARD_ENDINGS[part]))


def sealed_names(root: Path) -> list[str]:
    """Return the names of the shards that have a seal."""
    return sorted(path.stem for path in (root / SHARDS).glob("*.json") if _NAME.fullmatch(path.stem))


def shard_ranges(root: Path, inputs: int) -> tuple[list[ShardRange], list[str]]:
    """Return the ranges of the shards that have a seal, and the names of seals that a run of ``inputs`` cannot have."""
    found, strange = list[ShardRange](), list[str]()
    for name in sealed_names(root):
        first, last = map(int, name.split("-"))
        span = ShardRange(first, last + 1)
        if first <= last < inputs and span.name == name:
            found.append(span)
        else:
            strange.append(name)
    return found, strange


def sort_out(found: Iterable[ShardRange]) -> tuple[list[ShardRange], list[ShardRange]]:
    """Return the shards to use in input order, and those that overlap an earlier one."""
    whole, overlapping = list[ShardRange](), list[ShardRange]()
    for span in sorted(found, key=lambda span: (span.first, -span.stop)):
        (whole if span.first >= (whole[-1].stop if whole else 0) else overlapping).append(span)
    return whole, overlapping


def measure(path: Path) -> dict[str, Any]:
    """Return the size and checksum of a file, as a seal states them."""
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}


def check_run(root: Path) -> None:
    """Refuse what is not the folder of a run, saying what reads it, and a run whose shards are a link."""
    if root.is_file():
        refuse_log(root)
        raise StoreError(
            f"{str(root)!r} is a file, and a run is a folder of buckler sample; buckler report and buckler refute read "
            "files of certificates and of decisions (.parquet)"
        )
    if not (root / MANIFEST).is_file():
        raise StoreError(f"{str(root)!r} is not a run: it has no {MANIFEST}")
    check_own_shards(root)


def refuse_log(path: Path) -> None:
    """Refuse a log of radii, saying how it becomes a run."""
    with path.open("rb") as file:
        header = file.readline(1000).decode("ascii", "replace").split()
    if set(LOG_COLUMNS[:4]) <= set(header):
        raise InvalidInput(
            f"{str(path)!r} is a log of radii; import it first, with the alpha, n and sigma that it was made with: "
            f"buckler import {path} --alpha {USUAL_ALPHA} --n {USUAL_DRAWS} --sigma 0.5 --out FOLDER"
        )


def check_own_shards(root: Path) -> None:
    """Refuse a link in the place of the folder of shards."""
    if (root / SHARDS).is_symlink():
        raise StoreError(f"{str(root / SHARDS)!r} must be a folder, not a link")


def read_manifest(root: Path) -> tuple[dict[str, Any], RunSpec]:
    """Return a run's manifest, checked field by field, and its specification."""
    path = root / MANIFEST
    values = read_sealed(path)
    owner, inputs, written = values.get("owner"), values.get("inputs"), values.get("spec")
    try:
        if not isinstance(owner, dict) or type(inputs) is not int or inputs < 1 or not isinstance(written, dict):
            raise InvalidInput("it does not describe a run")
        if owner.keys() != {"spec", "data"} or owner["spec"] != hash_of(written):
            raise InvalidInput("its specification has another hash")
        records_in(values)
        return values, from_dict(written)
    except (InvalidInput, DamagedEvidence) as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {problem}") from None


def read_seal(root: Path, span: ShardRange, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seal of a shard, checked field by field; its files are not read."""
    path = span.path(root, "seal")
    seal = read_sealed(path)
    if (seal.get("first"), seal.get("count"), seal.get("owner")) != (span.first, span.count, dict(owner)):
        raise DamagedEvidence(f"{str(path)!r} is damaged: it belongs to another run or shard")
    files, parts = seal.get("files"), seal.get("parts")
    if not isinstance(files, dict) or "counts" not in files or not files.keys() <= SHARD_ENDINGS.keys():
        raise DamagedEvidence(f"{str(path)!r} is damaged: it does not name the shard's files")
    if not isinstance(parts, list) or not parts or not all(map(_is_part, parts)):
        raise DamagedEvidence(f"{str(path)!r} is damaged: it does not say who drew the shard")
    stops = [span.first, *(part["first"] + part["count"] for part in parts)]
    if [*(part["first"] for part in parts), span.stop] != stops:
        raise DamagedEvidence(f"{str(path)!r} is damaged: its parts are not its inputs")
    return seal


def _is_part(part: Any) -> bool:
    """Return whether a value is the record of inputs that were drawn at once."""
    numbers = ("first", "count", "rows", "replayed", "differed")
    return (
        isinstance(part, dict)
        and all(type(part.get(name)) is int and part[name] >= 0 for name in numbers)
        and part["count"] > 0
        and part["differed"] <= part["replayed"]
        and is_record(part.get("drawn_by"))
    )


def check_shard(root: Path, span: ShardRange, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shard's seal after comparing its files with it: DamagedEvidence for damage, StoreError if unreadable."""
    seal = read_seal(root, span, owner)
    for part, expected in seal["files"].items():
        path = span.path(root, part)
        try:
            found = None if path.is_symlink() else measure(path)
        except FileNotFoundError:
            found = None
        except OSError as problem:
            raise StoreError(f"cannot read {str(path)!r}: {problem.strerror or problem}") from None
        if found != expected:
            what = "it is missing or a link" if found is None else "its checksum is not the one it was sealed with"
            raise DamagedEvidence(f"{str(path)!r} is damaged: {what}")
    return seal


def set_aside(root: Path, paths: Iterable[Path]) -> list[str]:
    """Rename files into the folder ``damaged`` of a run, and return their new names; missing ones are left out."""
    moved = []
    with writing(f"set aside damaged files of {str(root)!r}"):
        for path in paths:
            if path.exists() or path.is_symlink():
                (root / DAMAGED).mkdir(exist_ok=True)
                names = {found.name for found in (root / DAMAGED).iterdir()}
                number = next(k for k in count(1) if f"{path.name}.{k}" not in names)
                target = root / DAMAGED / f"{path.name}.{number}"
                path.rename(target)
                sync_folder(path.parent)
                moved.append(f"{DAMAGED}/{target.name}")
    return moved


def shard_files(root: Path, name: str) -> list[Path]:
    """Return the paths of a shard's files, the seal first: a shard without its seal does not count."""
    return [root / SHARDS / (name + ending) for ending in (".json", *SHARD_ENDINGS.values())]


def clear_leftovers(root: Path) -> None:
    """Remove what killed writers left: files half written, and files of shards without a seal."""
    names = set(sealed_names(root))
    with writing(f"clean {str(root)!r}"):
        for path in [*root.glob(TEMPORARY + "*"), *(root / SHARDS).iterdir()]:
            name, _, ending = path.name.partition(".")
            part = _NAME.fullmatch(name) and "." + ending in SHARD_ENDINGS.values()
            if path.name.startswith(TEMPORARY) or (part and name not in names):
                path.unlink()


LOCK = ".lock"


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the lock of a folder; the operating system releases it however the process ends.

    Child processes do not keep it: the lock's file is closed in them.
    """
    lock = FileLock(root / LOCK, thread_local=False)
    with writing(f"write to {str(root)!r}"):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StoreError(
                f"another process is writing to {str(root)!r}; wait for it, or use another folder"
            ) from None
    try:
        yield
    finally:
        lock.release()
