"""The forward kernels on GPUs: a program for each target and group of heads."""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_tiles import add_features, columns_of, kept, places_of, put, row, rows, steep


@triton.jit
def incoming(indptr, target, is_looped):
    """A program's edges: the first slot, how many are stored, how many there are; the loop comes last."""
    first = tl.load(indptr + target)
    num_stored = (tl.load(indptr + target + 1) - first).to(tl.int32)
    return first, num_stored, num_stored + is_looped.to(tl.int32)


@triton.jit
def tile_of(sources, edge_ids, first, start, num_stored, degree, target, num_edges, BLOCK: tl.constexpr):
    """BLOCK edges to `target` from its `start`-th on: (where they come from, ids, which are stored, a loop, either)."""
    at = start + tl.arange(0, BLOCK)
    is_stored = at < num_stored
    is_loop = (at >= num_stored) & (at < degree)
    stored = tl.load(sources + first + at, mask=is_stored, other=0).to(tl.int64)
    ids = tl.load(edge_ids + first + at, mask=is_stored, other=0).to(tl.int64)
    return (
        tl.where(is_loop, target, stored),
        tl.where(is_loop, num_edges + target, ids),
        is_stored,
        is_loop,
        at < degree,
    )


@triton.jit
def scored(
    x, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight, num_edges,
    columns, is_column, EDGE_DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The scores [BLOCK, GROUP, SCORES] of a tile, of which `own` [GROUP, SCORES] are the target's."""
    z = rows(x if source is None else source, nodes, is_edge, columns, is_column, WIDTH) + own[None, :, :]
    if edge_attr is not None:
        z = add_features(
            z, edge_attr, loop_attr, edge_weight, ids, is_stored, is_loop, num_edges, columns, is_column, EDGE_DIM,
            WIDTH,
        )  # fmt: skip
    return z


@triton.jit
def logits_of(z, att, slope, columns, is_column):
    """⟨att, leaky(z)⟩, or leaky(z) where an edge has one score a head: [BLOCK, GROUP]."""
    leaky = z * steep(z, slope)
    if att is not None:
        leaky = leaky * row(att, 0, columns, is_column, 0)[None, :, :]
    return tl.sum(leaky, 2)


@triton.jit(do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold"])
def attention_forward(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, out, exact, lse,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Out and log-sum-exp of a target: softmax with a running maximum and sum, a tile of edges at a time."""
    target = tl.program_id(0).to(tl.int64)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    VALUES: tl.constexpr = HEADS * CHANNELS
    WIDTH: tl.constexpr = HEADS if att is None else VALUES
    own = row(target_scores, target, columns, is_column, WIDTH)
    first, num_stored, degree = incoming(indptr, target, target < num_loops)
    peak = tl.full([GROUP], float("-inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    sums = tl.zeros([GROUP, PADDED], tl.float32)
    for start in range(0, degree, BLOCK):
        nodes, ids, is_stored, is_loop, is_edge = tile_of(
            sources, edge_ids, first, start, num_stored, degree, target, num_edges, BLOCK
        )
        z = scored(
            x, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight, num_edges,
            columns, is_column, EDGE_DIM, WIDTH,
        )  # fmt: skip
        logits = tl.where(is_edge[:, None], logits_of(z, att, slope, columns, is_column), float("-inf"))
        most = tl.maximum(peak, tl.max(logits, 0))
        shrink = tl.exp(peak - most)
        powers = tl.exp(logits - most[None, :])
        total = total * shrink + tl.sum(powers, 0)
        if DROPS:
            powers *= kept(ids, heads, key_low, key_high, threshold, scale)
        messages = rows(x, nodes, is_edge, values, is_value, VALUES) * powers[:, :, None]
        sums = sums * shrink[:, None] + tl.sum(messages, 0)
        peak = most
    sums = tl.where(degree > 0, sums / total[:, None], 0.0)
    place = target * VALUES + values
    put(out + place, sums, is_value)
    if exact is not None:
        tl.store(exact + place, sums, mask=is_value)
    tl.store(lse + target * HEADS + heads, peak + tl.log(total), mask=is_head)


@triton.jit(do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold"])
def attention_weights(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, lse, alpha,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Alpha of the edges to a target, each at the place of its id."""
    target = tl.program_id(0).to(tl.int64)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    WIDTH: tl.constexpr = HEADS if att is None else HEADS * CHANNELS
    own = row(target_scores, target, columns, is_column, WIDTH)
    less = tl.load(lse + target * HEADS + heads, mask=is_head, other=0.0)
    first, num_stored, degree = incoming(indptr, target, target < num_loops)
    for start in range(0, degree, BLOCK):
        nodes, ids, is_stored, is_loop, is_edge = tile_of(
            sources, edge_ids, first, start, num_stored, degree, target, num_edges, BLOCK
        )
        z = scored(
            x, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight, num_edges,
            columns, is_column, EDGE_DIM, WIDTH,
        )  # fmt: skip
        powers = tl.exp(logits_of(z, att, slope, columns, is_column) - less[None, :])
        if DROPS:
            powers *= kept(ids, heads, key_low, key_high, threshold, scale)
        places = alpha + (ids * HEADS)[:, None] + heads[None, :]
        put(places, powers, is_edge[:, None] & is_head[None, :])
