"""The folder of a run: its shards, the one writer that appends to it, and how damaged files are found and set aside.

    manifest.json                     specification, number of inputs, hash of the data
    shards/000000-000119.parquet      votes of the inputs 0 to 119
    shards/000000-000119.scores.parquet
    shards/000000-000119.json         the seal: checksums of the files above and who drew them, written last
    begun-000120.json                 votes of an input that is under way, where one takes long
    damaged/                          files that ``repair`` found damaged

A file is written under another name, flushed to the disk and renamed, so it is there whole or not at all. A shard
counts once it has a seal; files without one are leftovers of a killed run.

Damage is a file that is missing, is a link, or can be read and has another checksum. A file that cannot be read (an
I/O error, missing permission) is an error, never damage: it may be whole. Nor is a file of another format or run.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from buckler.errors import BucklerWarning, DamagedEvidence, InvalidInput, StoreError
from buckler.files import TEMPORARY, checksum, publish, read_sealed, sync_folder, temporary, write_sealed, writing
from buckler.runs.identity import Identity, Record, admit, is_record, is_same, replayed_in
from buckler.runs.spec import NAMES, RunSpec, difference, from_dict, hash_of
from buckler.runs.store.shard import (
    DAMAGE,
    PartialInput,
    Shard,
    decode,
    decode_partial_input,
    encode,
    encode_partial_input,
)

MANIFEST, SHARDS, DAMAGED, LOCK = "manifest.json", "shards", "damaged", ".lock"
ROUTER = "router"
"""Name of the router's run in the folder of a composition (``runs.routing``)."""

SHARD_ENDINGS = {"counts": ".parquet", "scores": ".scores.parquet"}
_NAME = re.compile(r"(\d{6,12})-(\d{6,12})", re.ASCII)
_BEGUN = re.compile(r"begun-\d{6,12}\.json", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
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


def begun_names(root: Path) -> list[str]:
    """Return the sorted names of the files of partial votes in a run's folder."""
    return sorted(path.name for path in root.glob("begun-*.json") if _BEGUN.fullmatch(path.name))


def _begun_name(first: int) -> str:
    return f"begun-{first:06d}.json"


def shard_ranges(root: Path, inputs: int) -> list[ShardRange]:
    """Return the ranges of the shards that have a seal, in input order, without those that the run cannot have."""
    fitting = list[ShardRange]()
    for name in sealed_names(root):
        first, _, last = name.partition("-")
        span = ShardRange(int(first), int(last) + 1)
        if span.first < span.stop <= inputs and span.name == name:
            fitting.append(span)
    return sorted(fitting, key=lambda span: (span.first, -span.stop))


def overlapping(spans: Iterable[ShardRange]) -> list[ShardRange]:
    """Return the ranges that overlap one before them."""
    found, stop = list[ShardRange](), 0
    for span in spans:
        if span.first < stop:
            found.append(span)
        stop = max(stop, span.stop)
    return found


def measure(path: Path) -> dict[str, Any]:
    """Return the size and checksum of a file, as a seal states them."""
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}


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
        return values, from_dict(written)
    except InvalidInput as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {problem}") from None


