"""Files are whole or absent, and what killed writers left beside them goes."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from buckler.errors import StoreError
from buckler.files import atomic_write, checksum


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "made" / "x.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("one")
        assert not path.exists()
    assert path.read_text() == "one"
    with pytest.raises(StoreError), atomic_write(path) as temporary:
        temporary.joinpath("no folder").write_text("two")
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["x.txt"]
    with pytest.raises(StoreError, match=r"cannot write .*x\.txt"), atomic_write(path / "below"):
        pass


def test_checksum(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc" * 1_000_000)
    assert checksum(tmp_path / "x") == hashlib.sha256(b"abc" * 1_000_000).hexdigest()


def test_what_a_killed_writer_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    program = (
        "import os, sys, pathlib, buckler.files as f\n"
        "with f.atomic_write(pathlib.Path(sys.argv[1])) as t:\n"
        "    t.write_text('half'); os._exit(9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)  # noqa: S603
    assert killed.returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".x.txt.")
    others = [
        tmp_path / left.name.replace("x.txt", "y.txt"),  # of another output
        tmp_path / left.name.replace(".part", "_elsewhere.part"),  # of another machine
        tmp_path / f".x.txt.{os.getppid()}-{left.name.split('-', 1)[1]}",  # of a process that runs
        tmp_path / ".x.txt.part",
    ]
    for other in others:
        other.write_text("not ours")
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
