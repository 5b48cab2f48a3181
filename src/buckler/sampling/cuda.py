"""Noise on a CUDA device: its own normal numbers, and noise from random words, bit for bit that of the host.

Triton kernels (``kernels``) make the words of a batch, each row from the key and counter of its block, and the form of
the noise makes copies of them; every noise that is drawn from words has a form. ``load(x)`` takes the inputs;
``draw(rows)`` returns what the noise draws from the words of rows; ``noisy(inputs, drawn)`` returns the copies
``[rows, values]``, given the position of each row's input. ``GridForm`` writes copies in one kernel. Floats come from
tables of the host, since a device may round a division differently. The first copies are compared with the host's.
After that nothing here waits for the device, which may still run the batch before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from buckler.errors import BucklerError
from buckler.noise import Ablation, DerandomizedSplitting, GridGaussian, Splitting, Uniform
from buckler.noise.grid import values_of
from buckler.noise.splitting import seen_table
from buckler.sampling.cpu import NoisyCopies
from buckler.sampling.fusion import AVAILABLE
from buckler.sampling.streams import Address, Batch, Piece, row_draws, row_inputs, size
from buckler.types import AnyArray, Float32Array, Noise

SIGN = -(1 << 63)
"""Flips the highest bit of a word, so that signed integers, which torch has, compare like unsigned ones."""


GUIDE_BITS = 15
"""Highest bits of a word that index the guide, which narrows the search for its threshold. A larger guide leaves the
fastest memory, a smaller one leaves more to search. Heuristic: affects speed alone."""

TILE = 256
"""Counters, of four words each, for each program of a kernel. Heuristic: affects speed alone."""


@dataclass(frozen=True, slots=True)
class RowWords:
    """Addresses of the words of rows: both halves of each row's key and the number of its first word, on the device."""

    low: Tensor
    high: Tensor
    first: Tensor
    count: int

    def part(self, some: slice) -> "RowWords":
        """Return some of the rows."""
        return RowWords(self.low[some], self.high[some], self.first[some], self.count)

    @property
    def programs(self) -> tuple[int, int]:
        """Grid of programs of a kernel: the rows, and the tiles of counters that cover the words of a row."""
        return len(self.first), -(-(self.count // 4 + 2) // TILE)

    def words(self) -> Tensor:
        """Return words ``[rows, count]`` as signed integers."""
        from buckler.sampling.kernels import philox_words

        out = self._empty(torch.int64)
        philox_words[self.programs](self.low, self.high, self.first, out, self.count, TILE)
        return out

    def below(self, count: int) -> Tensor:
        """Return whole numbers from 0 to ``count - 1`` as ``Words.below`` makes them, int32 ``[rows, count]``."""
        from buckler.sampling.kernels import philox_below

        out = self._empty(torch.int32)
        philox_below[self.programs](self.low, self.high, self.first, out, self.count, count, TILE)
        return out

    def smallest(self, keep: int) -> Tensor:
        """Return the places of the ``keep`` smallest words of each row, as ``Words.smallest`` finds them."""
        from buckler.sampling.kernels import smallest_words

        order, out = self.words() ^ SIGN, self._empty(torch.int8)
        last = order.kthvalue(keep, dim=1).values
        tiles = -(-self.count // (4 * TILE))
        smallest_words[(len(order),)](
            self.low, self.high, self.first, order, last, out, self.count, keep, tiles, TILE
        )  # fmt: skip
        return out.bool()

    def _empty(self, kind: torch.dtype) -> Tensor:
        return torch.empty((len(self.first), self.count), dtype=kind, device=self.first.device)


class GridForm:
    """``GridGaussian.noisy`` in one kernel: makes words, counts thresholds, adds whole numbers, looks floats up."""

    def __init__(self, noise: GridGaussian, device: str) -> None:
        edges, low = noise.thresholds
        self._noise, self._device, self._half = noise, device, noise.reach
        cells = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - GUIDE_BITS)
        guide = np.append(np.searchsorted(edges, cells), len(edges)).astype(np.int32)
        tables = edges.view(np.int64), low.view(np.int64), guide
        self._edges, self._low, self._guide = (torch.from_numpy(table).to(device) for table in tables)

    def load(self, x: Float32Array) -> None:
        """Send the inputs in whole steps, and a table of float32 that covers them and the noise."""
        at = self._noise.indices(x).reshape(len(x), -1)
        low, high = (int(at.min()), int(at.max())) if self._noise.clip is None else (0, self._noise.clip)
        reach = self._half if self._noise.clip is None else 0
        first = low - reach
        table = values_of(np.arange(first, high + reach + 1), self._noise.grid)
        self._table = torch.from_numpy(table).to(self._device)
        # The kernel adds the number of thresholds reached, which is the noise plus half of all thresholds.
        self._at = torch.from_numpy((at - self._half - first).astype(np.int32)).to(self._device)

    def write(self, out: Tensor, inputs: Tensor, rows: RowWords) -> None:
        """Write the noisy copies, one for each row."""
        from buckler.sampling.kernels import grid_copies

        grid_copies[rows.programs](
            rows.low, rows.high, rows.first, inputs, self._at, self._guide, self._edges, self._low, self._table, out,
            rows.count,
            self._noise.clip or 0, GUIDE_BITS, self._noise.clip is not None, TILE,
        )  # fmt: skip


class UniformForm:
    """Uniform noise on a device: adds whole steps to each value and looks up the float32 of the sum."""

    def __init__(self, noise: Uniform, device: str) -> None:
        self._noise, self._device = noise, device

    def load(self, x: Float32Array) -> None:
        """Send the inputs in whole steps, and a table of float32 that covers them and the noise."""
        at = self._noise.indices(x).reshape(len(x), -1)
        low, reach = int(at.min()), self._noise.count // 2
        table = values_of(np.arange(low - reach, int(at.max()) + reach + 1), self._noise.grid)
        self._table = torch.from_numpy(table).to(self._device)
        self._at = torch.from_numpy((at - low).astype(np.int32)).to(self._device)

    def draw(self, rows: RowWords) -> Tensor:
        """Return the number of each value's move."""
        return rows.below(self._noise.count)

    def noisy(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """Return copies moved by whole steps."""
        places = drawn + self._at[inputs]
        return self._table.index_select(0, places.view(-1)).view(places.shape)


class SplittingForm:
    """Splitting noise on a device: looks up the middle of the part of the range that holds a value."""

    def __init__(self, noise: Splitting, device: str) -> None:
        table = seen_table(noise.count)
        self._noise, self._device, self._width = noise, device, table.shape[1]
        self._table = torch.from_numpy(table.reshape(-1)).to(device)

    def load(self, x: Float32Array) -> None:
        """Send the inputs as rows of the table."""
        at = self._noise.indices(x).reshape(len(x), -1) * self._width
        self._at = torch.from_numpy(at.astype(np.int32)).to(self._device)

    def draw(self, rows: RowWords) -> Tensor:
        """Return the offset of each value."""
        return rows.below(self._noise.count)

    def noisy(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """Return the copies under these offsets."""
        places = drawn.clamp(max=self._width - 1).add_(self._at[inputs])
        return self._table.index_select(0, places.view(-1)).view(places.shape)


class DerandomizedForm(SplittingForm):
    """``DerandomizedSplitting.numbered``: ``drawn`` are the numbers of the copies."""

    def load(self, x: Float32Array) -> None:
        """Send the inputs and the offsets of the template."""
        super().load(x)
        assert isinstance(self._noise, DerandomizedSplitting)  # noqa: S101  (see FORMS)
        self._start = torch.from_numpy(self._noise.start(x[0].size).astype(np.int32)).to(self._device)

    def noisy(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """Return the copies under the template's offsets, shifted by the number of each copy."""
        return super().noisy(inputs, (self._start + drawn.int()).remainder_(self._noise.count))


class AblationForm:
    """``Ablation.noisy``: shows the pixels of the smallest words."""

    def __init__(self, noise: Ablation, device: str) -> None:
        self._noise, self._device = noise, device

    def load(self, x: Float32Array) -> None:
        """Send the inputs, channel by channel."""
        self._x = torch.from_numpy(x.reshape(len(x), -1, self._noise.pixels)).to(self._device)

    def draw(self, rows: RowWords) -> Tensor:
        """Return which pixels are shown."""
        return rows.smallest(self._noise.keep)

    def noisy(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """Return copies with all other pixels marked."""
        return torch.where(drawn[:, None], self._x[inputs], self._noise.mark).flatten(1)


FORMS: dict[str, Any] = {
    GridGaussian.name: GridForm,
    Uniform.name: UniformForm,
    Splitting.name: SplittingForm,
    DerandomizedSplitting.name: DerandomizedForm,
    Ablation.name: AblationForm,
}
"""The form of each noise, by its name."""


DEVICE_VALUES_AT_A_TIME = 1 << 26
"""Values of noisy copies made at a time, half a gigabyte of words, but at least one row."""

COMPARED = 3
"""Copies of the first input that are compared with the host's before any vote is counted."""

WORD_MASK = (1 << 64) - 1
"""Mask of the bits of a word."""


class Form(Protocol):
    """A noise in torch, which makes copies of inputs from the words of rows."""

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
        inputs, total = self._send(row_inputs(part)), size(part)
        if isinstance(self._form, GridForm):
            self._form.write(out, inputs, self._words(part, addresses))
            return
        form = self._form
        numbers = self._send(row_draws(part)[:, None]) if self._noise.draws == "numbers" else None
        words = self._words(part, addresses) if numbers is None else None
        rows = max(1, DEVICE_VALUES_AT_A_TIME // out[0].numel())
        for some in (slice(a, min(a + rows, total)) for a in range(0, total, rows)):
            drawn = form.draw(words.part(some)) if words is not None else cast(torch.Tensor, numbers)[some]
            out[some] = form.noisy(inputs[some], drawn).view(-1, *self._shape)

    def _words(self, part: Batch, addresses: Sequence[Address]) -> RowWords:
        count: int = self._noise.words(self._shape)  # type: ignore[attr-defined]  # drawn from words
        keys, lengths = [addresses[p.input].at(p.block).key() for p in part], [len(p) for p in part]
        halves = (np.array([key >> shift & WORD_MASK for key in keys], dtype=np.uint64) for shift in (0, 64))
        low, high = (self._send(np.repeat(half, lengths).view(np.int64)) for half in halves)
        first = np.concatenate([np.arange(piece.low, piece.high, dtype=np.int64) for piece in part])
        return RowWords(low, high, self._send(first * count), count)

    def _send(self, values: AnyArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def device_words(noise: Noise, device: torch.device) -> DeviceWords | None:
    """Return the maker of noisy copies on a device, or None without CUDA, Triton or a form: then the host draws."""
    fits = device.type == "cuda" and AVAILABLE and noise.draws != "gaussian" and noise.name in FORMS
    return DeviceWords(noise, str(device)) if fits else None
