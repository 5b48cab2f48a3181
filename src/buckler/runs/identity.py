"""The identity of a run: its model, its environment and its data, compared before a run goes on.

A model is identified by its answers to a probe (a few noisy copies of a few inputs), by the hashes of its weight files
or fitted arrays, and by the environment it runs in. All three are recorded with every shard. They must be equal when a
run goes on and in every worker; ``allow_other_model`` lets another model in, and the manifest and the seals record it.
Data are identified by ids and labels, and by the values of the probed inputs; those of finished inputs are compared
when a run goes on.

Two models may give the same answers to the probe, hard-label models above all. So one finished input, that with the
least unanimous votes, where another model differs most, is drawn again, up to a checkpoint of a few batches, and must
give the votes that were kept.
"""

import hashlib
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import BucklerWarning, DamagedEvidence, InvalidInput, StoreError, show
from buckler.runs.executor import ComputeBlock, Executor
from buckler.runs.spec import RunSpec, difference
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import KeptScores
from buckler.sampling.datasets import Dataset
from buckler.sampling.streams import Request, Stream, content_id
from buckler.types import Float32Array, IntArray

PROBE_INPUTS = 8
"""Largest number of inputs in the probe, spread evenly from the first to the last of the data."""

PROBE_DRAWS = 4
"""Number of noisy copies of each input of the probe."""

HARD_LABEL_DRAWS = 512
"""Noisy copies of each, for a model whose first answers take fewer values than there are rows, as hard labels do: 32
one-hot rows of two similar models are often equal, 4,096 seldom are."""

AT_ONCE = 128
"""Inputs in memory at once, where they are compared."""

ROUNDING_SHARE = 0.01
"""Share of the draws that may vote otherwise when drawn again, for a decided input, whose batches are not the same, or
on a device, whose kernels need not repeat their sums. On the host, votes of a finished shard must be equal."""

BATCHES_AGAIN = 4
"""Number of batches, about, of one input drawn again to compare votes: all of them could take minutes."""

NOT_REPEATABLE = "not repeatable"
"""Recorded in place of the hash of a model's answers if it gave different logits for the same batch."""

Span = tuple[Stream, int, int]
"""Draws ``[start, stop)`` of a stream that share batches."""

OTHER_MODEL = "allowed_other_model"
"""The field of a record that says that the user allowed this model to go on with a run of another."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a model (hash of its answers, hashes of its weights, environment) and of its data (one hash)."""

    answers: str
    data: str
    weights: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the record of the model, for a manifest or a seal."""
        return {"answers": self.answers, "weights": dict(self.weights), "environment": dict(self.environment)}


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """The noisy batch that identifies a model; its noise is drawn on the host, so it is the same on every device."""

    spec: RunSpec
    ids: tuple[str, ...]
    x: Float32Array

    def answers(self, classifier: Classifier, threads: int | None = None, times: int = 1) -> str:
        """Return the hash of the logits, or NOT_REPEATABLE if they differ between several ``times``."""
        engine = self.spec.engine(classifier, threads, "philox")

        def logits(draws: int) -> tuple[str, int]:
            digest, values = hashlib.sha256(), set[float]()

            def take(rows: Float32Array) -> None:
                digest.update(np.ascontiguousarray(rows, dtype="<f4").tobytes())
                values.update(np.unique(rows)[: len(self.ids) * PROBE_DRAWS].tolist())

            requests = [Request(i, 0, draws) for i in range(len(self.ids))]
            engine.draw(self.x, self.ids, "selection", requests, keep=KeptScores(lambda logits: logits, take))
            return digest.hexdigest(), len(values)

        with engine.session():
            first, distinct = logits(PROBE_DRAWS)
            if distinct < len(self.ids) * PROBE_DRAWS:
                heard = {logits(HARD_LABEL_DRAWS)[0] for _ in range(times)}
            else:
                heard = {first, *(logits(PROBE_DRAWS)[0] for _ in range(times - 1))}
        return f"answers:{heard.pop()}" if len(heard) == 1 else NOT_REPEATABLE

    def record(self, classifier: Classifier, threads: int | None = None, times: int = 1) -> dict[str, Any]:
        """Return the record of a model in this process."""
        answers = self.answers(classifier, threads, times)
        return {"answers": answers, "weights": dict(classifier.files), "environment": environment(classifier)}


def probe_of(spec: RunSpec, dataset: Dataset) -> Probe:
    """Return the probe of a run."""
    places = sorted({round(i) for i in np.linspace(0, len(dataset) - 1, min(len(dataset), PROBE_INPUTS)).tolist()})
    part = dataset.select(ids=[dataset.ids[i] for i in places])
    return Probe(spec, part.ids, part.load(0, len(part)))


def identify(spec: RunSpec, executor: Executor, dataset: Dataset) -> tuple[Identity, Probe]:
    """Return the identity of an executor's model and of the data, and the probe; warn if the model does not repeat."""
    probe = probe_of(spec, dataset)
    record = executor.call(partial(probe.record, times=2))
    if record["answers"] == NOT_REPEATABLE:
        warnings.warn(
            "the model gives different logits for the same batch (a random layer, or sums in varying order): draws "
            "cannot be repeated, and another such model would not be noticed",
            BucklerWarning,
            stacklevel=2,
        )
    return Identity(data=data_hash(dataset, probe), **record), probe


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What a worker does with each block, after its model was compared with the run's.

    ``step`` yields draws from an engine, the record of the worker's model, a block's data, a folder and a sink.
    """

    probe: Probe
    identity: Identity
    step: Callable[..., Iterator[int]]
    allow_other_model: bool = False

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[ComputeBlock]:
        """Yield the function that computes a block; raise StoreError for another model than the run's."""
        expected, here = self.identity.as_dict(), self.probe.record(classifier, threads)
        if self.identity.answers == NOT_REPEATABLE:
            here["answers"] = NOT_REPEATABLE
        if not self.allow_other_model and not is_same(expected, here):
            raise StoreError(f"the workers run different models: {changes(expected, here, ('at one', 'at another'))}")
        engine = self.probe.spec.engine(classifier, threads)
        with engine.session():
            yield partial(self.step, engine, here)


