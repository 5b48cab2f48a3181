"""Noise and votes on a device, in torch: the backend, and noise that is drawn where the classifier is. Loads torch.

Votes are counted in integers on the device, so the order of adding does not matter and no batch is waited for. NaN and
Inf are counted too, and read when the engine calls ``settle``.

There are three makers of noisy copies. ``cpu.NoisyCopies`` makes them on the host; ``CudaNoise`` from the device's own
normal numbers; ``DeviceWords`` from random words, bit for bit those of the host: Triton kernels (``kernels``) make the
words of a batch, each row from the key and counter of its block, and the form of the noise makes copies of them.
Floats come from tables of the host, since a device may round a division differently. The first copies are compared
with the host's. After that nothing here waits for the device, which may still run the batch before.
"""

import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from buckler.errors import BucklerError
from buckler.noise import Ablation, BaseNoise, DerandomizedSplitting, GridGaussian, Splitting, Uniform
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import Backend, KeptScores, NoisyCopies, check_shape
from buckler.sampling.fusion import AVAILABLE
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, GeneratorKind, Request
from buckler.types import AnyArray, Float32Array, IntArray


class CudaNoise:
    """Maker of noisy copies, under Gaussian noise, from unit normal numbers of a CUDA device's own generator.

    The numbers depend on the size of the tensor filled, so a block is always drawn whole. The last block is kept for a
    batch that ends inside of it.
    """

    def __init__(self, device: str, spread: Float32Array | None = None) -> None:
        """Take the device, and what unit normal numbers are multiplied by: one number, or one for each value."""
        self._generator = torch.Generator(device=device)
        self._open: Address | None = None
        self._block = torch.empty(0)
        self._device, scale = device, np.asarray(1.0 if spread is None else spread)
        self._spread = torch.as_tensor(scale, device=device) if scale.ndim else float(scale)

    def load(self, x: Float32Array) -> None:
        """Send the inputs ``x`` to the device."""
        self._x = torch.from_numpy(x).to(self._device)

    def write(self, out: Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        for rows, position, block, low in part.pieces():
            self.fill(out[rows], addresses[position].at(block), low)
        out.mul_(self._spread).add_(self._x[torch.from_numpy(part.inputs).to(self._device, non_blocking=True)])

    def fill(self, out: Tensor, address: Address, low: int) -> None:
        """Write unit normal numbers of the block at ``address`` into ``out``, whose first row is row ``low`` of it."""
        if low == 0 and len(out) == NOISE_BLOCK:
            self._draw(out, address)
            return
        if address != self._open:
            self._open = None  # set again at the end: memory may run out in between
            self._block = torch.empty((NOISE_BLOCK, *out.shape[1:]), device=out.device)
            self._draw(self._block, address)
            self._open = address
        out.copy_(self._block[low : low + len(out)])

    def _draw(self, out: Tensor, address: Address) -> None:
        # The state of this generator is (seed, offset); setting it is the public way to set the counter.
        state = bytearray(struct.pack("<QQ", *address.state()))
        self._generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
        out.normal_(generator=self._generator)


SIGN = -(1 << 63)
"""Flips the highest bit of a word, so that signed integers, which torch has, compare like unsigned ones."""

GUIDE_BITS = 15
"""How many of a word's highest bits index the guide, a table that narrows the search for its threshold. A larger table
leaves the fastest memory, a smaller one leaves more to search. Heuristic: affects speed alone."""

TILE = 256
"""Counters, of four words each, for each program of a kernel. Heuristic: affects speed alone."""

DEVICE_VALUES_AT_A_TIME = 1 << 26
"""Values of noisy copies made at a time, half a gigabyte of words, but at least one copy."""

COMPARED = 3
"""Copies of the first input that are compared with the host's before any vote is counted."""

WORD_MASK = (1 << 64) - 1
"""Mask of the 64 bits of a word."""


@dataclass(frozen=True, slots=True)
class RowWords:
    """Where to draw each row's ``count`` random words: both halves of its key and the number of its first word."""

    low: Tensor
    high: Tensor
    first: Tensor
    count: int

    def __getitem__(self, some: slice) -> "RowWords":
        """Return some of the rows."""
        return RowWords(self.low[some], self.high[some], self.first[some], self.count)

    @property
    def programs(self) -> tuple[int, int]:
        """Launch grid of a kernel: rows, and tiles of the counters that give a row's words."""
        return len(self.first), -(-(self.count // 4 + 2) // TILE)

    def words(self) -> Tensor:
        """Return the random words ``[rows, count]``, as signed 64-bit integers."""
        from buckler.sampling.kernels import philox_words

        out = self._empty(torch.int64)
        philox_words[self.programs](self.low, self.high, self.first, out, self.count, TILE)
        return out

    def below(self, count: int) -> Tensor:
        """Return a whole number from 0 to ``count - 1`` for each word, int32, the same as ``Words.below``."""
        from buckler.sampling.kernels import philox_below

        out = self._empty(torch.int32)
        philox_below[self.programs](self.low, self.high, self.first, out, self.count, count, TILE)
        return out

    def smallest(self, keep: int) -> Tensor:
        """Return a mask of the ``keep`` smallest words of each row, the same as ``Words.smallest``."""
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


class TableForm:
    """Maker of copies under noise on a grid: values of the noise's table at the input's place plus a drawn number."""

    def __init__(self, noise: Any, device: str) -> None:
        self._noise, self._device = noise, device

    def load(self, x: Float32Array) -> None:
        """Send the noise's table of float32 to the device, and the places in it of the inputs ``x``."""
        table, at = self._noise.table(x)
        self._table = torch.from_numpy(table).to(self._device)
        self._at = torch.from_numpy(at.reshape(len(x), -1).astype(np.int32)).to(self._device)
        if self._noise.draws == "numbers":
            self._start = torch.from_numpy(self._noise.start(x[0].size).astype(np.int32)).to(self._device)

    def write(self, out: Tensor, inputs: Tensor, rows: Any) -> None:
        """Write into ``out[i]`` a noisy copy of input ``inputs[i]``, made from row i of the random words ``rows``.

        Where copies are enumerated, ``rows`` holds their numbers.
        """
        if self._noise.draws == "numbers":
            drawn = (self._start + rows.int()).remainder_(self._noise.count)
        else:
            drawn = rows.below(self._noise.count)
        places = self._noise.shown(drawn) + self._at[inputs]
        out.copy_(self._table.index_select(0, places.view(-1)).view(out.shape))


class GridForm(TableForm):
    """Maker of the copies of ``GridGaussian.noisy`` in one kernel, from random words to floats."""

    def __init__(self, noise: GridGaussian, device: str) -> None:
        super().__init__(noise, device)
        edges, low = noise.thresholds
        cells = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - GUIDE_BITS)
        guide = np.append(np.searchsorted(edges, cells), len(edges)).astype(np.int32)
        tables = edges.view(np.int64), low.view(np.int64), guide
        self._edges, self._low, self._guide = (torch.from_numpy(table).to(device) for table in tables)

    def write(self, out: Tensor, inputs: Tensor, rows: RowWords) -> None:
        """Write into ``out[i]`` a noisy copy of input ``inputs[i]``, made from row i of the random words ``rows``."""
        from buckler.sampling.kernels import grid_copies

        grid_copies[rows.programs](
            rows.low, rows.high, rows.first, inputs, self._at, self._guide, self._edges, self._low, self._table, out,
            rows.count, GUIDE_BITS, TILE,
        )  # fmt: skip


class AblationForm:
    """Maker of the copies of ``Ablation.noisy``: they show the pixels that have the smallest words."""

    def __init__(self, noise: Ablation, device: str) -> None:
        self._noise, self._device = noise, device

    def load(self, x: Float32Array) -> None:
        """Send the inputs ``x`` to the device, as ``[inputs, channels, pixels]``."""
        self._x = torch.from_numpy(x.reshape(len(x), -1, self._noise.pixels)).to(self._device)

    def write(self, out: Tensor, inputs: Tensor, rows: RowWords) -> None:
        """Write into ``out[i]`` a noisy copy of input ``inputs[i]``, made from row i of the random words ``rows``."""
        shown = rows.smallest(self._noise.keep)
        out.copy_(torch.where(shown[:, None], self._x[inputs], self._noise.mark).view(out.shape))


FORMS: dict[str, Any] = {
    GridGaussian.name: GridForm,
    Uniform.name: TableForm,
    Splitting.name: TableForm,
    DerandomizedSplitting.name: TableForm,
    Ablation.name: AblationForm,
}
"""Name of a noise -> class that makes its copies on a device: ``load(x)`` takes the inputs, and ``write(out, inputs,
rows)`` writes copies from the words of rows (from numbers, where copies are enumerated), ``inputs`` being the position
of each row's input."""


class DeviceWords:
    """Maker of noisy copies from random words, or of enumerated copies, on a device: the same bits as on the host."""

    def __init__(self, noise: BaseNoise, device: str) -> None:
        self._noise, self._device, self._compared = noise, device, False
        self._form = FORMS[noise.name](noise, device)

    def load(self, x: Float32Array) -> None:
        """Send the inputs ``x`` to the device; the first time, raise BucklerError if copies differ from the host's."""
        self._shape = x.shape[1:]
        self._form.load(x)
        if not self._compared:
            self._compare(x)
            self._compared = True

    def _compare(self, x: Float32Array) -> None:
        # A device or compiler that was not tested may draw other noise, and certificates would be about that.
        part, addresses = Batch.of(Request(0, 0, COMPARED)), [Address(0, "0", "estimation")]
        host = np.empty((COMPARED, *self._shape), dtype=np.float32)
        NoisyCopies(self._noise, 1).write(host, part, x, addresses)
        out = torch.empty(host.shape, device=self._device)
        self.write(out, part, addresses)
        if out.cpu().numpy().tobytes() != host.tobytes():
            name = self._noise.describe()
            raise BucklerError(f"{self._device} draws other noise than the host, and {name} needs the same bits")

    def write(self, out: Tensor, part: Batch, addresses: Sequence[Address]) -> None:
        """Write the noisy copies of a batch into ``out``, one row each."""
        inputs, total = self._send(part.inputs), len(part)
        numbered = self._noise.draws == "numbers"
        drawn: Any = self._send(part.draws[:, None]) if numbered else self._words(part, addresses)
        rows = max(1, DEVICE_VALUES_AT_A_TIME // out[0].numel())
        for some in (slice(a, min(a + rows, total)) for a in range(0, total, rows)):
            self._form.write(out[some], inputs[some], drawn[some])

    def _words(self, part: Batch, addresses: Sequence[Address]) -> RowWords:
        count = self._noise.words(self._shape)
        keys = np.empty((2, len(part)), dtype=np.uint64)
        for rows, position, block, _ in part.pieces():
            key = addresses[position].at(block).key()
            keys[0, rows], keys[1, rows] = key & WORD_MASK, key >> 64
        low, high = map(self._send, keys.view(np.int64))
        return RowWords(low, high, self._send(part.draws % NOISE_BLOCK * count), count)

    def _send(self, values: AnyArray) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def device_copies(noise: BaseNoise, device: torch.device, generator: GeneratorKind) -> CudaNoise | DeviceWords | None:
    """Return what makes noisy copies on the device, or None where the host does: no CUDA or Triton, or other noise.

    Other noise is any that is neither in ``FORMS`` nor drawn by the generator ``cuda``.
    """
    if generator == "cuda":
        return CudaNoise(str(device), noise.spread)
    fits = device.type == "cuda" and AVAILABLE and noise.draws != "gaussian" and noise.name in FORMS
    return DeviceWords(noise, str(device)) if fits else None


class TorchBackend(Backend):
    """Backend of a torch module, on any device: runs batches of noisy copies and counts votes there."""

    out_of_memory: tuple[type[BaseException], ...] = (torch.OutOfMemoryError, MemoryError)

    def __init__(self, classifier: Classifier, *, noise: BaseNoise, generator: GeneratorKind, **settings: Any) -> None:
        """Hold a classifier and its noise, drawn by ``generator``; ``settings`` are more arguments of ``Backend``."""
        super().__init__(classifier, noise=noise, **settings)
        self._device = torch.device(classifier.device)
        self._copies = device_copies(noise, self._device, generator)

    def load(self, x: Float32Array, addresses: Sequence[Address], slots: int, keep: KeptScores | None) -> None:
        """Store inputs, the addresses of their noise and which scores to keep (``keep``); set ``slots`` votes to 0."""
        super().load(x, addresses, slots, keep)
        if self._copies is not None:
            self._copies.load(x)

    def step(self, part: Batch, slots: IntArray) -> None:
        """Run the draws in a batch and count each row's vote, in the vote count ``slots[row] + class``."""
        logits = self.logits(part)
        inputs, places = self._send(part.inputs), self._send(slots) + logits.argmax(dim=1)
        bad = (~torch.isfinite(logits)).any(dim=1).to(torch.int64)
        keep, columns, rows, once = self._keep, self._columns, None, torch.ones_like(bad)
        if keep is not None:
            rows = keep.score(torch.nan_to_num(logits)).float()
            rows = rows if columns is None else _kept(rows, columns[inputs])
        # Count only after everything is computed: a batch that runs out of memory is drawn again.
        self._bad.index_add_(0, inputs, bad)
        self._votes.index_add_(0, places, once)
        if rows is not None:
            self._rows.append(rows)

    def settle(self) -> tuple[IntArray, list[Float32Array]]:
        """Wait for the device; return each input's number of NaN or Inf rows of logits, and scores not yet returned."""
        rows, self._rows = self._rows, []
        return self._bad.cpu().numpy(), [torch.cat(rows).cpu().numpy()] if rows else []

    def votes(self) -> IntArray:
        """Return the vote counts: as many numbers as ``load`` was told ``slots``."""
        return np.asarray(self._votes.cpu())

    def release(self) -> None:
        """Free cached memory of the device."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _noisy(self, part: Batch, total: int) -> Tensor:
        if self._copies is None:
            return torch.from_numpy(super()._noisy(part, total)).to(self._device)
        noisy = torch.empty((total, *self._x.shape[1:]), device=self._device)
        noisy[len(part) :].zero_()
        self._copies.write(noisy[: len(part)], part, self._addresses)
        return noisy

    def _run(self, noisy: Tensor) -> Tensor:
        with repeatable() if self._exact else nullcontext():
            values: Tensor = self._classifier(noisy)
        check_shape(tuple(values.shape), len(noisy), self._m)
        return values

    def _send(self, values: IntArray) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)

    def _zeros(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int64, device=self._device)

    @staticmethod
    def _copied(rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def _reversed(rows: Tensor) -> Tensor:
        return torch.flip(rows, (0,))


def _kept(scores: Tensor, columns: Tensor) -> Tensor:
    named = columns[:, :-1]
    rest = scores.scatter(1, named, 0.0).amax(dim=1, keepdim=True)
    return torch.cat([scores.gather(1, named), rest], dim=1)


_ASKING: list[tuple[Any, ...]] = []
"""One entry for each open ``repeatable`` context: torch's settings before the first, restored after the last."""

_SETTINGS = Lock()


@contextmanager
def repeatable() -> Iterator[None]:
    """Let torch use deterministic algorithms, chosen without timing, and restore its settings afterwards.

    Operations that have none run as usual; rows that are run a second time show whether it mattered
    (``cpu.RepeatCheck``). The settings are global: if contexts overlap in threads, the last one to end restores them.
    """
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    asked = torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deterministic", category=UserWarning)
        with _SETTINGS:
            now = cudnn.deterministic, cudnn.benchmark, memory.fill_uninitialized_memory, *(ask() for ask in asked)
            _ASKING.append(_ASKING[0] if _ASKING else now)
            # Do not fill uninitialised memory: that only finds errors, and takes a pass over it.
            cudnn.deterministic, cudnn.benchmark, memory.fill_uninitialized_memory = True, False, False
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            with _SETTINGS:
                before = _ASKING.pop()
                if not _ASKING:
                    torch.use_deterministic_algorithms(before[3], warn_only=before[4])
                    cudnn.deterministic, cudnn.benchmark, memory.fill_uninitialized_memory = before[:3]
