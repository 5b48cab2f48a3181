"""Executors run the blocks of a run: in this process, or in workers (actors) on a Ray cluster.

A block is a group of inputs with what is to be drawn for them. Its results depend on its data alone, so any worker may
compute it, more than once and in any order; they go to a function, the sink. Ray restarts a worker that died, elsewhere
if need be, with its block.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import cache, cached_property, partial
from math import inf
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, cast

from buckler.errors import ClassifierError, InvalidInput, MissingExtra, check_whole, show
from buckler.files import usable_cores
from buckler.sampling.classifiers import Classifier
from buckler.session import Sink

ComputeBlock = Callable[[Any, Path, Sink], Iterator[int]]
"""Function of a block's data, a folder for files and a sink for results; yields the numbers of draws made. If it is
closed early, it still passes to the sink what it has."""

Begin = Callable[[Classifier, int | None], AbstractContextManager[ComputeBlock]]
"""Function that a worker calls once, with its classifier and the number of threads that make noise (None: one for
each processor); it gives a context manager of the function that computes blocks."""

RESTARTS = 10
"""How often Ray restarts a worker: a block that fails more often is taken to be the cause."""


class Executor:
    """Runs blocks one after another in this process; ``width`` is the number of blocks run at once, here 1."""

    width = 1

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def call(self, function: Callable[[Classifier, int | None], Any]) -> Any:
        """Return ``function(classifier, threads)``, called where blocks are run; ``threads`` make noise (None: all)."""
        return function(self.classifier, None)

    def run(
        self, begin: Begin, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf
    ) -> Iterator[int]:
        """Compute all blocks, pass their results to ``sink``, and yield the draws made since the last time.

        ``begin`` gives the function that computes a block. Files that this function writes (kept scores) are in
        ``folder`` before the block's results come. After ``deadline`` (a time of ``time.monotonic``) a block that is
        under way is closed, which passes on what it can keep, and no other begins.
        """
        with begin(self.classifier, None) as step:
            for data in blocks:
                with closing(step(data, folder, sink)) as draws:  # type: ignore[type-var]
                    for drawn in draws:
                        yield drawn
                        if time.monotonic() > deadline:
                            return


class _Worker:
    """Actor with one classifier, loaded at first use, and the work of one run; a task would not keep its GPU."""

    def __init__(self, load: Callable[[], Classifier], home: str) -> None:
        self._here, self._work, self._step = cache(lambda: Executor(load())), ExitStack(), cast("Any", None)
        os.chdir(home if Path(home).is_dir() else ".")  # relative names of models refer to the folder of the command

    def call(self, function: Callable[[Any, int], Any]) -> Any:
        return function(self._here().classifier, 1)

    def run(self, begin: Begin, blocks: list[Any], seconds: float) -> tuple[int, list[Any], dict[str, bytes]]:
        """Return draws, results and files of blocks (none: only load), or of the part that these seconds allow."""
        self._step = self._step or self._work.enter_context(self.call(begin))
        results, deadline = list[Any](), time.monotonic() + seconds
        with TemporaryDirectory(prefix="buckler-") as folder:
            going = self._here().run(lambda *_: nullcontext(self._step), blocks, results.append, Path(folder), deadline)
            return sum(going), results, {path.name: path.read_bytes() for path in Path(folder).iterdir() if results}


class RayExecutor(Executor):
    """Runs ``width`` blocks at once, each in a Ray actor; ``open_ray`` makes it."""

    def __init__(self, ray: Any, start: Callable[[], Any], width: int) -> None:
        self._ray, self._start, self.width = ray, start, width

    @cached_property
    def _actors(self) -> list[Any]:
        return [self._start() for _ in range(self.width)]

    def call(self, function: Any) -> Any:
        """Return ``function(classifier, threads)``, called in a worker."""
        return self._get(self._actors[0].call.remote(function))

    def run(
        self, begin: Begin, blocks: Iterable[Any], sink: Sink, folder: Path = Path(), deadline: float = inf
    ) -> Iterator[int]:
        """Compute all blocks in the workers, pass their results to ``sink``, and yield the numbers of draws made.

        Arguments are those of ``Executor.run``.
        """
        sent, left = self._ray.put(begin), iter(blocks)
        calls = {actor.run.remote(sent, [], inf): actor for actor in self._actors}
        starting = set(calls)
        del self._actors
        while calls:
            [call], _ = self._ray.wait(list(calls))
            drawn, results, files = self._get(call)
            for name, content in files.items():
                (folder / Path(name).name).write_bytes(content)
            yield drawn
            for result in results:
                sink(result)
            data = next(left, None) if time.monotonic() < deadline else None
            if data is not None:
                calls[calls[call].run.remote(sent, [data], deadline - time.monotonic())] = calls[call]
            else:  # Ray ends actors that nobody waits for, which leaves room for one whose node is gone
                calls = {other: actor for other, actor in calls.items() if other not in starting}
            calls.pop(call, None)

    def _get(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as problem:
            raise problem.cause or problem from None
        except self._ray.exceptions.RayError as problem:
            why = "a worker cannot be restarted; it may need more memory than it has"
            raise ClassifierError(f"{why}: {show(str(problem), 300)}") from None


@contextmanager
def open_ray(
    load: Callable[[], Classifier], address: str | None, workers: int | None, gpus_per_worker: float
) -> Iterator[RayExecutor]:
    """Yield an executor on the Ray cluster at ``address``, or with None on one started here and stopped at the end.

    ``load`` returns the classifier, in each of ``workers`` workers (None: as many as there is room for), with
    ``gpus_per_worker`` GPUs each. A cluster started here listens on loopback alone and asks for a token; its files are
    in a private folder.
    """
    width = None if workers is None else check_whole("workers", workers, 1, 100_000)
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    passed = {"OMP_NUM_THREADS": "1", **{k: v for k, v in before.items() if k in {"OMP_NUM_THREADS", "PYTHONPATH"}}}
    where: dict[str, Any] = {"address": address}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        if address is None:
            where = {"address": "local", "num_cpus": width or usable_cores(), "include_dashboard": False}
            where |= {"_node_ip_address": "127.0.0.1", "_temp_dir": f"{folder}/r"}  # Ray lets everybody write to it
            quiet |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex()}
            quiet["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else other processes listen on all addresses
            passed["TMPDIR"] = folder
        stack.callback(lambda: [os.environ.pop(name) for name in os.environ.keys() - before.keys()])
        os.environ.update({**quiet, **before})
        try:
            import ray

            ray.init(**where, log_to_driver=False, logging_level="ERROR")
        except ImportError:
            raise MissingExtra("ray", "ray") from None
        except (OSError, ValueError, RuntimeError) as problem:
            why = f"address must be that of a Ray cluster, or None; got {address!r}"
            raise InvalidInput(f"{why}: {show(str(problem), 300)}") from None
        finally:
            if signal.getsignal(signal.SIGTERM) is not handler:  # Ray puts its own in this one's place
                signal.signal(signal.SIGTERM, handler)
        stack.callback(ray.shutdown)
        cpus, gpus = (ray.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU"))
        if address is None and gpus_per_worker > gpus:
            raise InvalidInput(f"gpus_per_worker must be at most {gpus:g} here; got {gpus_per_worker}")
        width = width or max(1, int(gpus / gpus_per_worker if gpus_per_worker else cpus))
        kind = {"num_cpus": 0 if gpus_per_worker else 1, "num_gpus": gpus_per_worker, "max_restarts": RESTARTS}
        actor = ray.remote(**kind, max_task_retries=-1, runtime_env={"env_vars": passed})(_Worker)
        yield RayExecutor(ray, partial(actor.remote, load, str(Path.cwd())), width)
