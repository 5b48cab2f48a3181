"""Random words: compared as 128-bit numbers on both sides of every tie; ``noise.sample`` draws as votes are drawn."""

from bisect import bisect_right
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.noise.words import Words
from buckler.sampling.cpu import NoisyCopies
from buckler.sampling.streams import Address, Batch, Request


def halves(numbers: list[int]) -> Any:
    """Return the upper and the lower 64 bits of numbers."""
    return np.array([u >> 64 for u in numbers], np.uint64), np.array([u & 2**64 - 1 for u in numbers], np.uint64)


def words_of(rows: list[list[int]]) -> Any:
    """Return the words of 128-bit numbers."""
    return chosen_words([[u >> 64 for u in row] for row in rows], [[u & 2**64 - 1 for u in row] for row in rows])


WORD = 2**64
SOME = [0, 1, WORD - 1, WORD, WORD + 5, 3 * WORD + 7, 3 * WORD + 8, 2**128 - WORD, 2**128 - 2, 2**128 - 1]


def test_thresholds_reached() -> None:
    for edges in (SOME, SOME[3:7], [5 * WORD, 5 * WORD + 1, 5 * WORD + 2], [2**127], []):
        near = sorted({u + k for u in (*SOME, *edges) for k in (-1, 0, 1) if 0 <= u + k < 2**128})
        words = words_of([near, near[::-1]])
        places = np.arange(2 * len(near))
        found = words.reached(*halves(edges), places)
        assert found.tolist() == [bisect_right(edges, u) for u in (*near, *near[::-1])]
        assert words.reached(*halves(edges), places[3:5]).tolist() == found[3:5].tolist()


def test_smallest_numbers_of_each_row() -> None:
    rows = [[7 * WORD + k for k in (3, 1, 2, 9, 0)], [5, WORD, 5 + WORD, 2 * WORD, 4], [9, 8, 7, 6, 5]]
    for keep in range(1, 6):
        shown = words_of(rows).smallest(keep)
        for row, mask in zip(rows, shown.tolist(), strict=True):
            assert mask == [u <= sorted(row)[keep - 1] for u in row]


def test_further_bits_are_drawn_only_where_they_decide() -> None:
    def never(_: Any) -> Any:
        raise AssertionError("drawn without need")

    rng = np.random.default_rng(0)
    words = chosen_words(rng.integers(0, 2**64, size=(4, 50), dtype=np.uint64))
    object.__setattr__(words, "more", never)
    edges = np.sort(rng.integers(0, 2**64, size=30, dtype=np.uint64))
    words.reached(edges, edges, np.arange(200))
    words.below(1275)
    words.smallest(7)
    with pytest.raises(AssertionError, match="without need"):
        words.second(np.array([3]))


def test_part_of_the_rows() -> None:
    words = words_of([[1, 2], [WORD + 3, 4], [5, 2 * WORD + 6]])
    part = words[1:3]
    assert len(part) == 2
    assert part.first.tolist() == [[1, 0], [0, 2]]
    assert part.second(np.array([0, 3, 2])).tolist() == [3, 6, 5]
    assert part[1:2].second(np.array([1])).tolist() == [6]
    with pytest.raises(FrozenInstanceError):
        words.first = part.first


torch = pytest.importorskip("torch")

X = (np.random.default_rng(0).integers(0, 256, size=(3, 4, 4)) / 255).astype(np.float32)
NOISES = [
    Gaussian(0.25), Gaussian(scale=[[[0.5]], [[0.25]], [[1.0]]]), GridGaussian(0.25),
    Uniform(0.5), Splitting(1.0), DerandomizedSplitting(1.0), Ablation(5, 16, channels=3),
]  # fmt: skip
ROWS = 2000


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_copies_are_distributed_as_those_of_certificates(noise: Any, kind: str) -> None:
    batch = np.repeat(X[None], ROWS, axis=0)
    if kind == "torch":
        found = noise.sample(torch.from_numpy(batch).double(), torch.Generator().manual_seed(5))
        assert found.dtype == torch.float64
        found = found.numpy()
    else:
        found = noise.sample(batch, np.random.default_rng(5))
        assert found.dtype == np.float32
    assert found.shape == batch.shape
    drawn = np.empty_like(batch)
    NoisyCopies(noise, 1).write(drawn, Batch.of(Request(0, 0, ROWS)), X[None], [Address(5, "a", "estimation")])
    # Six deviations of each mean: a false alarm has probability 2e-9 for each of at most 48 values.
    for power in (1, 2):
        a, b = found**power, drawn.astype(np.float64) ** power
        deviation = np.sqrt((a.var(axis=0) + b.var(axis=0)) / ROWS)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) <= 6 * deviation + 1e-6).all()
    assert len(np.unique(found.reshape(ROWS, -1), axis=0)) > ROWS // 20


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_a_generator_gives_the_same_copies_again(noise: Any) -> None:
    for batch, make in (
        (torch.from_numpy(X[None]), lambda seed: torch.Generator().manual_seed(seed)),
        (X[None], np.random.default_rng),
    ):
        tries = [[noise.sample(batch, make(seed)) for _ in range(2)] for seed in range(8)]
        assert all((first == second).all() for first, second in tries)
        assert len({first.tobytes() if isinstance(first, np.ndarray) else str(first) for first, _ in tries}) > 1
        noise.sample(batch)


@pytest.mark.parametrize("noise", [GridGaussian(0.25), Uniform(0.5), Splitting(1.0)], ids=repr)
def test_values_off_the_grid_are_refused(noise: Any) -> None:
    with pytest.raises(InvalidInput, match="grid"):
        noise.sample(torch.full((1, 3, 4, 4), 0.1234))


def chosen_words(first: Any, second: Any = 0) -> Words:
    """Return words ``[rows, count]`` with these further bits, one number for all or one for each word."""
    words = np.array(first, dtype=np.uint64)
    further = np.broadcast_to(np.array(second, dtype=np.uint64), words.shape)
    return Words(words, lambda rows: further[rows])
