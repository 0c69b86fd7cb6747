"""What GATConv and GATv2Conv share: their parameters' beginnings, loops, dropout, and what follows the attention."""

import functools
import importlib.util
import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from graphmill.base.errors import UserError
from graphmill.nn.attention import operator, reference
from graphmill.nn.attention.edges import REDUCTIONS, EdgeGroups, group_edges, loop_features
from graphmill.nn.attention.operator import Dropout, EdgeScores, Scores
from graphmill.nn.operators import is_native, linear

Form = Literal["fused", "reference"]
Pair = tuple[Tensor, Tensor | None]
AttentionWeights = tuple[Tensor, Tensor]  # edge_index int64 [2, n] with loops, alpha [n, heads]


def glorot(weight: Tensor) -> None:
    """Uniform on ±√(6 / (rows + columns)) of the last two dimensions (Glorot & Bengio 2010)."""
    bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)


class Projection(nn.Linear):
    """A linear map that begins with Glorot's weights."""

    fused = False  # with the project's own product, where it takes the inputs

    def forward(self, x: Tensor) -> Tensor:
        """[…, in_features] → […, out_features]."""
        if self.is_fused(x):
            return linear(x.contiguous(), self.weight, self.bias)
        return super().forward(x)

    def is_fused(self, x: Tensor) -> bool:
        """Whether the project's own product takes `x`."""
        takes = x.dim() == 2 and len(x) > 0 and is_native(x) and not is_mixed(x)
        return self.fused and takes and is_native(self.weight)

    def reset_parameters(self) -> None:
        """Weights after Glorot, the bias uniform on ±1 / √in_features."""
        glorot(self.weight)
        if self.bias is not None:
            bound = 1 / math.sqrt(max(1, self.in_features))
            nn.init.uniform_(self.bias, -bound, bound)


class LazyProjection(nn.modules.lazy.LazyModuleMixin, Projection):
    """A projection of as many channels as its first input has."""

    cls_to_become = Projection
    weight: Any  # parameters, whose shapes are not known at first
    bias: Any

    def __init__(self, out_features: int, bias: bool) -> None:
        super().__init__(0, 0, bias=False)
        self.out_features = out_features
        self.weight = nn.UninitializedParameter()
        if bias:
            self.bias = nn.UninitializedParameter()

    def reset_parameters(self) -> None:
        """Draw weights once their shapes are known."""
        if not is_lazy(self.weight) and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, x: Tensor) -> None:
        """Take the shapes from the first input."""
        if is_lazy(self.weight):
            with torch.no_grad():
                self.in_features = x.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()


def is_mixed(x: Tensor) -> bool:
    """Whether torch's products of `x` are made in another number format."""
    return torch.is_autocast_enabled(x.device.type)


def projection(in_channels: int, out_channels: int, *, bias: bool) -> Projection:
    """Projection from `in_channels`; -1: from as many channels as its first input has."""
    return LazyProjection(out_channels, bias) if in_channels == -1 else Projection(in_channels, out_channels, bias=bias)


class AttentionConv(nn.Module):
    """The part of GATConv and GATv2Conv that does not depend on how edges are scored."""

    res: Projection | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        concat: bool,
        negative_slope: float,
        dropout: float,
        add_self_loops: bool,
        edge_dim: int | None,
        fill_value: float | Tensor | str,
        attention: Form,
        of_message_passing: dict[str, Any],
    ) -> None:
        super().__init__()
        self._check(fill_value, dropout, attention, of_message_passing)
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.edge_dim, self.fill_value, self.attention = edge_dim, fill_value, attention

    def _check(self, fill_value: object, dropout: float, attention: str, of_message_passing: dict[str, Any]) -> None:
        kept = {"aggr": "add", "flow": "source_to_target", "node_dim": 0}
        for name, value in of_message_passing.items():
            if name not in kept or value != kept[name]:
                raise UserError(
                    f"{type(self).__name__} has no {name}={value!r}: messages go from source to target and are added",
                    fix=f"leave {name} out",
                )
        if isinstance(fill_value, str) and fill_value not in REDUCTIONS:
            raise UserError(
                f"fill_value is {fill_value!r}", fix=f"one of {', '.join(REDUCTIONS)}, a number or a tensor"
            )
        if attention not in get_args(Form):
            raise UserError(f"attention is {attention!r}", fix=f"one of {', '.join(get_args(Form))}")
        if not 0 <= dropout <= 1:
            raise UserError(f"dropout is {dropout}", fix="a probability from 0 to 1")

    def _add_ends(self, residual: bool, bias: bool) -> None:
        """The parameters that follow the attention, in the order of PyG's state_dict."""
        width = self.out_channels * (self.heads if self.concat else 1)
        in_channels = self.in_channels if isinstance(self.in_channels, int) else self.in_channels[1]
        self.res = projection(in_channels, width, bias=False) if residual else None
        for module in self.children():
            if isinstance(module, Projection):
                module.fused = self.attention == "fused"
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def reset_parameters(self) -> None:
        """Weights after Glorot, a bias of zero."""
        for module in self.children():
            if isinstance(module, Projection):
                module.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _groups(self, edges: Tensor | EdgeGroups, num_sources: int, num_targets: int) -> EdgeGroups:
        num_loops = min(num_sources, num_targets) if self.add_self_loops else 0
        if isinstance(edges, EdgeGroups):
            if (edges.num_sources, edges.num_targets, edges.num_loops) != (num_sources, num_targets, num_loops):
                raise UserError(
                    f"the edges were grouped for {edges.num_sources} sources, {edges.num_targets} targets and "
                    f"{edges.num_loops} loops, but there are {num_sources}, {num_targets} and {num_loops}",
                    fix=f"group_edges(edge_index, {num_sources}, {num_targets}, {num_loops})",
                )
            return edges
        if edges.layout != torch.strided or edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
            raise UserError(
                f"edge_index is {edges.dtype} of shape {list(edges.shape)} ({edges.layout})",
                fix="give it as int64 [2, num_edges]: sources, then targets",
            )
        return group_edges(edges, num_sources, num_targets, num_loops, by_source=torch.is_grad_enabled())

    def _features(
        self, edge_attr: Tensor | None, lin_edge: Projection | None, groups: EdgeGroups, att: Tensor | None = None
    ) -> EdgeScores | None:
        if edge_attr is None:
            return None
        if lin_edge is None:
            raise UserError("edge_attr is given, but the layer has no edge_dim", fix="edge_dim=edge_attr.shape[1]")
        edge_attr = edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
        weight = weight_of(lin_edge, edge_attr)
        weight = weight.t() if att is None else by_head(weight, att)
        return EdgeScores(edge_attr, loop_features(edge_attr, self.fill_value, groups), weight)

    def _attend(
        self, x: Tensor, scores: Scores, features: EdgeScores | None, groups: EdgeGroups, *, key: Tensor | None,
        with_alpha: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Out [num_targets, heads * channels], and alpha [num_edges + num_loops, heads] if it is wanted."""
        dropout = None
        if self.training and self.dropout > 0:
            # Drawn on the CPU, wherever x is: the kernels take the key as a number, and nothing waits for a device.
            key = torch.randint(2**63 - 1, (1,), device="cpu") if key is None else key
            dropout = Dropout(key, self.dropout)
        if self.attention == "reference":
            return reference.attention(x, self.heads, scores, features, dropout, groups)
        refuse_format(x)
        out, lse = operator.attention(x, self.heads, scores, features, dropout, groups)
        if not with_alpha:
            return out, None
        return out, operator.attention_weights(lse, x, self.heads, scores, features, dropout, groups)

    def _finish(self, out: Tensor, x_target: Tensor | None) -> Tensor:
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if self.res is not None and x_target is not None:
            out = out + self.res(x_target)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """What PyG's layer shows, and which form computes it."""
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}, attention={self.attention}"


