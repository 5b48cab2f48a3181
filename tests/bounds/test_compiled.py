"""Machine code is kept with a digest of every source of the room, and not needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import buckler
import buckler.bounds.compiled as real

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
ASK = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s.")
from room.caller import outer
print(outer(1.0))
"""
NOWHERE = os.devnull
"""Nothing can be written below a device, whoever asks: root may write to every folder."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


def lay_out(home: Path) -> Path:
    """Write a room with a function that calls one in another file, and return the folder it is in."""
    room = home / "room"
    room.mkdir()
    (room / "__init__.py").touch()
    shutil.copy(real.__file__, room / "compiled.py")
    (room / "caller.py").write_text(CALLER.format(package="room"))
    (room / "callee.py").write_text(CALLEE.format(package="room", value="x * 2.0"))
    return home


def result(folder: Path, code: str = ASK, **variables: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME"}}
    environment = {**kept, "HOME": NOWHERE, "PYTHONPATH": str(folder), **variables}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


ONCE = f"buckler: {real.ONCE}."
EVERY_TIME = f"buckler: {real.EVERY_TIME}."


def test_a_changed_callee_in_another_file_is_seen(home: Path) -> None:
    assert result(home).splitlines() == [ONCE, "3.0"]
    assert result(home) == "3.0", "nothing was kept, so the next line would prove nothing"
    (home / "room" / "callee.py").write_text(CALLEE.format(package="room", value="x * 5.0"))
    assert result(home).splitlines() == [ONCE, "6.0"]


@pytest.mark.slow
def test_old_code_under_a_new_index_is_not_run(home: Path) -> None:
    """As a process leaves it that is killed after it wrote an index, before it wrote the code."""
    assert result(home).splitlines() == [ONCE, "3.0"]
    kept = list((home / "room").rglob("*.nbc"))
    old = [path.read_bytes() for path in kept]
    assert len(kept) >= 2
    (home / "room" / "callee.py").write_text(CALLEE.format(package="room", value="x * 5.0"))
    assert result(home).splitlines() == [ONCE, "6.0"]
    for path, code in zip(kept, old, strict=True):
        assert path.read_bytes() != code
        path.write_bytes(code)
    assert result(home).splitlines() == [ONCE, "6.0"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole package where no machine code can be kept."""
    place: Path = tmp_path_factory.mktemp("installed")
    source = Path(buckler.__file__).parent
    shutil.copytree(source, place / "buckler", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    (place / "buckler" / "bounds" / "__pycache__").touch()
    return place


def test_the_command_line_without_a_place(installed: Path) -> None:
    code = "from buckler.cli.app import run; raise SystemExit(run(['--version']))"
    assert result(installed, code).startswith("buckler ")
    code = "from buckler.bounds import trinomial; print(trinomial.curve_top._cache._enabled)"
    assert result(installed, code) == "False"


def test_without_compiling_at_all(installed: Path) -> None:
    code = "from buckler.cli.app import run; from buckler.bounds.compiled import compiled; print(compiled(run) is run)"
    assert result(installed, code, NUMBA_DISABLE_JIT="1") == "True"
