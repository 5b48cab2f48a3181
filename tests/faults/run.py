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

FULL = os.environ.get("BUCKLER_FAULTS") == "full"
"""Whether every fault is tried as often as it should be, and always on a process of its own."""

MODELS = """
import os, time
import numpy as np

class Linear:
    num_classes = 10
    def __init__(self, fault=None):
        self.weights, self.fault = np.load("weights.npy"), fault
    def __call__(self, batch):
        time.sleep(float(os.environ.get("FAULT_SLEEP", "0")))
        logits = batch.reshape(len(batch), -1) @ self.weights
        hit = batch.mean(axis=(1, 2, 3)) > 0.8
        if self.fault and hit.any():
            if self.fault == "raises":
                raise RuntimeError("this image is too bright")
            if self.fault == "nan":
                logits[hit] = np.nan
            if self.fault == "classes":
                return logits[:, :9]
            if self.fault == "rows":
                return logits[1:]
        return logits

def linear(): return Linear()
def raises(): return Linear("raises")
def nan(): return Linear("nan")
def classes(): return Linear("classes")
def rows(): return Linear("rows")
"""
OPTIONS = {
    "--model": "fault_models:linear", "--data": "data.npz", "--sigma": "0.25", "--n": "400", "--n0": "50",
    "--num-classes": "10", "--shard-inputs": "4", "--scores": "softmax", "--runner-ups": "2", "--batch-size": "256",
}  # fmt: skip
BRIGHT = 21
"""The input on which the faulty models fail."""


@dataclass
class Ledger:
    """What was tried, and what was lost, wrong, or of two origins without a word."""

    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, fault: str, tried: int = 1, lost: int = 0, wrong: int = 0, mixed: int = 0) -> None:
        row = self.rows.setdefault(fault, [0, 0, 0, 0])
        for i, value in enumerate((tried, lost, wrong, mixed)):
            row[i] += value

    def table(self) -> str:
        lines = [f"{'fault':<62} {'tried':>6} {'lost blocks':>12} {'wrong bytes':>12} {'mixed':>6}"]
        lines += [f"{k:<62} {row[0]:>6} {row[1]:>12} {row[2]:>12} {row[3]:>6}" for k, row in self.rows.items()]
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


def arguments(folder: str | Path, **changes: str) -> list[str]:
    options = {**OPTIONS, **{f"--{key.replace('_', '-')}": value for key, value in changes.items()}}
    return ["sample", str(folder), *(part for pair in options.items() for part in pair), "--quiet"]


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


def start(
    home: Path, command: list[str], sleep: float = 0.0, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start the real command."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "buckler.cli", *command],
        cwd=home, env=environment(FAULT_SLEEP=str(sleep), **(variables or {})), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def call(home: Path, command: list[str], sleep: float = 0.0, *, apart: bool = FULL) -> tuple[int, str]:
    """Run a command to its end: exit code and what it said. In the short form, without a process of its own."""
    if apart:
        process = start(home, command, sleep)
        said = process.communicate(timeout=120)[1]
        return process.returncode, said
    import contextlib
    import io

    before, words = Path.cwd(), io.StringIO()
    os.chdir(home)
    os.environ["FAULT_SLEEP"] = str(sleep)
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


def wait_for(found: Path, process: subprocess.Popen[str], seconds: float = 90.0) -> bool:
    """Return whether a file came before the process ended."""
    deadline = time.monotonic() + seconds
    while not found.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            return found.exists()
        time.sleep(0.005)
    return True
