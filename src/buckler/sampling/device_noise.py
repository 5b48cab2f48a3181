"""Noisy copies on a torch device, bit for bit those of the noise's ``noisy`` or ``numbered`` on the host.

Each noise that is drawn from words has a form here. ``load(x)`` takes the inputs; ``draw(rows)`` returns what the noise
draws from the words of rows; ``noisy(inputs, drawn)`` returns the copies ``[rows, values]``, given the position of each
row's input. ``GridForm`` writes copies in one kernel. Floats come from tables of the host, since a device may round a
division differently.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from buckler.noise import Ablation, DerandomizedSplitting, GridGaussian, Splitting, Uniform
from buckler.noise.exact import LEVELS, whole_steps
from buckler.noise.grid import values_of
from buckler.noise.splitting import STEP, seen_table
from buckler.types import Float32Array

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
        table = values_of(np.arange(first, high + reach + 1), self._noise.fraction)
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
    """``Uniform.noisy``: adds whole steps and looks the sums up."""

    def __init__(self, noise: Uniform, device: str) -> None:
        self._noise, self._device = noise, device

    def load(self, x: Float32Array) -> None:
        """Send the inputs in whole steps, and a table of float32 that covers them and the noise."""
        at = whole_steps(x, self._noise.grid).reshape(len(x), -1)
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
    """``Splitting.noisy``: looks up the middle of the part of each value under its offset."""

    def __init__(self, noise: Splitting, device: str) -> None:
        table = seen_table(noise.count)
        self._noise, self._device, self._width = noise, device, table.shape[1]
        self._table = torch.from_numpy(table.reshape(-1)).to(device)

    def load(self, x: Float32Array) -> None:
        """Send the inputs as rows of the table."""
        at = whole_steps(x, STEP, LEVELS).reshape(len(x), -1) * self._width
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
