"""The attention of GAT and GATv2 over all neighbours, layer by layer, so that no neighbourhood is computed twice."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.access.layerwise import in_entries, wanted_rows
from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import Features, SparseFeatures
from graphmill.graph.sampled import NodeIds, stored_whole
from graphmill.graph.topology import Topology
from graphmill.nn.attention import EdgeGroups, group_edges
from graphmill.nn.node_attention import NodeAttention
from graphmill.nn.subgraph import written_out
from graphmill.sample.collect import gather_sparse
from graphmill.tasks.attended import Attended
from graphmill.tasks.node_encoders import EdgeIndexModel

_ROWS_AT_A_TIME = 8192  # targets whose edges are in memory together


@dataclass(frozen=True, slots=True)
class LayerwiseAttention:
    """What each layer gives the edges to chosen nodes, without sampling and without dropout."""

    model: EdgeIndexModel  # of NodeAttention
    topology: Topology
    features: Features
    edge_features: EdgeFeatures | None  # None: the model reads none

    @torch.no_grad()
    def parts(self, nodes: NDArray[np.int64], device: torch.device) -> Iterator[Attended]:
        """Attention of `nodes` [n], ascending: layer after layer, some nodes at a time."""
        inner = self.model.inner
        assert isinstance(inner, NodeAttention)
        was_training = self.model.training
        self.model.eval()
        h: Tensor | None = None
        for depth, rows in enumerate(wanted_rows(self.topology, nodes, len(inner.layers))):
            following: Tensor | None = None
            for begin in range(0, len(rows), _ROWS_AT_A_TIME):
                block = _TargetBlock.of(self.topology, rows[begin : begin + _ROWS_AT_A_TIME])
                out, attended = self._layer(depth, block, h, device)
                if following is None:
                    following = out.new_zeros(self.topology.num_nodes, out.shape[1])
                following[torch.from_numpy(block.ids)] = F.elu(out)
                yield _chosen(attended, nodes)
            h = following
        self.model.train(was_training)

    def _layer(
        self, depth: int, block: "_TargetBlock", h: Tensor | None, device: torch.device
    ) -> tuple[Tensor, Attended]:
        inner = self.model.inner
        assert isinstance(inner, NodeAttention)
        x = (self._features_of(block.nodes) if h is None else h[torch.from_numpy(block.nodes)]).to(device)
        if h is None and self.model.standardise is not None:
            x = self.model.standardise(x)
        attr = None if self.edge_features is None else self._edge_attr(block.entries).to(device)
        count = len(block.ids)
        groups = block.groups(device)
        out, (edges, alpha) = inner.layers[depth]((x, x[:count]), groups, attr, return_attention_weights=True)
        source, target = block.nodes[edges.cpu().numpy()]
        return out.cpu(), Attended(depth, (source, target), alpha.float().cpu().numpy())

    def _features_of(self, nodes: NDArray[np.int64]) -> Tensor:
        rows, threads = stored_whole(NodeIds(nodes)), torch.get_num_threads()
        if isinstance(self.features, SparseFeatures):
            return written_out(gather_sparse(self.features, rows, threads))
        x = torch.empty(len(nodes), self.features.num_features)
        _native.gather_rows(self.features.x, rows, x, threads)
        return x

    def _edge_attr(self, entries: NDArray[np.int64]) -> Tensor:
        assert self.edge_features is not None
        out = torch.empty(len(entries), self.edge_features.num_features)
        _native.gather_rows(
            self.edge_features.values, self.edge_features.rows_of(entries), out, torch.get_num_threads()
        )
        return out


@dataclass(frozen=True, slots=True)
class _TargetBlock:
    """Some targets with all edges to them."""

    ids: NDArray[np.int64]  # of the targets
    nodes: NDArray[np.int64]  # of all sources, the targets first: each of them attends to itself, too
    edge_index: NDArray[np.int64]  # [2, num_edges], places in `nodes`
    entries: NDArray[np.int64]  # [num_edges], of the topology

    @classmethod
    def of(cls, topology: Topology, ids: NDArray[np.int64]) -> "_TargetBlock":
        indptr, entries = in_entries(topology, ids)
        sources = topology.indices[entries].astype(np.int64)
        nodes = np.concatenate([ids, np.setdiff1d(sources, ids)])
        place = np.argsort(nodes)
        local = place[np.searchsorted(nodes, sources, sorter=place)]
        targets = np.repeat(np.arange(len(ids)), np.diff(indptr))
        return cls(ids, nodes, np.stack([local, targets]), entries)

    def groups(self, device: torch.device) -> EdgeGroups:
        count = len(self.ids)
        return group_edges(torch.from_numpy(self.edge_index).to(device), len(self.nodes), count, count, by_source=False)


def _chosen(attended: Attended, nodes: NDArray[np.int64]) -> Attended:
    """The edges to `nodes` alone, by ascending target and source."""
    source, target = attended.ids
    is_asked = np.isin(target, nodes)
    order = np.flatnonzero(is_asked)
    order = order[np.lexsort((source[order], target[order]))]
    return Attended(attended.layer, (source[order], target[order]), attended.alpha[order])
