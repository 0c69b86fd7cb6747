"""Layers of trained models with weights that stay, on arrays: what a score of one window is made of, and its gradient.

A window has some 30 nodes, and torch takes longer to start an operator than to compute it. Here a layer is one native
call (native/fixed_layers.h), which holds its weights as the product reads them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill import _native
from graphmill.nn.attention import GATConv, GATv2Conv
from graphmill.nn.attention.layers import by_head
from graphmill.nn.standardise import Standardise
from graphmill.tasks.intrusion.nn.ids import HashedIds, row_of

Rows = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """Graphs of windows, one after another; every graph has a node."""

    num_nodes: Ids  # [num_graphs]
    ends: NDArray[np.integer[Any]]  # source and target of each edge [2, e], counted over all graphs
    edges: _native.GraphEdges  # the same
    ids: Ids  # [n], of 32 bits
    x: Rows  # [n, num_features], as they are: models standardise them
    attr: Rows  # [e, num_edge_features], likewise

    @property
    def first_nodes(self) -> Ids:
        """Of each graph [num_graphs]."""
        firsts: Ids = np.cumsum(self.num_nodes) - self.num_nodes
        return firsts


@dataclass(frozen=True, slots=True)
class Moves:
    """How scores would move, to first order, if features were 0: gradient times input, with its sign."""

    of_nodes: NDArray[np.floating[Any]]  # [n]
    of_edges: NDArray[np.floating[Any]]  # [e]


@dataclass(frozen=True, slots=True)
class EdgeInputs:
    """Standardised features of edges, and of the loop of each node: the mean of those that lead to it."""

    attr: Rows  # [e, num_edge_features]
    of_loops: Rows  # [n, num_edge_features]


class Entry:
    """What the first layer reads of windows: embedded ids, standardised features."""

    def __init__(self, ids: HashedIds, nodes: Standardise, edges: Standardise | None) -> None:
        self.table, self.nodes = array(ids.table), (array(nodes.mean), array(nodes.sd))
        self.edges = None if edges is None else (array(edges.mean), array(edges.sd))

    def hidden(self, windows: WindowBatch) -> Rows:
        """[n, id_channels + num_features]"""
        num_rows, channels = self.table.shape
        made = np.empty((len(windows.ids), channels + windows.x.shape[1]), np.float32)
        first, second = (self.table[row_of(windows.ids, num_rows, probe)] for probe in (0, 1))
        np.add(first, second, out=made[:, :channels])
        mean, sd = self.nodes
        np.divide(windows.x - mean, sd, out=made[:, channels:])
        return made

    def edge_rows(self, windows: WindowBatch) -> EdgeInputs | None:
        """None if features of edges are not read."""
        if self.edges is None:
            return None
        mean, sd = self.edges
        attr = (windows.attr - mean) / sd
        of_loops = np.empty((len(windows.ids), attr.shape[1]), np.float32)
        windows.edges.means(attr, of_loops)
        return EdgeInputs(attr, of_loops)

    def moves(self, windows: WindowBatch, of_hidden: Rows, of_attr: Rows | None, of_x: Rows | None = None) -> Moves:
        """From the gradients of what `hidden` and `edge_rows` gave; `of_x`: of features as they are, besides."""
        of_features = of_hidden[:, self.table.shape[1] :] / self.nodes[1]
        if of_x is not None:
            of_features += of_x
        of_edges = np.zeros(len(windows.attr), np.float32)
        if of_attr is not None and self.edges is not None:
            of_edges = (windows.attr * (of_attr / self.edges[1])).sum(axis=1)
        return Moves((windows.x * of_features).sum(axis=1), of_edges)


class FixedLinear:
    """x · weightᵀ + bias, then ReLU if `relu`."""

    def __init__(self, layer: nn.Linear, *, relu: bool = False) -> None:
        bias = None if layer.bias is None else array(layer.bias)
        self.native = _native.FixedLinear(array(layer.weight), bias, relu)
        self.num_in, self.num_out = layer.in_features, layer.out_features

    def __call__(self, x: Rows) -> Rows:
        """[m, num_in] → [m, num_out]."""
        out = np.empty((len(x), self.num_out), np.float32)
        self.native.forward(x, out)
        return out

    def backward(self, grad: Rows, out: Rows) -> Rows:
        """Of x, from the gradient of `out`, both [m, num_out]."""
        of_x = np.empty((len(out), self.num_in), np.float32)
        self.native.backward(grad, out, of_x)
        return of_x


class Attention:
    """relu(conv(x)), or relu(layer_norm(conv(x))); a node has a loop, whose features are the mean of its edges'.

    Its gradient is of the last call.
    """

    def __init__(self, conv: GATConv | GATv2Conv, *, normalise: bool) -> None:
        with torch.no_grad():
            weight, bias, of_edges, att = _of_gat(conv) if isinstance(conv, GATConv) else _of_gatv2(conv)
        self.native = _native.FixedAttention(
            conv.heads, weight, bias, of_edges, att, None if conv.bias is None else array(conv.bias),
            conv.out_channels, conv.negative_slope, normalise,
        )  # fmt: skip
        self.num_in, self.num_out = weight.shape[1], conv.heads * conv.out_channels

    def __call__(self, windows: WindowBatch, x: Rows, edges: EdgeInputs | None) -> Rows:
        """[n, num_in] → [n, num_out]."""
        out = np.empty((len(x), self.num_out), np.float32)
        self.native.forward(windows.edges, x, *_both(edges), out)
        return out

    def backward(
        self, windows: WindowBatch, edges: EdgeInputs | None, out: Rows, grad: Rows, of_attr: Rows | None
    ) -> Rows:
        """Of x, from the gradient of `out`; that of the features of edges is added to `of_attr`."""
        of_x = np.empty((len(out), self.num_in), np.float32)
        self.native.backward(windows.edges, *_both(edges), out, grad, of_x, of_attr)
        return of_x


def _both(edges: EdgeInputs | None) -> tuple[Rows | None, Rows | None]:
    return (None, None) if edges is None else (edges.attr, edges.of_loops)


_Weights = tuple[Rows, Rows | None, Rows | None, Rows | None]  # of values and scores, their bias, of edges, att


def _of_gat(conv: GATConv) -> _Weights:
    assert conv.lin is not None
    weight = conv.lin.weight
    of_scores = [by_head(weight, att).t() for att in (conv.att_src, conv.att_dst)]
    of_edges = None
    if conv.lin_edge is not None and conv.att_edge is not None:
        of_edges = array(by_head(conv.lin_edge.weight, conv.att_edge))
    return array(torch.cat([weight, *of_scores])), None, of_edges, None


def _of_gatv2(conv: GATv2Conv) -> _Weights:
    left, right = conv.lin_l, conv.lin_r
    bias = None if left.bias is None else array(torch.cat([left.bias, right.bias]))
    of_edges = None if conv.lin_edge is None else array(conv.lin_edge.weight.t())
    return array(torch.cat([left.weight, right.weight])), bias, of_edges, array(conv.att.flatten())


def array(values: Tensor) -> Rows:
    """As float32, on the CPU."""
    found: Rows = np.ascontiguousarray(values.detach().float().cpu().numpy())
    return found