def data_hash(dataset: Dataset, probe: Probe) -> str:
    """Return the hash of all ids and labels and of the values of the probed inputs."""
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-data-2")
    for i, name in enumerate(dataset.ids):
        label = "" if dataset.labels is None else int(dataset.labels[i])
        digest.update(f"{len(name)}:{name}={label};".encode("utf-8", "surrogatepass"))
    for row in probe.x:
        digest.update(content_id(row).encode())
    return f"data:{digest.hexdigest()}"


class Lookup:
    """Loads inputs by id and compares their values with recorded hashes; the index of ids is built once."""

    def __init__(self, dataset: Dataset, where: Path) -> None:
        """Take the data, and the folder or file that the recorded hashes come from."""
        self._dataset, self._where = dataset, where
        self._places = {name: i for i, name in enumerate(dataset.ids)}

    def places(self, ids: Sequence[str]) -> list[int]:
        """Return the positions of inputs in the data."""
        missing = next((name for name in ids if name not in self._places), None)
        if missing is not None:
            raise InvalidInput(f"data must hold every input of {str(self._where)!r}; it has no {missing!r}")
        return [self._places[name] for name in ids]

    def inputs(self, ids: Sequence[str], contents: Sequence[str] | None) -> Iterator[Float32Array]:
        """Yield inputs one by one; other values than those of the hashes are refused. Empty hashes are not compared."""
        chosen = self.places(ids)
        for start in range(0, len(chosen), AT_ONCE):
            part = chosen[start : start + AT_ONCE]
            if part == list(range(part[0], part[0] + len(part))):
                loaded = list(self._dataset.load(part[0], part[0] + len(part)))
            else:
                loaded = [self._dataset.load(place, place + 1)[0] for place in part]
            for i, x in enumerate(loaded, start):
                if contents is not None and contents[i] and content_id(x) != contents[i]:
                    raise InvalidInput(f"data is not that of {str(self._where)!r}: {ids[i]!r} has other values")
                yield x


def contents_hash(pairs: Iterable[tuple[str, str]]) -> str | None:
    """Return the hash of ids with the hashes of their inputs, in any order; None if one is not known."""
    known = sorted(pairs)
    if not all(content for _, content in known):
        return None
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-inputs-1")
    for name, content in known:
        digest.update(f"{len(name)}:{name}={content};".encode("utf-8", "surrogatepass"))
    return f"inputs:{digest.hexdigest()}"


