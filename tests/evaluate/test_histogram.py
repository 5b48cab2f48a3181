"""The grid of round radii and the histogram over it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import buckler
from buckler.evaluate.histogram import radius_histogram, round_grid


@given(st.floats(1e-6, 1e4), st.integers(1, 300))
def test_grid_covers_the_top_in_few_even_steps(top: float, cells: int) -> None:
    grid = round_grid(top, cells)
    assert grid[0] == 0.0
    assert grid[-2] <= top * (1 + 1e-9)
    assert top <= grid[-1] * (1 + 1e-9)
    assert grid.size <= cells + 2
    assert np.diff(grid) == pytest.approx(grid[1], rel=1e-6)


def certificates() -> list[buckler.Certificate]:
    counts = np.array([[1000, 0], [950, 50], [500, 500], [20, 980]])
    made = buckler.certify_counts(counts, sigma=1.0, label=[0, 0, 0, 1], method="bonferroni")
    assert isinstance(made, list)
    return made


def test_histogram_counts_every_certificate_once() -> None:
    made = certificates()
    edges = [0.0, made[1].radius, made[0].radius]
    found = radius_histogram(made, [0, 1, 0, 1], edges)
    assert found.abstained == 1
    assert found.wrong.tolist() == [0, 1]
    assert found.right.tolist() == [0, 2]
    assert found.unlabelled.sum() == 0
    bare = radius_histogram(made, None, edges)
    assert bare.unlabelled.tolist() == [0, 3]


def test_bad_input() -> None:
    with pytest.raises(buckler.InvalidInput, match="edges"):
        radius_histogram(certificates(), None, [0.0, 0.0])
    with pytest.raises(buckler.InvalidInput, match="labels"):
        radius_histogram(certificates(), [0], [0.0, 1.0])
    with pytest.raises(buckler.InvalidInput, match="top"):
        round_grid(0.0, 5)
