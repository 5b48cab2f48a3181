"""Words and noisy copies on a device are those of the host, bit for bit.

The kernel is run in Triton's interpreter and the form on the CPU; both on CUDA in ``test_cuda``, where there is one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from buckler.laws import GridGaussian
from buckler.sampling.copies import GridForm
from buckler.sampling.device_words import device_words
from buckler.sampling.noise import Address, words
from buckler.types import AnyArray

KERNEL = """
import numpy as np, torch
from buckler.sampling.device_words import words_of
from buckler.sampling.noise import Address, words
blocks = [Address(5, "a", "estimation", 3), Address(6, "b", "selection", 0)]
for count in (1, 7, 3072):
    keys = [block.key() for block in blocks for _ in range(3)]
    low, high = (torch.from_numpy(np.array([key >> shift & 2**64 - 1 for key in keys], np.uint64).view(np.int64))
                 for shift in (0, 64))
    first = torch.tensor([2, 3, 4, 125, 126, 127]) * count
    found = words_of(low, high, first, count).numpy().view(np.uint64)
    assert (found[:3] == words(blocks[0], 3, count, 2)).all(), count
    assert (found[3:] == words(blocks[1], 3, count, 125)).all(), count
from buckler import laws
from buckler.sampling import device_words
from buckler.sampling.backend import NoisyCopies
from buckler.sampling.batches import Piece
device_words.MOST = 1000  # several pieces of a batch
part = Piece(0, 0, 3, 7), Piece(1, 2, 0, 5), Piece(0, 1, 127, 128)
x = (np.random.default_rng(0).integers(0, 256, size=(2, 3, 6, 6)) / 255.0).astype(np.float32)
for law in (laws.GridGaussian(0.25), laws.Uniform(0.5), laws.Splitting(0.5), laws.DerandomizedSplitting(0.5),
            laws.Ablation(5, 36)):
    drawn, out, host = device_words.DeviceWords(law, "cpu"), torch.empty((10, 3, 6, 6)), np.empty((10, 3, 6, 6), "f4")
    drawn.load(x)
    drawn.write(out, part, blocks)
    NoisyCopies(law, 1).write(host, part, x, blocks)
    assert (out.numpy() == host).all(), law
print("the same words")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
def test_the_kernel_makes_the_words_of_the_host() -> None:
    done = subprocess.run(  # noqa: S603  (this Python, and a text of ours)
        [sys.executable, "-c", KERNEL],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "the same words\n", done.stderr


def philox(key: int, counter: int) -> list[int]:
    """Four words of Philox-4x64 with ten rounds, by its definition (Salmon et al. 2011)."""
    full = (1 << 64) - 1
    k0, k1, c = key & full, key >> 64, [counter, 0, 0, 0]
    for _ in range(10):
        one, two = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [two >> 64 ^ c[1] ^ k0, two & full, one >> 64 ^ c[3] ^ k1, one & full]
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & full, k1 + 0xBB67AE8584CAA73B & full
    return c


def test_words_are_philox_by_its_definition() -> None:
    address = Address(9, "z", "estimation", 1)
    expected = [word for counter in range(1, 6) for word in philox(address.key(), counter)]
    assert words(address, 1, 20)[0].tolist() == expected


def signed(drawn: AnyArray) -> torch.Tensor:
    return torch.from_numpy(drawn.view(np.int64))


@pytest.mark.parametrize("law", [GridGaussian(0.25), GridGaussian(0.25, clip=255), GridGaussian(0.03, 1 / 16)])
def test_the_form_of_the_grid_makes_the_copies_of_the_host(law: GridGaussian) -> None:
    top = round(1 / law.step)
    x = law.values(np.random.default_rng(0).integers(0, top + 1, size=(3, 2, 5)))
    drawn = words(Address(1, "q", "estimation"), 40, 10)
    # Words at the ends, where a signed comparison would go wrong, and at thresholds themselves.
    drawn[0] = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, *(int(t) for t in law.thresholds[:5])]
    form = GridForm(law, "cpu")
    form.load(x)
    for which in range(3):
        found = form.noisy(torch.full((40,), which), signed(drawn)).numpy()
        assert np.array_equal(found.reshape(40, 2, 5), law.noisy(x[which], drawn))


def test_without_a_device_the_host_draws() -> None:
    assert device_words(GridGaussian(0.25), torch.device("cpu")) is None
