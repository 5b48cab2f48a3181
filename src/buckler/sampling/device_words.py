"""Batches of noisy copies from random words, made on a device: the same bits as on the host.

Triton kernels make the words of a batch, each row from the key and counter of its block, and the form of the noise
(``device_noise.FORMS``) makes copies of them. A noise without a form is drawn on the host and sent. The first copies
are compared with the host's. After that nothing here waits for the device, which may still run the batch before.
"""

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import torch

from buckler.errors import BucklerError
from buckler.sampling.backend import NoisyCopies
from buckler.sampling.batches import Batch, Piece, draws_of, inputs_of, size
from buckler.sampling.conv_kernel import AVAILABLE
from buckler.sampling.device_noise import FORMS, GridForm, RowWords
from buckler.sampling.streams import Address
from buckler.types import AnyArray, Float32Array, Noise

MOST = 1 << 26
"""Values of noisy copies made at a time, half a gigabyte of words, but at least one row."""

COMPARED = 3
"""Copies of the first input that are compared with the host's before any vote is counted."""

WORD = (1 << 64) - 1
"""Mask of the bits of a word."""


class Form(Protocol):
    """A noise in torch (see ``device_noise``)."""

    def load(self, x: Float32Array) -> None:
        """Send the inputs ``x[inputs, ...]``."""

    def draw(self, rows: RowWords) -> torch.Tensor:
        """Return what the noise draws for each row from its words."""

    def noisy(self, inputs: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Return float32 ``[rows, values]``: a noisy copy of the input of each row."""


class DeviceWords:
    """Maker of noisy copies on a device."""

    def __init__(self, noise: Noise, device: str) -> None:
        self._noise, self._device, self._compared = noise, device, False
        self._form: Form | GridForm = FORMS[noise.name](noise, device)

    def load(self, x: Float32Array) -> None:
        """Send the inputs; the first time, compare some copies with the host's."""
        self._shape = x.shape[1:]
        self._form.load(x)
        if not self._compared:
            self._compare(x)
            self._compared = True

    def _compare(self, x: Float32Array) -> None:
        # A device or compiler that was not tested may draw other noise, and certificates would be about that.
        part, addresses = (Piece(0, 0, 0, COMPARED),), [Address(0, "0", "estimation")]
        host = np.empty((COMPARED, *self._shape), dtype=np.float32)
        NoisyCopies(self._noise, 1).write(host, part, x, addresses)
        out = torch.empty(host.shape, device=self._device)
        self.write(out, part, addresses)
        if out.cpu().numpy().tobytes() != host.tobytes():
            name = self._noise.describe()
            raise BucklerError(f"{self._device} draws other noise than the host, and {name} needs the same bits")

    def write(self, out: torch.Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        inputs, total = self._send(inputs_of(part)), size(part)
        if isinstance(self._form, GridForm):
            self._form.write(out, inputs, self._words(part, addresses))
            return
        form = self._form
        numbers = self._send(draws_of(part)[:, None]) if self._noise.draws == "numbers" else None
        words = self._words(part, addresses) if numbers is None else None
        rows = max(1, MOST // out[0].numel())
        for some in (slice(a, min(a + rows, total)) for a in range(0, total, rows)):
            drawn = form.draw(words.part(some)) if words is not None else cast(torch.Tensor, numbers)[some]
            out[some] = form.noisy(inputs[some], drawn).view(-1, *self._shape)

    def _words(self, part: Batch, addresses: Sequence[Address]) -> RowWords:
        count: int = self._noise.words(self._shape)  # type: ignore[attr-defined]  # drawn from words
        keys, lengths = [addresses[p.input].at(p.block).key() for p in part], [len(p) for p in part]
        halves = (np.array([key >> shift & WORD for key in keys], dtype=np.uint64) for shift in (0, 64))
        low, high = (self._send(np.repeat(half, lengths).view(np.int64)) for half in halves)
        first = np.concatenate([np.arange(piece.low, piece.high, dtype=np.int64) for piece in part])
        return RowWords(low, high, self._send(first * count), count)

    def _send(self, values: AnyArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def device_words(noise: Noise, device: torch.device) -> DeviceWords | None:
    """Return the maker of noisy copies on a device, or None without CUDA, Triton or a form: then the host draws."""
    fits = device.type == "cuda" and AVAILABLE and noise.draws != "gaussian" and noise.name in FORMS
    return DeviceWords(noise, str(device)) if fits else None
