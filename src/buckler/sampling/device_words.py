"""Laws that are drawn from words, on a device: the words of ``noise.words``, bit for bit, and the law's torch form.

A Triton kernel makes the words of a whole batch, each row from the key and the counter of its own block, and the form
of the law (``FORMS``, by its name) turns them into noisy copies. A law without a form is drawn on the host and sent.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from buckler.laws import GridGaussian
from buckler.laws.grid import values_of
from buckler.sampling.batches import Batch, draws_of, inputs_of, size
from buckler.sampling.copies import FORMS as WHOLE_NUMBERS
from buckler.sampling.narrow import AVAILABLE
from buckler.sampling.noise import Address
from buckler.types import Float32Array, Law

TILE = 256
"""Counters of a program; heuristic: affects speed alone."""

MOST_WORDS = 1 << 26
"""Words that are held at a time, half a gigabyte, unless those of one row are more."""

SIGN = -(1 << 63)
"""The highest bit: with it flipped, words compare as signed integers, which are all that torch has."""


class Form(Protocol):
    """A law's drawing in torch."""

    def load(self, x: Float32Array) -> None:
        """Take the inputs ``x[inputs, ...]``."""

    def noisy(self, inputs: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return float32 ``[rows, values]``: a noisy copy of the input of each row from its words, as integers."""


class GridForm:
    """``GridGaussian.noisy`` in torch: thresholds are counted, whole numbers added, and the sum looked up."""

    def __init__(self, law: GridGaussian, device: str) -> None:
        """Put the thresholds on the device."""
        edges = law.thresholds
        self._law, self._device, self._half = law, device, len(edges) // 2
        self._edges = torch.from_numpy((edges ^ np.uint64(1 << 63)).view(np.int64)).to(device)

    def load(self, x: Float32Array) -> None:
        """Take the inputs in whole steps, and a table of floats that reaches as far as noise does."""
        at = self._law.indices(x).reshape(len(x), -1)
        low, high = (int(at.min()), int(at.max())) if self._law.clip is None else (0, self._law.clip)
        reach = self._half if self._law.clip is None else 0
        first = low - reach
        table = values_of(np.arange(first, high + reach + 1), self._law.fraction)
        self._table = torch.from_numpy(table).to(self._device)
        # What is counted is the noise and half of the thresholds; places in the table begin at its first number.
        self._at = torch.from_numpy((at - self._half - first).astype(np.int32)).to(self._device)

    def noisy(self, inputs: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the noisy copies."""
        total = torch.searchsorted(self._edges, words ^ SIGN, right=True, out_int32=True)
        total += self._at[inputs]
        if self._law.clip is not None:
            total.clamp_(0, self._law.clip)
        return self._table.index_select(0, total.view(-1)).view(total.shape)


FORMS: dict[str, Any] = {GridGaussian.name: GridForm, **WHOLE_NUMBERS}
"""The torch form of each law that has one, made of the law and a device."""


class DeviceWords:
    """Noisy copies of batches from words, on a device."""

    def __init__(self, law: Law, device: str) -> None:
        """Make the law's form."""
        self._law, self._device = law, device
        self._form: Form = FORMS[law.name](law, device)

    def load(self, x: Float32Array) -> None:
        """Take the inputs."""
        self._shape = x.shape[1:]
        self._form.load(x)

    def write(self, out: torch.Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        if self._law.draws == "numbers":
            inputs, numbers = (torch.from_numpy(of(part)).to(self._device) for of in (inputs_of, draws_of))
            out[: size(part)] = self._form.noisy(inputs, numbers[:, None]).view(-1, *self._shape)
            return
        count = self._law.words(self._shape)  # type: ignore[attr-defined]  # a law that is drawn from words
        keys = [addresses[piece.input].at(piece.block).key() for piece in part]
        lengths = [len(piece) for piece in part]
        halves = [np.array([key >> shift & (1 << 64) - 1 for key in keys], dtype=np.uint64) for shift in (0, 64)]
        first = np.concatenate([np.arange(piece.low, piece.high, dtype=np.int64) for piece in part]) * count
        low, high = (torch.from_numpy(np.repeat(half, lengths).view(np.int64)).to(self._device) for half in halves)
        starts, inputs = (torch.from_numpy(values).to(self._device) for values in (first, inputs_of(part)))
        rows = max(1, MOST_WORDS // count)
        for a in range(0, size(part), rows):
            some = slice(a, min(a + rows, size(part)))
            drawn = words_of(low[some], high[some], starts[some], count)
            out[some] = self._form.noisy(inputs[some], drawn).view(-1, *self._shape)


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
