"""Laws of whole numbers on a torch device: words to noisy copies, bit for bit what the laws' ``noisy`` returns.

A form is made of a law and a device. ``load`` takes the inputs; ``noisy(inputs, words)`` returns the copies ``[rows,
values]``, given the position of each row's input and its words ``[rows, words]``, int64 with the bits of the unsigned
ones. The form of the grid, the law for which most is drawn, writes the copies itself. Floats are looked up, never
computed: a device may divide otherwise.
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

LOW_HALF, SIGN = 0xFFFFFFFF, -(1 << 63)
"""With its highest bit flipped, a word compares as a signed integer, which is all that torch has."""


GUIDE_BITS = 15
"""Highest bits of a word that narrow its search down. With more the guide leaves the fastest memory, with fewer more
words have to be searched for; heuristic: affects speed alone."""

TILE = 256
"""Counters of a program, each of four words; heuristic: affects speed alone."""


@dataclass(frozen=True, slots=True)
class RowWords:
    """What makes the words of rows: the halves of each row's key and the number of its first word, on the device."""

    low: Tensor
    high: Tensor
    first: Tensor
    count: int

    def part(self, some: slice) -> "RowWords":
        """Return some of the rows."""
        return RowWords(self.low[some], self.high[some], self.first[some], self.count)

    @property
    def programs(self) -> tuple[int, int]:
        """Rows, and programs for each: words before the first one of a counter are made too, and left out."""
        return len(self.first), -(-(self.count // 4 + 2) // TILE)

    def words(self) -> Tensor:
        """Return words ``[rows, count]`` as signed integers."""
        from buckler.sampling.kernels import philox_words

        out = torch.empty((len(self.first), self.count), dtype=torch.int64, device=self.first.device)
        philox_words[self.programs](self.low, self.high, self.first, out, self.count, TILE)
        return out


def uniform_below(words: Tensor, count: int) -> Tensor:
    """Return ``word * count // 2^64`` for unsigned words, in halves that fit signed numbers; ``count`` below 2^31."""
    low = ((words & LOW_HALF) * count) >> 32
    return ((((words >> 32) & LOW_HALF) * count + low) >> 32).int()


class GridForm:
    """``GridGaussian.noisy`` in one kernel: words are made, thresholds counted, whole numbers added and looked up."""

    def __init__(self, law: GridGaussian, device: str) -> None:
        edges = law.thresholds
        self._law, self._device, self._half = law, device, len(edges) // 2
        cells = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - GUIDE_BITS)
        guide = np.append(np.searchsorted(edges, cells), len(edges)).astype(np.int32)
        self._edges, self._guide = (torch.from_numpy(a).to(device) for a in (edges.view(np.int64), guide))

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

    def write(self, out: Tensor, inputs: Tensor, rows: RowWords) -> None:
        """Write the noisy copies, one for each row."""
        from buckler.sampling.kernels import grid_copies

        grid_copies[rows.programs](
            rows.low, rows.high, rows.first, inputs, self._at, self._guide, self._edges, self._table, out, rows.count,
            self._law.clip or 0, GUIDE_BITS, self._law.clip is not None, TILE,
        )  # fmt: skip


class UniformForm:
    """``Uniform.noisy``: whole steps are added, and the sum looked up."""

    def __init__(self, law: Uniform, device: str) -> None:
        self._law, self._device = law, device

    def load(self, x: Float32Array) -> None:
        """Take the inputs in whole steps, and a table of floats that reaches as far as noise does."""
        at = whole_steps(x, self._law.grid).reshape(len(x), -1)
        low, reach = int(at.min()), self._law.count // 2
        table = values_of(np.arange(low - reach, int(at.max()) + reach + 1), self._law.grid)
        self._table = torch.from_numpy(table).to(self._device)
        self._at = torch.from_numpy((at - low).astype(np.int32)).to(self._device)

    def noisy(self, inputs: Tensor, words: Tensor) -> Tensor:
        """Return copies moved by whole steps."""
        places = uniform_below(words, self._law.count).add_(self._at[inputs])
        return self._table.index_select(0, places.view(-1)).view(places.shape)


class SplittingForm:
    """``Splitting.noisy``: what is seen of each value under each offset is looked up."""

    def __init__(self, law: Splitting, device: str) -> None:
        table = seen_table(law.count)
        self._law, self._device, self._width = law, device, table.shape[1]
        self._table = torch.from_numpy(table.reshape(-1)).to(device)

    def load(self, x: Float32Array) -> None:
        """Take the inputs, as rows of the table."""
        at = whole_steps(x, STEP, LEVELS).reshape(len(x), -1) * self._width
        self._at = torch.from_numpy(at.astype(np.int32)).to(self._device)

    def offsets(self, words: Tensor) -> Tensor:
        """Return the offset of each value."""
        return uniform_below(words, self._law.count)

    def noisy(self, inputs: Tensor, words: Tensor) -> Tensor:
        """Return what is seen."""
        places = self.offsets(words).clamp_(max=self._width - 1).add_(self._at[inputs])
        return self._table.index_select(0, places.view(-1)).view(places.shape)


class DerandomizedForm(SplittingForm):
    """``DerandomizedSplitting.noisy``: the words of a copy are its number."""

    def load(self, x: Float32Array) -> None:
        """Take the inputs, and the offsets at which all of them start."""
        super().load(x)
        assert isinstance(self._law, DerandomizedSplitting)  # noqa: S101  (by the table of forms)
        self._start = torch.from_numpy(self._law.start(x[0].size).astype(np.int32)).to(self._device)

    def offsets(self, words: Tensor) -> Tensor:
        """Return the template, shifted."""
        return (self._start + words.int()).remainder_(self._law.count)


class AblationForm:
    """``Ablation.noisy``: the pixels of the smallest words are shown."""

    def __init__(self, law: Ablation, device: str) -> None:
        self._law, self._device = law, device

    def load(self, x: Float32Array) -> None:
        """Take the inputs, channel by channel."""
        self._x = torch.from_numpy(x.reshape(len(x), -1, self._law.pixels)).to(self._device)

    def noisy(self, inputs: Tensor, words: Tensor) -> Tensor:
        """Return copies with all other pixels marked."""
        order = words ^ SIGN
        shown = order <= order.kthvalue(self._law.keep, dim=1, keepdim=True).values
        return torch.where(shown[:, None], self._x[inputs], self._law.mark).flatten(1)


FORMS: dict[str, Any] = {
    GridGaussian.name: GridForm,
    Uniform.name: UniformForm,
    Splitting.name: SplittingForm,
    DerandomizedSplitting.name: DerandomizedForm,
    Ablation.name: AblationForm,
}
"""The form of each law here."""
