"""The kernels of ``narrow`` and ``copies``, in Triton, which comes with torch for CUDA: imported where they run."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def convolve(  # type: ignore[no-untyped-def]
    x, weight, bias, shortcut, y, pixels,  # plain: the compiler reads annotations
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STRIDE: tl.constexpr,
    ADD: tl.constexpr, RELU: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write ``TILE`` pixels of ``relu(convolution(x, weight) + bias + shortcut)``, channels last.

    ``weight`` is ``[9, INPUTS, OUTPUTS]``; ``x`` is ``[*, HEIGHT, WIDTH, INPUTS]``; ``y`` and ``shortcut`` are
    ``[*, ROWS, COLUMNS, OUTPUTS]``, ``pixels`` of them.
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
def philox_words(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, out, count, TILE: tl.constexpr
):  # plain: the compiler reads annotations
    """Write ``count`` words of each row: those from ``first[row]`` on of NumPy's Philox-4x64 under the row's key.

    A program makes four words of each of ``TILE`` counters of one row; torch holds them as signed integers.
    """
    row = tl.program_id(0).to(tl.int64)
    place, words = _words(low_keys, high_keys, first, row, TILE)
    tl.store(out + row * count + place, words.to(tl.int64, bitcast=True), mask=(place >= 0) & (place < count))


@triton.jit  # type: ignore[untyped-decorator]
def _words(low_keys, high_keys, first, row, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return this program's words of a row, and the place of each among those that the row wants, from 0 on."""
    start = tl.load(first + row)
    counters = start // 4 + tl.program_id(1).to(tl.int64) * TILE
    zero = tl.zeros((TILE,), dtype=tl.uint64)
    low = tl.load(low_keys + row).to(tl.uint64, bitcast=True) + zero
    high = tl.load(high_keys + row).to(tl.uint64, bitcast=True) + zero
    # NumPy adds one to the counter before each four words.
    counter = (counters + 1 + tl.arange(0, TILE)).to(tl.uint64)
    a, b, c, d = tl.philox_impl(counter, zero, zero, zero, low, high, 10)
    words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * TILE,))  # a, b, c, d of each counter in turn
    return (4 * counters - start).to(tl.int32) + tl.arange(0, 4 * TILE), words


@triton.jit  # type: ignore[untyped-decorator]
def grid_copies(  # type: ignore[no-untyped-def]
    low_keys, high_keys, first, inputs, at, guide, edges, table, out, count, clip,
    BITS: tl.constexpr, CLIPPED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write ``table[at[input] + thresholds reached by the word]`` for ``count`` words of each row, as ``philox_words``.

    Words whose highest ``BITS`` bits are c reach ``guide[c]`` to ``guide[c + 1]`` of the ``edges``, which are sorted
    unsigned numbers; which of these is searched by bisection, and mostly there is nothing to search.
    """
    row = tl.program_id(0).to(tl.int64)
    place, words = _words(low_keys, high_keys, first, row, TILE)
    cell = (words >> (64 - BITS)).to(tl.int32)
    reached = tl.load(guide + cell)
    beyond = tl.load(guide + cell + 1)
    while tl.max(beyond - reached) > 0:
        middle = (reached + beyond) // 2
        searched = reached < beyond
        edge = tl.load(edges + middle, mask=searched, other=0).to(tl.uint64, bitcast=True)
        over = words >= edge
        reached = tl.where(searched & over, middle + 1, reached)
        beyond = tl.where(searched & ~over, middle, beyond)
    here = (place >= 0) & (place < count)
    total = reached + tl.load(at + tl.load(inputs + row) * count + place, mask=here, other=0)
    if CLIPPED:
        total = tl.minimum(tl.maximum(total, 0), clip)
    tl.store(out + row * count + place, tl.load(table + total, mask=here, other=0.0), mask=here)
