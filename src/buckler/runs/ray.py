"""Runs the blocks of a job in actors on a Ray cluster.

Ray supervises the actors: it restarts one that died, on another node if need be. Each actor loads the classifier
itself; results and files travel to this process.
"""

import logging
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, WorkerLost, check_whole
from buckler.files import usable_cores
from buckler.runs.executor import Description, Executor, Job, OutOfTime, StepContext, describe
from buckler.sampling.classifiers import Classifier

RESTARTS = 100
"""Times that Ray restarts a worker that died."""

TRIES = 5
"""Times that a block may lose its worker before it is taken to be the cause."""

LOCAL = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment of a cluster started here, unless set: Ray makes a token, and listens on loopback alone."""

ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$",  # drops the messages of workers that Ray prints on stdout
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning
}
"""Environment of every use of Ray, unless set."""


class _Worker:
    """Actor with one classifier, loaded by ``describe``."""

    def __init__(self, load: Callable[[], Classifier], home: str) -> None:
        self._load, self._stack, self._job = load, ExitStack(), 0
        if Path(home).is_dir():
            os.chdir(home)  # relative names of models refer to the folder of the command

    def describe(self) -> Description:
        self._classifier = self._load()
        return describe(self._classifier)

    def run(self, job: int, work: Any, item: Any, seconds: float) -> tuple[int, list[Any], dict[str, Any]]:
        """Return draws, results and files of a block, or of the part of it that these seconds allow."""
        if job != self._job:
            self._stack.close()
            self._step, self._job = self._stack.enter_context(work(self._classifier, 1)), job
        drawn, results, deadline = list[int](), list[Any](), time.monotonic() + seconds

        def tick(draws: int) -> None:
            drawn.append(draws)
            if time.monotonic() > deadline:
                raise OutOfTime

        with tempfile.TemporaryDirectory(prefix="buckler-") as folder:
            with suppress(OutOfTime):
                self._step(item, StepContext(Path(folder), tick, results.append))
            files = {path.name: np.fromfile(path, dtype=np.uint8) for path in Path(folder).iterdir() if results}
        return sum(drawn), results, files


class RayExecutor(Executor):
    """Runs blocks in actors; made by ``open_ray``."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self.width, self._ray, self._jobs = len(actors), ray, 0
        self._idle, self._seen = list[Any](), list[Description]()
        self._calls = {actor.describe.remote(): (actor, -1) for actor in actors}  # calls to actors, and their blocks

    def describe(self) -> Description:
        """Return the description of the first actor that is ready."""
        while not self._seen:
            list(self._collect())
        return self._seen[0]

    def run(self, job: Job) -> None:
        """Give each block to an idle actor, and hand on its results when it has ended."""
        self._jobs += 1
        work, blocks, lost = self._ray.put(job.work), iter(job.blocks), Counter[int]()
        end = float("inf") if job.deadline is None else job.deadline
        while True:
            block = next(blocks, None) if self._idle and time.monotonic() < end else None
            if block is not None:
                step = self._idle[0].run.options(max_task_retries=0)
                call = step.remote(self._jobs, work, job.fetch(block), end - time.monotonic())
                self._calls[call] = (self._idle.pop(0), block)
                continue
            if self._idle and all(number == -1 for _, number in self._calls.values()):
                return
            for block, came in self._collect():
                if came is None:
                    lost[block] += 1
                    if lost[block] == TRIES:
                        raise WorkerLost(
                            f"{TRIES} workers died at block {block}; it may need more memory than they have"
                        )
                    blocks = chain([block], blocks)
                    continue
                drawn, results, files = came
                for name, content in files.items():
                    content.tofile(job.folder / Path(name).name)
                job.tick(drawn)
                for result in results:
                    job.done(block, result)
            job.tick(0)

    def _collect(self) -> Iterator[tuple[int, Any]]:
        """Wait at most a second for actors; yield blocks and what they returned, None if the actor died."""
        for call in self._ray.wait(list(self._calls), timeout=1.0)[0]:
            actor, block = self._calls.pop(call)
            try:
                came = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as problem:
                raise problem.cause or problem from None
            except self._ray.exceptions.RayError as problem:
                if block == -1:
                    raise WorkerLost(f"a worker died and cannot be restarted: {str(problem)[:300]}") from None
                self._calls[actor.describe.remote()] = (actor, -1)  # it returns once Ray has restarted the actor
                yield block, None
                continue
            self._idle.append(actor)
            if block != -1:
                yield block, came
            else:
                self._seen.append(came)


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
                "address": "local",
                "num_cpus": wanted or usable_cores(),
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": f"{folder}/r",
            }  # fmt: skip  (Ray makes it 0777)
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
        actors = [actor.remote(load, str(Path.cwd())) for _ in range(wanted or max(1, int(room)))]
        yield RayExecutor(ray, actors)


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
