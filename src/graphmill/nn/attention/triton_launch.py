"""`graphmill::attention` on GPUs: what its Triton kernels are started with, and in which order parts are added up.

A program has a target (backward also: a source) and a group of heads, and goes through the node's edges in tiles; so a
node of very many edges is the work of one program, right but slow: skew is left as it is, where the CPU shares edges
out. The gradients of weights are summed over shares of about equally many edges, whose number depends on the sizes of
the inputs alone, and the shares' sums are added by one reduction: no atomics, so no bit depends on the device's load.
x, scores, features and weights may each be float32, float16 or bfloat16; sums, the log-sum-exp, what backward keeps of
the result, and its two numbers per edge and head are float32.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmill.nn.attention import triton_backward, triton_forward

FORMATS = (torch.float32, torch.float16, torch.bfloat16)
_VALUES_OF_WARP = 512  # 16 a thread: what the registers hold of three such tiles beside the weights
_MOST_PARTIALS = 2**24  # numbers


@dataclass(frozen=True, slots=True)
class Call:
    """The inputs of `graphmill::attention`, in the order of its schema."""

    x: Tensor
    source: Tensor | None
    target: Tensor
    edge_attr: Tensor | None
    loop_attr: Tensor | None
    edge_weight: Tensor | None
    att: Tensor | None
    indptr: Tensor
    sources: Tensor
    edge_ids: Tensor
    out_indptr: Tensor
    targets: Tensor
    slots: Tensor
    num_loops: int
    heads: int
    negative_slope: float
    p: float
    key: Tensor | None

    @property
    def num_edges(self) -> int:
        """Without loops."""
        return self.sources.shape[0]

    @property
    def channels(self) -> int:
        """Of a head."""
        return self.x.shape[1] // self.heads

    @property
    def edge_dim(self) -> int:
        """0 without features."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @property
    def width(self) -> int:
        """How many scores an edge has."""
        return self.heads if self.att is None else self.x.shape[1]

    def check(self) -> None:
        """Raise a `ValueError` where a kernel would read beside a tensor."""
        num_sources, num_targets, num_edges = len(self.x), len(self.indptr) - 1, self.num_edges
        wanted: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
            "source": (self.source, (num_sources, self.heads)),
            "target": (self.target, (num_targets, self.width)),
            "edge_attr": (self.edge_attr, (num_edges, self.edge_dim)),
            "loop_attr": (self.loop_attr, (self.num_loops, self.edge_dim)),
            "edge_weight": (self.edge_weight, (self.edge_dim, self.width)),
            "att": (self.att, (self.width,)),
            "edge_ids": (self.edge_ids, (num_edges,)),
        }
        for name, (tensor, shape) in wanted.items():
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ValueError(f"{name} must be {list(shape)}, but is {list(tensor.shape)}")
        if self.heads < 1 or self.x.shape[1] < self.heads or self.x.shape[1] % self.heads:
            raise ValueError("x must have heads * channels columns")
        if self.num_loops > min(num_sources, num_targets):
            raise ValueError("a loop needs a node among the sources and among the targets")
        if (self.att is None) == (self.source is None):
            raise ValueError("there is either att or source")
        if len({tensor is None for tensor in (self.edge_attr, self.loop_attr, self.edge_weight)}) > 1:
            raise ValueError("edge_attr, loop_attr and edge_weight come together")
        if not 0 <= self.p < 1:
            raise ValueError("a dropout probability lies in [0, 1)")
        for tensor in (self.x, self.source, self.target, self.edge_attr, self.loop_attr, self.edge_weight, self.att):
            if tensor is not None and (tensor.dtype not in FORMATS or not tensor.is_contiguous()):
                raise ValueError(
                    f"attention on GPUs is made of contiguous float32, float16 and bfloat16: {tensor.dtype}"
                )

    def scored(self) -> tuple[Any, ...]:
        """What the scores of edges are made of, by target."""
        return (
            self.x, self.source, self.target, self.edge_attr, self.loop_attr, self.edge_weight, self.att, self.indptr,
            self.sources, self.edge_ids,
        )  # fmt: skip

    def numbers(self) -> tuple[Any, ...]:
        """num_edges, num_loops, slope, the halves of the key, threshold, scale. The key is on the CPU: no waiting."""
        key = 0 if self.key is None else int(self.key)
        threshold = min(round(self.p * 2**32), 2**32 - 1)
        halves = (as_int32(key), as_int32(key >> 32), as_int32(threshold))
        return self.num_edges, self.num_loops, self.negative_slope, *halves, 1 / (1 - self.p)

    def sizes(self) -> dict[str, Any]:
        """What a kernel is compiled for."""
        return {"HEADS": self.heads, "CHANNELS": self.channels, "EDGE_DIM": self.edge_dim}

    @property
    def drops(self) -> dict[str, Any]:
        """Whether dropout is compiled in."""
        return {"DROPS": self.key is not None}


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a kernel cuts its work: BLOCK edges by GROUP heads by PADDED channels, each a power of two."""

    group: int
    padded: int
    block: int
    features: int = 0  # rows of sums that a program holds beside its tile

    @property
    def num_warps(self) -> int:
        """One, which never waits for another, where a tile is small."""
        rows = max(self.block, self.features)
        return min(8, power_of_two(max(1, rows * self.group * self.padded // _VALUES_OF_WARP)))

    def num_groups(self, heads: int) -> int:
        """Of all heads."""
        return -(-heads // self.group)

    def options(self) -> dict[str, Any]:
        """As a kernel takes them."""
        return {"GROUP": self.group, "PADDED": self.padded, "BLOCK": self.block, "num_warps": self.num_warps}


def power_of_two(least: int) -> int:
    """The smallest that is not below `least`.

    >>> [power_of_two(least) for least in (1, 2, 15, 48)]
    [1, 2, 16, 64]
    """
    return 1 << (least - 1).bit_length()


def as_int32(bits: int) -> int:
    """The lower 32 bits, as a signed number.

    >>> as_int32(2**32 - 1), as_int32(7 - 2**40)
    (-1, 7)
    """
    return (bits + 2**31) % 2**32 - 2**31


def node_tiles(heads: int, channels: int) -> Tiles:
    """Of the kernels with a program for each node."""
    padded = power_of_two(channels)
    return Tiles(min(power_of_two(heads), max(1, 128 // padded)), padded, 4)


def share_tiles(heads: int, channels: int, edge_dim: int, *, has_att: bool) -> Tiles:
    """Of the backward pass by target, which holds the sums of [features, GROUP * scores] for all of a share."""
    padded = power_of_two(channels)
    most = min(256, 8192 // features_of(edge_dim)) if edge_dim and has_att else 256
    group = min(power_of_two(heads), max(1, most // padded))
    is_product = edge_dim > 0 and group * (padded if has_att else 1) >= 16
    held = features_of(edge_dim) if edge_dim and has_att else 0
    return Tiles(group, padded, 16 if is_product else 8, held)


def features_of(edge_dim: int) -> int:
    """Rows of a product of features: 16 at least, as Triton's products have them."""
    return max(16, power_of_two(edge_dim))


