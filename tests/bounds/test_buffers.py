"""No kernel writes past a buffer: the fullest corners with bounds checking on, and what does not fit is refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from buckler.bounds.betting import COARSE_PACE, NO_EARLIER, PACE
from buckler.bounds.star import most_blocks
from buckler.certify.tangents import MOST_CHANGES, cells_limit
from buckler.errors import InvalidInput
from tests.bounds import corners

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


@pytest.mark.parametrize("pace", [PACE, COARSE_PACE])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 32, 63, 64, 65, 1000, 100_003])
def test_no_more_blocks_than_there_is_room_for(n: int, pace: int) -> None:
    rng = np.random.default_rng(n)
    for every in (1, 3, n):
        index = np.cumsum(rng.integers(0, every, n) == 0) % 13
        blocks, i, cutting = 0, 0, max(1, n // 32)
        while i < n:
            stop = min(i + 1 + i // pace, n)
            if i == cutting:
                cutting *= 2
            stop = cutting if i < cutting < stop else stop
            changed = np.flatnonzero(index[i + 1 : stop] != index[i])
            i = i + 1 + int(changed[0]) if changed.size else stop
            blocks += 1
        assert blocks <= most_blocks(index, pace)


def test_an_index_that_changes_too_often_is_refused() -> None:
    n = MOST_CHANGES + 2
    with pytest.raises(InvalidInput, match=f"index must change at most {MOST_CHANGES} times; got {n - 1} changes"):
        cells_limit(np.full(n, 0.9), np.full(n, 0.1), np.arange(n) % 13, NO_EARLIER, 1e-3, 16.0, coarse=False)
