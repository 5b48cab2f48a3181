"""Settings -> what a run needs: its specification, an executor that runs its classifier, and its data.

Settings are the fields of a ``RunSpec`` by name, from a TOML file (``read_settings``), from a program, or both;
``open_run`` fills in those left out, from the model and its device.
"""

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from buckler.errors import BucklerWarning, DamagedEvidence, InvalidInput, check_choice, check_real
from buckler.files import read_text
from buckler.noise.gaussian import LARGEST_DEVIATION
from buckler.runs.executor import Executor, open_ray
from buckler.runs.spec import RunSpec, from_dict, read_toml
from buckler.runs.store.folder import MANIFEST, read_manifest
from buckler.runs.store.tables import read_origin
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset, open_dataset
from buckler.sampling.models import resolve_model
from buckler.sampling.streams import seed_of
from buckler.types import Float32Array

LARGEST_TOML = 16 << 20
"""Largest size of a file of settings in bytes: it may name a million inputs."""

LONGEST_BATCH = 2.0
"""Longest time that a batch may take on a processor, in seconds, if its size is not given: draws are saved by
batches."""

BATCH_ON_CUDA = 2048
"""Default number of rows (noisy copies) in a batch on a CUDA device."""

COMPILING = 1.5
"""A larger batch is timed again if it takes this many times as long as its rows did before: the model may have compiled
for its size. Heuristic: affects forecasts and the default size of batches, not validity."""

QUICK = 0.25
"""Seconds for which the speed of a model is measured by default; a batch that takes longer is finished."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """Where a run is computed: ``executor`` is ``process`` (this one) or ``ray``; the other fields are for ray alone.

    ``address`` is that of the cluster (None: one is started), with so many ``workers`` and GPUs for each.
    """

    executor: str = "process"
    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None


class OpenRun(NamedTuple):
    """A run that is ready to draw: its specification, an executor that runs its classifier, and its data."""

    spec: RunSpec
    executor: Executor
    dataset: Dataset


def read_settings(path: str | Path, name: str = "spec") -> dict[str, Any]:
    """Return the settings in the TOML file at ``path``, by name; an error calls the file ``name``."""
    try:
        return read_toml(read_text(Path(path), LARGEST_TOML))
    except (OSError, ValueError) as problem:
        raise InvalidInput(f"{name} must be a readable TOML file; got {str(path)!r} ({problem})") from None


def settings_from(
    path: str | Path | None, given: Mapping[str, Any], known: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the settings in the TOML file at ``path``, if not None; those in ``given`` that are not None replace them.

    A name that is not in ``known``, if that is given, raises InvalidInput.
    """
    merged = {} if path is None else read_settings(path)
    if given.get("noise") is not None:
        merged.pop("noise_parameters", None)  # those of the file's own noise
    merged |= {name: value for name, value in given.items() if value is not None}
    unknown = [] if known is None else sorted(merged.keys() - set(known))
    if unknown:
        raise InvalidInput(f"there is no setting {unknown[0]!r}; there are {', '.join(known or ())}")
    return merged


def load_classifier(draft: RunSpec, num_classes: int | None, device: str | None) -> Classifier:
    """Return the classifier that a specification names, on ``device``; ``draft`` may lack what the model will tell.

    ``num_classes`` and ``device`` are None where the settings leave them out. Workers call this too.
    """
    return resolve_model(
        draft.model,
        denoiser=draft.denoiser,
        sigma=draft.sigma,
        num_classes=num_classes,
        mean=draft.mean,
        std=draft.std,
        device=device,
        dtype=draft.dtype,
        channels_last=draft.channels_last,
        compile=draft.compile,
    )


