"""``noise.sample``: noisy copies of a batch for training, distributed as those that votes are counted on."""

from typing import Any

import numpy as np
import pytest

from buckler.errors import InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform
from buckler.sampling.cpu import NoisyCopies
from buckler.sampling.streams import Address, Piece

torch = pytest.importorskip("torch")

X = (np.random.default_rng(0).integers(0, 256, size=(3, 4, 4)) / 255).astype(np.float32)
NOISES = [
    Gaussian(0.25), Gaussian(scale=[[[0.5]], [[0.25]], [[1.0]]]), GridGaussian(0.25), GridGaussian(0.5, clip=255),
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
    pieces = tuple(Piece(0, block, 0, 125) for block in range(ROWS // 125))
    NoisyCopies(noise, 1).write(drawn, pieces, X[None], [Address(5, "a", "estimation")])
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
