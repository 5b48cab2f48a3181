"""How cost grows: workers, overhead of Ray, memory of the driver, and certifying a million inputs.

    python benchmarks/scaling.py workers      # time and memory with 1 and 2 workers, predicted for 8, 64 and 512 GPUs
    python benchmarks/scaling.py overhead     # Ray's share of a block of a second
    python benchmarks/scaling.py memory       # the driver's memory against the number of inputs, a trivial model
    python benchmarks/scaling.py certify      # a run on disk -> certificates, by number of inputs

The model of ``workers`` and ``overhead`` sleeps for a fixed time a batch, as a device would keep a worker waiting; so
two workers on one core measure what Buckler and Ray add, not what the processor shares.
"""

import argparse
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from buckler.runs.certify import certify_evidence
from buckler.runs.executor import Executor, open_ray
from buckler.runs.identity import Identity
from buckler.runs.sample import SECONDS, sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import open_writer
from buckler.runs.store.shard import Shard
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.datasets import Dataset
from buckler.types import AnyArray

Result = TypeVar("Result")

IMAGENET = 50_000 * 100_100
"""Draws of the ImageNet validation set at n = 100,000."""


class Device:
    """A model that takes ``seconds`` for each batch, whatever is in it."""

    def __init__(self, seconds: float) -> None:
        """Take so long."""
        self.seconds = seconds

    def __call__(self, batch: AnyArray) -> AnyArray:
        """Return the first two numbers of each row."""
        time.sleep(self.seconds)
        return np.asarray(batch.reshape(len(batch), -1)[:, :2])


def load(seconds: float) -> Classifier:
    """Return the classifier of a worker."""
    return as_classifier(Device(seconds), num_classes=2)


def simulated(inputs: int) -> Dataset:
    """Return inputs that are made when they are asked for."""

    def loader(where: object) -> AnyArray:
        return np.asarray([[i % 7 / 7.0, i % 5 / 5.0] for i in where], dtype=np.float32)  # type: ignore[attr-defined]

    return Dataset(tuple(map(str, range(inputs))), None, loader)


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(spec: RunSpec, inputs: int, kind: str, workers: int | None, seconds: float) -> tuple[float, int, float]:
    """Return seconds of drawing, blocks and the driver's memory of one run, without the start of the workers."""
    with (
        tempfile.TemporaryDirectory() as home,
        open_ray(partial(load, seconds), workers=workers)
        if kind == "ray"
        else nullcontext(Executor(load(seconds))) as executor,
    ):
        executor.call(lambda classifier, _: classifier.num_classes)  # a worker has loaded it
        time.sleep(0.0 if workers is None else 3.0)  # the other workers start
        summary = sample(spec, executor, simulated(inputs), Path(home) / "run")
        return summary.seconds, summary.shards, peak()


def workers_table() -> None:
    """Print time and memory with 1 and 2 workers, and what follows for more."""
    spec = RunSpec(model="m", data="d", sigma=1.0, num_classes=2, n=3900, n0=100, batch_size=400, shard_inputs=1)
    batch = 0.05
    print(f"{'workers':>8} {'blocks':>7} {'seconds':>8} {'a block':>8} {'speed-up':>9} {'driver MB':>10}")
    base = added = 0.0
    for workers in (1, 2):
        seconds, blocks, memory = timed(spec, 24, "ray", workers, batch)
        base = base or seconds
        added = max(added, seconds * workers / blocks - 10 * batch)
        print(
            f"{workers:>8} {blocks:>7} {seconds:>8.2f} {seconds / blocks:>8.3f} {base / seconds:>9.2f} {memory:>10.0f}"
        )
    rate, block = 24_000.0, SECONDS
    print(f"\npredicted for {IMAGENET:,} draws at {rate:,.0f} a second a GPU, blocks of {block:.0f} s,")
    print(f"{added * 1000:.0f} ms added to each block by everything else, and a last block that others wait for:")
    print(f"{'GPUs':>8} {'hours':>8} {'speed-up':>9}")
    one = IMAGENET / rate
    for count in (1, 8, 64, 512):
        rounds = math.ceil(one / block / count)
        hours = rounds * (block + added) / 3600
        print(f"{count:>8} {hours:>8.2f} {one / 3600 / hours:>9.1f}")


