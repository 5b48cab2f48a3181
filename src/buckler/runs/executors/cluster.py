"""Blocks done by workers on a Ray cluster.

Each worker is an actor that loads the classifier once, from the same name, and must find the same files; a block whose
worker is lost is handed out again. Results and files travel to the driver, which alone writes.
"""

import os
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput, StoreError, WorkerLost, check_whole
from buckler.runs.executors.connection import Watch, check_node, connect
from buckler.runs.executors.protocol import Description, Job, Load, StepContext, Work, describe
from buckler.runs.spec import difference
from buckler.runs.store.sealed import writing

AHEAD = 2
"""Blocks handed to a worker at once: the next is there when one is finished, and no more is lost with the worker."""

TRIES = 5
"""Times that a block may be lost with its worker before it is taken to be the cause."""

REPORT_EVERY = 0.5
"""Seconds between two reports of a worker on the block under way."""

PIECE = 16 << 20
"""Bytes of a file that travel at once."""

WORKERS = ("at one worker", "at another")


class _Worker:
    """The actor: one classifier, loaded once. Results sent before the end of a block wait here."""

    def __init__(self, load: Load, home: str) -> None:
        self._load, self._stack = load, ExitStack()
        if Path(home).is_dir():
            os.chdir(home)  # relative names of models mean what they mean where the command was typed
        self._lock, self._draws, self._early_results = threading.Lock(), 0, list[Any]()

    def load_classifier(self) -> Description:
        self._classifier = self._load()
        return describe(self._classifier)

    def begin(self, work: Work) -> None:
        self._stack.close()
        self._step = self._stack.enter_context(work.begin(self._classifier, 1))

    def run(self, item: Any) -> tuple[int, list[Any], Any, list[tuple[str, list[Any]]]]:
        import ray

        with tempfile.TemporaryDirectory(prefix="buckler-") as name:
            last = self._step(item, StepContext(Path(name), self._count, self._keep))
            files = []
            for path in sorted(Path(name).iterdir()):
                with path.open("rb") as file:
                    files.append((path.name, [ray.put(piece) for piece in iter(lambda: file.read(PIECE), b"")]))
        return (*self._take(), last, files)

    def report(self) -> tuple[int, list[Any]]:
        time.sleep(REPORT_EVERY)
        return self._take()

    def _count(self, draws: int) -> None:
        with self._lock:
            self._draws += draws

    def _keep(self, result: Any) -> None:
        with self._lock:
            self._early_results.append(result)

    def _take(self) -> tuple[int, list[Any]]:
        with self._lock:
            draws, self._draws, early, self._early_results = self._draws, 0, self._early_results, []
        return draws, early


@dataclass(slots=True, eq=False)
class _Member:
    """A worker as the driver sees it: on its way, here, or at work on ``blocks``, the first of them under way."""

    actor: Any
    here: bool = False
    work: Work | None = None
    blocks: deque[int] = field(default_factory=deque)


