"""A run in a process of its own, to be killed: ``python victim.py FOLDER [shards before a pause]``."""

import sys
import time
from typing import Any

import numpy as np

from buckler.runs.sample import Progress, sample
from buckler.runs.spec import RunSpec
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.types import AnyArray

WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def linear(batch: AnyArray) -> AnyArray:
    """A small linear classifier."""
    return batch.reshape(len(batch), -1) @ WEIGHTS


def spec(**changes: Any) -> RunSpec:
    """The run of these tests: 40 digits in shards of 4, with scores."""
    settings: dict[str, Any] = {
        "model": "victim:linear", "data": "digits", "sigma": 0.25, "num_classes": 10, "n": 400, "n0": 50, "limit": 40,
        "shard_inputs": 4, "scores": "softmax", "runner_ups": 2, "batch_size": 256,
    }  # fmt: skip
    return RunSpec(**{**settings, **changes})


def run(folder: str, **options: Any) -> Any:
    """Sample into a folder."""
    made = options.pop("spec", spec())
    data = open_dataset("digits").select(limit=made.limit)
    return sample(made, as_classifier(linear, num_classes=10), data, folder, **options)


def _slow(progress: Progress) -> None:
    del progress
    time.sleep(0.02)


if __name__ == "__main__":
    print("ready", flush=True)
    run(sys.argv[1], progress=_slow)
