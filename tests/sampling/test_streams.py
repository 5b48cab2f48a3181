"""Noise is a function of its address: not of the batch size, the order or the worker."""

from functools import partial
from itertools import count
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckler.errors import InvalidInput
from buckler.sampling.streams import (
    NOISE_BLOCK,
    Address,
    Batch,
    PhiloxNoise,
    Request,
    Stream,
    batches,
    check_address,
    content_id,
    gaussian,
    seed_of,
)
from buckler.types import LARGEST_SEED, AnyArray
from tests.certify.test_sequential import interrupted

SHAPE = (3, 2)
REQUESTS = [Request(0, 0, 1000), Request(1, 0, 1000), Request(2, 300, 500)]


def drawn(rows: int, order: int = 1) -> dict[tuple[int, int], bytes]:
    """Return each draw's bytes by (input, draw), made in batches of ``rows`` in either order."""
    noise = PhiloxNoise()
    found: dict[tuple[int, int], bytes] = {}
    for batch in list(batches(REQUESTS, rows))[::order]:
        out = np.empty((len(batch), *SHAPE), dtype=np.float32)
        for some, position, block, low in batch.pieces():
            noise.fill(out[some], Address(7, f"input {position}", "estimation", block), low)
        keys = zip(batch.inputs.tolist(), batch.draws.tolist(), strict=True)
        found |= {key: row.tobytes() for key, row in zip(keys, out, strict=True)}
    return found


def test_the_same_bits_for_every_batch_size_and_order() -> None:
    reference = drawn(1000)
    assert len(reference) == 2200
    for rows in (1, 7, 64, NOISE_BLOCK, 1000, 5000):
        assert drawn(rows) == reference
    assert drawn(7, order=-1) == drawn(64, order=-1) == reference


@pytest.mark.parametrize(
    "other",
    [
        Address(1, "a", "estimation", 0),
        Address(0, "b", "estimation", 0),
        Address(0, "a", "selection", 0),
        Address(0, "a", "estimation", 1),
        Address(0, "a\0", "estimation", 0),
    ],
)
def test_every_part_of_the_address_counts(other: Address) -> None:
    here = Address(0, "a", "estimation", 0)
    assert here.key() != other.key()
    assert here.state() != other.state()
    a, b = gaussian(here, NOISE_BLOCK, (64,)), gaussian(other, NOISE_BLOCK, (64,))
    assert not np.intersect1d(a, b).size > 2  # chance collisions of float32 values alone
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.05


def test_streams_never_share_noise() -> None:
    streams: tuple[Stream, ...] = get_args(Stream)
    assert len({Address(0, "a", stream).key() for stream in streams}) == len(streams) == 4


def test_addresses_lead_to_the_same_noise_for_ever() -> None:
    """Evidence is drawn again from its address: another hash, width or order of fields would be another noise."""
    address = Address(7, "é", "estimation", 3)
    assert address.key() == 0xD83443C4060379A878A401C5AAB8AC61
    assert address.state() == (0xF31428BE0524D5F1, 3 << 32)
    assert gaussian(address, 2, (2,)).tobytes().hex() == "0a2602bf1c34913e977dd4bf6ddd73bf"
    assert content_id([[0.5, 1.0]]) == "x-7b53d751fb8486bd0183"
    assert (NOISE_BLOCK, LARGEST_SEED) == (128, 2**53)


def test_an_interrupt_anywhere_leaves_no_noise_of_another_draw() -> None:
    """A generator that has gone on, for a block that is thought to stand where it stood, would give a later row."""
    a, b, c = (Address(1, name, "estimation") for name in "abc")
    rows = np.empty((4, *SHAPE), dtype=np.float32)
    for before, address, low in ((a, a, 4), (a, a, 7), (a, a, 0), (a, b, 0), (c, b, 2)):
        for line in count(1):
            noise = PhiloxNoise()
            noise.fill(rows, before, 0)
            if not interrupted(partial(noise.fill, rows, address, low), PhiloxNoise.fill, line):
                break
            for again, start in ((before, 4), (address, low)):
                noise.fill(rows, again, start)
                assert (rows == gaussian(again, 4, SHAPE, start)).all()
        assert line > 5


def test_rows_that_are_passed_over_are_drawn_all_the_same() -> None:
    whole, noise = gaussian(Address(1, "a", "selection"), 20, SHAPE), PhiloxNoise()
    for low, rows in ((0, 3), (7, 2), (9, 4), (15, 5), (2, 6)):  # on, over a gap, on, over a gap, back
        out = np.empty((rows, *SHAPE), dtype=np.float32)
        noise.fill(out, Address(1, "a", "selection"), low)
        assert (out == whole[low : low + rows]).all()


