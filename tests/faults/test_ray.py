"""On a real cluster of two nodes: workers, nodes and drivers are killed, and the end is the same bytes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckler.runs.store.evidence import open_evidence
from tests.faults.run import (
    HOLD,
    PROMPT,
    Ledger,
    arguments,
    call,
    contents,
    differing,
    environment,
    holding,
    lost,
    sealed,
    start,
)  # fmt: skip

pytest.importorskip("ray")
pytestmark = [pytest.mark.faults, pytest.mark.ray, pytest.mark.timeout(280)]

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class Cluster:
    """The cluster of ``cluster.py``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(Path(__file__).with_name("cluster.py"))],
            env=environment(**TOKEN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        self.pid = self._process.pid

    def here(self) -> "Cluster":
        """Wait until both nodes are there, and return the cluster."""
        assert self._process.stdout is not None
        where = json.loads(self._process.stdout.readline())
        self.address: str = where["address"]
        self.raylet: int = where["raylet"]
        return self

    def close(self) -> None:
        self._process.communicate("end\n", timeout=60)

    def sample(self, home: Path, **changes: str | None) -> subprocess.Popen[str]:
        """Start a run that holds, in each of its two workers, when a shard or two are drawn."""
        command = arguments("run", executor="ray", address=self.address, workers="2", **changes)
        return start(home, command, HOLD, {**TOKEN, **LOOPBACK})


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster().here()
    yield made
    made.close()


@pytest.fixture(scope="module")
def on_its_way() -> Iterator[Cluster]:
    """A cluster that starts while the first test here, which does not need it, waits for Ray of its own."""
    made = Cluster()
    yield made
    made.close()


def children(parent: int) -> set[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return {int(word) for word in path.read_text().split()} if path.exists() else set()


@pytest.mark.linux("ss and /proc")
def test_without_an_address_it_stays_on_loopback(
    home: Path, undisturbed: Path, ledger: Ledger, on_its_way: Cluster
) -> None:
    del on_its_way
    short = Path(tempfile.mkdtemp())  # sockets have short names
    process = start(home, arguments("run", executor="ray", workers="1"), HOLD, {"TMPDIR": str(short)})
    holding(home, process)
    assert [path.stat().st_mode & 0o777 for path in short.iterdir()] == [0o700]
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=False).stdout  # noqa: S607
    group = _descendants(process.pid)
    ours = [line.split()[3] for line in listening.splitlines() if any(f"pid={pid}," in line for pid in group)]
    assert ours or not listening
    assert {place.rpartition(":")[0] for place in ours} <= {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}
    before = sealed(home / "run")
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=PROMPT)[1]
    assert process.returncode == 3, said
    assert "Traceback" not in said
    deadline = time.monotonic() + PROMPT
    while any(Path(f"/proc/{pid}").exists() for pid in group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in group)
    short.rmdir()  # it is empty
    assert call(home, arguments("run"))[0] == 0
    gone, wrong = lost(before, sealed(home / "run")), differing(contents(home / "run"), contents(undisturbed))
    ledger.add("Ray of its own, SIGTERM, then the same in one process", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_another_child_of_the_caller_lives_on(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    """Ray of its own is stopped at the end, and with it nothing else that the caller started."""
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '300']); from buckler.cli.app import run;"
        "code = run(sys.argv[1:]); print(code, child.poll()); child.kill()"
    )
    command = [sys.executable, "-c", code, *arguments("run", executor="ray", workers="1")]
    with tempfile.TemporaryDirectory() as short:
        done = subprocess.run(  # noqa: S603
            command, cwd=home, env=environment(TMPDIR=short), capture_output=True, text=True, check=True
        )
    assert done.stdout.split() == ["0", "None"], done.stderr
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("Ray of its own: another child of the caller lives on", 1, 0, wrong)
    assert wrong == 0


