"""Addressed random numbers: noise is a function of (seed, input id, stream, block), not of batches, order or workers.

Each input has four streams of draws: ``selection`` and ``estimation`` for certificates, ``attack`` for the search for
counterexamples, and ``refutation`` for judging them. A stream is cut into blocks of ``NOISE_BLOCK`` draws. The address
of a block is hashed to the key of a counter-based generator (Philox). So blocks share no state, two addresses never
share noise, and drawing a block again gives the same numbers.

There are two generators with different values, so a run's specification names one:

- ``philox``: NumPy's Philox-4x64 and its ziggurat, on the CPU. The same bits on every machine with the same NumPy.
- ``cuda``: the device's own Philox-4x32, faster. The same bits on the same kind of device with the same torch.

Noise from random words takes the 64-bit outputs of the first generator in order, on the host and on a device: with W
words for each copy, row r of a block has words ``[r W, (r + 1) W)``. Where word i equals the upper half of a threshold,
64 further bits decide: word i of the same key with a 1 in the second of the counter's four parts.

Which draws share a batch is a function of the requests and the batch size alone: requests are laid end to end and cut
into batches of exactly ``rows`` rows (the last may be shorter). Inputs share batches, so a batch is full even where one
input needs few draws.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from buckler.errors import InvalidInput, check_choice, check_whole, show
from buckler.noise.words import Words
from buckler.types import LARGEST_SEED, AnyArray, BoolArray, Float32Array, IntArray, WordArray

NOISE_BLOCK = 128
"""Draws in a block. Another value would change all noise."""

Stream = Literal["selection", "estimation", "attack", "refutation"]
"""Names of an input's streams of draws. Their first three letters are hashed, so these must differ."""

GeneratorKind = Literal["philox", "cuda"]

_PERSON = b"buckler-noise-1"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a block of noise: all that its random numbers depend on. ``check_address`` checks the fields."""

    seed: int
    input_id: str
    stream: Stream
    block: int = 0

    def _hash(self, *, size: int, with_block: bool) -> int:
        name = self.input_id.encode("utf-8", "surrogatepass")
        # Each field has a fixed width or is preceded by its length, so that no two addresses give the same text.
        text = self.seed.to_bytes(8, "little") + len(name).to_bytes(8, "little") + name + self.stream[:3].encode()
        if with_block:
            text += self.block.to_bytes(8, "little")
        return int.from_bytes(hashlib.blake2b(text, digest_size=size, person=_PERSON).digest(), "little")

    def at(self, block: int) -> "Address":
        """Return the address of another block of the same stream."""
        return Address(self.seed, self.input_id, self.stream, block)

    def key(self) -> int:
        """Return the 128-bit key with which NumPy's Philox generator draws this block."""
        return self._hash(size=16, with_block=True)

    def state(self) -> tuple[int, int]:
        """Return (seed, offset) with which the device's Philox generator draws this block.

        The seed is a hash of the address without its block; the offset is 2**32 for each block before this one.
        Blocks of a stream cannot overlap; only the hashes of whole streams could collide.
        """
        return self._hash(size=8, with_block=False), self.block << 32


def seed_of(seed: object) -> int:
    """Return ``seed`` if it is valid; for None a random one, from the operating system: no model was fitted to it."""
    return secrets.randbelow(LARGEST_SEED) if seed is None else check_whole("seed", seed, 0, LARGEST_SEED)


def check_address(seed: object, input_id: object, stream: Stream) -> Address:
    """Return the address of the first block of an input's stream; an invalid argument raises InvalidInput."""
    if not isinstance(input_id, str) or not input_id:
        raise InvalidInput(f"input_id must be a text of at least one character; got {show(input_id)}")
    check_choice("stream", stream, get_args(Stream))
    return Address(check_whole("seed", seed, 0, LARGEST_SEED), input_id, stream)


class ContentId(str):
    """An id that was made from an input's values; errors call the input by its ``position`` in the array instead."""

    __slots__ = ("position",)
    position: int


def check_ids(ids: Sequence[str], inputs: int) -> None:
    """Raise InvalidInput unless ``ids`` are ``inputs`` different texts: inputs with one id would share noise."""
    if not all(isinstance(name, str) for name in ids) or not inputs == len(ids) == len(set(ids)):
        raise InvalidInput(f"ids must be {inputs} different texts, one for each input; got {show(list(ids))}")


def input_ids(ids: Sequence[str] | None, x: AnyArray) -> Sequence[str]:
    """Return ``ids`` once checked, or for None ids of the inputs ``x`` that are hashes of their values.

    Where the same values occur again in ``x``, a number is added to the hash: each row has its own id and noise.
    """
    if ids is not None:
        check_ids(ids, len(x))
        return ids
    seen: dict[str, int] = {}
    names = []
    for position, point in enumerate(x):
        name = content_id(point)
        seen[name] = seen.get(name, 0) + 1
        names.append(ContentId(name if seen[name] == 1 else f"{name}-{seen[name]}"))
        names[-1].position = position
    return names


def input_name(name: str) -> str:
    """Return what an error calls the input: its position where the id was made from its values, else the id."""
    return f"input {name.position}" if isinstance(name, ContentId) else f"input {name!r}"


def content_id(x: npt.ArrayLike) -> str:
    """Return an id that is a hash of the input's shape and values, for inputs without an id.

    >>> content_id([0.0, 1.0])
    'x-1b45c1f254dfd54aa85a'
    """
    values = np.ascontiguousarray(x, dtype=np.float32)
    head = repr(values.shape).encode()
    return "x-" + hashlib.blake2b(head + values.tobytes(), digest_size=10, person=_PERSON).hexdigest()


