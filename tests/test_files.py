"""Files are whole or absent, and what killed writers left beside them goes."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from buckler.errors import StoreError
from buckler.files import atomic_write, checksum, read_text


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


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
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
    other = tmp_path / left.name.replace("x.txt", "y.txt")
    other.write_text("of another output")
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_of_two_that_write_at_once_one_fails_and_the_other_is_whole(tmp_path: Path) -> None:
    def first() -> None:
        with atomic_write(tmp_path / "x.txt") as temporary:
            temporary.write_text("first")
            monkeypatch.setattr(os, "getpid", lambda: 0)  # as in another process
            with atomic_write(tmp_path / "x.txt") as second:
                second.write_text("second")

    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(StoreError, match="cannot write"):
        first()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["second"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x.txt").write_text("one")
    for name, target in (("link", "far/x.txt"), ("chain", "link"), ("dangling", "far/new.txt")):
        (tmp_path / name).symlink_to(target)
        with atomic_write(tmp_path / name) as temporary:
            temporary.write_text(name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == name
    assert (tmp_path / "far" / "x.txt").read_text() == "chain"
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["new.txt", "x.txt"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(StoreError, match="cannot write"), atomic_write(tmp_path / "round"):
        pass


def special_files(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "fifo")
    return {"FIFO": folder / "fifo", "folder": folder / "folder", "device": Path(os.devnull), "a FIFO": folder / "link"}


def test_devices_fifos_and_folders_are_not_written(tmp_path: Path) -> None:
    for kind, path in special_files(tmp_path).items():
        with pytest.raises(StoreError, match=f"cannot write .*{kind}, not a file"), atomic_write(path) as temporary:
            temporary.write_text("x")
    assert {p.name for p in tmp_path.iterdir()} == {"fifo", "folder", "link"}


def test_only_plain_files_of_a_size_are_read(tmp_path: Path) -> None:
    for kind, path in special_files(tmp_path).items():
        with pytest.raises(OSError, match=f"{kind}, not a file"):
            read_text(path, 10)
    (tmp_path / "x").write_text("ä" * 5, encoding="utf-8")
    assert read_text(tmp_path / "x", 10) == "ä" * 5
    with pytest.raises(ValueError, match="more than 9 bytes"):
        read_text(tmp_path / "x", 9)
