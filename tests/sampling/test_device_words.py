"""Words and noisy copies on a device are those of the host, bit for bit.

The kernel is run in Triton's interpreter and the form on the CPU; both on CUDA in ``test_cuda``, where there is one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from buckler.noise import GridGaussian
from buckler.sampling.cuda import device_words
from buckler.sampling.streams import Address, words

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.sampling.kernels_interpreted"


def ran(*program: str, **environment: str) -> str:
    """Return what a program prints."""
    command = [sys.executable, *program]
    done = subprocess.run(command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
def test_the_kernel_makes_the_words_of_the_host() -> None:
    assert ran("-m", PROGRAM, TRITON_INTERPRET="1") == "the same words\n"


COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from buckler.sampling.kernels import grid_copies, philox_below, philox_words, smallest_words
rows = {"low_keys": "*i64", "high_keys": "*i64", "first": "*i64"}
grid = rows | {"inputs": "*i64", "at": "*i32", "guide": "*i32", "edges": "*i64", "low_edges": "*i64", "table": "*fp32",
               "out": "*fp32", "count": "i32", "clip": "i32", "BITS": "constexpr", "CLIPPED": "constexpr",
               "TILE": "constexpr"}
words = rows | {"out": "*i64", "count": "i32", "TILE": "constexpr"}
below = rows | {"out": "*i32", "count": "i32", "below": "i32", "TILE": "constexpr"}
one = below | {"below": "constexpr"}  # Triton makes a constant of a 1
smallest = rows | {"words": "*i64", "last": "*i64", "out": "*i8", "count": "i32", "keep": "i32", "TILES": "i32",
                   "TILE": "constexpr"}
for kernel, signature, chosen in (
    (grid_copies, grid, {"BITS": 15, "CLIPPED": True, "TILE": 256}), (philox_words, words, {"TILE": 256}),
    (philox_below, below, {"TILE": 256}), (philox_below, one, {"below": 1, "TILE": 256}),
    (smallest_words, smallest, {"TILE": 256}),
):
    source = ASTSource(kernel, signature, chosen)
    assert "st.global" in compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
print("compiled")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which comes with torch for CUDA")
def test_the_kernels_compile_where_there_is_no_device(tmp_path: Path) -> None:
    assert ran("-c", COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "compiled\n"


def philox(key: int, counter: int, part: int = 0) -> list[int]:
    """Four words of Philox-4x64 with ten rounds, by its definition (Salmon et al. 2011)."""
    full = (1 << 64) - 1
    k0, k1, c = key & full, key >> 64, [counter, part, 0, 0]
    for _ in range(10):
        one, two = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [two >> 64 ^ c[1] ^ k0, two & full, one >> 64 ^ c[3] ^ k1, one & full]
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & full, k1 + 0xBB67AE8584CAA73B & full
    return c


def test_words_are_philox_by_its_definition() -> None:
    address = Address(9, "z", "estimation", 1)
    expected = [word for counter in range(1, 6) for word in philox(address.key(), counter)]
    drawn = words(address, 1, 20)
    assert drawn.first[0].tolist() == expected
    further = [word for counter in range(1, 6) for word in philox(address.key(), counter, 1)]
    assert drawn.more(np.array([0]))[0].tolist() == further


def test_without_a_device_the_host_draws() -> None:
    assert device_words(GridGaussian(0.25), torch.device("cpu")) is None
