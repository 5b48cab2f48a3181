"""A run's folder: which shards are in it, and how a damaged one is found.

    manifest.json                     specification, its hash, and who drew: answers, files, versions
    shards/000000-000119.parquet      votes of the inputs 0 to 119
    shards/000000-000119.scores.parquet
    shards/000000-000119.json         the seal: checksums of the files above and who drew them, written last
    shards/000007.parquet             where the specification says how many inputs a shard has, its number

A file is written under another name, flushed to the disk and renamed, so it is there whole or not at all. A shard
counts only once its seal is there; without one its files are leftovers of a killed run. A shard whose inputs all lie in
another, larger one was merged into it (``compact``), and does not count either.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckler.errors import DamagedEvidence, InvalidInput, StoreError, show
from buckler.files import checksum, sync_folder
from buckler.noise import LAWS
from buckler.runs.spec import FIELDS, RunSpec, from_dict, hash_of
from buckler.runs.store.sealed import TEMPORARY, newer, read_sealed, writing

MANIFEST = "manifest.json"
SHARDS = "shards"
PARTS = {"counts": ".parquet", "scores": ".scores.parquet"}
_NAME = re.compile(r"(\d{6,12})(?:-(\d{6,12}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shard lies: the inputs ``[first, stop)``, and the name of its files without their endings."""

    name: str
    first: int
    stop: int

    def path(self, root: Path, part: str) -> Path:
        """Return where a part of the shard lies: names are made of numbers, never read from a file."""
        return root / SHARDS / (self.name + (".json" if part == "seal" else PARTS[part]))


def place_of(first: int, stop: int, spec: RunSpec, inputs: int) -> Place:
    """Return the place of a shard with the inputs ``[first, stop)``."""
    size = spec.shard_inputs
    if size and first % size == 0 and stop == min(first + size, inputs):
        return Place(f"{first // size:06d}", first, stop)
    return Place(f"{first:06d}-{stop - 1:06d}", first, stop)


def _place(name: str, spec: RunSpec, inputs: int) -> Place | None:
    """Return the place of the shard with a name, or None if this run can have no such shard."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    size, number = spec.shard_inputs, int(match[1])
    first, stop = (number, int(match[2]) + 1) if match[2] else (number * (size or 0), (number + 1) * (size or 0))
    stop = stop if match[2] else min(stop, inputs)
    return Place(name, first, stop) if first < stop <= inputs else None


def sealed_names(root: Path) -> list[str]:
    """Return the names of the shards that have a seal."""
    return sorted(path.stem for path in (root / SHARDS).glob("*.json") if _NAME.fullmatch(path.stem))


def places(root: Path, spec: RunSpec, inputs: int) -> tuple[list[Place], list[str]]:
    """Return the places of all shards that have a seal, and the names of those that this run cannot have."""
    found = {name: _place(name, spec, inputs) for name in sealed_names(root)}
    return [place for place in found.values() if place], [name for name, place in found.items() if place is None]


def sort_out(found: Iterable[Place]) -> tuple[list[Place], list[Place], list[Place]]:
    """Return the shards that count, in the order of the inputs; those inside of others; those that overlap others."""
    count, inside, overlapping = list[Place](), list[Place](), list[Place]()
    for place in sorted(found, key=lambda place: (place.first, -place.stop)):
        before = count[-1].stop if count else 0
        (count if place.first >= before else inside if place.stop <= before else overlapping).append(place)
    return count, inside, overlapping


def measure(path: Path) -> dict[str, Any]:
    """Return the size and checksum of a file, as a seal states them."""
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}


def check_run(root: Path) -> None:
    """Refuse a folder that is not a run, or whose shards are somewhere else."""
    if not (root / MANIFEST).is_file():
        raise StoreError(f"{str(root)!r} is not a run: it has no {MANIFEST}")
    check_own_shards(root)


def check_own_shards(root: Path) -> None:
    """Refuse a link in the place of the folder of shards."""
    if (root / SHARDS).is_symlink():
        raise StoreError(f"{str(root / SHARDS)!r} must be a folder of its own, not a link")


def read_manifest(root: Path) -> tuple[dict[str, Any], RunSpec]:
    """Return a run's manifest, with every field of its kind, and its specification."""
    path = root / MANIFEST
    values = read_sealed(path)
    kinds = {"spec": dict, "owner": dict, "environment": dict, "inputs": int}
    if any(not isinstance(values.get(name), kind) for name, kind in kinds.items()) or not (
        {"spec", "classifier", "data"} <= values["owner"].keys() and values["inputs"] > 0
    ):
        raise DamagedEvidence(f"{str(path)!r} is damaged: it does not describe a run")
    written = values["spec"]
    if values["owner"]["spec"] != hash_of(written):
        raise DamagedEvidence(f"{str(path)!r} is damaged: its specification has another hash")
    # What an unknown field says of the draws is not known either: nothing may be certified from them.
    unknown = sorted(written.keys() - FIELDS)
    if unknown:
        raise newer(path, f"the specification says {unknown[0]!r}", values)
    if written.get("law") not in {None, *LAWS}:
        raise newer(path, f"its law is {show(written['law'])}", values)
    try:
        return values, from_dict(written)
    except InvalidInput as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {problem}") from None


