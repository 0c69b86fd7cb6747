"""The backward kernels on GPUs that go by node, by target and then by source; no atomics.

What is summed over all edges, the gradients of weights, is made from what they leave (`triton_sums`).
"""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_forward import by_score_of, logits_of, scored, tile_of
from graphmill.nn.attention.triton_parts import part_of
from graphmill.nn.attention.triton_tiles import add_features, columns_of, kept, places_of, put, row, rows, steep


@triton.jit
def put_pairs(pairs, slots, is_edge, heads, is_head, alpha, of_logit, HEADS: tl.constexpr):
    """Leave alpha and the gradient of the logit where the other kernels find them."""
    places = pairs + (slots * (2 * HEADS))[:, None] + heads[None, :]
    mask = is_edge[:, None] & is_head[None, :]
    tl.store(places, alpha, mask=mask)
    tl.store(places + HEADS, of_logit, mask=mask)


@triton.jit
def put_part(full, sums, part, node, value, columns, is_column, WIDTH: tl.constexpr):
    """A node's row of a gradient, or its part's row among the partial sums."""
    if part < 0:
        put(full + node * WIDTH + columns, value, is_column)
    else:
        tl.store(sums + part * WIDTH + columns, value, mask=is_column)


@triton.jit(
    do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold", "num_nodes", "num_windows"]
)
def attention_backward_targets(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids,
    grad_out, exact, lse, pairs, ends, grad_target, part_sums,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale, num_nodes, num_windows,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr, SPAN: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a target's scores, and of each of its edges what the other kernels need.

    `pairs` [num_edges + num_loops, 2, HEADS], by slot: alpha and the gradient of the logit (GAT: of the score). `ends`
    [num_edges], by slot: the target.
    """
    target, first, num_stored, begin, end, part = part_of(indptr, num_nodes, num_loops, num_windows, SPAN)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    VALUES: tl.constexpr = HEADS * CHANNELS
    WIDTH: tl.constexpr = HEADS if att is None else VALUES
    SCORES: tl.constexpr = 1 if att is None else PADDED
    if begin <= end:
        own = row(target_scores, target, columns, is_column, WIDTH)
        by_score = by_score_of(att, columns, is_column)
        grad = row(grad_out, target, values, is_value, VALUES)
        agreement = tl.sum(grad * row(exact, target, values, is_value, VALUES), 1)
        less = tl.load(lse + target * HEADS + heads, mask=is_head, other=0.0)
        tiles = tl.zeros([BLOCK, GROUP, SCORES], tl.float32)
        for start in tl.range(begin, end, BLOCK, disable_licm=True):
            nodes, ids, is_stored, is_loop, is_edge = tile_of(
                sources, edge_ids, first, start, end, num_stored, target, num_edges, BLOCK
            )
            messages = rows(x, nodes, is_edge, values, is_value, VALUES)
            dots = tl.sum(messages * grad[None, :, :], 2)
            z = scored(
                messages, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight,
                num_edges, columns, is_column, EDGE_DIM, WIDTH,
            )  # fmt: skip
            logits = tl.where(is_edge[:, None], logits_of(z, by_score, slope), float("-inf"))
            alpha = tl.exp(logits - less[None, :])
            if DROPS:
                scales = kept(ids, heads, key_low, key_high, threshold, scale)
                of_logit = alpha * (scales * dots - agreement[None, :])
                alpha *= scales
            else:
                of_logit = alpha * (dots - agreement[None, :])
            of_scores = of_logit[:, :, None] * steep(z, slope)
            if att is None:
                of_logit = tl.sum(of_scores, 2)
            at = first + start + tl.arange(0, BLOCK)
            slots = tl.where(is_loop, num_edges + target, at)
            put_pairs(pairs, slots, is_edge, heads, is_head, alpha, of_logit, HEADS)
            if ends is not None:
                is_first = is_stored & (tl.program_id(1) == 0)
                tl.store(ends + at, (at * 0 + target).to(tl.int32), mask=is_first)
            tiles += of_scores
        put_part(grad_target, part_sums, part, target, tl.sum(tiles, 0) * by_score, columns, is_column, WIDTH)


@triton.jit(do_not_specialize=["num_edges", "num_loops", "num_nodes", "num_windows"])
def attention_backward_sources(
    x, target_scores, edge_attr, loop_attr, edge_weight, att, edge_ids, out_indptr, targets, slots,
    grad_out, pairs, grad_x, grad_source, part_sums, part_scores,
    num_edges, num_loops, slope, num_nodes, num_windows,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, SPAN: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of a source: what the edges that leave it lead back, gathered."""
    node, first, num_stored, begin, end, part = part_of(out_indptr, num_nodes, num_loops, num_windows, SPAN)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    VALUES: tl.constexpr = HEADS * CHANNELS
    if begin <= end:
        tiles = tl.zeros([BLOCK, GROUP, PADDED], tl.float32)
        score_tiles = tl.zeros([BLOCK, GROUP], tl.float32)
        if att is not None:
            own = row(x, node, values, is_value, VALUES)
            by_score = row(att, 0, values, is_value, 0)
        for start in tl.range(begin, end, BLOCK, disable_licm=True):
            nodes, at, is_stored, is_loop, is_edge = tile_of(
                targets, slots, first, start, end, num_stored, node, num_edges, BLOCK
            )
            places = pairs + (at * (2 * HEADS))[:, None] + heads[None, :]
            is_pair = is_edge[:, None] & is_head[None, :]
            alpha = tl.load(places, mask=is_pair, other=0.0)
            of_logit = tl.load(places + HEADS, mask=is_pair, other=0.0)
            tiles += rows(grad_out, nodes, is_edge, values, is_value, VALUES) * alpha[:, :, None]
            if att is None:
                score_tiles += of_logit
            else:
                z = rows(target_scores, nodes, is_edge, values, is_value, VALUES) + own[None, :, :]
                if edge_attr is not None:
                    stored = tl.load(edge_ids + at, mask=is_stored, other=0).to(tl.int64)
                    ids = tl.where(is_loop, at, stored)
                    z = add_features(
                        z, edge_attr, loop_attr, edge_weight, ids, is_stored, is_loop, num_edges, values, is_value,
                        EDGE_DIM, VALUES,
                    )  # fmt: skip
                tiles += of_logit[:, :, None] * (steep(z, slope) * by_score[None, :, :])
        put_part(grad_x, part_sums, part, node, tl.sum(tiles, 0), values, is_value, VALUES)
        if att is None:
            put_part(grad_source, part_scores, part, node, tl.sum(score_tiles, 0), heads, is_head, HEADS)
