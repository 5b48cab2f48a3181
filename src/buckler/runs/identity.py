"""The identity of a run: its model, its environment and its data, which must be the same when the run goes on.

A model's record holds a hash of its logits for a few noisy copies of a few inputs (the probe), the hashes of its weight
files or fitted arrays, and the versions and device it runs with. Every file of the run holds it, and it must be the
same when the run goes on and in every worker; ``allow_other_model`` lets another model in. Data are identified by their
ids and labels and by the values of the probe's inputs; those of finished inputs are compared when the run goes on.
"""

import hashlib
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from buckler.errors import BucklerWarning, InvalidInput, StoreError, show
from buckler.runs.executor import ComputeBlock, Executor
from buckler.runs.spec import RunSpec, difference
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import KeptScores
from buckler.sampling.datasets import Dataset
from buckler.sampling.streams import Request, content_id
from buckler.types import Float32Array

PROBE_INPUTS = 8
"""Largest number of inputs in the probe; they lie evenly between the first and the last of the data."""

PROBE_DRAWS = 4
"""Number of noisy copies of each input of the probe."""

HARD_LABEL_DRAWS = 512
"""Noisy copies of each input of the probe for a model whose logits take few values, as hard labels do: 32 one-hot
rows of two similar models are often equal, 4,096 seldom are."""

AT_ONCE = 128
"""Number of inputs held in memory at once while their values are compared."""

NOT_REPEATABLE = "not repeatable"
"""Recorded in place of the hash of a model's logits if they differed for the same batch."""

Record = Mapping[str, Any]
"""Record of a model, as JSON: ``answers``, the hash of its logits, and ``weights`` and ``environment``, texts by
name."""


class Identity(NamedTuple):
    """Identity of a run: the record of its model, and the hash of its data."""

    record: Record
    data: str


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Noisy copies of a few inputs ``x``, whose logits identify a model; noise is the same on every device."""

    spec: RunSpec
    ids: tuple[str, ...]
    x: Float32Array

    def answers(self, classifier: Classifier, threads: int | None = None, times: int = 1) -> str:
        """Return the hash of a classifier's logits for the probe, as a text.

        The probe is run ``times`` times, and NOT_REPEATABLE comes back if the logits differ. ``threads`` make noise.
        """
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
        """Return the record of a classifier as it runs in this process; arguments are those of ``answers``."""
        answers = self.answers(classifier, threads, times)
        return {"answers": answers, "weights": dict(classifier.files), "environment": environment(classifier)}


def probe_of(spec: RunSpec, dataset: Dataset) -> Probe:
    """Return the probe of a run: up to ``PROBE_INPUTS`` inputs of its data."""
    places = sorted({round(i) for i in np.linspace(0, len(dataset) - 1, min(len(dataset), PROBE_INPUTS)).tolist()})
    part = dataset.select(ids=[dataset.ids[i] for i in places])
    return Probe(spec, part.ids, part.load(0, len(part)))


def identify(spec: RunSpec, executor: Executor, dataset: Dataset) -> tuple[Identity, Probe]:
    """Return the identity of a run, from its executor's model and its data, and the probe that it was found with.

    Warn if the model gives different logits for the same batch.
    """
    probe = probe_of(spec, dataset)
    record = executor.call(partial(probe.record, times=2))
    if record["answers"] == NOT_REPEATABLE:
        warnings.warn(
            "the model gives different logits for the same batch (a random layer, or sums in varying order): draws "
            "cannot be repeated, and another such model would not be noticed",
            BucklerWarning,
            stacklevel=2,
        )
    return Identity(record, data_hash(dataset, probe)), probe


@contextmanager
def begin(
    probe: Probe,
    expected: Record,
    step: Callable[..., Iterator[int]],
    allow_other_model: bool,
    classifier: Classifier,
    threads: int | None,
) -> Iterator[ComputeBlock]:
    """Yield the function that computes blocks in a worker; StoreError if its classifier's record is not ``expected``.

    ``allow_other_model`` lets another one through. A block is computed by ``step(engine, record, data, folder, sink)``,
    which yields numbers of draws; ``record`` is that of the worker's classifier.
    """
    here = probe.record(classifier, threads)
    if expected["answers"] == NOT_REPEATABLE:
        here["answers"] = NOT_REPEATABLE
    if not allow_other_model and not is_same(expected, here):
        raise StoreError(f"the workers run different models: {changes(expected, here, ('at one', 'at another'))}")
    engine = probe.spec.engine(classifier, threads)
    with engine.session():
        yield partial(step, engine, here)


def data_hash(dataset: Dataset, probe: Probe) -> str:
    """Return the hash of all ids and labels of the data, and of the values of the probe's inputs."""
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-data-2")
    for i, name in enumerate(dataset.ids):
        label = "" if dataset.labels is None else int(dataset.labels[i])
        digest.update(f"{len(name)}:{name}={label};".encode("utf-8", "surrogatepass"))
    for row in probe.x:
        digest.update(content_id(row).encode())
    return f"data:{digest.hexdigest()}"


