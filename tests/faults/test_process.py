"""Kills, signals, disks and folders: what was finished stays, and the end is the same bytes."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from buckler.runs.store.evidence import open_evidence
from tests.faults.run import FULL, Ledger, arguments, call, contents, differing, lost, sealed, start, wait_for

KILLS = 30 if FULL else 3
SLEEP = 0.006
"""Seconds for each batch of the model, so that a run takes about a second and a half."""


def test_killed_at_random_moments(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    moments = random.Random(0)  # noqa: S311
    kills = wrong = gone = 0
    while kills < KILLS:
        before = sealed(home / "run")
        process = start(home, arguments("run"), SLEEP)
        if moments.random() < 0.8:  # most kills while drawing, some while starting
            wait_for(home / "run" / ".lock", process)
            time.sleep(0.3 if before else 0.0)
            ended = _wait(process, moments.uniform(0.0, 1.2))
        else:
            ended = _wait(process, moments.uniform(0.1, 2.0))
        if ended:
            wrong += differing(contents(home / "run"), contents(undisturbed))
            shutil.rmtree(home / "run")
            continue
        process.kill()
        process.communicate()
        kills += 1
        gone += lost(before, sealed(home / "run"))
    process = start(home, arguments("run"))
    assert process.wait() == 0
    process.communicate()
    wrong += differing(contents(home / "run"), contents(undisturbed))
    ledger.add("SIGKILL of the process at a random moment, then the same", kills, gone, wrong)
    assert (gone, wrong) == (0, 0)


def _wait(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM] if FULL else [signal.SIGTERM])
def test_a_signal_ends_it_with_a_message(home: Path, undisturbed: Path, ledger: Ledger, kind: signal.Signals) -> None:
    process = start(home, arguments("run"), 0.02)
    assert wait_for(home / "run" / "shards" / "000002.json", process)
    before = sealed(home / "run")
    process.send_signal(kind)
    asked = time.monotonic()
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 3
    assert time.monotonic() - asked < 5.0
    assert "Go on with: buckler sample run" in said
    assert "Traceback" not in said
    gone = lost(before, sealed(home / "run"))
    assert call(home, arguments("run"))[0] == 0
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add(f"{kind.name}: exit 3 within 5 s, then the same", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    place = home / "disk"
    place.mkdir()
    done = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],  # noqa: S607
        check=False,
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S603, S607


def test_a_full_disk(home: Path, small_disk: Path, undisturbed: Path, ledger: Ledger) -> None:
    gone = wrong = 0
    rooms = [40, 4, 90, 150, 220, 300] if FULL else [150, 40]
    for room in rooms:
        run = small_disk / "run"
        (small_disk / "ballast").write_bytes(b"x" * 1024 * (1024 - room))
        code, said = call(home, arguments(run))
        assert code == 2
        assert "No space left on device" in said
        assert "Traceback" not in said
        before = sealed(run)
        if before:
            assert open_evidence(run).counts()[0].values.sum() > 0
        (small_disk / "ballast").unlink()
        assert call(home, arguments(run))[0] == 0
        gone += lost(before, sealed(run))
        wrong += differing(contents(run), contents(undisturbed))
        shutil.rmtree(run)
    ledger.add("disk full, then room again", len(rooms), gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_a_folder_that_cannot_be_written(home: Path, small_disk: Path, undisturbed: Path, ledger: Ledger) -> None:
    run = small_disk / "run"
    assert call(home, [*arguments(run), "--max-samples", "9000"])[0] == 3
    before = sealed(run)
    remount = ["mount", "-o", "remount,{}", str(small_disk)]
    subprocess.run([part.format("ro") for part in remount], check=True)  # noqa: S603
    code, said = call(home, arguments(run))
    assert code == 2
    assert "Read-only file system" in said
    assert open_evidence(run).counts()[0].values.sum() > 0
    subprocess.run([part.format("rw") for part in remount], check=True)  # noqa: S603
    assert call(home, arguments(run))[0] == 0
    gone, wrong = lost(before, sealed(run)), differing(contents(run), contents(undisturbed))
    ledger.add("read-only folder, then writable", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_a_folder_that_vanishes(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    process = start(home, arguments("run"), 0.02)
    assert wait_for(home / "run" / "shards" / "000002.json", process)
    (home / "run").rename(home / "moved")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert "cannot" in said
    assert "Traceback" not in said
    before = sealed(home / "moved")
    assert call(home, arguments("moved"))[0] == 0
    gone, wrong = lost(before, sealed(home / "moved")), differing(contents(home / "moved"), contents(undisturbed))
    ledger.add("folder moved away under way, then gone on with there", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_another_specification_or_model_is_refused(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    assert call(home, [*arguments("run"), "--max-samples", "9000"])[0] == 3
    before = contents(home / "run")
    code, said = call(home, arguments("run", sigma="0.5"))
    assert code == 2
    assert "sigma: 0.25 in the folder, 0.5 asked for" in said
    weights = (home / "weights.npy").read_bytes()
    other = np.load(home / "weights.npy")
    other[0, 0] += np.float32(1e-4)
    np.save(home / "weights.npy", other)
    code, said = call(home, arguments("run"))
    assert code == 2
    assert "begun with another classifier" in said
    (home / "weights.npy").write_bytes(weights)
    changed = differing(contents(home / "run"), before)
    assert call(home, arguments("run"))[0] == 0
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("specification or model file changed: refused", 2, int(changed > 0), wrong)
    assert (changed, wrong) == (0, 0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_long_pause_and_a_second_writer_change_nothing(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    process = start(home, arguments("run"), SLEEP)
    assert wait_for(home / "run" / "shards" / "000000.json", process)
    process.send_signal(signal.SIGSTOP)
    before = contents(home / "run")
    code, said = call(home, arguments("run"))  # while the first holds the folder, and cannot finish
    assert code == 2
    assert "another process is writing" in said
    changed = differing(contents(home / "run"), before)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=60) == 0
    process.communicate()
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("two writers: the second is refused", 1, int(changed > 0), wrong)
    ledger.add("SIGSTOP, a pause, SIGCONT", 1, 0, wrong)
    assert (changed, wrong) == (0, 0)
