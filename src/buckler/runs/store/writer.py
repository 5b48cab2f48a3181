"""Appending evidence to a folder: one writer at a time, shard after shard, each whole or not there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.admission import NAMES, Allowed, admit, check_data, entries, from_seals
from buckler.runs.identity import Identity
from buckler.runs.spec import RunSpec, difference
from buckler.runs.store import folder
from buckler.runs.store.folder import Place
from buckler.runs.store.lock import HOLDER, LOCK, locked
from buckler.runs.store.sealed import TEMPORARY, publish, read_sealed, temporary, write_sealed, writing
from buckler.runs.store.shard import Shard, decode, encode

NOTHING_ELSE = Allowed()


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(
        self,
        root: Path,
        spec: RunSpec,
        manifest: Mapping[str, Any],
        entry: Mapping[str, Any] | None,
        done: Sequence[Place],
    ) -> None:
        """Hold the folder; ``entry`` says who draws now, ``done`` are the shards there and whole, in order."""
        self.root, self.spec, self.entry, self.done = root, spec, entry, list(done)
        self._manifest, self.inputs = manifest, int(manifest["inputs"])

    @property
    def step_folder(self) -> Path:
        """The folder in which a step writes its files, before ``append`` gives them their names."""
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

    def read(self, place: Place) -> Shard:
        """Return a shard that is there; its files were compared with their seal when the folder was opened."""
        return decode(place.path(self.root, "counts"), self.spec, place.stop - place.first, 0)

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
        if content.replayed != (0, 0) and parts is None:
            # Before the seal: what was compared is never forgotten, though its shard may be.
            self._manifest = {**self._manifest, "replayed": _added(self._manifest, content.replayed)}
            write_sealed(self.root / folder.MANIFEST, self._manifest)
        seal: dict[str, Any] = {"first": first, "count": len(content.ids), "files": files, "rows": content.rows}
        seal["owner"] = self._manifest["owner"]
        if content.replayed != (0, 0):
            seal["replayed"] = _added({}, content.replayed)
        if parts is not None:
            seal["parts"] = list(parts)
        if self.entry is not None:
            seal |= self._sign(self.entry, content.environment)
        write_sealed(place.path(self.root, "seal"), seal)
        self.done = sorted([*self.done, place], key=lambda place: place.first)
        return place

    def _sign(self, entry: Mapping[str, Any], environment: Mapping[str, str] | None) -> dict[str, Any]:
        """Return who draws, for a seal, after the manifest names them too."""
        drawn = {"classifier": entry["classifier"], "environment": dict(environment or entry["environment"])}
        known, new = entries(self._manifest), entry
        if drawn["environment"] != new["environment"]:  # a worker in an environment of its own
            met = next((other for other in known if drawn.items() <= other.items()), None)
            new = met or {**drawn, "files": {}, "because": "any_environment"}
        if new not in known:
            self._manifest = {**self._manifest, "drawn_by": [*known, new]}
            write_sealed(self.root / folder.MANIFEST, self._manifest)
        return drawn


@contextmanager
def open_writer(
    root: str | Path,
    spec: RunSpec,
    identity: Identity,
    *,
    inputs: int,
    repair: bool = False,
    allowed: Allowed = NOTHING_ELSE,
) -> Iterator[Writer]:
    """Hold a folder for writing the evidence of a specification: begun, gone on with, or refused with the reason.

    ``repair`` removes damaged shards, which are then drawn again; ``allowed`` says what may be other than it was.
    """
    root = Path(root)
    with writing(f"open {str(root)!r}"):
        if root.exists() and not (root / folder.MANIFEST).exists() and _foreign(root):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {_foreign(root)!r}")
        (root / folder.SHARDS).mkdir(parents=True, exist_ok=True)
        folder.check_own_shards(root)
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
            "owner": {"spec": spec.hash(), "classifier": identity.classifier, "data": identity.data},
            "inputs": inputs,
            "environment": dict(identity.environment),
            "drawn_by": [identity.as_dict()],
        }
        if found is not None:
            _compare(root, found[1].as_dict(), spec.as_dict())
            check_data(root, found[0], identity)
            if found[0]["inputs"] != inputs:
                raise StoreError(f"{str(root)!r} was begun with {found[0]['inputs']} inputs; there are {inputs} now")
            manifest = found[0]
        elif seals := _readable_seals(root, manifest["owner"]):
            drawn_by = from_seals(seals, identity)
            manifest |= {"owner": seals[0]["owner"], "environment": drawn_by[0]["environment"], "drawn_by": drawn_by}
            for seal in seals:
                if "replayed" in seal:
                    manifest["replayed"] = _added(manifest, folder.replayed_of(seal))
        entry = admit(root, entries(manifest), identity, allowed, spec.dtype)
        done = check_shards(root, spec, inputs, manifest["owner"], repair=repair)
        folder.clear_leftovers(root)
        if found is None:
            write_sealed(path, manifest)
        yield Writer(root, spec, manifest, entry, done)


def _added(manifest: Mapping[str, Any], replayed: tuple[int, int]) -> dict[str, int]:
    before = folder.replayed_of(manifest)
    return {"compared": before[0] + replayed[0], "differed": before[1] + replayed[1]}


def _foreign(root: Path) -> str | None:
    own = {folder.MANIFEST, folder.SHARDS, LOCK, HOLDER}
    names = sorted(path.name for path in root.iterdir())
    return next((name for name in names if name not in own and not name.startswith(TEMPORARY)), None)


def _compare(root: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse another specification; what its model and its data are called does not matter, they are compared."""
    there, now = ({k: v for k, v in spec.items() if k not in NAMES} for spec in (found, asked))
    if there != now:
        raise StoreError(f"{str(root)!r} holds a run of another specification: {difference(there, now)}")


def _readable_seals(root: Path, asked: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the seals of a run that has lost its manifest; those of another specification or data are not touched."""
    found = []
    for name in folder.sealed_names(root):
        with suppress(DamagedEvidence):
            found.append(read_sealed(_seal_path(root, name)))
    for seal in found:
        owner = seal.get("owner")
        if not isinstance(owner, dict) or any(owner.get(part) != asked[part] for part in ("spec", "data")):
            raise StoreError(f"{str(root)!r} has lost its manifest and holds shards of another run")
    return found


def check_shards(
    root: Path, spec: RunSpec, inputs: int, owner: Mapping[str, str], *, repair: bool = False
) -> list[Place]:
    """Return the shards that are whole, in order; others are removed if ``repair``, or the first of them is named.

    Parts that a larger shard was merged from are removed once that one is known to be whole.
    """
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
            raise DamagedEvidence(f"{first}{more}; repair draws what is damaged again, and nothing else")
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
