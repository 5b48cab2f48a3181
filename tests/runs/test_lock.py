"""One writer at a time: the second is told who the first is, and no child keeps the folder."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from buckler.errors import StoreError
from buckler.runs.store.folder import HOLDER, LOCK, locked


def hold(root: Path) -> None:
    with locked(root):
        pass


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    who = rf"\(process {os.getpid()} on {platform.node()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00\)"
    with locked(tmp_path), pytest.raises(StoreError, match="another process is writing to .* " + who):
        hold(tmp_path)
    assert not (tmp_path / HOLDER).exists()
    hold(tmp_path)


def test_another_process_is_told_too(tmp_path: Path) -> None:
    program = "import sys, pathlib, tests.runs.test_lock as t; t.hold(pathlib.Path(sys.argv[1]))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with locked(tmp_path):
        refused = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True, text=True, env=env
        )
    assert refused.returncode != 0
    assert f"process {os.getpid()} on" in refused.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_folder(tmp_path: Path) -> None:
    wait, go = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(wait, 1)  # lives on after its parent has let go
            os._exit(0)
    hold(tmp_path)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child was to be alive all the while"
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_a_killed_writer_leaves_a_note_and_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib, buckler.runs.store.folder as lock\n"
        "with lock.locked(pathlib.Path(sys.argv[1])): os._exit(9)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env=env).returncode == 9  # noqa: S603
    assert (tmp_path / HOLDER).exists()
    hold(tmp_path)
    assert not (tmp_path / HOLDER).exists()


def test_a_note_is_text_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("dear to someone")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / HOLDER).symlink_to(tmp_path / "outside")
    hold(tmp_path / "run")
    assert (tmp_path / "outside").read_text() == "dear to someone"
    with locked(tmp_path / "run"):
        (tmp_path / "run" / HOLDER).write_bytes(b"\x1b[31m\n\xff" * 1000)
        with pytest.raises(StoreError) as caught:
            hold(tmp_path / "run")
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()
    (tmp_path / "run" / LOCK).unlink()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="cannot write to"):
        hold(tmp_path / "run")
