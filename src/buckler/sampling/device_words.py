"""Laws that are drawn from words, on a device: the words of ``noise.words``, bit for bit, and the law's torch form.

A Triton kernel makes the words of a whole batch, each row from the key and the counter of its own block, and the form
of the law (``copies.FORMS``, by its name) turns them into noisy copies. A law without a form is drawn on the host and
sent. Nothing here waits for the device, which is still busy with the batch before.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from buckler.sampling.batches import Batch, draws_of, inputs_of, size
from buckler.sampling.copies import FORMS, GridForm, RowWords
from buckler.sampling.narrow import AVAILABLE
from buckler.sampling.noise import Address
from buckler.types import AnyArray, Float32Array, Law

MOST = 1 << 26
"""Words, or values of noisy copies, that are held at a time, half a gigabyte, unless those of one row are more."""

HALF = (1 << 64) - 1


class DeviceWords:
    """Noisy copies of batches from words, on a device."""

    def __init__(self, law: Law, device: str) -> None:
        self._law, self._device = law, device
        self._form: Any = FORMS[law.name](law, device)

    def load(self, x: Float32Array) -> None:
        """Take the inputs."""
        self._shape = x.shape[1:]
        self._form.load(x)

    def write(self, out: torch.Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        inputs = self._send(inputs_of(part))
        if self._law.draws == "numbers":  # in the place of words, a copy has its number
            numbers = self._send(draws_of(part)[:, None])
            for some in self._slices(out, size(part), 1):
                self._put(out, some, inputs, numbers[some])
            return
        rows = self._words(part, addresses)
        if isinstance(self._form, GridForm):
            self._form.write(out, inputs, rows)
            return
        for some in self._slices(out, size(part), rows.count):
            self._put(out, some, inputs, rows.part(some).words())

    def _put(self, out: torch.Tensor, some: slice, inputs: torch.Tensor, words: torch.Tensor) -> None:
        out[some] = self._form.noisy(inputs[some], words).view(-1, *self._shape)

    def _slices(self, out: torch.Tensor, rows: int, count: int) -> list[slice]:
        some = max(1, MOST // max(count, out[0].numel()))
        return [slice(a, min(a + some, rows)) for a in range(0, rows, some)]

    def _words(self, part: Batch, addresses: Sequence[Address]) -> RowWords:
        count: int = self._law.words(self._shape)  # type: ignore[attr-defined]  # a law that is drawn from words
        keys, lengths = [addresses[p.input].at(p.block).key() for p in part], [len(p) for p in part]
        halves = (np.array([key >> shift & HALF for key in keys], dtype=np.uint64) for shift in (0, 64))
        low, high = (self._send(np.repeat(half, lengths).view(np.int64)) for half in halves)
        first = np.concatenate([np.arange(piece.low, piece.high, dtype=np.int64) for piece in part])
        return RowWords(low, high, self._send(first * count), count)

    def _send(self, values: AnyArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def device_words(law: Law, device: torch.device) -> DeviceWords | None:
    """Return what draws a law on a device, or None where the host does it: without CUDA, Triton or a form."""
    fits = device.type == "cuda" and AVAILABLE and law.draws != "gaussian" and law.name in FORMS
    return DeviceWords(law, str(device)) if fits else None
