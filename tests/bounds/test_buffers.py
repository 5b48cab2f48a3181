"""No kernel writes past a buffer: the fullest corners with bounds checking on."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from buckler.bounds.betting import COARSE_PACE, PACE
from buckler.bounds.star import most_blocks
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