class Lookup:
    """Loads inputs of a data set by their ids, and compares their values with hashes recorded in a run."""

    def __init__(self, dataset: Dataset, where: Path) -> None:
        """Take the data, and the path of the run or file that the hashes come from, for messages."""
        self._dataset, self._where = dataset, where
        self._places = {name: i for i, name in enumerate(dataset.ids)}

    def places(self, ids: Sequence[str]) -> list[int]:
        """Return the positions in the data of the inputs called ``ids``; InvalidInput if one is missing."""
        missing = next((name for name in ids if name not in self._places), None)
        if missing is not None:
            raise InvalidInput(f"data must hold every input of {str(self._where)!r}; it has no {missing!r}")
        return [self._places[name] for name in ids]

    def check(self, ids: Sequence[str], contents: Sequence[str]) -> None:
        """Raise InvalidInput if an input called ``ids[i]`` has other values than those hashed in ``contents[i]``."""
        for _ in self.inputs(ids, contents):
            pass

    def inputs(self, ids: Sequence[str], contents: Sequence[str] | None) -> Iterator[Float32Array]:
        """Yield the inputs called ``ids``; raise InvalidInput if the hash of one is not that in ``contents``.

        An input with an empty hash is not compared, and none is if ``contents`` is None.
        """
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


def is_same(one: Record, other: Record) -> bool:
    """Return whether two records are of one model in one environment; the names of weight files may differ."""
    first, second = (
        (record["answers"], sorted(record["weights"].values()), record["environment"]) for record in (one, other)
    )
    return first == second


def changes(one: Record, other: Record, where: tuple[str, str] = ("then", "now")) -> str:
    """Return in words how two records differ; ``where`` says in words which of the two is which."""
    found = []
    if one["answers"] != other["answers"]:
        found.append("its logits for the same noisy inputs differ")
    known, now = one["weights"], other["weights"]
    if sorted(known.values()) != sorted(now.values()):
        names = sorted(name for name in now if now[name] not in known.values()) or sorted(known)
        found.append(f"its weights differ ({', '.join(names)})")
    if one["environment"] != other["environment"]:
        found.append(difference(one["environment"], other["environment"], where))
    return "; ".join(found)


def records_in(values: Mapping[str, Any]) -> list[Record]:
    """Return the records of models under ``drawn_by`` in a file's metadata; InvalidInput if there are none."""
    found = values.get("drawn_by")
    if not isinstance(found, list) or not found or not all(map(is_record, found)):
        raise InvalidInput(f"drawn_by must be a list of records of models; got {show(found)}")
    return found


