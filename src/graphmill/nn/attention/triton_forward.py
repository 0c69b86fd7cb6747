"""The forward kernels on GPUs: a program for each part of a target's edges and group of heads."""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_parts import part_of
from graphmill.nn.attention.triton_tiles import add_features, columns_of, kept, places_of, put, row, rows, steep

LOWEST = tl.constexpr(-3.0e38)  # below all logits, and no difference from it is inf - inf


@triton.jit
def tile_of(sources, edge_ids, first, start, end, num_stored, target, num_edges, BLOCK: tl.constexpr):
    """BLOCK edges to `target` from its `start`-th on: (where they come from, ids, which are stored, a loop, either)."""
    at = start + tl.arange(0, BLOCK)
    is_edge = at < end
    is_stored = is_edge & (at < num_stored)
    is_loop = is_edge & (at >= num_stored)
    stored = tl.load(sources + first + at, mask=is_stored, other=0).to(tl.int64)
    ids = tl.load(edge_ids + first + at, mask=is_stored, other=0).to(tl.int64)
    return tl.where(is_loop, target, stored), tl.where(is_loop, num_edges + target, ids), is_stored, is_loop, is_edge


@triton.jit
def scored(
    messages, source, target_scores, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight,
    num_edges, columns, is_column, EDGE_DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The scores [BLOCK, GROUP, SCORES] of a tile, of which `target_scores` [GROUP, SCORES] are the target's.

    Without scores of sources those are `messages`, the tile of x.
    """
    z = messages
    if source is not None:
        z = rows(source, nodes, is_edge, columns, is_column, WIDTH)
    z += target_scores[None, :, :]
    if edge_attr is not None:
        z = add_features(
            z, edge_attr, loop_attr, edge_weight, ids, is_stored, is_loop, num_edges, columns, is_column, EDGE_DIM,
            WIDTH,
        )  # fmt: skip
    return z


@triton.jit
def logits_of(z, by_score, slope):
    """⟨att, leaky(z)⟩, or leaky(z) where an edge has one score a head: [BLOCK, GROUP]."""
    return tl.sum(z * steep(z, slope) * by_score[None, :, :], 2)


@triton.jit
def by_score_of(att, columns, is_column):
    """[GROUP, SCORES]: what a head's leaky scores are weighted by; 1 without att."""
    by_score = tl.where(is_column, 1.0, 0.0)
    if att is not None:
        by_score = row(att, 0, columns, is_column, 0)
    return by_score


@triton.jit(
    do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold", "num_nodes", "num_windows"]
)
def attention_forward(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, out, exact, lse,
    part_sums, part_peaks, part_totals,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale, num_nodes, num_windows,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr, SPAN: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Out and log-sum-exp of a target: softmax with running maxima and sums, a tile of edges at a time.

    Each of a tile's BLOCK places has its own until the last, so no warp waits for another in between. Of a part of a
    hub's edges: peak, total and sums as they stand after them, for `join_softmax`.
    """
    target, first, num_stored, begin, end, part = part_of(indptr, num_nodes, num_loops, num_windows, SPAN)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    VALUES: tl.constexpr = HEADS * CHANNELS
    WIDTH: tl.constexpr = HEADS if att is None else VALUES
    if begin <= end:
        own = row(target_scores, target, columns, is_column, WIDTH)
        by_score = by_score_of(att, columns, is_column)
        peaks = tl.full([BLOCK, GROUP], LOWEST, tl.float32)
        totals = tl.zeros([BLOCK, GROUP], tl.float32)
        tiles = tl.zeros([BLOCK, GROUP, PADDED], tl.float32)
        for start in tl.range(begin, end, BLOCK, disable_licm=True):
            nodes, ids, is_stored, is_loop, is_edge = tile_of(
                sources, edge_ids, first, start, end, num_stored, target, num_edges, BLOCK
            )
            messages = rows(x, nodes, is_edge, values, is_value, VALUES)
            z = scored(
                messages, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight,
                num_edges, columns, is_column, EDGE_DIM, WIDTH,
            )  # fmt: skip
            logits = tl.where(is_edge[:, None], logits_of(z, by_score, slope), float("-inf"))
            most = tl.maximum(peaks, logits)
            shrink = tl.exp(peaks - most)
            powers = tl.exp(logits - most)
            totals = totals * shrink + powers
            if DROPS:
                powers *= kept(ids, heads, key_low, key_high, threshold, scale)
            tiles = tiles * shrink[:, :, None] + messages * powers[:, :, None]
            peaks = most
        peak = tl.max(peaks, 0)
        shrink = tl.exp(peaks - peak[None, :])
        total = tl.sum(totals * shrink, 0)
        sums = tl.sum(tiles * shrink[:, :, None], 0)
        if part < 0:
            sums = tl.where(end > 0, sums / total[:, None], 0.0)
            place = target * VALUES + values
            put(out + place, sums, is_value)
            if exact is not None:
                tl.store(exact + place, sums, mask=is_value)
            tl.store(lse + target * HEADS + heads, peak + tl.log(total), mask=is_head)
        else:
            tl.store(part_sums + part * VALUES + values, sums, mask=is_value)
            tl.store(part_peaks + part * HEADS + heads, peak, mask=is_head)
            tl.store(part_totals + part * HEADS + heads, total, mask=is_head)


@triton.jit(
    do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold", "num_nodes", "num_windows"]
)
def attention_weights(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, lse, alpha,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale, num_nodes, num_windows,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr, SPAN: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Alpha of the edges to a target, each at the place of its id."""
    target, first, num_stored, begin, end, _ = part_of(indptr, num_nodes, num_loops, num_windows, SPAN)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    VALUES: tl.constexpr = HEADS * CHANNELS
    WIDTH: tl.constexpr = HEADS if att is None else VALUES
    if begin < end:
        own = row(target_scores, target, columns, is_column, WIDTH)
        by_score = by_score_of(att, columns, is_column)
        less = tl.load(lse + target * HEADS + heads, mask=is_head, other=0.0)
        for start in tl.range(begin, end, BLOCK, disable_licm=True):
            nodes, ids, is_stored, is_loop, is_edge = tile_of(
                sources, edge_ids, first, start, end, num_stored, target, num_edges, BLOCK
            )
            messages = own[None, :, :]
            if att is not None:
                messages = rows(x, nodes, is_edge, values, is_value, VALUES)
            z = scored(
                messages, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight,
                num_edges, columns, is_column, EDGE_DIM, WIDTH,
            )  # fmt: skip
            powers = tl.exp(logits_of(z, by_score, slope) - less[None, :])
            if DROPS:
                powers *= kept(ids, heads, key_low, key_high, threshold, scale)
            places = alpha + (ids * HEADS)[:, None] + heads[None, :]
            put(places, powers, is_edge[:, None] & is_head[None, :])
