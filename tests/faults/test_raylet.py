"""The raylet of a Ray of its own is killed: the run ends by itself, says so, and is gone on with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.run import Ledger, arguments, call, contents, differing, environment, lost, sealed

pytest.importorskip("ray")
pytestmark = [pytest.mark.faults, pytest.mark.ray, pytest.mark.timeout(280)]

MODEL = """
import os, time
import numpy as np
from fault_models import linear

class Slow:
    num_classes = 10
    def __init__(self):
        self.inner = linear()
    def __call__(self, batch):
        while os.path.exists("hold") and os.path.exists("run/shards/000000.json"):
            time.sleep(0.05)
        return self.inner(batch)

def slow(): return Slow()
"""
REFUSING = {"HOME": os.devnull, "RAY_AUTH_MODE": "disabled"}
"""A home folder that holds nothing, whoever asks, and a switch that would let every user of the machine in."""


def descendants(parent: int) -> set[int]:
    found, left = set[int](), [parent]
    while left:
        path = Path(f"/proc/{(process := left.pop())}/task/{process}/children")
        new = {int(word) for word in path.read_text().split()} if path.exists() else set[int]()
        left += new - found
        found |= new
    return found


def named(processes: set[int], name: str) -> list[int]:
    programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in processes}
    return [pid for pid, program in programs.items() if Path(program.decode()).name == name]


def test_a_killed_raylet_ends_the_run(home: Path, ledger: Ledger) -> None:
    (home / "slow_models.py").write_text(MODEL)
    command = arguments("run", model="slow_models:slow")
    assert call(home, arguments("whole", model="slow_models:slow"))[0] == 0
    (home / "hold").touch()  # every worker holds once the first shard is there
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "buckler", *command, "--executor", "ray", "--workers", "1"],
        cwd=home, env=environment(**REFUSING), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (home / "run" / "shards" / "000000.json").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    group = descendants(process.pid)
    (raylet,) = named(group, "raylet")
    variables = dict(
        line.split(b"=", 1) for line in Path(f"/proc/{raylet}/environ").read_bytes().split(b"\0") if b"=" in line
    )
    assert variables[b"RAY_AUTH_MODE"] == b"token"
    assert len(variables[b"RAY_AUTH_TOKEN"]) == 64
    before = sealed(home / "run")
    os.kill(raylet, signal.SIGKILL)
    shown, said = process.communicate(timeout=100)
    assert process.returncode in {1, 2}, said  # 1 where Ray's library was the first to notice, and ended the process
    assert shown == ""
    assert "(the raylet) has ended; what was finished is kept" in said
    assert "Traceback" not in said
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in group)
    (home / "hold").unlink()
    assert call(home, command)[0] == 0
    gone, wrong = lost(before, sealed(home / "run")), differing(contents(home / "run"), contents(home / "whole"))
    ledger.add("Ray of its own: SIGKILL of the raylet, then the same", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)
