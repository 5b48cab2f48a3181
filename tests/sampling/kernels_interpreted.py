"""A program for Triton's interpreter: words and noisy copies of the kernels are those of the host, bit for bit.

Run by ``test_cuda_noise`` with ``TRITON_INTERPRET=1`` in a process of its own.
"""

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from buckler import noise
from buckler.noise.words import Words
from buckler.sampling import device
from buckler.sampling.cpu import NoisyCopies
from buckler.sampling.device import TILE, DeviceWords, GridForm, RowWords
from buckler.sampling.streams import Address, Batch, PhiloxNoise, Request
from tests.noise.test_words import chosen_words

if find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def planted(low_keys, high_keys, first, row, tile, part, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
        """Return words of the first row from tables in the place of the keys."""
        place = (tile * 4 * TILE - tl.load(first + row) % 4).to(tl.int32) + tl.arange(0, 4 * TILE)
        source = low_keys if part == 0 else high_keys
        return place, tl.load(source + place, mask=place >= 0, other=0).to(tl.uint64, bitcast=True)


BLOCKS = [Address(5, "a", "estimation", 3), Address(6, "b", "selection", 0)]
WORD = 2**64 - 1


def same_words() -> None:
    for count in (1, 7, 3072):
        keys = [block.key() for block in BLOCKS for _ in range(3)]
        low, high = (
            torch.from_numpy(np.array([key >> shift & WORD for key in keys], np.uint64).view(np.int64))
            for shift in (0, 64)
        )
        rows = RowWords(low, high, torch.tensor([2, 3, 4, 125, 126, 127]) * count, count)
        host = [PhiloxNoise().words(BLOCKS[0], 3, count, 2), PhiloxNoise().words(BLOCKS[1], 3, count, 125)]
        found = rows.words().numpy().view(np.uint64)
        assert (found == np.concatenate([one.first for one in host])).all(), count
        assert (rows.below(1000).numpy() == np.concatenate([one.below(1000) for one in host])).all(), count
        keep = (count + 1) // 2
        assert (rows.smallest(keep).numpy() == np.concatenate([one.smallest(keep) for one in host])).all(), count


def same_copies() -> None:
    device.DEVICE_VALUES_AT_A_TIME = 1000  # several pieces of a batch
    part = Batch.of(Request(0, 3, 7), Request(1, 256, 261), Request(0, 255, 256))
    levels = np.random.default_rng(0).integers(0, 17, size=(2, 3, 6, 6))
    sixteenths, x = ((levels / base).astype(np.float32) for base in (16.0, 255.0))
    for law in (
        noise.GridGaussian(0.25), noise.GridGaussian(0.03, 1 / 16),
        noise.Uniform(0.5), noise.Splitting(0.5), noise.DerandomizedSplitting(0.5), noise.Ablation(5, 36, channels=3),
        noise.Ablation(5, 108),
    ):  # fmt: skip
        drawn, out = DeviceWords(law, "cpu"), torch.empty((10, 3, 6, 6))
        host = np.empty((10, 3, 6, 6), np.float32)
        inputs = sixteenths if law.parameters.get("step") == 1 / 16 else x
        drawn.load(inputs)
        drawn.write(out, part, BLOCKS)
        NoisyCopies(law, 1).write(host, part, inputs, BLOCKS)
        assert (out.numpy() == host).all(), law


def numbers_of(drawn: Words) -> list[int]:
    """Return the 128-bit numbers of all words."""
    second = drawn.more(np.arange(len(drawn)))
    return [int(a) << 64 | int(b) for a, b in zip(drawn.first.ravel(), second.ravel(), strict=True)]


def thresholds_at_drawn_words() -> None:
    """Thresholds at numbers that are drawn, just below and just above them: the further bits decide."""
    drawn, others = PhiloxNoise().words(BLOCKS[0], 2, 108, 3), PhiloxNoise().words(BLOCKS[1], 2, 108, 0)
    some = [u + k for u in numbers_of(drawn[0:1])[:40] for k in (-1, 0, 1)]
    some += [(u >> 64) + k << 64 for u in numbers_of(drawn[1:2])[:40] for k in (-1, 1)]
    edges = sorted({*some, 2**127, 2**128 - 1})
    edges = edges[len(edges) % 2 :]
    both = np.array([e >> 64 for e in edges], np.uint64), np.array([e & WORD for e in edges], np.uint64)

    class Planted(noise.GridGaussian):
        thresholds = property(lambda _: both)

    law = Planted(0.25)
    x = law.values(np.random.default_rng(0).integers(0, 17, size=(2, 3, 6, 6)))
    form, out = GridForm(law, "cpu"), torch.empty((4, 108))
    form.load(x)
    keys = [BLOCKS[0].key()] * 2 + [BLOCKS[1].key()] * 2
    low, high = (
        torch.from_numpy(np.array([key >> shift & WORD for key in keys], np.uint64).view(np.int64)) for shift in (0, 64)
    )
    rows = RowWords(low, high, torch.tensor([3, 4, 0, 1]) * 108, 108)
    form.write(out, torch.tensor([0, 0, 1, 1]), rows)
    whole = [*numbers_of(drawn), *numbers_of(others)]
    moved = np.array([sum(e <= u for e in edges) for u in whole]).reshape(4, 108) - law.reach
    expected = law.values(law.indices(x).reshape(2, -1)[[0, 0, 1, 1]] + moved)
    assert len(set(moved[0])) > 30
    assert (out.numpy() == expected).all()
    on_host = np.concatenate([one.reached(*both, np.arange(216)) for one in (drawn, others)])
    assert (on_host.reshape(4, 108) - law.reach == moved).all()
    # The planted bug: words whose further bits are ignored.
    assert (np.searchsorted(both[0], drawn.first[0], side="right") - law.reach != moved[0]).sum() >= 20


def kernels_of_planted_words() -> None:
    """Words that need their further bits, which are never drawn: they are put into the place of the generator's."""
    from buckler.sampling import kernels

    kernels._words = planted
    rng = np.random.default_rng(1)
    for count, start in ((9, 0), (9, 3), (1100, 1), (4 * TILE, 2)):
        first, second = (rng.integers(0, 2**64, size=(1, count), dtype=np.uint64) for _ in range(2))
        below = 1275
        # The last words of some numbers: with large further bits they give the next number, with small ones their own.
        places = rng.choice(count, 6, replace=False)
        first[0, places] = [((k + 1) << 64) // below for k in rng.integers(0, below - 1, 6).tolist()]
        second[0, places] = [0, 2**64 - 1, 2**63, 2**64 // 3, 2**64 - 2**52, 5]
        host = chosen_words(first, second)
        expected = np.array([u * below >> 128 for u in numbers_of(host)])
        assert (expected != (first[0].astype(object) * below >> 64)).sum() >= 2  # the planted bug: words alone
        assert (host.below(below)[0] == expected).all()
        rows = planted_rows(first[0], second[0], start)
        assert (rows.below(below).numpy()[0] == expected).all()
        # Several of the smallest words are equal: those of the smallest further bits are kept.
        tied = rng.choice(count, 5, replace=False)
        first[0, tied] = np.sort(first[0])[count // 2]
        host, decided = chosen_words(first, second), 0
        for keep in range(max(1, count // 2 - 6), min(count, count // 2 + 6) + 1):
            order = np.argsort(np.array(numbers_of(host), dtype=object))
            shown = np.isin(np.arange(count), order[:keep])
            assert (host.smallest(keep)[0] == shown).all()
            assert (planted_rows(first[0], second[0], start).smallest(keep).numpy()[0] == shown).all()
            decided += (first[0] <= np.sort(first[0])[keep - 1]).sum() != keep  # the planted bug: words alone
        assert decided >= 4


def planted_rows(first: Any, second: Any, start: int) -> RowWords:
    room = np.zeros(8 * TILE + 8, np.int64)
    low, high = room.copy(), room.copy()
    low[: len(first)], high[: len(first)] = first.view(np.int64), second.view(np.int64)
    return RowWords(torch.from_numpy(low), torch.from_numpy(high), torch.tensor([start]), len(first))


if __name__ == "__main__":
    same_words()
    same_copies()
    thresholds_at_drawn_words()
    kernels_of_planted_words()
    print("the same words")
