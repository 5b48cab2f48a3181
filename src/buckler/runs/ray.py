"""Runs blocks in actors on a Ray cluster.

Ray supervises the actors: it restarts one that died, on another node if need be. Each actor loads the classifier
itself; results and files travel to this process.
"""

import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, WorkerLost, check_whole
from buckler.files import usable_cores
from buckler.runs.executor import Executor, Work
from buckler.sampling.classifiers import Classifier
from buckler.session import Sink

RESTARTS, TRIES = 100, 5
"""Times that Ray restarts a worker, and times that a block may lose its worker before it is taken to be the cause."""

LOCAL = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment of a cluster started here, unless set: Ray makes a token, and listens on loopback alone."""

ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # drops the messages of workers that Ray prints on stdout
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning
}


class _Worker:
    """Actor with one classifier, loaded when it is first needed."""

    def __init__(self, load: Callable[[], Classifier], home: str) -> None:
        self._load, self._stack, self._job = load, ExitStack(), 0
        self._classifier: Classifier | None = None
        if Path(home).is_dir():
            os.chdir(home)  # relative names of models refer to the folder of the command

    def call(self, function: Callable[[Any, int], Any]) -> Any:
        if self._classifier is None:
            self._classifier = self._load()
        return function(self._classifier, 1)

    def run(self, job: int, work: Work, data: Any, seconds: float) -> tuple[int, list[Any], dict[str, Any]]:
        """Return draws, results and files of a block, or of the part of it that these seconds allow."""
        if job != self._job:
            self._stack.close()
            self._step, self._job = self._stack.enter_context(self.call(work.begin)), job
        drawn, results, deadline = 0, list[Any](), time.monotonic() + seconds
        with tempfile.TemporaryDirectory(prefix="buckler-") as folder:
            with closing(self._step(data, Path(folder), results.append)) as draws:
                for count in draws:
                    drawn += count
                    if time.monotonic() > deadline:
                        break
            return drawn, results, {p.name: np.fromfile(p, dtype=np.uint8) for p in Path(folder).iterdir() if results}


class RayExecutor(Executor):
    """Runs blocks in actors; made by ``open_ray``."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self.width, self._ray, self._idle, self._jobs = len(actors), ray, list[Any](), 0
        # The actor of each call, and the data of its block with the number of workers that it lost.
        self._calls: dict[Any, tuple[Any, Any]] = {actor.call.remote(_ready): (actor, None) for actor in actors}

    def call(self, function: Any) -> Any:
        """Return what a function of a worker's classifier and its threads returns."""
        while not self._idle:
            list(self._finished())
        return self._get(self._idle[0].call.remote(function))

    def run(
        self, work: Work, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf
    ) -> Iterator[int]:
        """Give each block to an idle actor, and hand on its results when it has ended."""
        self._jobs += 1
        sent, left = self._ray.put(work), ((data, 0) for data in blocks)
        while True:
            block = next(left, None) if self._idle and time.monotonic() < deadline else None
            if block is not None:
                actor = self._idle.pop(0)
                run = actor.run.options(max_task_retries=0)  # the block goes to whoever is idle
                call = run.remote(self._jobs, sent, block[0], deadline - time.monotonic())
                self._calls[call] = actor, block
                continue
            if self._idle and all(block is None for _, block in self._calls.values()):
                return
            for came, (data, lost) in self._finished():
                if came is None:
                    if lost + 1 == TRIES:
                        raise WorkerLost(f"{TRIES} workers died at one block; it may need more memory than they have")
                    left = chain([(data, lost + 1)], left)  # type: ignore[assignment]
                    continue
                drawn, results, files = came
                for name, content in files.items():
                    content.tofile(folder / Path(name).name)
                yield drawn
                for result in results:
                    sink(result)
            yield 0

    def _finished(self) -> Iterator[tuple[Any, Any]]:
        """Wait at most a second for actors; yield what they returned, None if one died, with the block."""
        for call in self._ray.wait(list(self._calls), timeout=1.0)[0]:
            actor, block = self._calls.pop(call)
            try:
                came = self._get(call)
            except WorkerLost:
                if block is None:
                    raise
                self._calls[actor.call.remote(_ready)] = actor, None  # it returns once Ray has restarted the actor
                yield None, block
                continue
            self._idle.append(actor)
            if block is not None:
                yield came, block

    def _get(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as problem:
            raise problem.cause or problem from None
        except self._ray.exceptions.RayError as problem:
            raise WorkerLost(f"a worker died and cannot be restarted: {str(problem)[:300]}") from None


def _ready(_: Classifier, __: int | None) -> None:
    """Do nothing: an actor that runs this has loaded its classifier."""


@contextmanager
def open_ray(
    load: Callable[[], Classifier], address: str | None = None, workers: int | None = None, gpus_per_worker: float = 0.0
) -> Iterator[RayExecutor]:
    """Yield an executor on the cluster at an address, or on one started here and stopped at the end.

    A cluster started here listens on loopback alone; its files are in a private folder, removed at the end.
    """
    wanted = None if workers is None else check_whole("workers", workers, 1, 100_000)
    added = {key: value for key, value in {**ALWAYS, **({} if address else LOCAL)}.items() if key not in os.environ}
    with ExitStack() as stack:
        stack.callback(lambda: [os.environ.pop(key, None) for key in added])
        os.environ.update(added)
        variables = {key: os.environ[key] for key in ("OMP_NUM_THREADS", "PYTHONPATH") if key in os.environ}
        where: dict[str, Any] = {"address": address}
        if address is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            variables["TMPDIR"] = folder
            where = {
                "address": "local", "num_cpus": wanted or usable_cores(), "include_dashboard": False,
                "_node_ip_address": "127.0.0.1", "_temp_dir": f"{folder}/r",  # Ray makes it 0777
            }  # fmt: skip
        ray = _connect(where)
        stack.callback(ray.shutdown)
        there = ray.cluster_resources()
        if address is None and gpus_per_worker > there.get("GPU", 0.0):
            raise InvalidInput(f"gpus_per_worker must be at most {there.get('GPU', 0.0):g} here; got {gpus_per_worker}")
        room = there.get("GPU", 0.0) / gpus_per_worker if gpus_per_worker else there.get("CPU", 1.0)
        actor = ray.remote(
            num_cpus=0 if gpus_per_worker else 1, num_gpus=gpus_per_worker, max_restarts=RESTARTS, max_task_retries=-1,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", **variables}},
        )(_Worker)  # fmt: skip
        yield RayExecutor(ray, [actor.remote(load, str(Path.cwd())) for _ in range(wanted or max(1, int(room)))])


def _connect(where: dict[str, Any]) -> Any:
    """Return the ray module, connected; the umask is private meanwhile, and SIGTERM keeps its handler."""
    handler, mask = signal.getsignal(signal.SIGTERM), os.umask(0o077)
    try:
        import ray

        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    except (OSError, ValueError, RuntimeError) as problem:
        at = where["address"]
        what = "Ray cannot be started" if at == "local" else f"address must be that of a Ray cluster; {at!r} gave"
        raise InvalidInput(f"{what}: {str(problem)[:300]}") from None
    finally:
        os.umask(mask)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    return ray