def forward(call: Call, out: Tensor, lse: Tensor, exact: Tensor | None) -> None:
    """Fill `out`, float32 [num_targets, heads] `lse`, and, where `out` is rounded, the same in float32 as `exact`."""
    tiles = node_tiles(call.heads, call.channels)
    start(
        triton_forward.attention_forward, (len(call.indptr) - 1, tiles.num_groups(call.heads)), call.x,
        *call.scored(), out, exact, lse, *call.numbers(), **call.sizes(), **call.drops, **tiles.options(),
    )  # fmt: skip


def weights(call: Call, lse: Tensor, alpha: Tensor) -> None:
    """Fill `alpha` [num_edges + num_loops, heads]."""
    tiles = node_tiles(call.heads, call.channels)
    start(
        triton_forward.attention_weights, (len(call.indptr) - 1, tiles.num_groups(call.heads)), call.x,
        *call.scored(), lse, alpha, *call.numbers(), **call.sizes(), **call.drops, **tiles.options(),
    )  # fmt: skip


def backward(call: Call, grad: Tensor, exact: Tensor, lse: Tensor, gradients: list[Tensor | None]) -> None:
    """Fill the gradients of x, source, target, edge_attr, loop_attr, edge_weight and att; None: not asked for."""
    if len(call.out_indptr) != len(call.x) + 1:
        raise ValueError("a gradient needs the edges by source as well")
    grad_x, grad_source, grad_target, grad_edge_attr, grad_loop_attr, grad_weight, grad_att = gradients
    pairs = call.x.new_empty(call.num_edges + call.num_loops, 2 * call.heads, dtype=torch.float32)
    tiles = share_tiles(call.heads, call.channels, call.edge_dim, has_att=call.att is not None)
    shares = shares_of(call)
    num_shares, num_groups = len(shares) - 1, tiles.num_groups(call.heads)
    of_weight, of_att = (
        None if gradient is None else gradient.new_empty(num_shares, *gradient.shape, dtype=torch.float32)
        for gradient in (grad_weight, grad_att)
    )
    of_edges, of_loops = (by_group(gradient, num_groups) for gradient in (grad_edge_attr, grad_loop_attr))
    start(
        triton_backward.attention_backward_targets, (num_shares, num_groups), call.x, *call.scored(), shares, grad,
        exact, lse, pairs, grad_target, of_edges, of_loops, of_weight, of_att, *call.numbers(), **call.sizes(),
        **call.drops, **tiles.options(), FEATURES=features_of(call.edge_dim),
    )  # fmt: skip
    for gradient, parts in (
        (grad_weight, of_weight), (grad_att, of_att), (grad_edge_attr, of_edges), (grad_loop_attr, of_loops)
    ):  # fmt: skip
        if gradient is not None and parts is not None and parts is not gradient:
            gradient.copy_(parts.sum(0))
    tiles = node_tiles(call.heads, call.channels)
    start(
        triton_backward.attention_backward_sources, (len(call.x), tiles.num_groups(call.heads)), call.x,
        call.x, call.target, call.edge_attr, call.loop_attr, call.edge_weight, call.att, call.edge_ids,
        call.out_indptr, call.targets, call.slots, grad, pairs, grad_x, grad_source, *call.numbers()[:3],
        **call.sizes(), **tiles.options(),
    )  # fmt: skip


def by_group(gradient: Tensor | None, num_groups: int) -> Tensor | None:
    """Room for the part of each group of heads; the gradient itself where there is one group."""
    if gradient is None or num_groups == 1:
        return gradient
    return gradient.new_zeros(num_groups, *gradient.shape, dtype=torch.float32)


def shares_of(call: Call) -> Tensor:
    """int64 [num_shares + 1]: targets [shares[i], shares[i + 1]) have about equally many edges each."""
    num_targets = len(call.indptr) - 1
    size = call.num_edges + num_targets
    most = max(64, _MOST_PARTIALS // ((call.edge_dim + 1) * call.width))
    count = max(1, min(size // 512, 2048, most))
    steps = torch.arange(count + 1, device=call.x.device) * size // count
    rows = call.indptr + torch.arange(num_targets + 1, device=call.x.device)
    shares = torch.searchsorted(rows, steps).clamp_(max=num_targets)
    shares[-1:].fill_(num_targets)
    return shares


def start(kernel: Any, grid: tuple[int, int], x: Tensor, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
    """Start a kernel on the device of `x`."""
    if min(grid) == 0:
        return
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # torch: unannotated
        kernel[grid](*arguments, **options)