def read_seal(root: Path, span: ShardRange, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seal of a shard, checked field by field; its files are not read."""
    path = span.path(root, "seal")
    seal = read_sealed(path)
    if seal.get("owner") != owner:
        raise StoreError(f"{str(path)!r} belongs to another run")
    files, rows = seal.get("files"), seal.get("rows")
    fits = isinstance(files, dict) and "counts" in files and files.keys() <= SHARD_ENDINGS.keys()
    fits = fits and is_record(seal.get("drawn_by")) and type(rows) is int and rows >= 0
    if not fits or (seal.get("first"), seal.get("count")) != (span.first, span.count):
        raise DamagedEvidence(f"{str(path)!r} is damaged: it is not the seal of this shard")
    try:
        replayed_in(seal)
    except InvalidInput as problem:
        raise DamagedEvidence(f"{str(path)!r} is damaged: {problem}") from None
    return seal


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


class Writer:
    """Appends shards to a folder that it holds alone; made by ``open_writer``."""

    def __init__(
        self, root: Path, spec: RunSpec, owner: Mapping[str, str], inputs: int, done: Iterable[ShardRange],
        begun: Mapping[int, PartialInput],
    ) -> None:  # fmt: skip
        """Take the shards that are there and whole, and the inputs that were begun, by position.

        ``rows`` are those of the smallest batch of the shards appended.
        """
        self.root, self.spec, self.done, self.begun, self.rows = root, spec, sorted(done), dict(begun), spec.batch_size
        self._owner, self._inputs = dict(owner), inputs

    @property
    def step_folder(self) -> Path:
        """The folder in which a step writes its files, before ``append`` gives them their names."""
        return self.root / SHARDS

    @property
    def inputs_done(self) -> int:
        """The number of inputs that are there."""
        return sum(span.count for span in self.done)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges ``[first, stop)`` of inputs that are not there."""
        stops = [0, *(span.stop for span in self.done)]
        firsts = [*(span.first for span in self.done), self._inputs]
        return [(stop, first) for stop, first in zip(stops, firsts, strict=True) if stop < first]

    def read(self, span: ShardRange) -> Shard:
        """Return a shard that is there; its files were compared with their seal when the folder was opened."""
        return decode(span.path(self.root, "counts"), self.spec, span.count)

    def keep(self, begun: PartialInput) -> None:
        """Write the votes of an input that is under way, in place of those before."""
        self.begun[begun.first] = begun
        write_sealed(self.root / _begun_name(begun.first), {"owner": self._owner, **encode_partial_input(begun)})

    def append(self, first: int, content: Shard) -> None:
        """Write a shard of the inputs from position ``first`` on, and seal it."""
        span, files = ShardRange(first, first + len(content.ids)), {}
        path = span.path(self.root, "counts")
        with writing(f"write {str(path)!r}"):
            table = encode(content, self.spec)
            pq.write_table(table, temporary(path), compression="zstd", use_dictionary=["id", "stream"])
        for name in ["counts", "scores"] if content.columns is not None else ["counts"]:
            publish(span.path(self.root, name))
            files[name] = measure(span.path(self.root, name))
        seal = {"first": span.first, "count": span.count, "owner": self._owner, "files": files, "rows": content.rows,
                "drawn_by": content.drawn_by, "replayed": list(content.replayed)}  # fmt: skip
        write_sealed(span.path(self.root, "seal"), seal)
        for begun in [begun for begun in self.begun if span.first <= begun < span.stop]:
            (self.root / _begun_name(begun)).unlink(missing_ok=True)
            del self.begun[begun]
        self.done, self.rows = sorted([*self.done, span]), min(self.rows, content.rows)


Damage = dict[str, tuple[DamagedEvidence, list[Path]]]
"""What is damaged, by its name: the error that says so, and the files that ``repair`` sets aside."""


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

    ``repair`` sets damaged files aside, so that they are drawn again; ``allow_other_model`` lets another model or
    environment go on with the run, which each shard's seal records. While nothing is drawn any setting may change.
    """
    root = Path(root)
    with writing(f"open {str(root)!r}"):
        if root.exists() and not (root / MANIFEST).exists() and (strange := _foreign(root)):
            raise StoreError(f"{str(root)!r} is neither empty nor a run: it holds {strange!r}")
        (root / SHARDS).mkdir(parents=True, exist_ok=True)
        check_own_shards(root)
    with locked(root):
        damaged, manifest, found = Damage(), None, spec
        if (root / MANIFEST).exists():
            try:
                manifest, found = read_manifest(root)
            except DamagedEvidence as problem:
                damaged[MANIFEST] = problem, [root / MANIFEST]
        if manifest is not None and (sealed_names(root) or begun_names(root)):
            if spec.shard_inputs is None:
                spec = replace(spec, shard_inputs=found.shard_inputs)  # what was begun with shards of a size
            _compare(root, found.as_dict(), spec.as_dict())
        else:
            manifest = None  # nothing is drawn yet: a manifest is written anew below, with the settings asked for now
        owner = {"spec": spec.hash(), "data": identity.data} if manifest is None else manifest["owner"]
        if owner["data"] != identity.data or (manifest is not None and manifest["inputs"] != inputs):
            raise StoreError(
                f"{str(root)!r} was begun with other data: ids, labels or values of inputs differ; use another folder"
            )
        whole, broken = _check_shards(root, inputs, owner)
        begun, cut = _read_begun(root, spec, owner)
        outdated = [first for first in begun if any(span.first <= first < span.stop for span in whole)]
        damaged |= broken | cut
        known = [*whole.values(), *(one.drawn_by for one in begun.values())]
        admit(root, known, identity.record, allow_other_model)
        if damaged and not repair:
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            said = next(iter(damaged.values()))[0]
            raise DamagedEvidence(f"{said}{more}; repair (--repair) sets what is damaged aside and draws it again")
        if moved := [name for _, paths in damaged.values() for name in _set_aside(root, paths)]:
            listed = ", ".join(moved)
            warnings.warn(f"damaged files were set aside in {str(root)!r}: {listed}", BucklerWarning, stacklevel=3)
        _clear_leftovers(root, outdated)
        if manifest is None:
            write_sealed(root / MANIFEST, {"spec": spec.as_dict(), "owner": owner, "inputs": inputs})
        left = begun.keys() - set(outdated)
        own = {first: begun[first] for first in left if is_same(begun[first].drawn_by, identity.record)}
        yield Writer(root, spec, owner, inputs, whole, own)


def _foreign(root: Path) -> str | None:
    """Return the name of something in a folder that is not part of a run, None if there is nothing."""
    own = {MANIFEST, SHARDS, DAMAGED, LOCK, *begun_names(root)}
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


def _check_shards(root: Path, inputs: int, owner: Mapping[str, Any]) -> tuple[dict[ShardRange, Record], Damage]:
    """Return the shards that are whole, each with the model that drew it, and the damaged ones."""
    whole, problems = dict[ShardRange, Record](), dict[str, DamagedEvidence]()
    for span in (spans := shard_ranges(root, inputs)):
        try:
            whole[span] = check_shard(root, span, owner)["drawn_by"]
        except DamagedEvidence as problem:
            problems[span.name] = problem
    for span in overlapping(whole):
        del whole[span]
        problems[span.name] = DamagedEvidence(f"{str(span.path(root, 'seal'))!r} is damaged: it overlaps another shard")
    for name in set(sealed_names(root)) - {span.name for span in spans}:
        path = root / SHARDS / f"{name}.json"
        with suppress(DamagedEvidence):
            read_sealed(path)  # one of another format is left as it is
        problems[name] = DamagedEvidence(f"{str(path)!r} is damaged: this run has no such shard")
    return whole, {name: (problem, _shard_files(root, name)) for name, problem in problems.items()}


def _read_begun(root: Path, spec: RunSpec, owner: Mapping[str, Any]) -> tuple[dict[int, PartialInput], Damage]:
    """Return the inputs that were begun, by position, and the damaged ones."""
    begun, damaged = dict[int, PartialInput](), Damage()
    for path in (root / name for name in begun_names(root)):
        try:
            values = read_sealed(path)
            if values.get("owner") != owner:
                raise StoreError(f"{str(path)!r} belongs to another run")
            one = decode_partial_input(values, spec)
            if path.name != _begun_name(one.first):
                raise ValueError("it is of another input")
            begun[one.first] = one
        except DamagedEvidence as problem:
            damaged[path.name] = problem, [path]
        except DAMAGE as problem:
            damaged[path.name] = DamagedEvidence(f"{str(path)!r} is damaged: {problem}"), [path]
    return begun, damaged


def _shard_files(root: Path, name: str) -> list[Path]:
    """Return the paths of a shard's files, the seal first: a shard without its seal does not count."""
    return [root / SHARDS / (name + ending) for ending in (".json", *SHARD_ENDINGS.values())]


def _set_aside(root: Path, paths: Iterable[Path]) -> list[str]:
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


def _clear_leftovers(root: Path, outdated: Iterable[int]) -> None:
    """Remove what killed writers left: files half written, and files of shards without a seal.

    ``outdated`` are the positions of inputs that a shard holds and that have a file of partial votes still.
    """
    names = set(sealed_names(root))
    with writing(f"clean {str(root)!r}"):
        for first in outdated:
            (root / _begun_name(first)).unlink()
        for path in [*root.glob(TEMPORARY + "*"), *(root / SHARDS).iterdir()]:
            name, _, ending = path.name.partition(".")
            part = _NAME.fullmatch(name) and "." + ending in SHARD_ENDINGS.values()
            if path.name.startswith(TEMPORARY) or (part and name not in names):
                path.unlink()


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
