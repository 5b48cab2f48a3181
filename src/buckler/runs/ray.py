"""Runs blocks in actors on a Ray cluster: Ray restarts an actor that died, elsewhere if need be, with its block."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from buckler.errors import InvalidInput, MissingExtra, WorkerLost, check_whole
from buckler.files import usable_cores
from buckler.runs.executor import Begin, Draws, Executor
from buckler.sampling.classifiers import Classifier
from buckler.session import Sink

RESTARTS = 10
"""Times that Ray restarts a worker; a block that it cannot end is taken to be the cause of more."""

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": ".|^$", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Environment, unless set: Ray reports nothing, and prints no messages of workers on stdout and no warning."""

LOCAL = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The same of a cluster started here: Ray makes a token, and listens on loopback alone."""


class _Worker:
    """Actor with one classifier, loaded at first use, and the work of one run; a task would not keep its GPU."""

    def __init__(self, load: Callable[[], Classifier], home: str) -> None:
        self._classifier, self._work, self._step = cache(load), ExitStack(), cast("Any", None)
        os.chdir(home if Path(home).is_dir() else ".")  # relative names of models refer to the folder of the command

    def call(self, function: Callable[[Any, int], Any]) -> Any:
        return function(self._classifier(), 1)

    def run(self, begin: Begin, data: Any, seconds: float) -> tuple[int, list[Any], dict[str, Any]]:
        """Return draws, results and files of a block (None: only load), or of the part that these seconds allow."""
        self._step = self._step or self._work.enter_context(self.call(begin))
        drawn, results, deadline = 0, list[Any](), time.monotonic() + seconds
        with TemporaryDirectory(prefix="buckler-") as folder:
            draws = iter(()) if data is None else self._step(data, Path(folder), results.append)
            for count in draws:
                drawn += count
                if time.monotonic() > deadline:
                    draws.close()  # hands over what there is, and ends the loop
            return drawn, results, {p.name: np.fromfile(p, dtype=np.uint8) for p in Path(folder).iterdir() if results}


class RayExecutor(Executor):
    """Runs blocks in actors; made by ``open_ray``."""

    def __init__(self, ray: Any, start: Callable[[], Any], width: int) -> None:
        self._ray, self._start, self.width = ray, start, width

    @cached_property
    def _actors(self) -> list[Any]:
        return [self._start() for _ in range(self.width)]

    def call(self, function: Any) -> Any:
        """Return what a function of a worker's classifier and its threads returns."""
        return self._get(self._actors[0].call.remote(function))

    def run(
        self, begin: Begin, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf
    ) -> Draws:
        """Give each actor that is ready a block after another, and hand on their results."""
        sent, left = self._ray.put(begin), iter(blocks)
        calls = {actor.run.remote(sent, None, 0.0): actor for actor in self._actors}
        starting = set(calls)
        del self._actors
        while calls:
            [call], _ = self._ray.wait(list(calls))
            drawn, results, files = self._get(call)
            for name, content in files.items():
                content.tofile(folder / Path(name).name)
            yield drawn
            for result in results:
                sink(result)
            data = next(left, None) if time.monotonic() < deadline else None
            if data is not None:
                calls[calls[call].run.remote(sent, data, deadline - time.monotonic())] = calls[call]
            else:  # Ray ends actors that nobody waits for, which leaves room for one whose node is gone
                calls = {other: actor for other, actor in calls.items() if other not in starting}
            calls.pop(call, None)

    def _get(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as problem:
            raise problem.cause or problem from None
        except self._ray.exceptions.RayError as problem:
            said = " ".join(str(problem).split())
            words = f"it may need more memory than it has: {said[:200]} ... {said[-100:]}"
            raise WorkerLost(f"a worker cannot be restarted; {words}") from None


@contextmanager
def open_ray(
    load: Callable[[], Classifier], address: str | None = None, workers: int | None = None, gpus_per_worker: float = 0.0
) -> Iterator[RayExecutor]:
    """Yield an executor on the cluster at an address, or on one started here and stopped at the end.

    A cluster started here listens on loopback alone; its files are in a private folder, removed at the end.
    """
    width = None if workers is None else check_whole("workers", workers, 1, 100_000)
    before, where = dict(os.environ), dict[str, Any](address=address)
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        if address is None:
            where = {"address": "local", "num_cpus": width or usable_cores(), "include_dashboard": False}
            where |= {"_node_ip_address": "127.0.0.1", "_temp_dir": f"{folder}/r"}  # Ray makes it 0777
        os.environ.update({**QUIET, **({} if address else LOCAL), **before})
        handler, mask = signal.getsignal(signal.SIGTERM), os.umask(0o077)  # Ray makes a token, and another handler
        try:
            import ray

            ray.init(**where, log_to_driver=False, logging_level="ERROR")
        except ImportError:
            raise MissingExtra("ray", "ray") from None
        except (OSError, ValueError, RuntimeError) as problem:
            said = " ".join(str(problem).split())[:300]
            raise InvalidInput(f"address must be that of a Ray cluster, or None; {address!r} gave: {said}") from None
        finally:
            os.umask(mask)
            added = os.environ.keys() - before.keys()  # Ray adds to them
            stack.callback(lambda: [os.environ.pop(key, None) for key in added])
            if signal.getsignal(signal.SIGTERM) is not handler:
                signal.signal(signal.SIGTERM, handler)
        stack.callback(ray.shutdown)
        cpus, gpus = (ray.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU"))
        if address is None and gpus_per_worker > gpus:
            raise InvalidInput(f"gpus_per_worker must be at most {gpus:g} here; got {gpus_per_worker}")
        width = width or max(1, int(gpus / gpus_per_worker if gpus_per_worker else cpus))
        kept = {key: os.environ[key] for key in ("OMP_NUM_THREADS", "PYTHONPATH") if key in os.environ}
        variables = {"OMP_NUM_THREADS": "1", **kept, **({} if address else {"TMPDIR": folder})}
        actor = ray.remote(
            num_cpus=0 if gpus_per_worker else 1, num_gpus=gpus_per_worker, max_restarts=RESTARTS, max_task_retries=-1,
            runtime_env={"env_vars": variables},
        )(_Worker)  # fmt: skip
        yield RayExecutor(ray, partial(actor.remote, load, str(Path.cwd())), width)