@pytest.mark.linux("/proc")
def test_workers_and_a_node_are_killed(home: Path, undisturbed: Path, ledger: Ledger, on_its_way: Cluster) -> None:
    cluster = on_its_way.here()
    process = cluster.sample(home)
    first = set(holding(home, process, 2))
    on_the_second = first & children(cluster.raylet)
    assert len(on_the_second) == 1
    os.kill((first - on_the_second).pop(), signal.SIGKILL)
    before = sealed(home / "run")
    holding(home, process, 3)  # the worker in its place has drawn as much
    gone = lost(before, sealed(home / "run"))
    before = sealed(home / "run")
    os.kill(cluster.raylet, signal.SIGKILL)
    assert process.poll() is None
    (home / "go").touch()
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    gone += lost(before, sealed(home / "run"))
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("Ray, two nodes: SIGKILL of a worker", 1, gone, wrong)
    ledger.add("Ray, two nodes: SIGKILL of a node", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_the_driver_is_killed_and_resumed(home: Path, undisturbed: Path, ledger: Ledger, cluster: Cluster) -> None:
    process = cluster.sample(home)
    holding(home, process, 2)
    process.kill()
    process.communicate()
    (home / "go").touch()
    before = sealed(home / "run")
    assert 0 < len(before) < 30
    process = cluster.sample(home)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    gone, wrong = lost(before, sealed(home / "run")), differing(contents(home / "run"), contents(undisturbed))
    ledger.add("Ray, two nodes: SIGKILL of the driver, then the same", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(
    home: Path, undisturbed: Path, ledger: Ledger, cluster: Cluster, kind: signal.Signals
) -> None:
    process = cluster.sample(home)
    holding(home, process, 2)
    before = sealed(home / "run")
    process.send_signal(kind)
    said = process.communicate(timeout=PROMPT)[1]
    assert process.returncode == 3, said
    assert "Go on with: buckler sample run" in said
    assert call(home, arguments("run"))[0] == 0
    gone, wrong = lost(before, sealed(home / "run")), differing(contents(home / "run"), contents(undisturbed))
    ledger.add(f"Ray, two nodes: {kind.name}, then the same in one process", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_faulty_models_end_the_run_with_one_line(home: Path, ledger: Ledger, cluster: Cluster) -> None:
    (home / "go").touch()
    process = cluster.sample(home, model="fault_models:raises")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 2, said
    assert "input '21': RuntimeError: this image is too bright" in said
    assert "Traceback" not in said
    process = cluster.sample(home, model="fault_models:nowhere")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 2, said
    assert "has no function 'nowhere'" in said
    process = cluster.sample(home, model="fault_models:dies")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 2, said
    assert said.count("\n") == 1
    assert "a worker cannot be restarted; it may need more memory than it has: " in said
    assert sealed(home / "run")
    ledger.add("Ray, two nodes: a model raises, is not there, ends its worker", 3)


def test_shards_by_time_hold_the_same_evidence(
    home: Path, undisturbed_by_time: Path, ledger: Ledger, cluster: Cluster
) -> None:
    process = cluster.sample(home, shard_inputs=None)
    os.kill(holding(home, process, 2)[0], signal.SIGKILL)
    before = sealed(home / "run")
    (home / "go").touch()
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    gone = lost(before, sealed(home / "run"))
    wrong = int(open_evidence(home / "run").digest() != open_evidence(undisturbed_by_time).digest())
    ledger.add("Ray, two nodes: shards by time, SIGKILL of a worker", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


TWICE = """
import os, signal
from buckler.runs.open_run import ExecutorOptions, open_run
from buckler.runs.sample import sample

def state():
    return {**os.environ, "umask": os.umask(0o022), "handler": signal.getsignal(signal.SIGTERM)}

os.umask(0o022)
before = state()
settings = dict(model="fault_models:linear", data="data.npz", sigma=0.25, num_classes=10, n=50, n0=5, shard_inputs=20)
with open_run(settings, ExecutorOptions("ray", workers=1)) as run:
    for folder in ("one", "two"):
        assert sample(run.spec, run.executor, run.dataset, folder).complete
print(sorted(str(item) for item in state().items() ^ before.items()))
"""


def test_an_executor_runs_twice_and_leaves_the_process_as_it_was(home: Path) -> None:
    command = [sys.executable, "-c", TWICE]
    done = subprocess.run(  # noqa: S603
        command, cwd=home, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert contents(home / "one") == contents(home / "two")


def test_a_target_is_decided_alike(home: Path, ledger: Ledger, cluster: Cluster) -> None:
    command = [
        "decide", "--radii", "0.02", "--model", "fault_models:linear", "--data", "data.npz", "--sigma",
        "0.25", "--num-classes", "10", "--max-n", "3000", "--quiet",
    ]  # fmt: skip
    assert call(home, [*command, "--out", "here.parquet"])[0] == 0
    there = [*command, "--out", "there.parquet", "--executor", "ray", "--address", cluster.address, "--workers", "3"]
    process = start(home, there, variables={**TOKEN, **LOOPBACK})
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    wrong = int((home / "here.parquet").read_bytes() != (home / "there.parquet").read_bytes())
    ledger.add("Ray, two nodes, three workers: a target, the same certificates", 1, 0, wrong)
    assert wrong == 0


def _descendants(parent: int) -> set[int]:
    found, left = set[int](), [parent]
    while left:
        new = children(left.pop()) - found
        found |= new
        left += new
    return found
