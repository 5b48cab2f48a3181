"""The kernels of ``fusion`` and ``device``, in Triton, which comes with torch for CUDA: imported where they run."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def convolve(  # type: ignore[no-untyped-def]
    x, weight, bias, shortcut, y, pixels,  # plain: the compiler reads annotations
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STRIDE: tl.constexpr,
    ADD: tl.constexpr, RELU: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write ``TILE`` pixels of ``relu(convolution(x, weight) + bias + shortcut)`` into ``y``, channels last.

    ``weight`` is ``[9, INPUTS, OUTPUTS]``, a 3x3 convolution; ``x`` is ``[images, HEIGHT, WIDTH, INPUTS]``; ``y`` and
    ``shortcut`` are ``[images, ROWS, COLUMNS, OUTPUTS]`` with ``pixels`` pixels in all. The shortcut is added if
    ``ADD``, and negative sums become 0 if ``RELU``.
    """
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = pixel < pixels
    image = pixel // (ROWS * COLUMNS)
    place = pixel % (ROWS * COLUMNS)
    top = place // COLUMNS * STRIDE
    left = place % COLUMNS * STRIDE
    start = (image * HEIGHT + top) * WIDTH + left
    ins = tl.arange(0, INPUTS)
    outs = tl.arange(0, OUTPUTS)
    total = tl.zeros((TILE, OUTPUTS), dtype=tl.float32)
    for tap in tl.static_range(9):
        down = tap // 3 - 1
        right = tap % 3 - 1
        inside = here & (top + down >= 0) & (top + down < HEIGHT) & (left + right >= 0) & (left + right < WIDTH)
        at = (start + down * WIDTH + right)[:, None] * INPUTS + ins[None, :]
        w = tl.load(weight + (tap * INPUTS + ins[:, None]) * OUTPUTS + outs[None, :])
        a = tl.load(x + at, mask=inside[:, None], other=0.0).to(w.dtype)
        total = tl.dot(a, w, total)
    total += tl.load(bias + outs)[None, :]
    to = pixel[:, None] * OUTPUTS + outs[None, :]
    if ADD:
        total += tl.load(shortcut + to, mask=here[:, None], other=0.0).to(tl.float32)
    if RELU:
        # Not a maximum with 0, which may drop a NaN: that is an error to be named and never a vote.
        total = tl.where(total < 0.0, 0.0, total)
    tl.store(y + to, total.to(y.dtype.element_ty), mask=here[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def convolution_weight_gradient(  # type: ignore[no-untyped-def]
    x, gradient, parts, pixels,  # plain: the compiler reads annotations
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    PIXELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write a part of the gradient of the weights of ``convolve``, for stride 1, into ``parts``; channels last.

    It is the sum over ``PIXELS`` pixels of ``x``, at each of nine shifts, times ``gradient``, that of the output.
    ``parts`` is ``[programs, 9, INPUTS, OUTPUTS]``; added up over the programs they are the gradient.
    """
    ins = tl.arange(0, INPUTS)
    outs = tl.arange(0, OUTPUTS)
    t0 = tl.zeros((INPUTS, OUTPUTS), dtype=tl.float32)
    t1 = t0
    t2 = t0
    t3 = t0
    t4 = t0
    t5 = t0
    t6 = t0
    t7 = t0
    t8 = t0
    for step in range(PIXELS // TILE):
        pixel = tl.program_id(0) * PIXELS + step * TILE + tl.arange(0, TILE)
        here = pixel < pixels
        top = pixel % (HEIGHT * WIDTH) // WIDTH
        left = pixel % WIDTH
        g = tl.load(gradient + pixel[:, None] * OUTPUTS + outs[None, :], mask=here[:, None], other=0.0)
        t0 = tl.dot(_shifted(x, pixel, here, top, left, -1, -1, HEIGHT, WIDTH, INPUTS), g, t0)
        t1 = tl.dot(_shifted(x, pixel, here, top, left, -1, 0, HEIGHT, WIDTH, INPUTS), g, t1)
        t2 = tl.dot(_shifted(x, pixel, here, top, left, -1, 1, HEIGHT, WIDTH, INPUTS), g, t2)
        t3 = tl.dot(_shifted(x, pixel, here, top, left, 0, -1, HEIGHT, WIDTH, INPUTS), g, t3)
        t4 = tl.dot(_shifted(x, pixel, here, top, left, 0, 0, HEIGHT, WIDTH, INPUTS), g, t4)
        t5 = tl.dot(_shifted(x, pixel, here, top, left, 0, 1, HEIGHT, WIDTH, INPUTS), g, t5)
        t6 = tl.dot(_shifted(x, pixel, here, top, left, 1, -1, HEIGHT, WIDTH, INPUTS), g, t6)
        t7 = tl.dot(_shifted(x, pixel, here, top, left, 1, 0, HEIGHT, WIDTH, INPUTS), g, t7)
        t8 = tl.dot(_shifted(x, pixel, here, top, left, 1, 1, HEIGHT, WIDTH, INPUTS), g, t8)
    to = parts + tl.program_id(0) * 9 * INPUTS * OUTPUTS + ins[:, None] * OUTPUTS + outs[None, :]
    tl.store(to + 0 * INPUTS * OUTPUTS, t0)
    tl.store(to + 1 * INPUTS * OUTPUTS, t1)
    tl.store(to + 2 * INPUTS * OUTPUTS, t2)
    tl.store(to + 3 * INPUTS * OUTPUTS, t3)
    tl.store(to + 4 * INPUTS * OUTPUTS, t4)
    tl.store(to + 5 * INPUTS * OUTPUTS, t5)
    tl.store(to + 6 * INPUTS * OUTPUTS, t6)
    tl.store(to + 7 * INPUTS * OUTPUTS, t7)
    tl.store(to + 8 * INPUTS * OUTPUTS, t8)


@triton.jit  # type: ignore[untyped-decorator]
def _shifted(  # type: ignore[no-untyped-def]
    x, pixel, here, top, left, down: tl.constexpr, right: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Return ``x`` beside each pixel as ``[INPUTS, pixels]``, 0 outside of the image."""
    inside = here & (top + down >= 0) & (top + down < HEIGHT) & (left + right >= 0) & (left + right < WIDTH)
    at = (pixel + down * WIDTH + right)[:, None] * INPUTS + tl.arange(0, INPUTS)[None, :]
    return tl.trans(tl.load(x + at, mask=inside[:, None], other=0.0))


@triton.jit  # type: ignore[untyped-decorator]
def philox_words(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, out, count, TILE: tl.constexpr
):  # plain: the compiler reads annotations
    """Write ``count`` random words of each row: those from ``first[row]`` on of NumPy's Philox-4x64 under its key.

    ``low_keys`` and ``high_keys`` are the halves of the rows' keys. A program makes four words of each of ``TILE``
    counters of one row; torch holds them as signed integers.
    """
    row = tl.program_id(0).to(tl.int64)
    place, words = _words(low_keys, high_keys, first, row, tl.program_id(1), 0, TILE)
    tl.store(out + row * count + place, words.to(tl.int64, bitcast=True), mask=(place >= 0) & (place < count))


@triton.jit  # type: ignore[untyped-decorator]
def _words(low_keys, high_keys, first, row, tile, part, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return one tile of a row's words, and the place of each among those that the row wants, from 0 on.

    ``part`` is 0 for the words themselves and 1 for the further 64 bits of each.
    """
    start = tl.load(first + row)
    counters = start // 4 + tile.to(tl.int64) * TILE
    zero = tl.zeros((TILE,), dtype=tl.uint64)
    low = tl.load(low_keys + row).to(tl.uint64, bitcast=True) + zero
    high = tl.load(high_keys + row).to(tl.uint64, bitcast=True) + zero
    # NumPy adds one to the counter before each four words.
    counter = (counters + 1 + tl.arange(0, TILE)).to(tl.uint64)
    a, b, c, d = tl.philox_impl(counter, zero + part, zero, zero, low, high, 10)
    words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * TILE,))  # a, b, c, d of each counter in turn
    return (4 * counters - start).to(tl.int32) + tl.arange(0, 4 * TILE), words


@triton.jit  # type: ignore[untyped-decorator]
def philox_below(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, out, count, below, TILE: tl.constexpr
):  # plain: the compiler reads annotations
    """Write a whole number from 0 to ``below - 1`` for each of a row's ``count`` words: ``floor(u below / 2^128)``.

    u is the 128-bit number of a word and its further 64 bits (``noise.words``). Other arguments are those of
    ``philox_words``; ``out`` is int32.
    """
    row = tl.program_id(0).to(tl.int64)
    place, words = _words(low_keys, high_keys, first, row, tl.program_id(1), 0, TILE)
    factor = tl.zeros_like(words) + below
    number = tl.umulhi(words, factor)
    rest = words * factor
    # The further bits add less than ``below`` to the lower 64 bits of the product, which may carry.
    close = rest > 0 - factor
    if tl.max(close.to(tl.int32)) > 0:
        _, second = _words(low_keys, high_keys, first, row, tl.program_id(1), 1, TILE)
        carried = rest + tl.umulhi(second, factor) < rest
        number += (close & carried).to(tl.uint64)
    tl.store(out + row * count + place, number.to(tl.int32), mask=(place >= 0) & (place < count))


@triton.jit  # type: ignore[untyped-decorator]
def smallest_words(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, words, last, out, count, keep, TILES, TILE: tl.constexpr
):  # plain: the compiler reads annotations
    """Write 1 for the ``keep`` smallest of a row's ``count`` words and 0 for the others, as int8.

    ``words`` are the words with their highest bit flipped, as signed integers, and ``last`` is the largest of these to
    keep in each row. One program makes a row. Where more words equal ``last`` than are to be kept, those with the
    largest further bits are dropped.
    """
    row = tl.program_id(0).to(tl.int64)
    largest = tl.load(last + row)
    drop = 0 - keep
    for tile in range(TILES):
        place = tile * 4 * TILE + tl.arange(0, 4 * TILE)
        here = place < count
        drop += tl.sum((here & (tl.load(words + row * count + place, mask=here, other=0) <= largest)).to(tl.int32))
    if drop == 0:
        for tile in range(TILES):
            place = tile * 4 * TILE + tl.arange(0, 4 * TILE)
            here = place < count
            shown = tl.load(words + row * count + place, mask=here, other=0) <= largest
            tl.store(out + row * count + place, shown.to(tl.int8), mask=here)
    else:
        bound = tl.zeros((1,), dtype=tl.uint64)
        for dropped in range(drop):
            most = tl.zeros((1,), dtype=tl.uint64)
            for tile in range(TILES + 1):
                place, second = _words(low_keys, high_keys, first, row, tl.full((), tile, tl.int32), 1, TILE)
                here = (place >= 0) & (place < count)
                tied = here & (tl.load(words + row * count + place, mask=here, other=0) == largest)
                tied = tied & ((second < bound) | (dropped == 0))
                most = tl.maximum(most, tl.max(tl.where(tied, second, 0)))
            bound = most
        for tile in range(TILES + 1):
            place, second = _words(low_keys, high_keys, first, row, tl.full((), tile, tl.int32), 1, TILE)
            here = (place >= 0) & (place < count)
            word = tl.load(words + row * count + place, mask=here, other=0)
            shown = (word < largest) | ((word == largest) & (second < bound))
            tl.store(out + row * count + place, shown.to(tl.int8), mask=here)


@triton.jit  # type: ignore[untyped-decorator]
def grid_copies(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, inputs, at, guide, edges, low_edges, table, out, count,
    BITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write noisy copies: ``table[at[input] + thresholds that the word reaches]`` for a row's ``count`` words.

    A row's input is ``inputs[row]``; the words are those of ``philox_words``. ``edges`` and ``low_edges`` are the upper
    and lower 64 bits of the thresholds, in rising order. Words whose highest ``BITS`` bits are c reach ``guide[c]`` to
    ``guide[c + 1]`` of them; bisection finds how many, and mostly there is nothing to search. Where a word equals an
    edge, its further bits are compared with ``low_edges``.
    """
    row = tl.program_id(0).to(tl.int64)
    place, words = _words(low_keys, high_keys, first, row, tl.program_id(1), 0, TILE)
    cell = (words >> (64 - BITS)).to(tl.int32)
    reached = tl.load(guide + cell)
    beyond = tl.load(guide + cell + 1)
    tied = reached < 0
    while tl.max(beyond - reached) > 0:
        middle = (reached + beyond) // 2
        searched = reached < beyond
        edge = tl.load(edges + middle, mask=searched, other=0).to(tl.uint64, bitcast=True)
        over = words >= edge
        tied = tied | (searched & (words == edge))
        reached = tl.where(searched & over, middle + 1, reached)
        beyond = tl.where(searched & ~over, middle, beyond)
    if tl.max(tied.to(tl.int32)) > 0:
        _, second = _words(low_keys, high_keys, first, row, tl.program_id(1), 1, TILE)
        while tl.max(tied.to(tl.int32)) > 0:
            edge = tl.load(edges + reached - 1, mask=tied & (reached > 0), other=0).to(tl.uint64, bitcast=True)
            low_edge = tl.load(low_edges + reached - 1, mask=tied & (reached > 0), other=0)
            tied = tied & (reached > 0) & (edge == words) & (low_edge.to(tl.uint64, bitcast=True) > second)
            reached = tl.where(tied, reached - 1, reached)
    here = (place >= 0) & (place < count)
    total = reached + tl.load(at + tl.load(inputs + row) * count + place, mask=here, other=0)
    tl.store(out + row * count + place, tl.load(table + total, mask=here, other=0.0), mask=here)
