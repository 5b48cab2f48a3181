"""The run of these tests, a process that begins it and is killed in a chosen place, and files forged with a seal."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.parquet import read_table_origin, write_table
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import open_dataset
from buckler.types import AnyArray
from tests.killing import arm, drawing

WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def linear(batch: AnyArray) -> AnyArray:
    """A small linear classifier."""
    drawing()
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


def serve(folder: str) -> None:
    """Read places from stdin, one a line: run in a child that is killed there, and print how it ended.

    The child is a fork, since starting an interpreter and importing what reads the digits takes longer than the run.
    """
    open_dataset("digits")
    for place in sys.stdin:
        child = os.fork()
        if child == 0:
            arm(place.strip())
            run(folder)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def rewrite(path: Path, table: pa.Table) -> None:
    """Put a table in the place of another, with that one's origin and a digest of its own rows."""
    write_table(path, table.replace_schema_metadata(None), read_table_origin(path, row_bytes=1 << 22))