def draw_again(
    where: Path,
    executor: Executor,
    spec: RunSpec,
    dataset: Dataset,
    position: int,
    group: range,
    spans: Sequence[Span],
    before: Mapping[Stream, IntArray],
    share: float = ROUNDING_SHARE,
) -> None:
    """Draw the spans of an input again; raise StoreError if its votes differ in more than ``share`` of the draws.

    ``group`` are the positions of the inputs that shared its batches: the same batches are made, and of them only those
    with a draw of this input. ``before`` are the votes of its first draws in each stream; further draws do not count.
    """
    ids, x = dataset.ids[group.start : group.stop], dataset.load(group.start, group.stop)
    counted = {stream: int(votes.sum()) for stream, votes in before.items()}
    made = executor.call(partial(_votes_again, spec, ids, x, position - group.start, spans, counted))
    for stream, then in before.items():
        moved = int(np.abs(made[stream] - then).sum()) // 2
        if moved > share * counted[stream]:
            raise StoreError(
                f"{str(where)!r} was drawn by another model, or with another number of threads: {moved:,} of "
                f"{counted[stream]:,} draws of input {dataset.ids[position]!r}, drawn again, have other votes; use "
                "another folder"
            )


def _votes_again(
    spec: RunSpec,
    ids: tuple[str, ...],
    x: Float32Array,
    row: int,
    spans: Sequence[Span],
    counted: Mapping[Stream, int],
    classifier: Classifier,
    threads: int | None,
) -> dict[Stream, IntArray]:
    """Return the votes ``[classes]`` of the input ``row`` of a group in each stream, of its first ``counted`` draws."""
    engine, size = spec.engine(classifier, threads), spec.batch_size
    found = {stream: np.zeros(spec.num_classes, dtype=np.int64) for stream in counted}
    with engine.session():
        for stream, start, stop in spans:
            n = stop - start
            first = row * n // size * size
            last = min(-(-(row + 1) * n // size) * size, len(ids) * n)
            parts = [(i, max(first - i * n, 0), min(last - i * n, n)) for i in range(first // n, -(-last // n))]
            requests = [Request(i, start + low, start + high) for i, low, high in parts]
            found[stream] += engine.draw(x, ids, stream, requests, checkpoints=(counted[stream], 2**62))[row, 0]
    return found


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records are of one model in one environment; names of weight files do not matter."""
    first, second = (
        (record["answers"], sorted(record["weights"].values()), record["environment"]) for record in (one, other)
    )
    return first == second


def changes(one: Mapping[str, Any], other: Mapping[str, Any], where: tuple[str, str] = ("then", "now")) -> str:
    """Return in words how two records differ."""
    found = []
    if NOT_REPEATABLE in {one["answers"], other["answers"]} and one["answers"] != other["answers"]:
        found.append("one of the two gives different logits for the same batch, the other does not")
    elif one["answers"] != other["answers"]:
        found.append("its logits for the same noisy inputs differ")
    known, now = one["weights"], other["weights"]
    if sorted(known.values()) != sorted(now.values()):
        names = sorted(name for name in now if now[name] not in known.values()) or sorted(known)
        found.append(f"its weights differ ({', '.join(names)})")
    if one["environment"] != other["environment"]:
        found.append(difference(one["environment"], other["environment"], where))
    return "; ".join(found)


def records_in(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of models under ``drawn_by`` in a manifest or a file's metadata, after checking them."""
    found = values.get("drawn_by")
    if not isinstance(found, list) or not found or not all(map(is_record, found)):
        raise DamagedEvidence(f"drawn_by must be a list of records of models; got {show(found)}")
    return found


def is_record(value: Any) -> bool:
    """Return whether a value read from a file is a record of a model."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("answers"), str)
        and all(
            isinstance(part := value.get(name), dict) and all(isinstance(item, str) for item in part.values())
            for name in ("weights", "environment")
        )
    )


def replayed_in(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of rows that were run again, and of those that gave other bits, under ``replayed``."""
    found = values.get("replayed")
    if isinstance(found, list) and len(found) == 2 and all(type(number) is int for number in found):
        return found[0], found[1]
    raise DamagedEvidence(f"replayed must be two whole numbers; got {show(found)}")


def admit(where: Path, known: Sequence[dict[str, Any]], record: dict[str, Any], allow: bool) -> dict[str, Any]:
    """Return the known record that equals a model's, or a new one if ``allow``; otherwise say what differs."""
    for entry in known:
        if is_same(entry, record):
            return entry
    if allow:
        return {**record, OTHER_MODEL: True}
    raise StoreError(
        f"{str(where)!r} was begun with another model: {changes(known[0], record)}; use another folder, or "
        "allow_other_model (--allow-other-model), which is recorded"
    )


@dataclass(frozen=True, slots=True)
class Provenance:
    """The models that drew a run or the rows of a file: records, each with its number of inputs.

    ``replayed`` counts rows that were run again at other places of a batch, and those of them that gave other bits.
    """

    records: tuple[tuple[Mapping[str, Any], int], ...]
    replayed: tuple[int, int] = (0, 0)

    def facts(self) -> dict[str, str]:
        """Return the versions and devices that drew the run, by name; with input counts where they differ."""
        names = dict.fromkeys(name for record, _ in self.records for name in record["environment"])
        return {name: self._values(name) for name in names}

    def sentence(self) -> str:
        """Return a sentence if several models drew the run, or one that does not repeat; else an empty text."""
        said = []
        if len(self.records) > 1:
            first = self.records[0][0]
            facts = [f"{name} {text}" for name, text in self.facts().items() if len(self._counts(name)) > 1]
            if any(record["weights"] != first["weights"] for record, _ in self.records):
                facts.insert(0, "other weights")
            if any(record["answers"] != first["answers"] for record, _ in self.records):
                facts.insert(0, "other logits for the same inputs")
            counts = ", ".join(f"{count:,}" for _, count in self.records)
            said.append(
                f"Drawn by {len(self.records)} models or environments ({counts} inputs), as the user allowed: "
                f"{'; '.join(facts)}. Each certificate is about the model that drew its input."
            )
        if any(record["answers"] == NOT_REPEATABLE for record, _ in self.records):
            said.append("The model gave different logits for the same batch.")
        if self.replayed[1]:
            compared, differed = self.replayed
            said.append(
                f"The model is NOT deterministic: {differed:,} of {compared:,} rows gave other logits when run again."
            )
        return " ".join(said)

    def as_dict(self) -> dict[str, Any]:
        """Return the models and the replayed rows as JSON for a file's metadata; ``provenance_from`` reads it."""
        records = [{**record, "count": count} for record, count in self.records]
        return {"drawn_by": records, "replayed": list(self.replayed)}

    def _counts(self, name: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for record, count in self.records:
            found[record["environment"].get(name, "unknown")] += count
        return found

    def _values(self, name: str) -> str:
        found = self._counts(name)
        if len(found) == 1:
            return next(iter(found))
        return ", ".join(f"{value} ({count:,} input{'s' * (count > 1)})" for value, count in found.items())


def provenance_of(parts: Sequence[tuple[Mapping[str, Any], int]], replayed: tuple[int, int] = (0, 0)) -> Provenance:
    """Return the models of pairs (record, number of inputs), each model once."""
    merged: list[tuple[Mapping[str, Any], int]] = []
    for record, count in parts:
        at = next((i for i, (known, _) in enumerate(merged) if is_same(known, record)), None)
        if at is None:
            merged.append((record, count))
        else:
            merged[at] = (merged[at][0], merged[at][1] + count)
    return Provenance(tuple(merged), replayed)


def provenance_from(values: Any) -> Provenance | None:
    """Return what ``Provenance.as_dict`` wrote, None for anything else."""
    try:
        records = records_in(values)
        pairs = [({k: v for k, v in record.items() if k != "count"}, int(record["count"])) for record in records]
        return provenance_of(pairs, replayed_in(values))
    except (AttributeError, KeyError, TypeError, ValueError, DamagedEvidence):
        return None


def environment(classifier: Classifier) -> dict[str, str]:
    """Return the library versions, the device and the instruction sets that a classifier's logits depend on."""
    found = {
        "buckler": _version("buckler"),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "instructions": _instructions(),
        "device": "cpu",
    }
    if classifier.backend == "torch":
        torch: Any = sys.modules["torch"]  # imported by whoever made the classifier
        cuda = classifier.device.startswith("cuda")
        found["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name(classifier.device) if cuda else classifier.device
        if not cuda:
            found["torch instructions"] = torch.backends.cpu.get_cpu_capability()
        if coarse := _coarse_products(torch, cuda):
            found["float32 products"] = coarse
    else:
        # A callable may call any of these libraries, so all that are installed count.
        known = ["onnxruntime", "scikit-learn", "torch"] if classifier.library is None else [classifier.library]
        for library in known:
            found[library] = _version(library)
    return found


def _coarse_products(torch: Any, cuda: bool) -> str:
    """Return the operations that may multiply float32 numbers with fewer bits (TF32); empty for none."""
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:  # raised where the flags of single backends differ
        matmul = (torch.backends.cuda if cuda else torch.backends.mkldnn).matmul.fp32_precision
    coarse = [] if matmul in {"highest", "ieee", "none"} else [f"matmul {matmul}"]
    if cuda and torch.backends.cudnn.allow_tf32:
        coarse.append("convolutions tf32")
    return ", ".join(coarse)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _instructions() -> str:
    """Return the instruction sets of this processor that NumPy's kernels choose between."""
    shown = np.show_config(mode="dicts")
    found = shown.get("SIMD Extensions", {}).get("found", []) if isinstance(shown, dict) else []
    return " ".join(map(str, found)) or "baseline"
