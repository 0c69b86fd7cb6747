"""The backward kernels on GPUs that go by edge: gradients of weights, summed over shares, and of edges' features.

They read what the pass by target left of each edge, so a tile is full whatever the degrees are, and cut columns and
features as freely: no head must be whole here. A position is a stored edge's slot, or num_edges + node for a loop.
"""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_tiles import feature, put, steep


@triton.jit
def edges_at(at, limit, num_stored, edge_ids, num_edges):
    """(ids, which are stored, which are loops) at positions below `limit`; slots may end before num_edges."""
    is_stored = (at < num_stored) & (at < limit)
    is_loop = (at >= num_edges) & (at < limit)
    ids = tl.load(edge_ids + at, mask=is_stored, other=0).to(tl.int64)
    return tl.where(is_loop, at, ids), is_stored, is_loop


@triton.jit
def of_scores_at(
    x, target_scores, edge_attr, loop_attr, edge_weight, att, sources, ends, pairs, at, ids, is_stored, is_loop,
    num_edges, slope, columns, is_column,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr,
):  # fmt: skip
    """(gradients of a tile's scores without att, scores), each [BLOCK, COLUMNS]; GAT's lie there and stand for both."""
    is_edge = is_stored | is_loop
    is_value = is_edge[:, None] & is_column[None, :]
    places = pairs + (at * (2 * HEADS) + HEADS)[:, None]
    if att is None:
        of_scores = tl.load(places + columns[None, :], mask=is_value, other=0.0)
        z = of_scores
    else:
        VALUES: tl.constexpr = HEADS * CHANNELS
        nodes = tl.where(is_loop, at - num_edges, tl.load(sources + at, mask=is_stored, other=0).to(tl.int64))
        z = tl.load(x + (nodes * VALUES)[:, None] + columns[None, :], mask=is_value, other=0.0).to(tl.float32)
        nodes = tl.where(is_loop, at - num_edges, tl.load(ends + at, mask=is_stored, other=0).to(tl.int64))
        own = target_scores + (nodes * VALUES)[:, None] + columns[None, :]
        z += tl.load(own, mask=is_value, other=0.0).to(tl.float32)
        if edge_attr is not None:
            for number in range(EDGE_DIM):
                value = feature(edge_attr, loop_attr, ids, is_stored, is_loop, num_edges, number, EDGE_DIM)
                weight = tl.load(edge_weight + number * VALUES + columns, mask=is_column, other=0.0).to(tl.float32)
                z += value[:, None] * weight[None, :]
        of_logit = tl.load(places + (columns // CHANNELS)[None, :], mask=is_value, other=0.0)
        of_scores = of_logit * steep(z, slope)
    return of_scores, z


@triton.jit(do_not_specialize=["num_edges", "num_loops", "num_nodes"])
def attention_backward_weights(
    x, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, ends, pairs,
    weight_sums, att_sums,
    num_edges, num_loops, slope, num_nodes, length,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A share's sums, over `length` positions, for COLUMNS of att and FEATURES rows of the edges' weights."""
    WIDTH: tl.constexpr = HEADS if att is None else HEADS * CHANNELS
    share = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    numbers = tl.program_id(2) * FEATURES + tl.arange(0, FEATURES)
    is_column, is_number = columns < WIDTH, numbers < EDGE_DIM
    num_stored = tl.load(indptr + num_nodes)
    limit = tl.minimum((share + 1) * length, num_edges.to(tl.int64) + num_loops)
    of_weight = tl.zeros([FEATURES, COLUMNS], tl.float32)
    of_att = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, length, BLOCK):
        at = share * length + start + tl.arange(0, BLOCK)
        ids, is_stored, is_loop = edges_at(at, limit, num_stored, edge_ids, num_edges)
        of_scores, z = of_scores_at(
            x, target_scores, edge_attr, loop_attr, edge_weight, att, sources, ends, pairs, at, ids, is_stored,
            is_loop, num_edges, slope, columns, is_column, HEADS, CHANNELS, EDGE_DIM,
        )  # fmt: skip
        if att is not None:
            of_att += tl.sum(of_scores * z, 0)
        if edge_attr is not None:
            of_edge = edge_attr + (ids * EDGE_DIM)[None, :] + numbers[:, None]
            of_loop = loop_attr + ((ids - num_edges) * EDGE_DIM)[None, :] + numbers[:, None]
            attr = tl.load(of_edge, mask=is_number[:, None] & is_stored[None, :], other=0.0).to(tl.float32)
            attr += tl.load(of_loop, mask=is_number[:, None] & is_loop[None, :], other=0.0).to(tl.float32)
            of_weight += tl.dot(attr, of_scores, input_precision="ieee")
    if att is not None:
        tl.store(att_sums + share * WIDTH + columns, of_att, mask=is_column & (tl.program_id(2) == 0))
    if edge_attr is not None:
        if att is not None:
            of_weight *= tl.load(att + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
        places = weight_sums + (share * EDGE_DIM + numbers)[:, None] * WIDTH + columns[None, :]
        tl.store(places, of_weight, mask=is_number[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=["num_edges", "num_loops", "num_nodes"])
def attention_backward_features(
    x, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, ends, pairs,
    grad_edge_attr, grad_loop_attr,
    num_edges, num_loops, slope, num_nodes,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of FEATURES features of BLOCK edges, from those of their scores, COLUMNS of them at a time."""
    WIDTH: tl.constexpr = HEADS if att is None else HEADS * CHANNELS
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    is_number = numbers < EDGE_DIM
    num_stored = tl.load(indptr + num_nodes)
    limit = num_edges.to(tl.int64) + num_loops
    ids, is_stored, is_loop = edges_at(at, limit, num_stored, edge_ids, num_edges)
    grad = tl.zeros([BLOCK, FEATURES], tl.float32)
    for start in range(0, WIDTH, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        is_column = columns < WIDTH
        of_scores, _ = of_scores_at(
            x, target_scores, edge_attr, loop_attr, edge_weight, att, sources, ends, pairs, at, ids, is_stored,
            is_loop, num_edges, slope, columns, is_column, HEADS, CHANNELS, EDGE_DIM,
        )  # fmt: skip
        if att is not None:
            of_scores *= tl.load(att + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
        places = edge_weight + numbers[None, :] * WIDTH + columns[:, None]
        weight = tl.load(places, mask=is_number[None, :] & is_column[:, None], other=0.0).to(tl.float32)
        grad += tl.dot(of_scores, weight, input_precision="ieee")
    of_edge = grad_edge_attr + (ids * EDGE_DIM)[:, None] + numbers[None, :]
    put(of_edge, grad, is_stored[:, None] & is_number[None, :])
    of_loop = grad_loop_attr + ((ids - num_edges) * EDGE_DIM)[:, None] + numbers[None, :]
    put(of_loop, grad, is_loop[:, None] & is_number[None, :])