def check_shard(root: Path, place: Place, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shard's seal after comparing every file with it, and its owner with the run's."""
    seal_path = place.path(root, "seal")
    seal = read_sealed(seal_path)
    if place.name.isdigit() and "first" not in seal:  # the first seals said the number alone
        ours = seal.get("shard") == int(place.name)
    else:
        ours = (seal.get("first"), seal.get("count")) == (place.first, place.stop - place.first)
    if not ours or seal.get("owner") != dict(owner):
        raise DamagedEvidence(f"{str(seal_path)!r} is damaged: it belongs to another run or shard")
    files = seal.get("files")
    named = isinstance(files, dict) and "counts" in files and files.keys() <= PARTS.keys()
    if not named or not isinstance(files, dict) or not isinstance(seal.get("rows"), int):
        raise DamagedEvidence(f"{str(seal_path)!r} is damaged: it does not name the shard's files")
    for part, expected in files.items():
        path = place.path(root, part)
        try:
            found = None if path.is_symlink() else measure(path)
        except OSError:
            found = None
        if found != expected:
            raise DamagedEvidence(f"{str(path)!r} is damaged: its checksum is not the one it was sealed with")
    return seal


def parts_of(root: Path, place: Place, fields: Iterable[str]) -> list[dict[str, Any]]:
    """Return the ranges of inputs that a shard was merged from, or its own, each with what its seal said of it."""
    seal = read_sealed(place.path(root, "seal"))
    whole = {"first": place.first, "count": place.stop - place.first}
    parts = seal.get("parts", [whole | {field: seal[field] for field in fields if field in seal}])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise DamagedEvidence(f"{str(place.path(root, 'seal'))!r} is damaged: it does not say what it was merged from")
    return parts


def remove_shard(root: Path, name: str) -> None:
    """Remove a shard, its seal first, so that a half removed one does not count."""
    with writing(f"remove shard {name} of {str(root)!r}"):
        for ending in (".json", *PARTS.values()):
            (root / SHARDS / (name + ending)).unlink(missing_ok=True)
        sync_folder(root / SHARDS)


def clear_leftovers(root: Path) -> None:
    """Remove what killed writers left: files half written, and files of shards without a seal."""
    sealed = set(sealed_names(root))
    with writing(f"clean {str(root)!r}"):
        for path in [*root.glob(TEMPORARY + "*"), *(root / SHARDS).iterdir()]:
            name, _, ending = path.name.partition(".")
            part = _NAME.fullmatch(name) and "." + ending in PARTS.values()
            if path.name.startswith(TEMPORARY) or (part and name not in sealed):
                path.unlink()


def replayed_of(manifest: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many rows of a run were run again elsewhere, and how many of them gave other bits."""
    found = manifest.get("replayed", {"compared": 0, "differed": 0})
    compared, differed = (found.get(key) if isinstance(found, dict) else None for key in ("compared", "differed"))
    if type(compared) is not int or type(differed) is not int or not 0 <= differed <= compared:
        raise DamagedEvidence("the manifest is damaged: it does not say what was run again")
    return compared, differed
