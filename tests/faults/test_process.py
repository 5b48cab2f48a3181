"""Kills, signals, disks and folders: what was finished stays, and the end is the same bytes."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckler.runs.store.evidence import open_evidence
from tests.faults.run import (
    FULL,
    HOLD,
    PROMPT,
    Ledger,
    arguments,
    call,
    contents,
    differing,
    holding,
    lost,
    sealed,
    start,
)

pytestmark = pytest.mark.faults

SHARDS = (1, 4, 9) if FULL else (4,)
CALLS = ("open", "fsync", "rename", "named") if FULL else ("rename", "named")
FILES = ("parquet", "scores.parquet", "json") if FULL else ("json",)
PLACES = [
    *(["open .lock", "open manifest.json", "fsync manifest.json", "rename manifest.json", "draw 1"] if FULL else []),
    "draw 12",
    "write 9000",
    *(
        f"{call} {4 * shard:06d}-{4 * shard + 3:06d}.{file}" for shard in SHARDS for file in FILES for call in CALLS
        if call != "open" or file == "json"  # the others are made by Arrow, which the interpreter does not see
    ),
]  # fmt: skip
"""Where the process is killed, one after another in the same folder (``tests/killing.py``)."""


def test_killed_in_chosen_places(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    wrong = gone = 0
    for place in PLACES:
        before = sealed(home / "run")
        process = start(home, arguments("run"), place)
        said = process.communicate(timeout=120)[1]
        if place.startswith("write"):
            assert process.returncode == -signal.SIGXFSZ, said
            assert [p.stat().st_size for p in (home / "run").rglob(".*scores*")] == [int(place.split()[1])]
        else:
            assert process.returncode == -signal.SIGKILL, said
            assert f"killed at {place}\n" in said
        gone += lost(before, sealed(home / "run"))
    assert call(home, arguments("run"), apart=True) == (0, "")
    wrong += differing(contents(home / "run"), contents(undisturbed))
    ledger.add("SIGKILL at a chosen call (open, write, fsync, rename)", len(PLACES), gone, wrong)
    assert (gone, wrong) == (0, 0)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM] if FULL else [signal.SIGTERM])
def test_a_signal_ends_it_with_a_message(home: Path, undisturbed: Path, ledger: Ledger, kind: signal.Signals) -> None:
    process = start(home, arguments("run"), HOLD)
    holding(home, process)
    before = sealed(home / "run")
    process.send_signal(kind)
    said = process.communicate(timeout=PROMPT)[1]
    assert process.returncode == 3
    assert "Go on with: buckler sample run" in said
    assert "Traceback" not in said
    gone = lost(before, sealed(home / "run"))
    assert call(home, arguments("run"))[0] == 0
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add(f"{kind.name}: exit 3 at once, then the same", 1, gone, wrong)
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
    gone = wrong = begun = 0
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
            begun += 1
            assert open_evidence(run).counts().values.sum() > 0
        (small_disk / "ballast").unlink()
        assert call(home, arguments(run))[0] == 0
        gone += lost(before, sealed(run))
        wrong += differing(contents(run), contents(undisturbed))
        shutil.rmtree(run)
    ledger.add("disk full, then room again", len(rooms), gone, wrong)
    assert 0 < begun < len(rooms)  # the disk was full both before the first shard was whole and after
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
    assert open_evidence(run).counts().values.sum() > 0
    subprocess.run([part.format("rw") for part in remount], check=True)  # noqa: S603
    assert call(home, arguments(run))[0] == 0
    gone, wrong = lost(before, sealed(run)), differing(contents(run), contents(undisturbed))
    ledger.add("read-only folder, then writable", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


def test_a_folder_that_vanishes(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    process = start(home, arguments("run"), HOLD)
    holding(home, process)
    (home / "run").rename(home / "moved")
    (home / "go").touch()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert "cannot" in said
    assert "Traceback" not in said
    before = sealed(home / "moved")
    assert call(home, arguments("moved"))[0] == 0
    gone, wrong = lost(before, sealed(home / "moved")), differing(contents(home / "moved"), contents(undisturbed))
    ledger.add("folder moved away under way, then gone on with there", 1, gone, wrong)
    assert (gone, wrong) == (0, 0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_long_pause_and_a_second_writer_change_nothing(home: Path, undisturbed: Path, ledger: Ledger) -> None:
    process = start(home, arguments("run"), HOLD)
    holding(home, process)
    process.send_signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    before = contents(home / "run")
    code, said = call(home, arguments("run"))  # while the first holds the folder, and cannot finish
    assert code == 2
    assert "another process is writing" in said
    changed = differing(contents(home / "run"), before)
    process.send_signal(signal.SIGCONT)
    (home / "go").touch()
    assert process.wait(timeout=60) == 0
    process.communicate()
    wrong = differing(contents(home / "run"), contents(undisturbed))
    ledger.add("two writers: the second is refused", 1, int(changed > 0), wrong)
    ledger.add("SIGSTOP, a pause, SIGCONT", 1, 0, wrong)
    assert (changed, wrong) == (0, 0)
