"""Writes the shards of a run to its folder, one writer at a time, each shard whole or not at all."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from buckler.errors import BucklerWarning, DamagedEvidence, StoreError
from buckler.runs.identity import Identity, admit, is_same
from buckler.runs.spec import NAMES, RunSpec, difference
from buckler.runs.store import folder
from buckler.runs.store.folder import LOCK, ShardRange, locked
from buckler.runs.store.sealed import TEMPORARY, publish, read_sealed, temporary, write_sealed, writing
from buckler.runs.store.shard import (
    DAMAGE,
    PartialInput,
    Shard,
    decode,
    decode_partial_input,
    encode,
    encode_partial_input,
)


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(
        self,
        root: Path,
        spec: RunSpec,
        manifest: Mapping[str, Any],
        done: Sequence[ShardRange],
        begun: Mapping[int, PartialInput] | None = None,
    ) -> None:
        """Take the manifest, the shards that are there and whole, in order, and the inputs that were begun."""
        self.root, self.spec, self.done, self.begun = root, spec, list(done), dict(begun or {})
        self._manifest = dict(manifest)

    @property
    def step_folder(self) -> Path:
        """The folder in which a step writes its files, before ``append`` gives them their names."""
        return self.root / folder.SHARDS

    @property
    def inputs_done(self) -> int:
        """The number of inputs that are there."""
        return sum(span.count for span in self.done)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges ``[first, stop)`` of inputs that are not there."""
        stops = [0, *(span.stop for span in self.done)]
        firsts = [*(span.first for span in self.done), int(self._manifest["inputs"])]
        return [(stop, first) for stop, first in zip(stops, firsts, strict=True) if stop < first]

    def read(self, span: ShardRange) -> Shard:
        """Return a shard that is there; its files were compared with their seal when the folder was opened."""
        return decode(span.path(self.root, "counts"), self.spec, span.count, 0)

    def parts(self, span: ShardRange) -> list[dict[str, Any]]:
        """Return the ranges of a shard's inputs that were drawn at once, and who drew them."""
        parts: list[dict[str, Any]] = folder.read_seal(self.root, span, self._manifest["owner"])["parts"]
        return parts

    def keep(self, begun: PartialInput) -> None:
        """Write the votes of an input that is under way, in place of those before."""
        self.begun[begun.first] = begun
        values = {"owner": self._manifest["owner"], **encode_partial_input(begun)}
        write_sealed(self.root / folder.begun_name(begun.first), values)

    def append(self, first: int, content: Shard) -> ShardRange:
        """Write a shard and seal it; a model that is new to the run is added to the manifest before."""
        known: list[dict[str, Any]] = self._manifest["drawn_by"]
        entry = admit(self.root, known, dict(content.drawn_by), allow=True)
        if entry not in known:
            self._manifest["drawn_by"] = [*known, entry]
            write_sealed(self.root / folder.MANIFEST, self._manifest)
        replayed, differed = content.replayed
        part = {"first": first, "count": len(content.ids), "rows": content.rows, "drawn_by": entry,
                "replayed": replayed, "differed": differed}  # fmt: skip
        span = ShardRange(first, first + len(content.ids))
        path = span.path(self.root, "counts")
        with writing(f"write {str(path)!r}"):
            table = encode(content, self.spec)
            pq.write_table(table, temporary(path), compression="zstd", use_dictionary=["id", "stream"])
        files = {}
        for name in ["counts", "scores"] if content.columns is not None else ["counts"]:
            publish(span.path(self.root, name))
            files[name] = folder.measure(span.path(self.root, name))
        seal = {"first": span.first, "count": span.count, "owner": self._manifest["owner"], "files": files,
                "parts": [part]}  # fmt: skip
        write_sealed(span.path(self.root, "seal"), seal)
        for begun in [begun for begun in self.begun if span.first <= begun < span.stop]:
            (self.root / folder.begun_name(begun)).unlink(missing_ok=True)
            del self.begun[begun]
        self.done = sorted([*self.done, span], key=lambda span: span.first)
        return span


