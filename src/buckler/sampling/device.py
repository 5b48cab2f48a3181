"""Backend in torch: makes noisy copies, runs the classifier and counts votes on the device. Loads torch.

Votes are integers in a tally on the device, so the order of adding does not matter and no batch is waited for. NaN and
Inf are counted too, and read when the engine calls ``settle``.
"""

import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any, cast

import numpy as np
import torch

from buckler.errors import InvalidInput
from buckler.sampling.classifiers import Classifier
from buckler.sampling.cpu import KeptScores, NoisyCopies, RepeatCheck, check_shape
from buckler.sampling.cuda import device_words
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, GeneratorKind, row_inputs, size
from buckler.types import Float32Array, FloatArray, IntArray, Noise, NormalNoise


class CudaNoise:
    """Generator of unit normal numbers on the device, with its own counter-based generator.

    The numbers depend on the size of the tensor filled, so a block is always drawn whole. The last block is kept for a
    batch that ends inside of it.
    """

    def __init__(self, device: str) -> None:
        self._generator = torch.Generator(device=device)
        self._open: Address | None = None
        self._block = torch.empty(0)

    def fill(self, out: torch.Tensor, address: Address, low: int) -> None:
        """Write rows ``[low, low + len(out))`` of the block into ``out``, in place."""
        if low == 0 and len(out) == NOISE_BLOCK:
            self._draw(out, address)
            return
        if address != self._open:
            self._open = None  # set again at the end: memory may run out in between
            self._block = torch.empty((NOISE_BLOCK, *out.shape[1:]), device=out.device)
            self._draw(self._block, address)
            self._open = address
        out.copy_(self._block[low : low + len(out)])

    def _draw(self, out: torch.Tensor, address: Address) -> None:
        # The state of this generator is (seed, offset); setting it is the public way to set the counter.
        state = bytearray(struct.pack("<QQ", *address.state()))
        self._generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
        out.normal_(generator=self._generator)