def test_blocks_are_those_of_a_new_generator_whatever_was_drawn_before() -> None:
    noise, a, b = PhiloxNoise(), Address(1, "a", "selection"), Address(1, "a", "estimation", 5)
    out = np.empty((3, *SHAPE), dtype=np.float32)
    for address in (a, b, a):
        new = np.random.Philox(key=address.key())
        assert np.array_equal(noise.words(address, 4, 7, 2).first, new.random_raw(42)[14:].reshape(4, 7))
        noise.fill(out, address, 0)  # an odd number of halves of words
        expected = np.random.Generator(np.random.Philox(key=address.key())).standard_normal((5, *SHAPE), np.float32)
        assert np.array_equal(out, expected[:3])
        noise.words(b, 1, 3, 0)
        noise.fill(out[:2], address, 3)  # words in between close the block
        assert np.array_equal(out[:2], expected[3:])


def test_seeds_from_both_sides() -> None:
    assert check_address(LARGEST_SEED, "a", "selection").seed == seed_of(LARGEST_SEED) == LARGEST_SEED
    assert check_address(0, "a", "selection") == Address(0, "a", "selection", seed_of(0))
    assert 0 <= seed_of(None) < LARGEST_SEED
    for seed in (-1, LARGEST_SEED + 1, 0.5):
        with pytest.raises(InvalidInput, match="seed"):
            check_address(seed, "a", "selection")
        with pytest.raises(InvalidInput, match="seed"):
            seed_of(seed)


def test_blocks_of_a_stream_lie_far_apart_on_the_device() -> None:
    seeds = {Address(0, "a", "estimation", block).state() for block in range(100)}
    assert len(seeds) == 100
    assert len({seed for seed, _ in seeds}) == 1
    assert all(offset % 2**32 == 0 for _, offset in seeds)


def test_noise_is_standard_normal() -> None:
    values = np.concatenate([gaussian(Address(3, "x", "selection", b), NOISE_BLOCK, (256,)) for b in range(8)]).ravel()
    assert values.dtype == np.float32
    assert abs(float(values.mean())) < 5 / np.sqrt(values.size)
    assert abs(float(values.astype(np.float64).var()) - 1) < 5 * np.sqrt(2 / values.size)
    assert abs(float((values > 1.0).mean()) - 0.158655) < 5 * np.sqrt(0.1587 * 0.8413 / values.size)


@given(st.integers(1, 400), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=5))
@settings(max_examples=60, deadline=None)
def test_batches_hold_every_requested_draw_once(rows: int, spans: list[tuple[int, int]]) -> None:
    requests = [Request(i, start, start + length) for i, (start, length) in enumerate(spans)]
    made = list(batches(requests, rows))
    assert all(len(batch) == rows for batch in made[:-1])
    found = [pair for batch in made for pair in zip(batch.inputs.tolist(), batch.draws.tolist(), strict=True)]
    assert found == [(r.input, d) for r in requests for d in range(r.start, r.stop)]


def test_pieces_are_the_rows_of_one_block_in_order() -> None:
    """Cut where the input changes, a block begins or a draw is left out, whatever part of the batch is looked at."""
    batch = Batch.of(Request(0, 5, 9), Request(0, 12, 14), Request(1, 14, 15), Request(1, 126, 257))
    found = [(batch.draws[rows].tolist(), *where) for rows, *where in batch.pieces()]
    assert [(draws[0], len(draws), *where) for draws, *where in found] == [
        (5, 4, 0, 0, 5), (12, 2, 0, 0, 12), (14, 1, 1, 0, 14), (126, 2, 1, 0, 126), (128, 128, 1, 1, 0),
        (256, 1, 1, 2, 0),
    ]  # fmt: skip
    assert all(draws == list(range(draws[0], draws[-1] + 1)) for draws, *_ in found)
    assert [where for _, *where in batch[3:6].pieces()] == [[0, 0, 8], [0, 0, 12]]


@pytest.mark.parametrize(
    ("seed", "name", "stream"), [(-1, "a", "selection"), (0, "", "selection"), (0, 3, "selection"), (0, "a", "both")]
)
def test_bad_addresses_are_refused(seed: int, name: str, stream: Stream) -> None:
    with pytest.raises(InvalidInput):
        check_address(seed, name, stream)


def test_content_ids_tell_inputs_apart() -> None:
    x: AnyArray = np.zeros((2, 2))
    assert content_id(x) == content_id(x.copy())
    assert len({content_id(x), content_id(x + 1), content_id(x.ravel())}) == 3
