"""Laws that are drawn from words, on a device: the words of ``noise.words``, bit for bit, and the law's torch form.

A Triton kernel makes the words of a whole batch, each row from the key and the counter of its own block, and the form
of the law (``copies.FORMS``, by its name) turns them into noisy copies. A law without a form is drawn on the host and
sent.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from buckler.sampling.batches import Batch, draws_of, inputs_of, size
from buckler.sampling.copies import FORMS
from buckler.sampling.narrow import AVAILABLE
from buckler.sampling.noise import Address
from buckler.types import Float32Array, Law

TILE = 256
"""Counters of a program; heuristic: affects speed alone."""

MOST = 1 << 26
"""Words, or values of noisy copies, that are held at a time, half a gigabyte, unless those of one row are more."""


class Form(Protocol):
    """A law's drawing in torch."""

    def load(self, x: Float32Array) -> None:
        """Take the inputs ``x[inputs, ...]``."""

    def noisy(self, inputs: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return float32 ``[rows, values]``: a noisy copy of the input of each row from its words, as integers."""


class DeviceWords:
    """Noisy copies of batches from words, on a device."""

    def __init__(self, law: Law, device: str) -> None:
        self._law, self._device = law, device
        self._form: Form = FORMS[law.name](law, device)

    def load(self, x: Float32Array) -> None:
        """Take the inputs."""
        self._shape = x.shape[1:]
        self._form.load(x)

    def write(self, out: torch.Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        count = self._law.words(self._shape)  # type: ignore[attr-defined]  # a law that is drawn from words
        first = np.concatenate([np.arange(piece.low, piece.high, dtype=np.int64) for piece in part])
        inputs = torch.from_numpy(inputs_of(part)).to(self._device)
        rows = max(1, MOST // max(count, out[0].numel()))
        slices = [slice(a, min(a + rows, size(part))) for a in range(0, size(part), rows)]
        if self._law.draws == "numbers":  # in the place of words, a copy has its number
            numbers = torch.from_numpy(draws_of(part)[:, None]).to(self._device)
            drawn = (numbers[some] for some in slices)
        else:
            keys, lengths = [addresses[p.input].at(p.block).key() for p in part], [len(p) for p in part]
            halves = [np.array([key >> shift & (1 << 64) - 1 for key in keys], dtype=np.uint64) for shift in (0, 64)]
            low, high = (torch.from_numpy(np.repeat(half, lengths).view(np.int64)).to(self._device) for half in halves)
            starts = torch.from_numpy(first * count).to(self._device)
            drawn = (words_of(low[some], high[some], starts[some], count) for some in slices)
        for some, words in zip(slices, drawn, strict=True):
            out[some] = self._form.noisy(inputs[some], words).view(-1, *self._shape)


def words_of(low: torch.Tensor, high: torch.Tensor, first: torch.Tensor, count: int) -> torch.Tensor:
    """Return words ``[rows, count]`` as signed integers, from the halves of each row's key and its first word."""
    from buckler.sampling.kernels import philox_words

    out = torch.empty((len(first), count), dtype=torch.int64, device=first.device)
    philox_words[(len(first), -(-(count // 4 + 2) // TILE))](low, high, first, out, count, TILE)
    return out


def device_words(law: Law, device: torch.device) -> DeviceWords | None:
    """Return what draws a law on a device, or None where the host does it: without CUDA, Triton or a form."""
    fits = device.type == "cuda" and AVAILABLE and law.draws != "gaussian" and law.name in FORMS
    return DeviceWords(law, str(device)) if fits else None
