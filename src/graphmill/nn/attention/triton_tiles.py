"""What the Triton kernels of attention share: the edges of a tile, their scores and logits, the draws of dropout.

A tile is BLOCK edges of one node by GROUP heads by channels, each a power of two; what lies beyond is masked. Scores
are [BLOCK, GROUP, SCORES]: as many as channels with `att`, else 1. Numbers of edges and of nodes times width may pass
2^31, so rows are found in int64. Every sum is float32, whatever the tensors hold.
"""

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)


@triton.jit
def mix64(x):
    """SplitMix64's finaliser, as native/shared/random.h has it."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def kept(ids, heads, key_low, key_high, threshold, scale):
    """[BLOCK, GROUP]: 1 / (1 - p), or 0 where dropout takes a head of an edge; the bits of `nn.draws`.

    64 bits of the key and the 32 of the threshold come as int32: one kernel whatever their values.
    """
    key = (key_high.to(tl.uint32).to(tl.uint64) << 32) | key_low.to(tl.uint32).to(tl.uint64)
    keys = mix64(key + (ids.to(tl.uint64) + 1) * _GOLDEN)
    low, high = keys.to(tl.uint32)[:, None], (keys >> 32).to(tl.uint32)[:, None]
    x = heads.to(tl.uint32)[None, :] * 0x9E3779B9 + low
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13) ^ high) * 0xC2B2AE35
    x = x ^ (x >> 16)
    return tl.where(x >= threshold.to(tl.uint32), scale, 0.0)


@triton.jit
def places_of(group, HEADS: tl.constexpr, CHANNELS: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr):
    """The heads [GROUP] of a group, their columns [GROUP, PADDED] in a row of x, and which of both there are."""
    heads = group * GROUP + tl.arange(0, GROUP)
    channels = tl.arange(0, PADDED)
    is_head = heads < HEADS
    values = heads[:, None] * CHANNELS + channels[None, :]
    return heads, is_head, values, is_head[:, None] & (channels < CHANNELS)[None, :]


@triton.jit
def columns_of(att, heads, is_head, values, is_value):
    """The columns [GROUP, SCORES] of a group's scores, and which of them there are."""
    if att is None:
        columns, is_column = heads[:, None], is_head[:, None]
    else:
        columns, is_column = values, is_value
    return columns, is_column


@triton.jit
def put(pointer, value, mask):
    """Store float32 values in the format of a tensor."""
    tl.store(pointer, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def row(pointer, node, columns, is_column, WIDTH: tl.constexpr):
    """[GROUP, columns] of the row of one node, as float32."""
    return tl.load(pointer + node * WIDTH + columns, mask=is_column, other=0.0).to(tl.float32)


@triton.jit
def rows(pointer, nodes, is_edge, columns, is_column, WIDTH: tl.constexpr):
    """[BLOCK, GROUP, columns] of the rows of `nodes`, as float32."""
    places = pointer + (nodes * WIDTH)[:, None, None] + columns[None, :, :]
    mask = is_edge[:, None, None] & is_column[None, :, :]
    return tl.load(places, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def feature(edge_attr, loop_attr, ids, is_stored, is_loop, num_edges, number, EDGE_DIM: tl.constexpr):
    """[BLOCK]: one feature of the edges of a tile."""
    of_edge = tl.load(edge_attr + ids * EDGE_DIM + number, mask=is_stored, other=0.0).to(tl.float32)
    at = loop_attr + (ids - num_edges) * EDGE_DIM + number
    return of_edge + tl.load(at, mask=is_loop, other=0.0).to(tl.float32)


@triton.jit
def features(
    edge_attr, loop_attr, ids, is_stored, is_loop, num_edges, EDGE_DIM: tl.constexpr, FEATURES: tl.constexpr
):  # fmt: skip
    """[BLOCK, FEATURES]: all of them."""
    numbers = tl.arange(0, FEATURES)[None, :]
    is_number = numbers < EDGE_DIM
    of_edge = edge_attr + (ids * EDGE_DIM)[:, None] + numbers
    of_loop = loop_attr + ((ids - num_edges) * EDGE_DIM)[:, None] + numbers
    found = tl.load(of_edge, mask=is_stored[:, None] & is_number, other=0.0).to(tl.float32)
    return found + tl.load(of_loop, mask=is_loop[:, None] & is_number, other=0.0).to(tl.float32)


@triton.jit
def add_features(
    z, edge_attr, loop_attr, edge_weight, ids, is_stored, is_loop, num_edges, columns, is_column,
    EDGE_DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The scores `z` and those that features of edges make: edge_attr · edge_weight, a feature at a time.

    Weights are loaded in the tile's own shape, each edge's again: they lie in the cache, and nothing is moved between
    threads, which would stop a program's warps for each feature.
    """
    places = edge_weight + columns[None, :, :] + (ids * 0)[:, None, None]
    mask = (is_stored | is_loop)[:, None, None] & is_column[None, :, :]
    for number in range(EDGE_DIM):
        value = feature(edge_attr, loop_attr, ids, is_stored, is_loop, num_edges, number, EDGE_DIM)
        z += value[:, None, None] * tl.load(places + number * WIDTH, mask=mask, other=0.0).to(tl.float32)
    return z


@triton.jit
def steep(z, slope):
    """The derivative of leaky(z)."""
    return tl.where(z > 0, 1.0, slope)