@contextmanager
def open_run(
    settings: Mapping[str, Any], where: ExecutorOptions | None = None, out: Path | None = None
) -> Iterator[OpenRun]:
    """Yield the run of these settings, ready to draw: specification, executor and data.

    ``where`` says where to compute; this process by default. With ``fresh_seed`` the seed is drawn from the operating
    system once the model is loaded. Where a batch of the usual size would take longer than two seconds on a processor,
    a smaller one is chosen. ``out`` is where the run is kept, a folder of evidence or a file of decisions: if it was
    begun before, the seed drawn and the size chosen then are taken again.

    ``with open_run(settings) as run: sample(run.spec, run.executor, run.dataset, folder)`` is the command ``sample``.
    """
    # Everything is checked before the model is loaded; two classes stand in where the number is not known yet.
    draft = from_dict({"num_classes": 2, **settings})
    if draft.fresh_seed and "seed" in settings:
        raise InvalidInput(
            f"seed and fresh_seed exclude one another: nobody knows a fresh seed beforehand; got seed {draft.seed}"
        )
    load = partial(load_classifier, draft, settings.get("num_classes"), settings.get("device"))
    with _open_executor(where or ExecutorOptions(), load, draft.device.startswith("cuda")) as executor:
        dataset = open_dataset(
            draft.data,
            labels=draft.labels,
            resize=draft.resize,
            crop=draft.crop,
            value_range=draft.value_range,
            noise=draft.noise,
        ).select(every=draft.every, limit=draft.limit, ids=draft.ids)
        width = dataset.high - dataset.low
        if draft.sigma is not None and width < draft.sigma <= LARGEST_DEVIATION:
            warnings.warn(
                f"sigma {draft.sigma:g} is larger than the range of the inputs, {dataset.low:g} to {dataset.high:g}: "
                "sigma and radii are in the units of the inputs, whose range value_range declares",
                BucklerWarning,
                stacklevel=3,
            )
        num_classes, device = executor.call(_describe)
        if num_classes is None:
            raise InvalidInput(f"num_classes must be given: it cannot be inferred from {draft.model!r}")
        kind = device.split(":")[0]
        filled = {"num_classes": num_classes, "device": kind}
        begun = _begun(out) if draft.fresh_seed or "batch_size" not in settings else {}
        if draft.fresh_seed:
            filled["seed"] = begun["seed"] if begun.get("fresh_seed") is True else seed_of(None)
        generator = "cuda" if draft.noise.draws == "gaussian" else "philox"
        usual = {"batch_size": BATCH_ON_CUDA, "generator": generator} if kind == "cuda" else {}
        spec = from_dict({**usual, **settings, **filled})
        if kind == "cpu" and "batch_size" not in settings:
            if "batch_size" in begun:
                spec = replace(spec, batch_size=begun["batch_size"])
            else:
                fitting = max(1, int(measure_rate(spec, executor, dataset) / executor.width * LONGEST_BATCH))
                if fitting < spec.batch_size:
                    spec = replace(spec, batch_size=1 << fitting.bit_length() - 1)
        yield OpenRun(spec, executor, dataset)


def _open_executor(
    where: ExecutorOptions, load: Callable[[], Classifier], on_cuda: bool
) -> AbstractContextManager[Executor]:
    """Return a context manager of the executor that was asked for, after checking the options."""
    check_choice("executor", where.executor, ("process", "ray"))
    gpus = where.gpus_per_worker
    if where.executor == "process":
        if (where.address, where.workers, gpus) != (None, None, None):
            raise InvalidInput("address, workers and gpus_per_worker are for the executor 'ray'; got 'process'")
        return nullcontext(Executor(load()))
    if gpus is not None and check_real("gpus_per_worker", gpus) < 0.0:
        raise InvalidInput(f"gpus_per_worker must be at least 0; got {gpus:g}")
    return open_ray(load, where.address, where.workers, float(on_cuda) if gpus is None else gpus)


def measure_rate(spec: RunSpec, executor: Executor, dataset: Dataset, seconds: float = QUICK) -> float:
    """Return how many draws a second all workers make together: one worker's speed on the first input, times workers.

    Measuring takes about ``seconds``.
    """
    return float(executor.width * executor.call(partial(_rate, spec, dataset.ids[:1], dataset.load(0, 1), seconds)))


def _rate(
    spec: RunSpec, ids: Sequence[str], x: Float32Array, seconds: float, classifier: Classifier, threads: int | None
) -> float:
    engine, rows, each = spec.engine(classifier, threads), 1, inf
    most = spec.noise.total or (spec.batch_size if seconds <= QUICK else inf)

    def time_of(rows: int) -> float:
        began = time.monotonic()
        engine.votes(x, ids, "selection", rows)
        return max(time.monotonic() - began, 1e-6)

    with engine.session():
        time_of(1)  # the first call may load or compile
        end = time.monotonic() + seconds
        while True:
            took = time_of(rows)
            if took > COMPILING * rows * each:
                took = min(took, time_of(rows))
            each = took / rows
            larger = int(min(8 * rows, (end - time.monotonic()) / each, most))
            if larger <= rows:
                return 1.0 / each
            rows = larger


def _describe(classifier: Classifier, _: int | None) -> tuple[int | None, str]:
    return classifier.num_classes, classifier.device


def _begun(out: Path | None) -> Mapping[str, Any]:
    """Return the fields of the specification in a run folder or file begun earlier; {} if none can be read."""
    with suppress(DamagedEvidence):  # whoever goes on with it refuses or repairs it
        if out is not None and (out / MANIFEST).is_file():
            return read_manifest(out)[1].as_dict()
        found = read_origin(out).get("spec") if out is not None and out.is_file() else None
        return found if isinstance(found, dict) else {}
    return {}
