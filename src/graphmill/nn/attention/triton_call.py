"""What a call of `graphmill::attention` on GPUs is given: checked, and with rows that are loaded 16 bytes at a time."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphmill.spec.attention import MOST_CHANNELS_ON_GPU

FORMATS = (torch.float32, torch.float16, torch.bfloat16)
_CHANNELS_TOGETHER = 8  # 16 bytes of a 2-byte format


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
        """Number of edges, without loops."""
        return self.sources.shape[0]

    @property
    def channels(self) -> int:
        """Channels of a head."""
        return self.x.shape[1] // self.heads

    @property
    def edge_dim(self) -> int:
        """Features of an edge; 0 without features."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @property
    def width(self) -> int:
        """Scores of an edge."""
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
        if self.channels > MOST_CHANNELS_ON_GPU:
            raise ValueError(
                f"attention on GPUs has at most {MOST_CHANNELS_ON_GPU} channels a head: {self.channels}; split them "
                'over more heads, or set attention="reference"'
            )
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
        """Inputs that the scores of edges are made of, by target."""
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
        """Sizes that a kernel is compiled for."""
        return {"HEADS": self.heads, "CHANNELS": self.channels, "EDGE_DIM": self.edge_dim}

    def even(self) -> "Call":
        """Pad heads with zeros to a multiple of 8 channels, so that loads take 16 bytes.

        A row that begins anywhere is loaded number by number, which takes several times the registers; padding costs a
        copy of what nodes have, not of what edges do. Of GAT only x has channels.
        """
        if self.channels % _CHANNELS_TOGETHER == 0:
            return self
        x = self.padded(self.x)
        if self.att is None:
            return replace(self, x=x)
        target, weight, att = (self.padded(each) for each in (self.target, self.edge_weight, self.att))
        return replace(self, x=x, target=target, edge_weight=weight, att=att)

    def padded(self, tensor: Tensor | None) -> Any:  # noqa: ANN401
        """A tensor [..., heads * channels] as `even` has it; None stays None."""
        if tensor is None or self.channels % _CHANNELS_TOGETHER == 0:
            return tensor
        heads = tensor.view(*tensor.shape[:-1], self.heads, self.channels)
        return pad(heads, (0, -self.channels % _CHANNELS_TOGETHER)).flatten(-2)

    def room_for(self, tensor: Tensor | None, given: "Call") -> Tensor | None:
        """Where this call, which is `given` made even, computes what will be `tensor`: itself, or its padded form."""
        if tensor is None or self is given:
            return tensor
        return tensor.new_empty(*tensor.shape[:-1], self.heads * self.channels)

    def put_back(self, padded: Tensor | None, tensor: Tensor | None) -> None:
        """Fill `tensor` with what was computed in its padded form; where nothing is padded, that is `tensor`."""
        if padded is not None and tensor is not None and padded is not tensor:
            heads = padded.view(*padded.shape[:-1], self.heads, padded.shape[-1] // self.heads)
            tensor.copy_(heads[..., : self.channels].flatten(-2))

    @property
    def drops(self) -> dict[str, Any]:
        """Whether dropout is compiled in."""
        return {"DROPS": self.key is not None}


def as_int32(bits: int) -> int:
    """The lower 32 bits, as a signed number.

    >>> as_int32(2**32 - 1), as_int32(7 - 2**40)
    (-1, 7)
    """
    return (bits + 2**31) % 2**32 - 2**31
