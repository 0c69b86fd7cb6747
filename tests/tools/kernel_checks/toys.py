"""Small Triton kernels, right and wrong in one way each, for the checks to look at."""

import triton
import triton.language as tl


@triton.jit
def doubled(x, out, size, BLOCK: tl.constexpr):
    """Out = 2 x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size) * 2, mask=at < size)


@triton.jit
def off_by_one(x, out, size, BLOCK: tl.constexpr):
    """`doubled`, but for one more than there are."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at <= size) * 2, mask=at < size)


@triton.jit
def mask_lost(x, out, size, BLOCK: tl.constexpr):
    """`doubled`, but whatever the size is."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size) * 2)


@triton.jit
def gathered(rows, nodes, out, size, stride, BLOCK: tl.constexpr):
    """Out[i] = rows[nodes[i], 0]: trusts the ids, and finds them in 32 bits where those are of 32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(nodes + at, mask=at < size, other=0)
    tl.store(out + at, tl.load(rows + node * stride, mask=at < size), mask=at < size)


@triton.jit
def last_of_row(x, rows, out, size, BLOCK: tl.constexpr):
    """Out[rows[i]] = x[i], by plain stores of several programs."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < size, other=0)
    tl.store(out + row, tl.load(x + at, mask=at < size), mask=at < size)


@triton.jit
def sum_by_atomics(x, rows, out, size, BLOCK: tl.constexpr):
    """Out[rows[i]] += x[i]: right, and another sum of floats in each order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < size, other=0)
    tl.atomic_add(out + row, tl.load(x + at, mask=at < size, other=0.0), mask=at < size)


@triton.jit
def prefix_of_blocks(x, out, size, BLOCK: tl.constexpr):
    """Running sums, for which a program reads what the one before has written."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + program * BLOCK - 1, mask=program > 0, other=0.0)
    tl.store(out + at, before + tl.cumsum(tl.load(x + at, mask=at < size, other=0.0)), mask=at < size)


@triton.jit
def minimum_by_atomics(x, rows, out, size, BLOCK: tl.constexpr):
    """Out[rows[i]] = min(out[rows[i]], x[i]) of integers: the same in any order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < size, other=0)
    tl.atomic_min(out + row, tl.load(x + at, mask=at < size, other=2**31 - 1), mask=at < size)


@triton.jit
def drawn(out, key_low, key_high, size, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    """64 bits of a key for each place; wrong: one of its words twice."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    high = key_low if WRONG else key_high
    key = (high.to(tl.uint32).to(tl.uint64) << 32) | key_low.to(tl.uint32).to(tl.uint64)
    x = key + at.to(tl.uint64) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    tl.store(out + at, (x ^ (x >> 31)).to(tl.int64), mask=at < size)


@triton.jit
def spilled(x, out, rows, size: tl.constexpr):
    """Products of a square that no warp's registers hold."""
    down, across = tl.arange(0, size), tl.arange(0, size)
    held = tl.zeros([size, size], tl.float32)
    for row in range(rows):
        held += tl.load(x + row * size + down)[:, None] * tl.load(x + row * size + across)[None, :]
    tl.store(out + down[:, None] * size + across[None, :], held)


@triton.jit
def one_at_a_time(following, out, steps):
    """Where so many steps lead to: each waits for the one before."""
    at = tl.program_id(0)
    for _ in range(steps):
        at = tl.load(following + at)
    tl.store(out + tl.program_id(0), at)