class TorchBackend:
    """Backend for a torch module on any device."""

    out_of_memory: tuple[type[BaseException], ...] = (torch.OutOfMemoryError, MemoryError)

    def __init__(
        self,
        classifier: Classifier,
        *,
        noise: Noise,
        num_classes: int,
        generator: GeneratorKind,
        workers: int | None = None,
        compare: bool = True,
    ) -> None:
        self._device = torch.device(classifier.device)
        if generator == "cuda" and self._device.type != "cuda":
            raise InvalidInput(f"generator 'cuda' needs a classifier on a cuda device; it is on {classifier.device!r}")
        self._classifier = classifier
        # Pad a short batch for a compiled module, which is compiled for one shape, and for noise without idealisation:
        # kernels may round differently for another shape.
        self._one_shape = bool(getattr(classifier, "compiled", False)) or noise.idealised is None
        self._m = num_classes
        self._on_device = CudaNoise(classifier.device) if generator == "cuda" else None
        self._on_host = NoisyCopies(noise, workers)
        self._words = device_words(noise, self._device)
        if self._on_device is not None:
            spread = cast(NormalNoise, noise).spread
            self._spread = float(spread) if np.ndim(spread) == 0 else torch.as_tensor(spread, device=self._device)
        self._exact = noise.idealised is None
        compare = compare and (self._exact or not self._one_shape)  # another shape would be compiled anew
        self._repeats = RepeatCheck(self._run, _reversed, _bits if self._exact else None) if compare else None
        self.rows = 1

    def load(self, x: Float32Array, addresses: Sequence[Address], slots: int, keep: KeptScores | None) -> None:
        """Set the inputs, their noise addresses and the scores to ``keep``; clear a tally of ``slots`` vote counts."""
        self._host_x, self._addresses, self._keep = x, addresses, keep
        if self._words is not None:
            self._words.load(x)
        self._x = torch.from_numpy(x).to(self._device) if self._on_device is not None else torch.empty(0)
        self._votes = torch.zeros(slots, dtype=torch.int64, device=self._device)
        self._bad = torch.zeros(len(x), dtype=torch.int64, device=self._device)
        self._sums = np.zeros((len(x), self._m))
        self._columns = None if keep is None or keep.columns is None else self._send(keep.columns)
        self._rows: list[torch.Tensor] = []

    def logits(self, part: Batch) -> torch.Tensor:
        """Return checked logits of these draws."""
        rows = size(part)
        total = max(rows, self.rows) if self._one_shape else rows
        if self._words is not None:
            noisy = self._room(rows, total)
            self._words.write(noisy, part, self._addresses)
        elif self._on_device is None:
            host = np.zeros((total, *self._host_x.shape[1:]), dtype=np.float32)
            self._on_host.write(host[:rows], part, self._host_x, self._addresses)
            noisy = torch.from_numpy(host).to(self._device)
        else:
            noisy = self._noisy_on_device(self._on_device, part, rows, total)
        check = self._repeats if self._repeats is not None and self._repeats.wanted else None
        values = self._run(noisy if check is None else noisy.clone())  # the module may overwrite its batch
        if check is not None:
            values = values.clone()  # the module may reuse its output
            check.look(noisy, values)
        return values[:rows]

    def _run(self, noisy: torch.Tensor) -> torch.Tensor:
        with repeatable() if self._exact else nullcontext():
            values: torch.Tensor = self._classifier(noisy)
        check_shape(tuple(values.shape), len(noisy), self._m)
        return values

    def replayed(self) -> tuple[int, int]:
        """Wait for the device; return the number of rows run a second time, and of those with other logits."""
        return (0, 0) if self._repeats is None else self._repeats.counts()

    def _room(self, rows: int, total: int) -> torch.Tensor:
        noisy = torch.empty((total, *self._host_x.shape[1:]), device=self._device)
        noisy[rows:].zero_()
        return noisy

    def _noisy_on_device(self, noise: CudaNoise, part: Batch, rows: int, total: int) -> torch.Tensor:
        noisy = self._room(rows, total)
        row = 0
        for piece in part:
            address = self._addresses[piece.input].at(piece.block)
            noise.fill(noisy[row : row + len(piece)], address, piece.low)
            row += len(piece)
        noisy[:rows].mul_(self._spread).add_(self._x[self._send(row_inputs(part))])
        return noisy

    def step(self, part: Batch, slots: IntArray) -> None:
        """Run these draws and count their votes."""
        logits = self.logits(part)
        inputs, places = self._send(row_inputs(part)), self._send(slots) + logits.argmax(dim=1)
        bad = (~torch.isfinite(logits)).any(dim=1).to(torch.int64)
        keep, columns, rows, sums, once = self._keep, self._columns, None, None, torch.ones_like(bad)
        if keep is not None:
            scores = keep.score(torch.nan_to_num(logits)).float()
            if keep.rows:
                rows = scores if columns is None else _kept(scores, columns[inputs], keep.has_rest)
            if keep.sums:
                # Sums choose columns, so they are made on the host in float64, in a fixed order.
                sums = scores.cpu().numpy().astype(np.float64)
        # Count only after everything is computed: a batch that runs out of memory is drawn again.
        self._bad.index_add_(0, inputs, bad)
        self._votes.index_add_(0, places, once)
        if rows is not None:
            self._rows.append(rows)
        if sums is not None:
            np.add.at(self._sums, row_inputs(part), sums)

    def settle(self) -> tuple[IntArray, list[Float32Array]]:
        """Wait for the device; return the count of NaN or Inf rows by input, and the scores since the last call."""
        rows, self._rows = self._rows, []
        return self._bad.cpu().numpy(), [torch.cat(rows).cpu().numpy()] if rows else []

    def tally(self) -> tuple[IntArray, FloatArray | None]:
        """Return the votes of each slot, and each input's sums of scores or None if they are not kept."""
        return self._votes.cpu().numpy(), self._sums if self._keep is not None and self._keep.sums else None

    def release(self) -> None:
        """Free cached memory of the device."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _send(self, values: IntArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def _reversed(rows: torch.Tensor) -> torch.Tensor:
    return torch.flip(rows, (0,))


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.int32)  # logits are float32


def _kept(scores: torch.Tensor, columns: torch.Tensor, has_rest: bool) -> torch.Tensor:
    if not has_rest:
        return scores.gather(1, columns)
    named = columns[:, :-1]
    rest = scores.scatter(1, named, 0.0).amax(dim=1, keepdim=True)
    return torch.cat([scores.gather(1, named), rest], dim=1)


_ASKING: list[tuple[Any, ...]] = []
"""One entry for each open ``repeatable`` context: torch's settings before the first, restored after the last."""

_SETTINGS = Lock()


@contextmanager
def repeatable() -> Iterator[None]:
    """Let torch use deterministic algorithms, chosen without timing, and restore its settings afterwards.

    Operations without one run as usual; rows that are run a second time tell whether it mattered (``cpu.RepeatCheck``).
    The settings are global: if contexts overlap in threads, the last one to end restores them.
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
