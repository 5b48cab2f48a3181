"""The classifier that settings name, on the executor that options name: what the drawing commands share."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from buckler.errors import InvalidInput, check_real
from buckler.runs.executors import Executor, open_executor
from buckler.runs.spec import RunSpec, from_dict
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset, open_dataset
from buckler.sampling.models import Architecture, resolve_model


def _build(name: str, num_classes: int) -> Any:
    from buckler.training.architectures import build

    return build(name, num_classes)


ARCHITECTURES: Mapping[str, Architecture] = {
    name: partial(_build, name) for name in ("resnet110", "resnet50", "resnet20", "small_conv")
}
"""The built-in networks by name; torch is loaded only when one is built."""

ExecutorOption = Annotated[str, typer.Option("--executor", help="process, or ray for the workers of a cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option(help="With ray: auto, HOST:PORT or ray://...  [default: a cluster of its own, on loopback]"),
]
WorkersOption = Annotated[int | None, typer.Option(help="With ray: workers.  [default: as many as there is room for]")]
GpusOption = Annotated[
    float | None, typer.Option("--gpus-per-worker", help="With ray: GPUs of each, 0.5 say.  [default: 1 on cuda]")
]


@dataclass(frozen=True, slots=True)
class Where:
    """Which executor was asked for."""

    executor: str = "process"
    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    any_environment: bool = False


def load_classifier(settings: Mapping[str, Any]) -> Classifier:
    """Return the classifier that settings name; in a worker too, so nothing but the settings travels."""
    draft = from_dict({"num_classes": 2, **settings})
    return resolve_model(
        draft.model,
        architectures=ARCHITECTURES,
        num_classes=settings.get("num_classes"),
        mean=draft.mean,
        std=draft.std,
        device=settings.get("device"),
        dtype=draft.dtype,
        channels_last=draft.channels_last,
        compile=draft.compile,
    )


@contextmanager
def prepared(settings: dict[str, Any], where: Where) -> Iterator[tuple[RunSpec, Executor, Dataset]]:
    """Yield the resolved specification, an executor that runs its classifier, and its data."""
    for name in ("model", "data", "sigma", "n"):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given, as an option or in the file of --spec")
    # Everything is checked before the model is loaded; two classes stand in where the number is not known yet.
    draft = from_dict({"num_classes": 2, **settings})
    on_cuda = draft.device.startswith("cuda")
    gpus = float(on_cuda) if where.gpus_per_worker is None else check_real("--gpus-per-worker", where.gpus_per_worker)
    if gpus < 0.0 or (where.executor != "ray" and where.gpus_per_worker is not None):
        raise InvalidInput(f"--gpus-per-worker must be at least 0, and with --executor ray; got {gpus:g}")
    with open_executor(
        where.executor,
        partial(load_classifier, settings),
        address=where.address,
        workers=where.workers,
        gpus_per_worker=gpus if where.executor == "ray" else 0.0,
        any_environment=where.any_environment,
    ) as executor:
        dataset = open_dataset(
            draft.data, labels=draft.labels, resize=draft.resize, crop=draft.crop, value_range=draft.value_range
        ).select(every=draft.every, limit=draft.limit, ids=draft.ids)
        runs = executor.describe()
        if runs.num_classes is None:
            raise InvalidInput(f"--num-classes must be given: it cannot be inferred from {draft.model!r}")
        kind = runs.device.split(":")[0]
        defaults = {"batch_size": 2048, "noise": "cuda"} if kind == "cuda" else {}
        yield from_dict({**defaults, **settings, "num_classes": runs.num_classes, "device": kind}), executor, dataset