def overhead_table() -> None:
    """Print what a block of a second takes on Ray over what it takes in this process."""
    spec = RunSpec(model="m", data="d", sigma=1.0, num_classes=2, n=3900, n0=100, batch_size=400, shard_inputs=1)
    here, blocks, _ = timed(spec, 12, "process", None, 0.1)
    there, _, _ = timed(spec, 12, "ray", 1, 0.1)
    print(f"blocks of 1 s: {here / blocks:.3f} s in process, {there / blocks:.3f} s on Ray: {there / here - 1:+.1%}")


def memory_table(largest: int) -> None:
    """Print the driver's memory for growing numbers of inputs."""
    print(f"{'inputs':>9} {'seconds':>8} {'peak MB':>8} {'ids alone, MB':>14}")
    inputs = 1000
    while inputs <= largest:
        spec = RunSpec(model="m", data="d", sigma=1.0, num_classes=2, n=2, n0=1, batch_size=3000, shard_inputs=1000)
        seconds, _, memory = _apart(partial(timed, spec, inputs, "process", None, 0.0))
        print(f"{inputs:>9,} {seconds:>8.1f} {memory:>8.0f} {_apart(partial(_ids_alone, inputs)):>14.0f}", flush=True)
        inputs *= 10


def _ids_alone(inputs: int) -> float:
    kept = simulated(inputs)
    return peak() if len(kept) else 0.0


def certify_table(largest: int, method: str) -> None:
    """Print the time from a folder to certificates."""
    print(f"{'inputs':>9} {'shards':>7} {'MB':>6} {'open + read':>12} {'certify':>8} {'peak MB':>8}   method {method}")
    inputs = 1000
    while inputs <= largest:
        with tempfile.TemporaryDirectory() as home:
            write_run(Path(home) / "run", inputs)
            size = sum(p.stat().st_size for p in (Path(home) / "run").rglob("*")) / 1e6
            read, whole, memory = _apart(partial(_certified, Path(home) / "run", method))
        print(f"{inputs:>9,} {inputs // 1000:>7} {size:>6.0f} {read:>12.1f} {whole:>8.1f} {memory:>8.0f}", flush=True)
        inputs *= 10


def _certified(root: Path, method: str) -> tuple[float, float, float]:
    start = time.perf_counter()
    open_evidence(root).counts()
    middle = time.perf_counter()
    certify_evidence(open_evidence(root), method=method)
    return middle - start, time.perf_counter() - middle, peak()


def write_run(root: Path, inputs: int, block: int = 1000) -> None:
    """Write a run of made-up votes: ten classes, a thousand draws."""
    spec = RunSpec(model="m", data="d", sigma=0.5, num_classes=10, n=1000, n0=100, shard_inputs=block)
    rng = np.random.default_rng(0)
    steps = np.diff([0, *spec.checkpoints])
    record = {"answers": "c", "weights": {}, "environment": {}}
    with open_writer(root, spec, Identity(record, "d"), inputs=inputs) as writer:
        for number in range(inputs // block):
            top = rng.uniform(0.3, 1.0, (block, 1))
            shares = np.concatenate([top, (1.0 - top) * rng.dirichlet(np.full(9, 0.3), block)], axis=1)
            counts = np.cumsum([rng.multinomial(step, shares) for step in steps], axis=0).transpose(1, 0, 2)
            ids = tuple(str(number * block + i) for i in range(block))
            hashes = tuple(f"{number * block + i:032x}" for i in range(block))
            labels = np.zeros(block, dtype=np.int64)
            selection = rng.multinomial(100, shares)
            writer.append(number * block, Shard(ids, labels, hashes, selection, counts, None, 512, drawn_by=record))


def _apart(work: Callable[[], Result]) -> Result:
    """Return what ``work`` returns in a fresh process, whose memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work)


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("workers", "overhead", "memory", "certify"))
    parser.add_argument("--largest", type=int, default=1_000_000, help="inputs in the last row of memory and certify")
    parser.add_argument("--method", default="exact", help="method of certify")
    options = parser.parse_args()
    if options.table == "workers":
        workers_table()
    elif options.table == "overhead":
        overhead_table()
    elif options.table == "memory":
        memory_table(options.largest)
    else:
        certify_table(options.largest, options.method)


if __name__ == "__main__":
    main()
