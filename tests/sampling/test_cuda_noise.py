"""Noise on a device is that of the host, bit for bit: words, copies, and the kernels that make them.

The kernels are run in Triton's interpreter and the forms on the CPU; both on CUDA in ``test_cuda``, where there is one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import BucklerError
from buckler.noise import Ablation, DerandomizedSplitting, GridGaussian, Splitting, Uniform
from buckler.noise.grid import values_of
from buckler.noise.words import Words
from buckler.sampling.streams import Address, Batch, PhiloxNoise, Request
from tests.noise.test_words import chosen_words

torch = pytest.importorskip("torch")

from buckler.sampling.device import FORMS, DeviceWords, TableForm, device_copies  # noqa: E402

NOISES: list[Any] = [
    Uniform(0.5), Uniform(2.5 / 255), Uniform(1000.5, step=1.0), Uniform(0.375, step=0.25), Splitting(2.5),
    Splitting(0.5), Splitting(256 / 510), Splitting(0.1), Splitting(3 / 510),
    DerandomizedSplitting(2.5, template=3), Ablation(1, 12, channels=3), Ablation(5, 12, channels=3),
    Ablation(12, 12, channels=3), Ablation(5, 36),
]  # fmt: skip


class Drawn:
    """What a noise draws from words that are chosen, in the place of the kernels."""

    def __init__(self, drawn: list[Words]) -> None:
        self.drawn = drawn

    def below(self, count: int) -> Any:
        return torch.from_numpy(np.concatenate([one.below(count).astype(np.int32) for one in self.drawn]))

    def smallest(self, keep: int) -> Any:
        return torch.from_numpy(np.concatenate([one.smallest(keep) for one in self.drawn]))


def test_a_form_is_the_law() -> None:
    steps = np.random.default_rng(0).integers(0, 256, size=(3, 3, 3, 4))
    for noise in NOISES:
        x = values_of(steps, noise.grid if isinstance(noise, Uniform) else Splitting(1.0).grid)
        if isinstance(noise, DerandomizedSplitting):
            numbers = np.arange(21)[:, None] * 63
            host = [noise.numbered(one, some[:, 0]) for one, some in zip(x, np.split(numbers, 3), strict=True)]
            rows: Any = torch.from_numpy(numbers)
        else:
            drawn = []
            for i, one in enumerate(x):
                size = 7, noise.words(one.shape)
                first = np.random.default_rng(i).integers(0, 2**64, size=size, dtype=np.uint64)
                first[:3] = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)[:, None]
                drawn.append(chosen_words(first, np.arange(first.size).reshape(first.shape)))
            rows, host = Drawn(drawn), [noise.noisy(one, words) for one, words in zip(x, drawn, strict=True)]
        form, out = FORMS[noise.name](noise, "cpu"), torch.empty((21, *x.shape[1:]))
        form.load(x)
        form.write(out, torch.arange(3).repeat_interleave(7), rows)
        np.testing.assert_array_equal(out.numpy(), np.concatenate(host), err_msg=str(noise))


def test_a_device_that_draws_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = values_of(np.arange(24).reshape(2, 3, 2, 2), Splitting(1.0).grid)
    for lam in (2.5, 1 / 510):  # with many copies, and with one
        DeviceWords(DerandomizedSplitting(lam), "cpu").load(x)
    right = TableForm.write

    def wrong(self: Any, out: Any, inputs: Any, rows: Any) -> None:
        right(self, out, inputs, rows)
        out[-1, -1] += 2.0**-20

    monkeypatch.setattr(TableForm, "write", wrong)
    with pytest.raises(BucklerError, match="cpu draws other noise than the host"):
        DeviceWords(DerandomizedSplitting(2.5), "cpu").load(x)


def test_numbered_copies_are_made_whatever_the_batch() -> None:
    noise = DerandomizedSplitting(2.5)
    x = values_of(np.arange(24).reshape(2, 3, 2, 2), Splitting(1.0).grid)
    part = Batch.of(Request(0, 228, 256), Request(1, 256, 259))
    device = DeviceWords(noise, "cpu")
    device.load(x)
    out = torch.zeros((40, 3, 2, 2))
    device.write(out, part, [])
    for rows, which, numbers in ((slice(0, 28), 0, np.arange(228, 256)), (slice(28, 31), 1, np.arange(256, 259))):
        expected = noise.numbered(x[which], numbers)
        np.testing.assert_array_equal(out[rows].numpy(), expected)
    assert not out[31:].any()


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
               "out": "*fp32", "count": "i32", "BITS": "constexpr", "TILE": "constexpr"}
words = rows | {"out": "*i64", "count": "i32", "TILE": "constexpr"}
below = rows | {"out": "*i32", "count": "i32", "below": "i32", "TILE": "constexpr"}
one = below | {"below": "constexpr"}  # Triton makes a constant of a 1
smallest = rows | {"words": "*i64", "last": "*i64", "out": "*i8", "count": "i32", "keep": "i32", "TILES": "i32",
                   "TILE": "constexpr"}
for kernel, signature, chosen in (
    (grid_copies, grid, {"BITS": 15, "TILE": 256}), (philox_words, words, {"TILE": 256}),
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
    drawn = PhiloxNoise().words(address, 1, 20)
    assert drawn.first[0].tolist() == expected
    further = [word for counter in range(1, 6) for word in philox(address.key(), counter, 1)]
    assert drawn.more(np.array([0]))[0].tolist() == further


def test_without_a_device_the_host_draws() -> None:
    assert device_copies(GridGaussian(0.25), torch.device("cpu"), "philox") is None
