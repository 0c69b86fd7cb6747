"""`graphmill::attention` on GPUs: what its Triton kernels are started with, and in which order parts are added up.

A program has a target (backward also: a source) and a group of heads, and goes through its edges in tiles; a node of
more than `span_of` edges is the work of several programs, whose sums another kernel adds up (`triton_parts`). The
gradients of weights are summed over shares of equally many edges (`triton_sums`). How many parts and shares there are
depends on sizes alone, and each sum has one order: no atomics, so no bit depends on the device's load. x, scores,
features and weights may each be float32, float16 or bfloat16; sums, the log-sum-exp, what backward keeps of the result,
and its two numbers per edge and head are float32.
"""

from typing import Any

import torch
from torch import Tensor

from graphmill.nn.attention import triton_backward, triton_forward, triton_parts, triton_sums
from graphmill.nn.attention.triton_call import Call
from graphmill.nn.attention.triton_sizes import PartSizes, Tiles, edge_tiles, joined, node_tiles, part_sizes, shares_of

__all__ = ["Call", "backward", "forward", "weights"]


def forward(call: Call, out: Tensor, lse: Tensor, exact: Tensor | None) -> None:
    """Fill `out`, float32 [num_targets, heads] `lse`, and, where `out` is rounded, the same in float32 as `exact`."""
    even = call.even()
    wide_out, wide_exact = even.room_for(out, call), even.room_for(exact, call)
    tiles = tiles_of(even, has_features=even.edge_dim > 0)
    parts = part_sizes(len(even.indptr) - 1, even.num_edges)
    sums, peaks, totals = (room_of(parts, even.x, width) for width in (even.x.shape[1], even.heads, even.heads))
    start(
        triton_forward.attention_forward, grid_of(parts, tiles, even), even.x, *even.scored(), wide_out, wide_exact,
        lse, sums, peaks, totals, *even.numbers(), *parts.numbers(), **even.sizes(), **even.drops, SPAN=parts.span,
        **tiles.options(),
    )  # fmt: skip
    columns, options = joined(even.channels)
    start(
        triton_parts.join_softmax, (parts.num_windows, even.heads, -(-even.channels // columns)), even.x, even.indptr,
        sums, peaks, totals, wide_out, wide_exact, lse, *parts.numbers(), HEADS=even.heads, CHANNELS=even.channels,
        SPAN=parts.span, **options,
    )  # fmt: skip
    call.put_back(wide_out, out)
    call.put_back(wide_exact, exact)


def weights(call: Call, lse: Tensor, alpha: Tensor) -> None:
    """Fill `alpha` [num_edges + num_loops, heads]."""
    call = call.even()
    tiles = tiles_of(call, has_features=call.edge_dim > 0)
    parts = part_sizes(len(call.indptr) - 1, call.num_edges)
    start(
        triton_forward.attention_weights, grid_of(parts, tiles, call), call.x, *call.scored(), lse, alpha,
        *call.numbers(), *parts.numbers(), **call.sizes(), **call.drops, SPAN=parts.span, **tiles.options(),
    )  # fmt: skip


def backward(call: Call, grad: Tensor, exact: Tensor, lse: Tensor, gradients: list[Tensor | None]) -> None:
    """Fill the gradients of x, source, target, edge_attr, loop_attr, edge_weight and att; None: not asked for."""
    if len(call.out_indptr) != len(call.x) + 1:
        raise ValueError("a gradient needs the edges by source as well")
    even = call.even()
    padded = [0, 2, 5, 6] if call.att is not None else [0]  # of the gradients, those that have channels
    rooms = [even.room_for(each, call) if at in padded else each for at, each in enumerate(gradients)]
    backward_of_even(even, call.padded(grad), call.padded(exact), lse, rooms)
    for at in padded:
        call.put_back(rooms[at], gradients[at])


def backward_of_even(call: Call, grad: Tensor, exact: Tensor, lse: Tensor, gradients: list[Tensor | None]) -> None:
    """Fill the gradients of a call whose heads are a multiple of 8 channels wide."""
    grad_x, grad_source, grad_target, grad_edge_attr, grad_loop_attr, grad_weight, grad_att = gradients
    pairs = call.x.new_empty(call.num_edges + call.num_loops, 2 * call.heads, dtype=torch.float32)
    ends = None if call.att is None else torch.empty_like(call.sources)
    of_targets(call, grad, exact, lse, pairs, ends, grad_target)
    of_sources(call, grad, pairs, grad_x, grad_source)
    of_edges = (
        call.x, call.target, call.edge_attr, call.loop_attr, call.edge_weight, call.att, call.indptr, call.sources,
        call.edge_ids, ends, pairs,
    )  # fmt: skip
    of_weights(call, of_edges, grad_weight, grad_att)
    if grad_edge_attr is not None:
        tiles = edge_tiles(call.width, call.edge_dim, has_att=call.att is not None)
        size = call.num_edges + call.num_loops
        start(
            triton_sums.attention_backward_features, (-(-size // tiles.block), -(-call.edge_dim // tiles.features)),
            call.x, *of_edges, grad_edge_attr, grad_loop_attr, *call.numbers()[:3], len(call.indptr) - 1,
            **call.sizes(), **tiles.options(),
        )  # fmt: skip


def of_targets(
    call: Call, grad: Tensor, exact: Tensor, lse: Tensor, pairs: Tensor, ends: Tensor | None, grad_target: Tensor | None
) -> None:
    """Fill `pairs`, `ends` and the gradient of the targets' scores."""
    tiles = tiles_of(call, has_features=call.edge_dim > 0 and call.att is not None)
    parts = part_sizes(len(call.indptr) - 1, call.num_edges)
    sums = room_of(parts, call.x, call.width)
    start(
        triton_backward.attention_backward_targets, grid_of(parts, tiles, call), call.x, *call.scored(), grad, exact,
        lse, pairs, ends, grad_target, sums, *call.numbers(), *parts.numbers(), **call.sizes(), **call.drops,
        SPAN=parts.span, **tiles.options(),
    )  # fmt: skip
    join(call.indptr, sums, grad_target, parts)


def of_sources(call: Call, grad: Tensor, pairs: Tensor, grad_x: Tensor | None, grad_source: Tensor | None) -> None:
    """Fill the gradients of x and of the sources' scores."""
    tiles = tiles_of(call, has_features=call.edge_dim > 0 and call.att is not None)
    parts = part_sizes(len(call.x), call.num_edges)
    sums, scores = (room_of(parts, call.x, width) for width in (call.x.shape[1], call.heads))
    start(
        triton_backward.attention_backward_sources, grid_of(parts, tiles, call), call.x,
        call.x, call.target, call.edge_attr, call.loop_attr, call.edge_weight, call.att, call.edge_ids,
        call.out_indptr, call.targets, call.slots, grad, pairs, grad_x, grad_source, sums, scores,
        *call.numbers()[:3], *parts.numbers(), **call.sizes(), SPAN=parts.span, **tiles.options(),
    )  # fmt: skip
    join(call.out_indptr, sums, grad_x, parts)
    join(call.out_indptr, scores, grad_source, parts)


def of_weights(call: Call, of_edges: tuple[Any, ...], grad_weight: Tensor | None, grad_att: Tensor | None) -> None:
    """Fill the gradients of the edges' weights and of att: sums over shares, and then of the shares."""
    if grad_weight is None and grad_att is None:
        return
    tiles = edge_tiles(call.width, call.edge_dim, has_att=call.att is not None)
    partials = (call.edge_dim + 1) * call.width
    count, length = shares_of(call.num_edges + call.num_loops, partials, tiles.block)
    sums = [
        None if gradient is None else gradient.new_empty(count, *gradient.shape, dtype=torch.float32)
        for gradient in (grad_weight, grad_att)
    ]
    start(
        triton_sums.attention_backward_weights,
        (count, -(-call.width // tiles.columns), max(1, -(-call.edge_dim // tiles.features))), call.x, *of_edges,
        *sums, *call.numbers()[:3], len(call.indptr) - 1, length, **call.sizes(), **tiles.options(),
    )  # fmt: skip
    for gradient, of_shares in zip((grad_weight, grad_att), sums, strict=True):
        if gradient is not None and of_shares is not None:
            gradient.copy_(of_shares.sum(0))


def grid_of(parts: PartSizes, tiles: Tiles, call: Call) -> tuple[int, int]:
    """Programs of a kernel that goes by node: parts of hubs, then nodes, by groups of heads."""
    return parts.num_windows + parts.num_nodes, tiles.num_groups(call.heads)


def tiles_of(call: Call, *, has_features: bool) -> Tiles:
    """Tiles of kernels that go by node; `has_features`: registers are to hold a loop over many edge features.

    GAT's backward pass is made without: by source it reads no features, by target those of a score a head.
    """
    major, minor = torch.cuda.get_device_capability(call.x.device) if call.x.is_cuda else (9, 0)
    return node_tiles(
        call.heads, call.channels, call.x.element_size(), has_features=has_features, capability=10 * major + minor
    )  # fmt: skip


def room_of(parts: PartSizes, like: Tensor, width: int) -> Tensor:
    """Float32, a row for each part of a hub."""
    return like.new_empty(2 * parts.num_windows, width, dtype=torch.float32)


def join(indptr: Tensor, sums: Tensor, out: Tensor | None, parts: PartSizes) -> None:
    """Add up the parts of hubs into their rows of `out`; nothing where that is not asked for."""
    if out is None:
        return
    width = sums.shape[1]
    columns, options = joined(width)
    start(
        triton_parts.join_sums, (parts.num_windows, -(-width // columns)), out, indptr, sums, out, *parts.numbers(),
        WIDTH=width, SPAN=parts.span, **options,
    )  # fmt: skip


def start(kernel: Any, grid: tuple[int, ...], x: Tensor, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
    """Start a kernel on the device of `x`."""
    if min(grid) == 0:
        return
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # torch: unannotated
        kernel[grid](*arguments, **options)
