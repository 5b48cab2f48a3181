"""The kernel of ``narrow``, in Triton, which comes with torch for CUDA: imported only where it runs."""

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
    start = tl.load(first + row)
    counter = start // 4 + tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    zero = tl.zeros((TILE,), dtype=tl.uint64)
    low = tl.load(low_keys + row).to(tl.uint64, bitcast=True) + zero
    high = tl.load(high_keys + row).to(tl.uint64, bitcast=True) + zero
    # NumPy adds one to the counter before each four words.
    a, b, c, d = tl.philox_impl((counter + 1).to(tl.uint64), zero, zero, zero, low, high, 10)
    at = 4 * counter - start
    here = out + row * count + at
    tl.store(here, a.to(tl.int64, bitcast=True), mask=(at >= 0) & (at < count))
    tl.store(here + 1, b.to(tl.int64, bitcast=True), mask=(at >= -1) & (at < count - 1))
    tl.store(here + 2, c.to(tl.int64, bitcast=True), mask=(at >= -2) & (at < count - 2))
    tl.store(here + 3, d.to(tl.int64, bitcast=True), mask=(at >= -3) & (at < count - 3))
