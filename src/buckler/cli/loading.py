"""Settings -> the specification, classifier and data of a run, for the commands that draw."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from buckler.errors import InvalidInput
from buckler.runs.spec import RunSpec, from_dict
from buckler.sampling.classifiers import Classifier
from buckler.sampling.datasets import Dataset, open_dataset
from buckler.sampling.models import Architecture, resolve_model

BATCH_SIZE, CUDA_BATCH_SIZE = 512, 2048


def _build(name: str, num_classes: int) -> Any:
    from buckler.training.architectures import build

    return build(name, num_classes)


ARCHITECTURES: Mapping[str, Architecture] = {
    name: partial(_build, name) for name in ("resnet110", "resnet50", "resnet20", "small_conv")
}
"""The built-in networks by name; torch is loaded only when one is built."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A specification with everything decided, and what it names."""

    spec: RunSpec
    classifier: Classifier
    dataset: Dataset


def load_run(settings: Mapping[str, Any]) -> Loaded:
    """Return what the settings describe; classes, batch size and noise are filled in where they are left open."""
    for name in ("model", "data", "sigma", "n"):
        if name not in settings:
            raise InvalidInput(f"--{name} must be given, as an option or in the file of --spec")
    # Everything is checked before the model is loaded; two classes stand in where the number is not known yet.
    draft = from_dict({"num_classes": 2, **settings})
    classifier = resolve_model(
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
    if classifier.num_classes is None:
        raise InvalidInput(f"--num-classes must be given: it cannot be inferred from {draft.model!r}")
    kind = classifier.device.split(":")[0]
    defaults = {
        "batch_size": CUDA_BATCH_SIZE if kind == "cuda" else BATCH_SIZE,
        "noise": "cuda" if kind == "cuda" else "philox",
    }
    spec = from_dict({**defaults, **settings, "num_classes": classifier.num_classes, "device": kind})
    dataset = open_dataset(
        spec.data, labels=spec.labels, resize=spec.resize, crop=spec.crop, value_range=spec.value_range
    ).select(every=spec.every, limit=spec.limit, ids=spec.ids)
    return Loaded(spec, classifier, dataset)
