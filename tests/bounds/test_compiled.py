"""Machine code is kept with a digest of the room's sources, and not needed; no kernel writes past a buffer."""

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import buckler
import buckler.bounds.compiled as real
from buckler.bounds.betting import COARSE_PACE, PACE, most_blocks
from tests.bounds import corners

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


def test_damaged_files_are_compiled_again(home: Path) -> None:
    assert result(home).splitlines() == [ONCE, "3.0"]
    for path in (home / "room" / "__pycache__").glob("*.nbc"):
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert result(home).splitlines() == [ONCE, "3.0"]
    assert result(home) == "3.0"


def test_code_for_other_arguments_is_not_run(home: Path) -> None:
    """As two processes can leave it that compile for other arguments at the same time."""
    ask = ASK.replace("print(outer(1.0))", "print(outer(1.5), outer(2))")
    (home / "room" / "callee.py").write_text(CALLEE.format(package="room", value="x * 2"))
    assert result(home, ask).splitlines() == [ONCE, "4.0 5"]
    one, other = (home / "room").rglob("caller.*.nbc")
    code = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(code)
    assert result(home, ask).splitlines() == [ONCE, "4.0 5"]
    assert result(home, ask) == "4.0 5"


def test_no_code_is_read_from_where_the_process_runs(home: Path) -> None:
    (home / "room" / "__pycache__").touch()
    for _ in range(2):
        assert result(home, XDG_CACHE_HOME="").splitlines() == [EVERY_TIME, "3.0"]


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


REACHED = [
    "cells_halved_to_the_end",
    "near_constant_scores",
    "slopes_that_change_at_every_draw",
    "points_of_an_interpolant",
    "any_number_of_draws",
]
PLANTED = """
import numpy as np
from buckler.bounds.compiled import compiled

@compiled
def past_the_end(x):
    x[x.size] = 1.0

past_the_end(np.empty(3))
"""


def with_bounds_checked(arguments: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    # The cache of machine code is not told apart by this setting, so it has a folder of its own.
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    command, root = [sys.executable, *arguments], Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, check=False)  # noqa: S603


@pytest.mark.slow
def test_the_fullest_corners_with_bounds_checking(tmp_path: Path) -> None:
    ran = with_bounds_checked(["-m", corners.__name__], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == REACHED


def test_bounds_checking_finds_a_planted_write(tmp_path: Path) -> None:
    program = tmp_path / "planted.py"
    program.write_text(PLANTED)
    ran = with_bounds_checked([str(program)], tmp_path)
    assert ran.returncode != 0
    assert "IndexError" in ran.stderr


def test_no_more_blocks_than_there_is_room_for() -> None:
    lengths = (1, 2, 7, 8, 9, 31, 32, 63, 64, 65, 1000, 100_003)
    for n, pace, every in product(lengths, (PACE, COARSE_PACE), (1, 3, 0)):
        index = np.cumsum(np.random.default_rng(n).integers(0, every or n, n) == 0) % 13
        blocks, i, cutting = 0, 0, max(1, n // 32)
        while i < n:
            stop = min(i + 1 + i // pace, n)
            if i == cutting:
                cutting *= 2
            stop = cutting if i < cutting < stop else stop
            changed = np.flatnonzero(index[i + 1 : stop] != index[i])
            i = i + 1 + int(changed[0]) if changed.size else stop
            blocks += 1
        assert blocks <= most_blocks(index, pace), (n, pace, every)
