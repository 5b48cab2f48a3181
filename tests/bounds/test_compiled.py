"""Compiled kernels are cached under a digest of every source of the room."""

import subprocess
import sys
from pathlib import Path

CALLER = """
from {package}.callee import inner
from {package}.compiled import compiled

@compiled
def outer(x):
    return inner(x) + 1
"""
CALLEE = """
from {package}.compiled import compiled

@compiled
def inner(x):
    return {value}
"""


def result(folder: Path) -> str:
    code = "from room.caller import outer; print(outer(1.0))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def test_a_changed_callee_in_another_file_is_seen(tmp_path: Path) -> None:
    import buckler.bounds.compiled as real

    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "compiled.py").write_text(Path(real.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (room / "caller.py").write_text(CALLER.format(package="room"))
    (room / "callee.py").write_text(CALLEE.format(package="room", value="x * 2.0"))
    assert result(tmp_path) == "3.0"
    assert list(room.rglob("*.nbi")), "nothing was cached, so the next line would prove nothing"
    (room / "callee.py").write_text(CALLEE.format(package="room", value="x * 5.0"))
    assert result(tmp_path) == "6.0"