class OnRay:
    """Hands blocks to actors on a Ray cluster; without an address, on one started here and bound to loopback."""

    def __init__(
        self, load: Load, address: str | None, workers: int | None, gpus_per_worker: float, any_environment: bool
    ) -> None:
        """Connect, and ask for the workers; they come as the cluster has room for them."""
        wanted = None if workers is None else check_whole("workers", workers, 1, 100_000)
        self._ray = connect(address, wanted)
        self._watch = Watch(started_here=address is None)
        self._node = self._ray.get_runtime_context().get_node_id()
        self._load, self._any_environment = load, any_environment
        self._seen: Description | None = None
        self._members: list[_Member] = []
        self._waiting: dict[Any, tuple[_Member, str, int]] = {}
        self._lost_on_the_way = 0
        there = self._ray.cluster_resources()
        if address is None and gpus_per_worker > there.get("GPU", 0.0):
            self.close()
            raise InvalidInput(f"gpus_per_worker must be at most {there.get('GPU', 0.0):g} here; got {gpus_per_worker}")
        room = int(there.get("GPU", 0.0) / gpus_per_worker) if gpus_per_worker > 0.0 else int(there.get("CPU", 1.0))
        self.width = wanted or max(1, room)
        kept = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **kept}
        self._actor = self._ray.remote(
            num_cpus=1 if gpus_per_worker == 0.0 else 0,
            num_gpus=gpus_per_worker,
            max_restarts=0,
            concurrency_groups={"report": 1},
            runtime_env={"env_vars": variables},
        )(_Worker)
        for _ in range(self.width):
            self._call_in()

    def describe(self) -> Description:
        """Return what the first worker runs, once it is here."""
        while self._seen is None:
            self._listen(None, deque())
        return self._seen

    def run(self, job: Job) -> None:
        """Hand out the blocks until all are done; those of a lost worker go to the next that is free."""
        left, again = iter(job.blocks), deque[int]()
        self._tries: Counter[int] = Counter()
        more = True
        while more or again or any(member.blocks for member in self._members):
            for member in [m for m in self._members if m.here]:
                while len(member.blocks) < AHEAD and (more or again):
                    block = again.popleft() if again else next(left, None)
                    if block is None:
                        more = False
                        break
                    self._hand_out(member, job.work, block, job.fetch(block))
            if more or again or any(member.blocks for member in self._members):
                self._listen(job, again)

    def close(self) -> None:
        """Kill the workers, whatever they do, and leave the cluster."""
        for member in self._members:
            self._ray.kill(member.actor)
        self._members, self._waiting = [], {}
        self._ray.shutdown()
        self._watch.close()

    def _call_in(self) -> None:
        member = _Member(self._actor.remote(self._load, str(Path.cwd())))
        self._members.append(member)
        self._waiting[member.actor.load_classifier.remote()] = (member, "load", -1)

    def _hand_out(self, member: _Member, work: Work, block: int, item: Any) -> None:
        if member.work is not work:
            member.work = work
            self._waiting[member.actor.begin.remote(work)] = (member, "begin", -1)
        if not any(who is member and what == "report" for who, what, _ in self._waiting.values()):
            self._ask_for_report(member)
        member.blocks.append(block)
        self._waiting[member.actor.run.remote(item)] = (member, "run", block)

    def _ask_for_report(self, member: _Member) -> None:
        self._waiting[member.actor.report.options(concurrency_group="report").remote()] = (member, "report", -1)

    def _listen(self, job: Job | None, again: deque[int]) -> None:
        """Wait a second at most for whatever comes first, and take it in."""
        ready, _ = self._ray.wait(list(self._waiting), timeout=1.0)
        if job is not None:
            job.tick(0)
        if not ready:
            check_node(self._ray, self._node)
        for reference in ready:
            member, what, block = self._waiting.pop(reference)
            try:
                self._take_in(member, what, block, self._ray.get(reference), job)
            except self._ray.exceptions.RayTaskError as problem:
                raise problem.cause or problem from None
            except self._ray.exceptions.RayError as problem:
                self._replace(member, what, again, problem)

    def _take_in(self, member: _Member, what: str, block: int, came: Any, job: Job | None) -> None:
        if what == "load":
            self._compare(came)
            member.here, self._lost_on_the_way = True, 0
        if job is None:
            return
        if what == "report":
            draws, early = came
            job.tick(draws)
            for result in early:
                job.done(block, result)
            if member.blocks:
                self._ask_for_report(member)
        elif what == "run":
            draws, early, last, files = came
            for name, pieces in files:
                path = job.folder / Path(name).name
                with writing(f"write {str(path)!r}"), path.open("wb") as file:
                    for piece in pieces:
                        file.write(self._ray.get(piece))
            member.blocks.remove(block)
            job.tick(draws)
            for result in [*early, *([] if last is None else [last])]:
                job.done(block, result)

    def _replace(self, member: _Member, what: str, again: deque[int], problem: Exception) -> None:
        """Forget a worker that is gone, take its blocks back and call another in."""
        self._waiting = {reference: call for reference, call in self._waiting.items() if call[0] is not member}
        self._members.remove(member)
        self._ray.kill(member.actor)
        again.extend(member.blocks)
        if what == "load":
            self._lost_on_the_way += 1
        elif member.blocks:
            self._tries[member.blocks[0]] += 1
        if self._lost_on_the_way >= TRIES or (member.blocks and self._tries[member.blocks[0]] >= TRIES):
            where = "before it was ready" if what == "load" else f"at block {member.blocks[0]}"
            reason = " ".join(str(problem).split())[:300]
            raise WorkerLost(f"a worker was lost {TRIES} times {where}: {reason}")
        self._call_in()

    def _compare(self, came: Description) -> None:
        """Refuse a worker whose files, libraries or device are not those of the first; answers are compared at work."""
        seen = self._seen = self._seen or came
        if (came.files, came.num_classes) != (seen.files, seen.num_classes):
            first, second = ({**worker.files, "classes": worker.num_classes} for worker in (seen, came))
            raise StoreError(f"the workers run different classifiers: {difference(first, second, WORKERS)}")
        if came.environment != seen.environment and not self._any_environment:
            changes = difference(seen.environment, came.environment, WORKERS)
            raise StoreError(f"the workers differ: {changes} (any_environment goes on all the same)")