FORMATS = {
    "cpu": (torch.float32, torch.float64),
    "cuda": (torch.float32, torch.float16, torch.bfloat16),
}


def refuse_format(x: Tensor) -> None:
    """Raise a `UserError` where the fused operator has no kernel for `x`."""
    if x.dtype not in FORMATS.get(x.device.type, ()):
        known = "; ".join(
            f"on {device} in {' or '.join(str(each).removeprefix('torch.') for each in formats)}"
            for device, formats in FORMATS.items()
        )
        raise UserError(f"fused attention runs {known}, but x is {x.dtype} on {x.device}", fix="attention='reference'")
    if x.device.type == "cuda":
        refuse_missing_triton(str(x.device))


def refuse_missing_triton(gpu: str) -> None:
    """Raise a `UserError` where Triton, which makes the kernels for GPUs, is not installed."""
    if not has_triton():
        raise UserError(
            f"fused attention needs Triton on {gpu}, and it is not installed",
            fix="pip install triton (CUDA builds of torch for Linux bring it), or attention='reference'"
            " (model.attention=reference)",
        )


@functools.cache
def has_triton() -> bool:
    """Whether Triton can be imported; this does not import it."""
    return importlib.util.find_spec("triton") is not None


def with_loops(groups: EdgeGroups, alpha: Tensor) -> AttentionWeights:
    """The edges that were attended, in the caller's order with the loops last, and their alpha."""
    if not groups.num_loops:
        return groups.edge_index, alpha
    loops = torch.arange(groups.num_loops, device=alpha.device).expand(2, -1)
    is_kept = groups.edge_index[0] != groups.edge_index[1]
    num_edges = groups.edge_index.shape[1]
    kept = torch.cat([groups.edge_index[:, is_kept], loops], dim=1)
    return kept, torch.cat([alpha[:num_edges][is_kept], alpha[num_edges:]])


def weight_of(layer: Projection, x: Tensor) -> Tensor:
    """The weight of a layer for inputs `x`, whose product is not wanted; a lazy layer takes its shape from them."""
    if isinstance(layer, LazyProjection):
        layer(x[:1])
    return layer.weight


def by_head(weight: Tensor, att: Tensor) -> Tensor:
    """[channels of weight's inputs, heads]: what makes ⟨att, weight · x⟩ of x, for weight [heads * channels, …]."""
    _, heads, channels = att.shape
    return torch.einsum("hcf,hc->fh", weight.view(heads, channels, -1), att[0])


def scoring(weight: Tensor, att: Tensor) -> Tensor:
    """The rows [n * heads, channels of weight's inputs] that score its inputs by att [n, heads, channels]."""
    count, heads, channels = att.shape
    made = torch.einsum("hcf,nhc->nhf", weight.view(heads, channels, -1), att)
    return made.reshape(count * heads, -1)


def scored(x: Tensor, weight: Tensor, att: Tensor) -> Tensor:
    """⟨att, weight · x⟩ [n, heads] without the product of weight and x."""
    return F.linear(x, by_head(weight, att).t())
