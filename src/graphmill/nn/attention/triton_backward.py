"""The backward kernels on GPUs: by target over fixed shares of the edges, then by source; no atomics."""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_forward import incoming, logits_of, scored, tile_of
from graphmill.nn.attention.triton_tiles import (
    add_features,
    columns_of,
    features,
    kept,
    places_of,
    put,
    row,
    rows,
    steep,
)


@triton.jit
def sum_of_products(attr, gz, COLUMNS: tl.constexpr):
    """[FEATURES, COLUMNS]: the sum over a tile's edges of feature times gradient of the score."""
    if COLUMNS >= 16:
        return tl.dot(tl.trans(attr), gz, input_precision="ieee")
    return tl.sum(attr[:, :, None] * gz[:, None, :], 0)


@triton.jit
def put_pairs(pairs, slots, is_edge, heads, is_head, alpha, of_logit, HEADS: tl.constexpr):
    """Leave alpha and the gradient of the logit where the sources' half finds them."""
    places = pairs + (slots * (2 * HEADS))[:, None] + heads[None, :]
    mask = is_edge[:, None] & is_head[None, :]
    tl.store(places, alpha, mask=mask)
    tl.store(places + HEADS, of_logit, mask=mask)


@triton.jit
def put_feature_gradients(
    grad_edge_attr, grad_loop_attr, gz, edge_weight, ids, is_stored, is_loop, num_edges, columns, is_column,
    EDGE_DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of the edges' features from that of their scores, a feature at a time."""
    for number in range(EDGE_DIM):
        weight = row(edge_weight, number, columns, is_column, WIDTH)
        grad = tl.sum(tl.sum(gz * weight[None, :, :], 2), 1)
        put(grad_edge_attr + ids * EDGE_DIM + number, grad, is_stored)
        of_loop = grad_loop_attr + (ids - num_edges) * EDGE_DIM + number
        put(of_loop, grad, is_loop)


@triton.jit(do_not_specialize=["num_edges", "num_loops", "key_low", "key_high", "threshold"])
def attention_backward_targets(
    x, source, target_scores, edge_attr, loop_attr, edge_weight, att, indptr, sources, edge_ids, shares,
    grad_out, exact, lse, pairs, grad_target, grad_edge_attr, grad_loop_attr, weight_partials, att_partials,
    num_edges, num_loops, slope, key_low, key_high, threshold, scale,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr, DROPS: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """All but the gradients of sources, for the targets of a share.

    `pairs` [num_edges + num_loops, 2, HEADS], by slot: alpha and the gradient of the logit, for the sources' half. The
    share's sums for weights and att go to its row of the partials.
    """
    share = tl.program_id(0)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    columns, is_column = columns_of(att, heads, is_head, values, is_value)
    VALUES: tl.constexpr = HEADS * CHANNELS
    WIDTH: tl.constexpr = HEADS if att is None else VALUES
    SCORES: tl.constexpr = 1 if att is None else PADDED
    of_att = tl.zeros([GROUP, SCORES], tl.float32)
    of_weight = tl.zeros([FEATURES, GROUP * SCORES], tl.float32)
    if grad_edge_attr is not None:  # of several groups of heads each has its own room, added up afterwards
        grad_edge_attr += tl.program_id(1).to(tl.int64) * num_edges * EDGE_DIM
        grad_loop_attr += tl.program_id(1).to(tl.int64) * num_loops * EDGE_DIM
    for target in range(tl.load(shares + share), tl.load(shares + share + 1)):
        own = row(target_scores, target, columns, is_column, WIDTH)
        grad = row(grad_out, target, values, is_value, VALUES)
        agreement = tl.sum(grad * row(exact, target, values, is_value, VALUES), 1)
        less = tl.load(lse + target * HEADS + heads, mask=is_head, other=0.0)
        of_target = tl.zeros([GROUP, SCORES], tl.float32)
        first, num_stored, degree = incoming(indptr, target, target < num_loops)
        for start in range(0, degree, BLOCK):
            nodes, ids, is_stored, is_loop, is_edge = tile_of(
                sources, edge_ids, first, start, num_stored, degree, target, num_edges, BLOCK
            )
            z = scored(
                x, source, own, nodes, ids, is_stored, is_loop, is_edge, edge_attr, loop_attr, edge_weight,
                num_edges, columns, is_column, EDGE_DIM, WIDTH,
            )  # fmt: skip
            logits = tl.where(is_edge[:, None], logits_of(z, att, slope, columns, is_column), float("-inf"))
            alpha = tl.exp(logits - less[None, :])
            dots = tl.sum(rows(x, nodes, is_edge, values, is_value, VALUES) * grad[None, :, :], 2)
            if DROPS:
                scales = kept(ids, heads, key_low, key_high, threshold, scale)
                of_logit = alpha * (scales * dots - agreement[None, :])
                alpha *= scales
            else:
                of_logit = alpha * (dots - agreement[None, :])
            gz = of_logit[:, :, None] * steep(z, slope)
            if att is None:
                of_logit = tl.sum(gz, 2)
            else:
                of_att += tl.sum(gz * z, 0)
                gz *= row(att, 0, columns, is_column, 0)[None, :, :]
            slots = tl.where(is_loop, num_edges + target, first + start + tl.arange(0, BLOCK))
            put_pairs(pairs, slots, is_edge, heads, is_head, alpha, of_logit, HEADS)
            of_target += tl.sum(gz, 0)
            if edge_attr is not None:
                of_weight += sum_of_products(
                    features(edge_attr, loop_attr, ids, is_stored, is_loop, num_edges, EDGE_DIM, FEATURES),
                    tl.reshape(gz, [BLOCK, GROUP * SCORES]), GROUP * SCORES,
                )  # fmt: skip
            if grad_edge_attr is not None:
                put_feature_gradients(
                    grad_edge_attr, grad_loop_attr, gz, edge_weight, ids, is_stored, is_loop, num_edges, columns,
                    is_column, EDGE_DIM, WIDTH,
                )  # fmt: skip
        put(grad_target + target * WIDTH + columns, of_target, is_column)
    if att is not None:
        tl.store(att_partials + share.to(tl.int64) * WIDTH + columns, of_att, mask=is_column)
    if edge_attr is not None:
        numbers = tl.arange(0, FEATURES)[:, None, None]
        places = weight_partials + (share.to(tl.int64) * EDGE_DIM + numbers) * WIDTH + columns[None, :, :]
        of_weight = tl.reshape(of_weight, [FEATURES, GROUP, SCORES])
        tl.store(places, of_weight, mask=(numbers < EDGE_DIM) & is_column[None, :, :])


@triton.jit(do_not_specialize=["num_edges", "num_loops"])
def attention_backward_sources(
    x, target_scores, edge_attr, loop_attr, edge_weight, att, edge_ids, out_indptr, targets, slots,
    grad_out, pairs, grad_x, grad_source,
    num_edges, num_loops, slope,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, EDGE_DIM: tl.constexpr,
    GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of a source: what the edges that leave it lead back, gathered."""
    node = tl.program_id(0).to(tl.int64)
    heads, is_head, values, is_value = places_of(tl.program_id(1), HEADS, CHANNELS, GROUP, PADDED)
    VALUES: tl.constexpr = HEADS * CHANNELS
    of_x = tl.zeros([GROUP, PADDED], tl.float32)
    if att is None:
        of_source = tl.zeros([GROUP], tl.float32)
    else:
        own = row(x, node, values, is_value, VALUES)
        weight_of_logit = row(att, 0, values, is_value, 0)
    first, num_stored, degree = incoming(out_indptr, node, node < num_loops)
    for start in range(0, degree, BLOCK):
        nodes, at, is_stored, is_loop, is_edge = tile_of(
            targets, slots, first, start, num_stored, degree, node, num_edges, BLOCK
        )
        places = pairs + (at * (2 * HEADS))[:, None] + heads[None, :]
        is_pair = is_edge[:, None] & is_head[None, :]
        alpha = tl.load(places, mask=is_pair, other=0.0)
        of_logit = tl.load(places + HEADS, mask=is_pair, other=0.0)
        of_x += tl.sum(rows(grad_out, nodes, is_edge, values, is_value, VALUES) * alpha[:, :, None], 0)
        if att is None:
            of_source += tl.sum(of_logit, 0)
        else:
            z = rows(target_scores, nodes, is_edge, values, is_value, VALUES) + own[None, :, :]
            if edge_attr is not None:
                stored = tl.load(edge_ids + at, mask=is_stored, other=0).to(tl.int64)
                ids = tl.where(is_loop, at, stored)
                z = add_features(
                    z, edge_attr, loop_attr, edge_weight, ids, is_stored, is_loop, num_edges, values, is_value,
                    EDGE_DIM, VALUES,
                )  # fmt: skip
            of_x += tl.sum(of_logit[:, :, None] * steep(z, slope), 0) * weight_of_logit
    put(grad_x + node * VALUES + values, of_x, is_value)
    if att is None:
        put(grad_source + node * HEADS + heads, of_source, is_head)