@contextmanager
def open_writer(
    root: str | Path,
    spec: RunSpec,
    identity: Identity,
    *,
    inputs: int,
    repair: bool = False,
    allow_other_model: bool = False,
) -> Iterator[Writer]:
    """Yield a writer of a run that is begun or goes on; another specification, data or model is refused.

    ``repair`` sets damaged shards aside, so that they are drawn again; ``allow_other_model`` lets another model or
    environment go on with the run, which the manifest and the seals record.
    """
    root = Path(root)
    with writing(f"open {str(root)!r}"):
        if root.exists() and not (root / folder.MANIFEST).exists() and _foreign(root):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {_foreign(root)!r}")
        (root / folder.SHARDS).mkdir(parents=True, exist_ok=True)
        folder.check_own_shards(root)
    with locked(root):
        path = root / folder.MANIFEST
        moved = list[str]()
        manifest: dict[str, Any] | None = None
        holds_draws = bool(folder.sealed_names(root) or folder.begun_names(root))
        try:
            if path.exists():
                manifest, found = folder.read_manifest(root)
                if not holds_draws:
                    manifest = None  # no draws depend on it yet, so any setting may change
                else:
                    if spec.shard_inputs is None:
                        spec = replace(spec, shard_inputs=found.shard_inputs)  # what was begun with shards of a size
                    _compare(root, found.as_dict(), spec.as_dict())
        except DamagedEvidence:
            if not repair:
                raise
        owner = {"spec": spec.hash(), "data": identity.data}
        begun = manifest is not None
        if manifest is None:
            drawn_by = _drawn_by(root, owner) or [identity.as_dict()]
            manifest = {"spec": spec.as_dict(), "owner": owner, "inputs": inputs, "drawn_by": drawn_by}
        if manifest["owner"]["data"] != identity.data or manifest["inputs"] != inputs:
            raise StoreError(
                f"{str(root)!r} was begun with other data: ids, labels or values of inputs differ; use another folder"
            )
        admit(root, manifest["drawn_by"], identity.as_dict(), allow_other_model)
        done = check_shards(root, inputs, manifest["owner"], moved if repair else None)
        folder.clear_leftovers(root)
        if not begun:
            moved += folder.set_aside(root, [path]) if holds_draws else []
            write_sealed(path, manifest)
        under_way = _read_begun(root, spec, manifest["owner"], identity, moved if repair else None)
        if moved:
            listed = ", ".join(moved)
            warnings.warn(f"damaged files were set aside in {str(root)!r}: {listed}", BucklerWarning, stacklevel=3)
        yield Writer(root, spec, manifest, done, under_way)


def _read_begun(
    root: Path, spec: RunSpec, owner: Mapping[str, str], identity: Identity, moved: list[str] | None
) -> dict[int, PartialInput]:
    """Return the inputs that this model began, by position; a damaged file is set aside where ``moved`` is a list."""
    found: dict[int, PartialInput] = {}
    for name in folder.begun_names(root):
        try:
            values = read_sealed(root / name)
            begun = decode_partial_input(values, spec)
            if values.get("owner") != owner or name != folder.begun_name(begun.first):
                raise ValueError("it belongs to another run or input")
        except (DamagedEvidence, *DAMAGE) as problem:
            if moved is None:
                why = problem if isinstance(problem, DamagedEvidence) else f"{str(root / name)!r} is damaged: {problem}"
                raise DamagedEvidence(f"{why}; repair sets what is damaged aside and draws it again") from None
            moved += folder.set_aside(root, [root / name])
            continue
        if is_same(begun.drawn_by, identity.as_dict()):
            found[begun.first] = begun
    return found


def _foreign(root: Path) -> str | None:
    """Return the name of something in a folder that is not part of a run, None if there is nothing."""
    own = {folder.MANIFEST, folder.SHARDS, folder.DAMAGED, LOCK, *folder.begun_names(root)}
    names = sorted(path.name for path in root.iterdir())
    return next((name for name in names if name not in own and not name.startswith(TEMPORARY)), None)


def _compare(root: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse another specification; names of models and data are left out, what they stand for is compared."""
    there, now = ({k: v for k, v in spec.items() if k not in NAMES} for spec in (found, asked))
    if there != now:
        raise StoreError(
            f"{str(root)!r} holds draws with other settings: {difference(there, now)}; give the settings of the folder "
            "to go on with it, or another folder"
        )


def _drawn_by(root: Path, owner: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the models that drew a run whose manifest is lost, as its seals tell; seals of another run are refused."""
    known: list[dict[str, Any]] = []
    for span in folder.shard_ranges(root, 10**12)[0]:
        with suppress(DamagedEvidence):
            if read_sealed(span.path(root, "seal")).get("owner") != owner:
                raise StoreError(
                    f"{str(root)!r} has lost its manifest and holds shards of another run; use another folder"
                )
            parts = folder.read_seal(root, span, owner)["parts"]
            known += [part["drawn_by"] for part in parts if part["drawn_by"] not in known]
    return known


def check_shards(root: Path, inputs: int, owner: Mapping[str, str], moved: list[str] | None = None) -> list[ShardRange]:
    """Return the shards that are whole, in order, or name the first damaged one.

    With a list ``moved``, damaged shards are set aside and their files' new names added to it.
    """
    while True:
        found, strange = folder.shard_ranges(root, inputs)
        count, overlapping = folder.sort_out(found)
        damaged = {name: _damaged(root, name, "this run has no such shard") for name in strange}
        damaged |= {span.name: _damaged(root, span.name, "it overlaps another shard") for span in overlapping}
        for span in count:
            try:
                folder.check_shard(root, span, owner)
            except DamagedEvidence as problem:
                damaged[span.name] = problem
        if not damaged:
            return count
        if moved is None:
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            first = next(iter(damaged.values()))
            raise DamagedEvidence(
                f"{first}{more}; sampling with repair (--repair) sets what is damaged aside and draws it again"
            )
        for name in damaged:
            moved += folder.set_aside(root, folder.shard_files(root, name))


def _damaged(root: Path, name: str, why: str) -> DamagedEvidence:
    """Return the error for a damaged shard; raise StoreError for a seal of another format, which is left as it is."""
    path = root / folder.SHARDS / f"{name}.json"
    with suppress(DamagedEvidence):
        read_sealed(path)
    return DamagedEvidence(f"{str(path)!r} is damaged: {why}")
