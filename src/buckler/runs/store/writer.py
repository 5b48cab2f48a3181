"""Appending evidence to a folder: one writer at a time, shard after shard, each whole or not there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.spec import RunSpec, difference
from buckler.runs.store import folder
from buckler.runs.store.folder import Place
from buckler.runs.store.lock import HOLDER, LOCK, locked
from buckler.runs.store.sealed import TEMPORARY, publish, read_sealed, temporary, write_sealed, writing
from buckler.runs.store.shard import Shard, encode


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(self, root: Path, spec: RunSpec, owner: Mapping[str, str], inputs: int, done: Sequence[Place]) -> None:
        """Hold the folder; ``done`` are the shards already there and whole, in order."""
        self.root, self.spec, self.done = root, spec, list(done)
        self._owner, self.inputs = dict(owner), inputs

    @property
    def desk(self) -> Path:
        """The folder in which a ``ScoreWriter`` leaves its file for ``append``."""
        return self.root / folder.SHARDS

    @property
    def inputs_done(self) -> int:
        """The number of inputs that are there."""
        return sum(place.stop - place.first for place in self.done)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges ``[first, stop)`` of inputs that are not there."""
        stops = [0, *(place.stop for place in self.done)]
        firsts = [*(place.first for place in self.done), self.inputs]
        return [(stop, first) for stop, first in zip(stops, firsts, strict=True) if stop < first]

    def append(self, first: int, content: Shard, parts: Sequence[Mapping[str, Any]] | None = None) -> Place:
        """Write a shard's votes, publish its files and seal them; ``parts`` are the shards that it was merged from."""
        place = folder.place_of(first, first + len(content.ids), self.spec, self.inputs)
        path = place.path(self.root, "counts")
        with writing(f"write {str(path)!r}"):
            table = encode(content, self.spec)
            pq.write_table(table, temporary(path), compression="zstd", use_dictionary=["id", "stream"])
        files = {}
        for part in ["counts", "scores"] if content.columns is not None else ["counts"]:
            publish(place.path(self.root, part))
            files[part] = folder.measure(place.path(self.root, part))
        seal: dict[str, Any] = {"first": first, "count": len(content.ids), "owner": self._owner, "files": files}
        seal["rows"] = content.rows
        if parts is not None:
            seal["parts"] = list(parts)
        write_sealed(place.path(self.root, "seal"), seal)
        self.done = sorted([*self.done, place], key=lambda place: place.first)
        return place


@contextmanager
def open_writer(
    root: str | Path,
    spec: RunSpec,
    *,
    classifier: str,
    data: str,
    inputs: int,
    environment: Mapping[str, str],
    repair: bool = False,
    any_environment: bool = False,
) -> Iterator[Writer]:
    """Hold a folder for writing the evidence of a specification: begun, gone on with, or refused with the reason.

    ``repair`` removes damaged shards, which are then drawn again; ``any_environment`` goes on although the versions of
    the libraries or the device differ from those that began the run.
    """
    root = Path(root)
    with writing(f"open {str(root)!r}"):
        if root.exists() and not (root / folder.MANIFEST).exists() and _foreign(root):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {_foreign(root)!r}")
        (root / folder.SHARDS).mkdir(parents=True, exist_ok=True)
        if (root / folder.SHARDS).is_symlink():
            raise StoreError(f"{str(root / folder.SHARDS)!r} must be a folder of its own, not a link")
    with locked(root):
        path = root / folder.MANIFEST
        found: tuple[dict[str, Any], RunSpec] | None = None
        try:
            found = folder.read_manifest(root) if path.exists() else None
        except DamagedEvidence:
            if not repair:
                raise
        if found is not None and spec.shard_inputs is None:
            spec = replace(spec, shard_inputs=found[1].shard_inputs)  # what was begun with shards of a size goes on so
        manifest: dict[str, Any] = {
            "spec": spec.as_dict(),
            "owner": {"spec": spec.hash(), "classifier": classifier, "data": data},
            "inputs": inputs,
            "environment": dict(environment),
        }
        if found is not None:
            _compare(root, {**found[0], "spec": found[1].as_dict()}, manifest, any_environment)
        owner = (manifest if found is None else found[0])["owner"]
        done = check_shards(root, spec, inputs, owner, known=found is not None, repair=repair)
        folder.clear_leftovers(root)
        if found is None:
            write_sealed(path, manifest)
        yield Writer(root, spec, owner, inputs, done)


def _foreign(root: Path) -> str | None:
    own = {folder.MANIFEST, folder.SHARDS, LOCK, HOLDER}
    names = sorted(path.name for path in root.iterdir())
    return next((name for name in names if name not in own and not name.startswith(TEMPORARY)), None)


def _compare(root: Path, found: Mapping[str, Any], asked: Mapping[str, Any], any_environment: bool) -> None:
    if found["spec"] != asked["spec"]:
        raise StoreError(
            f"{str(root)!r} holds a run of another specification: {difference(found['spec'], asked['spec'])}"
        )
    for part in ("classifier", "data"):
        if found["owner"][part] != asked["owner"][part]:
            raise StoreError(
                f"{str(root)!r} was begun with another {part}: {found['owner'][part]} there, {asked['owner'][part]} now"
            )
    if found["inputs"] != asked["inputs"]:
        raise StoreError(f"{str(root)!r} was begun with {found['inputs']} inputs; there are {asked['inputs']} now")
    if found["environment"] != asked["environment"] and not any_environment:
        changes = difference(found["environment"], asked["environment"])
        raise StoreError(
            f"{str(root)!r} was begun in another environment: {changes}; "
            "draws would not be the same bytes (--any-environment goes on all the same)"
        )


def check_shards(
    root: Path, spec: RunSpec, inputs: int, owner: Mapping[str, str], *, known: bool = True, repair: bool = False
) -> list[Place]:
    """Return the shards that are whole, in order; others are removed if ``repair``, or the first of them is named.

    Where the manifest is lost (not ``known``), sound shards of another run must not be taken for damage and removed.
    Parts that a larger shard was merged from are removed once that one is known to be whole.
    """
    if not known:
        for name in folder.sealed_names(root):
            with suppress(DamagedEvidence):
                if read_sealed(_seal_path(root, name)).get("owner") != dict(owner):
                    raise StoreError(f"{str(root)!r} has lost its manifest and holds shards of another run")
    while True:
        found, strange = folder.places(root, spec, inputs)
        count, inside, overlapping = folder.sort_out(found)
        damaged = {name: _damaged(root, name, "no such shard") for name in strange}
        damaged |= {place.name: _damaged(root, place.name, "it overlaps another shard") for place in overlapping}
        for place in count:
            try:
                folder.check_shard(root, place, owner)
            except DamagedEvidence as problem:
                damaged[place.name] = problem
        if not damaged:
            break
        if not repair:
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            first = next(iter(damaged.values()))
            raise DamagedEvidence(f"{first}{more}; --repair draws what is damaged again, and nothing else")
        for name in damaged:
            folder.remove_shard(root, name)
    for place in inside:
        _damaged(root, place.name, "it was merged into another shard")
        folder.remove_shard(root, place.name)
    return count


def _damaged(root: Path, name: str, why: str) -> DamagedEvidence:
    """Return why a shard does not count; one of a newer format raises that instead, so that it is never removed."""
    with suppress(DamagedEvidence):
        read_sealed(_seal_path(root, name))
    return DamagedEvidence(f"{str(_seal_path(root, name))!r} is damaged: {why}")


def _seal_path(root: Path, name: str) -> Path:
    return root / folder.SHARDS / f"{name}.json"