class PhiloxNoise:
    """Generator of unit normal numbers (float32) and random words on the CPU.

    It keeps its position in the last block of normal numbers, so that the next batch can continue there.
    """

    def __init__(self) -> None:
        self._open: Address | None = None
        self._position = 0
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._fresh = self._philox.state

    def _start(self, address: Address, counter: int = 0, part: int = 0) -> None:
        """Set key and counter of the generator. Making a new one would ask the operating system for entropy."""
        key = address.key()
        self._fresh["state"] = {
            "counter": np.array([counter, part, 0, 0], dtype=np.uint64),
            "key": np.array([key & (1 << 64) - 1, key >> 64], dtype=np.uint64),
        }
        self._philox.state = self._fresh

    def fill(self, out: Float32Array, address: Address, low: int) -> None:
        """Write unit normal numbers of the block at ``address`` into ``out``, whose first row is row ``low`` of it."""
        goes_on = address == self._open and low >= self._position
        self._open = None  # set again at the end: after an interrupt the block starts anew
        if not goes_on:
            self._start(address)
            self._position = 0
        if low > self._position:
            self._generator.standard_normal((low - self._position, *out.shape[1:]), dtype=np.float32)
        self._generator.standard_normal(out.shape, dtype=np.float32, out=out)
        self._open, self._position = address, low + out.shape[0]

    def words(self, address: Address, rows: int, count: int, low: int = 0) -> Words:
        """Return ``rows`` rows of random words of the block at ``address``, ``count`` words each, from row ``low`` on.

        >>> noise, a = PhiloxNoise(), Address(seed=0, input_id="7", stream="estimation")
        >>> bool((noise.words(a, 5, 3, low=2).first == noise.words(a, 7, 3).first[2:]).all())
        True
        """

        def more(some: IntArray) -> WordArray:
            noise = PhiloxNoise()  # rare; another thread may call this
            return np.concatenate([noise._raw(address, 1, count, low + row, part=1) for row in some.tolist()])

        return Words(self._raw(address, rows, count, low), more)

    def _raw(self, address: Address, rows: int, count: int, low: int, part: int = 0) -> WordArray:
        """Return words of a block (part 0), or the further 64 bits of each (part 1).

        NumPy adds 1 to the counter before each four outputs, so word i comes from counter ``i // 4 + 1``.
        """
        first = low * count
        self._open = None
        self._start(address, first // 4, part)
        skip = first % 4
        return np.asarray(self._philox.random_raw(skip + rows * count)[skip:].reshape(rows, count), dtype=np.uint64)


def gaussian(address: Address, rows: int, shape: tuple[int, ...], low: int = 0) -> Float32Array:
    """Return unit normal numbers ``[rows, *shape]`` of the block at ``address``, drawn on the CPU, from row ``low`` on.

    >>> a = Address(seed=0, input_id="7", stream="estimation")
    >>> bool((gaussian(a, 5, (2,), low=3) == gaussian(a, 8, (2,))[3:]).all())
    True
    """
    out = np.empty((rows, *shape), dtype=np.float32)
    PhiloxNoise().fill(out, address, low)
    return out


MOST_INPUT_DRAWS = 2**30
"""Draws of one input at most. What imperfect random numbers take from alpha is computed for no more (T24)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for draws ``start, ..., stop - 1`` of the input at position ``input``, at most ``MOST_INPUT_DRAWS``."""

    input: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows that are run together: the position of each row's input, and the number of its draw within the stream."""

    inputs: IntArray
    draws: IntArray

    @classmethod
    def of(cls, *requests: Request) -> "Batch":
        """Return the batch of these draws, one request after the other."""
        inputs = [np.full(part.stop - part.start, part.input, dtype=np.int64) for part in requests]
        draws = [np.arange(part.start, part.stop, dtype=np.int64) for part in requests]
        return cls(np.concatenate(inputs), np.concatenate(draws))

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, rows: slice | BoolArray) -> "Batch":
        """Return some of the rows."""
        return Batch(self.inputs[rows], self.draws[rows])

    def pieces(self) -> Iterator[tuple[slice, int, int, int]]:
        """Yield each run of rows from one block of noise: slice of the batch, input, block, first row in the block."""
        follows = (self.inputs[1:] == self.inputs[:-1]) & (self.draws[1:] == self.draws[:-1] + 1)
        starts = np.flatnonzero(~follows | (self.draws[1:] % NOISE_BLOCK == 0)) + 1
        for first, last in pairwise([0, *starts.tolist(), len(self)]):
            block, low = divmod(int(self.draws[first]), NOISE_BLOCK)
            yield slice(first, last), int(self.inputs[first]), block, low


def batches(requests: Iterable[Request], rows: int) -> Iterator[Batch]:
    """Yield the requested draws in batches of exactly ``rows`` rows; only the last may be shorter.

    >>> [(b.inputs.tolist(), b.draws.tolist()) for b in batches([Request(0, 0, 3), Request(1, 7, 10)], 4)]
    [([0, 0, 0, 1], [0, 1, 2, 7]), ([1, 1], [8, 9])]
    """
    parts: list[Request] = []
    room = rows
    for request in requests:
        if request.stop > MOST_INPUT_DRAWS:
            raise InvalidInput(f"an input can have at most {MOST_INPUT_DRAWS} draws; got {request.stop}")
        start = request.start
        while start < request.stop:
            stop = min(request.stop, start + room)
            parts.append(Request(request.input, start, stop))
            start, room = stop, room - (stop - start)
            if room == 0:
                yield Batch.of(*parts)
                parts, room = [], rows
    if parts:
        yield Batch.of(*parts)
