"""Small Triton kernels, right and wrong, for the checks to look at."""

import triton
import triton.language as tl


@triton.jit
def doubled(x, out, size, BLOCK: tl.constexpr):
    """Out = 2 x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < size) * 2, mask=at < size)


@triton.jit
def spilled(x, out, rows, size: tl.constexpr):
    """Pairwise sums of a square that no warp's registers hold."""
    down, across = tl.arange(0, size), tl.arange(0, size)
    held = tl.zeros([size, size], tl.float32)
    for row in range(rows):
        held += tl.load(x + row * size + down)[:, None] * tl.load(x + row * size + across)[None, :]
    tl.store(out + down[:, None] * size + across[None, :], held)
