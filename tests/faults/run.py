"""The run that the faults befall: the real command on 40 digits in ten shards, with scores."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from buckler.cli.app import run as run_here
from tests import killing

FULL = os.environ.get("BUCKLER_FAULTS") == "full"
"""Whether every fault is tried as often as it should be, and always on a process of its own."""

MODELS = """
import os, time
import numpy as np
from tests import killing

killing.arm_from_file()

class Linear:
    num_classes = 10
    def __init__(self, fault=None):
        self.weights, self.fault = np.load("weights.npy"), fault
    def __call__(self, batch):
        killing.drawing()
        logits = batch.reshape(len(batch), -1) @ self.weights
        hit = batch.mean(axis=(1, 2, 3)) > 0.8
        if self.fault and hit.any():
            if self.fault == "dies":
                os._exit(1)
            if self.fault == "raises":
                raise RuntimeError("this image is too bright")
            if self.fault == "nan":
                logits[hit] = np.nan
            if self.fault == "classes":
                return logits[:, :9]
            if self.fault == "rows":
                return logits[1:]
        return logits

class Forking(Linear):
    def __call__(self, batch):
        if not os.path.exists("child") and len(batch) > 100:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            with open("child", "w") as file:
                file.write(str(child))
        return super().__call__(batch)

def linear(): return Linear()
def forking(): return Forking()
def dies(): return Linear("dies")
def raises(): return Linear("raises")
def nan(): return Linear("nan")
def classes(): return Linear("classes")
def rows(): return Linear("rows")
"""
OPTIONS = {
    "--model": "fault_models:linear", "--data": "data.npz", "--sigma": "0.25", "--n": "400", "--n0": "50",
    "--num-classes": "10", "--shard-inputs": "4", "--scores": "softmax", "--runner-ups": "2", "--batch-size": "256",
}  # fmt: skip
HOLD = "hold 25"
"""Where a run waits for a fault from outside, on a machine of any speed: each process has drawn two of ten shards."""

PROMPT = 30.0
"""Seconds in which a signal must have ended a run on a loaded machine; its model would hold it for 240."""

BRIGHT = 21
"""The input on which the faulty models fail."""


@dataclass
class Ledger:
    """What was tried, and what was lost or wrong."""

    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, fault: str, tried: int = 1, lost: int = 0, wrong: int = 0) -> None:
        row = self.rows.setdefault(fault, [0, 0, 0])
        for i, value in enumerate((tried, lost, wrong)):
            row[i] += value

    def table(self) -> str:
        lines = [f"{'fault':<62} {'tried':>6} {'lost blocks':>12} {'wrong bytes':>12}"]
        lines += [f"{k:<62} {row[0]:>6} {row[1]:>12} {row[2]:>12}" for k, row in self.rows.items()]
        return "\n".join(lines)


def lay_out(home: Path) -> None:
    """Write the models, the weights and the data of the run."""
    rng = np.random.default_rng(0)
    home.mkdir(parents=True, exist_ok=True)
    (home / "fault_models.py").write_text(MODELS)
    np.save(home / "weights.npy", rng.normal(size=(64, 10)).astype("f4"))
    x = rng.uniform(0.0, 0.7, size=(40, 1, 8, 8)).astype("f4")
    x[BRIGHT] = 1.0
    np.savez(home / "data.npz", x=x, y=rng.integers(0, 10, 40))


def arguments(folder: str | Path, **changes: str | None) -> list[str]:
    """Return the command, with changes; an option that is None is left out."""
    options = {**OPTIONS, **{f"--{key.replace('_', '-')}": value for key, value in changes.items()}}
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    return ["sample", str(folder), *given, "--quiet"]


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


def start(
    home: Path, command: list[str], place: str | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start the real command, to be killed or to hold in a place (``tests/killing.py``), or to run through."""
    _set_place(home, place)
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "buckler", *command],
        cwd=home, env=environment(**(variables or {})), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _set_place(home: Path, place: str | None) -> None:
    if place is None:
        (home / killing.FILE).unlink(missing_ok=True)
    else:
        (home / killing.FILE).write_text(place)


def holding(home: Path, process: subprocess.Popen[str], count: int = 1, seconds: float = 120.0) -> list[int]:
    """Wait until so many processes hold, with a shard sealed, and return their ids."""
    deadline = time.monotonic() + seconds
    while len(found := list(home.glob("holding-*"))) < count or not sealed(home / "run"):
        assert process.poll() is None, f"ended before it held: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"{len(found)} of {count} processes hold"
        time.sleep(0.005)
    return [int(path.name.removeprefix("holding-")) for path in found]


def call(home: Path, command: list[str], *, apart: bool = FULL) -> tuple[int, str]:
    """Run a command to its end: exit code and what it said. In the short form, without a process of its own."""
    if apart:
        process = start(home, command)
        said = process.communicate(timeout=120)[1]
        return process.returncode, said
    import contextlib
    import io

    _set_place(home, None)
    before, words = Path.cwd(), io.StringIO()
    os.chdir(home)
    try:
        with contextlib.redirect_stderr(words), contextlib.redirect_stdout(io.StringIO()):
            code = run_here(command)
    finally:
        os.chdir(before)
    return code, words.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sealed(folder: Path) -> dict[str, bytes]:
    """Return the files of the shards that have a seal."""
    names = {p.stem for p in (folder / "shards").glob("[0-9]*.json")} if folder.exists() else set[str]()
    return {p.name: p.read_bytes() for p in (folder / "shards").glob("[0-9]*") if p.name.split(".")[0] in names}


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> int:
    """Return the bytes of the files in which two runs differ."""
    return sum(
        max(len(one.get(k, b"")), len(other.get(k, b"")), 1)
        for k in one.keys() | other.keys()
        if one.get(k) != other.get(k)
    )


def lost(before: dict[str, bytes], after: dict[str, bytes]) -> int:
    """Return how many shards that were sealed before are gone or another afterwards."""
    return len({name.split(".")[0] for name, data in before.items() if after.get(name) != data})
