"""Words and noisy copies on a device are those of the host, bit for bit.

The kernel is run in Triton's interpreter and the form on the CPU; both on CUDA in ``test_cuda``, where there is one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from buckler.noise import GridGaussian
from buckler.sampling.device_words import device_words
from buckler.sampling.streams import Address, words

KERNEL = """
import numpy as np, torch
from buckler.sampling.device_noise import RowWords
from buckler.sampling.streams import Address, words
blocks = [Address(5, "a", "estimation", 3), Address(6, "b", "selection", 0)]
for count in (1, 7, 3072):
    keys = [block.key() for block in blocks for _ in range(3)]
    low, high = (torch.from_numpy(np.array([key >> shift & 2**64 - 1 for key in keys], np.uint64).view(np.int64))
                 for shift in (0, 64))
    first = torch.tensor([2, 3, 4, 125, 126, 127]) * count
    found = RowWords(low, high, first, count).words().numpy().view(np.uint64)
    assert (found[:3] == words(blocks[0], 3, count, 2)).all(), count
    assert (found[3:] == words(blocks[1], 3, count, 125)).all(), count
from buckler import noise
from buckler.sampling import device_words
from buckler.sampling.backend import NoisyCopies
from buckler.sampling.batches import Piece
device_words.MOST = 1000  # several pieces of a batch
part = Piece(0, 0, 3, 7), Piece(1, 2, 0, 5), Piece(0, 1, 127, 128)
levels = np.random.default_rng(0).integers(0, 17, size=(2, 3, 6, 6))
sixteenths, x = ((levels / base).astype(np.float32) for base in (16.0, 255.0))
for law in (noise.GridGaussian(0.25), noise.GridGaussian(0.25, clip=255), noise.GridGaussian(0.03, 1 / 16),
            noise.Uniform(0.5), noise.Splitting(0.5), noise.DerandomizedSplitting(0.5), noise.Ablation(5, 36)):
    drawn, out, host = device_words.DeviceWords(law, "cpu"), torch.empty((10, 3, 6, 6)), np.empty((10, 3, 6, 6), "f4")
    inputs = sixteenths if law.parameters.get("step") == 1 / 16 else x
    drawn.load(inputs)
    drawn.write(out, part, blocks)
    NoisyCopies(law, 1).write(host, part, inputs, blocks)
    assert (out.numpy() == host).all(), law
# Thresholds at words that are drawn, before and after them, several to a cell of the guide: none is missed by one.
drawn = words(blocks[0], 128, 108)
some = np.concatenate([drawn[3, :40] + np.uint64(k) for k in (0, 1, 2)] + [drawn[4, :40] - np.uint64(1)])
edges = np.unique(np.concatenate([some, np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)]))
assert len(edges) % 2 == 0
class Planted(noise.GridGaussian):
    thresholds = property(lambda self: edges)
    def noise(self, words):
        return (np.searchsorted(edges, words, side="right") - len(edges) // 2).astype(np.int32)
law = Planted(0.25)
reader, out = device_words.DeviceWords(law, "cpu"), torch.empty((4, 3, 6, 6))
reader.load(x)
reader.write(out, (Piece(0, 3, 3, 5), Piece(1, 0, 0, 2)), [blocks[0], blocks[1]])
noise = np.searchsorted(edges, np.concatenate([drawn[3:5], words(blocks[1], 2, 108)]), side="right") - len(edges) // 2
expected = law.values(law.indices(x).reshape(2, -1)[[0, 0, 1, 1]] + noise).reshape(4, 3, 6, 6)
assert len(set(noise[0])) > 30 and (out.numpy() == expected).all()
print("the same words")
"""


def ran(text: str, **environment: str) -> str:
    """Return what a program prints."""
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
def test_the_kernel_makes_the_words_of_the_host() -> None:
    assert ran(KERNEL, TRITON_INTERPRET="1") == "the same words\n"


COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from buckler.sampling.kernels import grid_copies, philox_words
rows = {"low_keys": "*i64", "high_keys": "*i64", "first": "*i64"}
grid = rows | {"inputs": "*i64", "at": "*i32", "guide": "*i32", "edges": "*i64", "table": "*fp32", "out": "*fp32",
               "count": "i32", "clip": "i32", "BITS": "constexpr", "CLIPPED": "constexpr", "TILE": "constexpr"}
words = rows | {"out": "*i64", "count": "i32", "TILE": "constexpr"}
for kernel, signature, chosen in ((grid_copies, grid, {"BITS": 15, "CLIPPED": True, "TILE": 256}),
                                  (philox_words, words, {"TILE": 256})):
    source = ASTSource(kernel, signature, chosen)
    assert "st.global" in compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
print("compiled")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
def test_the_kernels_compile_where_there_is_no_device(tmp_path: Path) -> None:
    assert ran(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "compiled\n"


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


def test_without_a_device_the_host_draws() -> None:
    assert device_words(GridGaussian(0.25), torch.device("cpu")) is None