def is_record(value: Any) -> bool:
    """Return whether a value, read from a file, has the form of a model's record."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("answers"), str)
        and all(
            isinstance(part := value.get(name), dict) and all(isinstance(item, str) for item in part.values())
            for name in ("weights", "environment")
        )
    )


def replayed_in(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return two numbers, under ``replayed`` in a file's metadata: rows run again, and those with other logits then."""
    found = values.get("replayed")
    if isinstance(found, list) and len(found) == 2 and all(type(k) is int for k in found) and 0 <= found[1] <= found[0]:
        return found[0], found[1]
    raise InvalidInput(f"replayed must be two whole numbers; got {show(found)}")


def admit(where: Path, known: Sequence[Record], record: Record, allow: bool) -> Record:
    """Return the record with which a run at ``where`` goes on: the one of ``known`` that equals ``record``, or itself.

    StoreError if none is equal, unless there are none yet or ``allow`` (the user let another model in).
    """
    same = next((entry for entry in known if is_same(entry, record)), None)
    if same is None and known and not allow:
        raise StoreError(
            f"{str(where)!r} was begun with another model: {changes(known[0], record)}; use another "
            f"{'file' if where.is_file() else 'folder'}, or allow_other_model (--allow-other-model), which is recorded"
        )
    return record if same is None else same


class Provenance(NamedTuple):
    """What a reader is told of the models that drew: versions and devices by name, and a ``caution``, empty if none."""

    environment: dict[str, str]
    caution: str


def provenance(drawn: Iterable[tuple[Record, int]], replayed: tuple[int, int]) -> Provenance:
    """Return the versions and devices of the models that drew a run, and a caution in words for its reader.

    ``drawn`` holds pairs of a model's record and the number of inputs it drew; ``replayed`` holds the number of rows
    that were run again, and of those that then gave other logits.
    """
    records, counts = list[Record](), list[int]()
    for record, count in drawn:
        at = next((i for i, known in enumerate(records) if is_same(known, record)), len(records))
        if at == len(records):
            records.append(record)
            counts.append(0)
        counts[at] += count
    names = dict.fromkeys(name for record in records for name in record["environment"])
    values = {name: dict.fromkeys(record["environment"].get(name, "unknown") for record in records) for name in names}
    said = []
    if len(records) > 1:
        how = [changes(records[0], other, ("at first", "later")) for other in records[1:]]
        inputs = ", ".join(map(str, counts))
        said.append(
            f"Drawn by {len(records)} models or environments ({inputs} inputs), as the user allowed: "
            f"{'; then '.join(how)}. Each certificate is about the model that drew its input."
        )
    if any(record["answers"] == NOT_REPEATABLE for record in records):
        said.append("The model gave different logits for the same batch.")
    compared, differed = replayed
    if differed:
        said.append(
            f"The model is NOT deterministic: {differed:,} of {compared:,} rows gave other logits when run again."
        )
    return Provenance({name: ", ".join(found) for name, found in values.items()}, " ".join(said))


def environment(classifier: Classifier) -> dict[str, str]:
    """Return the versions of libraries, and the device, on which a classifier's logits depend, by name."""
    found = {"buckler": _version("buckler"), "numpy": np.__version__, "machine": platform.machine(), "device": "cpu"}
    if classifier.backend == "torch":
        torch: Any = sys.modules["torch"]  # imported by whoever made the classifier
        cuda = classifier.device.startswith("cuda")
        found["torch"] = torch.__version__
        found["device"] = torch.cuda.get_device_name(classifier.device) if cuda else classifier.device
        if coarse := coarse_products(torch, cuda):
            found["float32 products"] = coarse
    else:
        # A callable may call any of these libraries, so all that are installed count.
        known = ["onnxruntime", "scikit-learn", "torch"] if classifier.library is None else [classifier.library]
        for library in known:
            found[library] = _version(library)
    return found


def coarse_products(torch: Any, cuda: bool) -> str:
    """Return in words which operations of torch multiply float32 numbers with fewer bits (TF32); empty for none.

    ``cuda`` says whether the model runs on a CUDA device.
    """
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
