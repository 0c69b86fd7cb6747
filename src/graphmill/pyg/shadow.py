"""PyG's `ShaDowKHopSampler` (arXiv 2201.07858): around each seed a subgraph of its own, with all edges in it."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmill.base.arguments import whole_number
from graphmill.base.errors import InvalidInputError
from graphmill.pyg.batches import SeedBatch
from graphmill.pyg.keyed import KeyedLoader, checked_options
from graphmill.pyg.loaders import check_ids
from graphmill.pyg.sampler import NeighborSampler
from graphmill.pyg.shared import send_in_segments


class ShaDowKHopSampler(KeyedLoader, torch.utils.data.DataLoader[Any]):  # type: ignore[misc]  # a generator
    """PyG's loader of shallow subgraphs without torch-sparse, with a `seed` and a state.

    Example:
        >>> loader = ShaDowKHopSampler(data, depth=2, num_neighbors=5, node_idx=data.train_mask, batch_size=128)
    """

    def __init__(
        self,
        data: Data,
        depth: int,
        num_neighbors: int,
        node_idx: Tensor | None = None,
        replace: bool = False,
        *,
        seed: int = 0,
        prefetch: int = 2,
        **named: Any,  # noqa: ANN401  # DataLoader's
    ) -> None:
        """Take the arguments of PyG's `ShaDowKHopSampler`, and more.

        Args:
            data: the graph.
            depth: hops around a seed.
            num_neighbors: neighbours of each node; -1: all.
            node_idx: seeds, as mask or ids; None: all nodes.
            replace: draw neighbours with replacement.
            seed: of the order of seeds and of all draws.
            prefetch: batches that a thread makes ahead where there are no workers; 0: none.
            named: DataLoader's options.
        """
        depth = whole_number("depth", depth)
        self.data, self.depth, self.num_neighbors, self.replace = copy.copy(data), depth, num_neighbors, replace
        self.sampler_of_nodes = NeighborSampler(
            data, [num_neighbors] * depth, subgraph_type="induced", replace=replace, disjoint=True
        )
        self.is_sparse_tensor = getattr(data, "edge_index", None) is None
        if self.is_sparse_tensor:
            raise InvalidInputError("the Data has no edge_index", fix="give one [2, num_edges] in place of adj_t")
        count = self.sampler_of_nodes.graph.num_nodes[None]
        if node_idx is None:
            node_idx = torch.arange(count)
        elif node_idx.dtype == torch.bool:
            node_idx = node_idx.nonzero().view(-1)
        check_ids("node_idx", node_idx, count)
        self.node_idx = node_idx
        options = checked_options(named)
        super().__init__(range(len(node_idx)), collate_fn=self.collate_fn, **options)  # type: ignore[arg-type]
        self._begin(len(node_idx), seed, prefetch, options)

    def collate_fn(self, batch: SeedBatch) -> Any:  # noqa: ANN401  # a PyG Batch
        """The subgraphs of a batch of seeds, one after another."""
        send_in_segments()
        seeds = self.node_idx[torch.as_tensor(batch.places)]
        out = self.sampler_of_nodes.sample({None: seeds}, None, batch.key)
        order = torch.argsort(out.batch, stable=True)  # nodes by subgraph; by hop within it, the seed first
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        ptr = torch.from_numpy(np.cumsum([0, *np.bincount(out.batch.numpy(), minlength=len(seeds))]))
        by_subgraph = torch.argsort(out.batch[out.col], stable=True)
        nodes, edges = out.node[order], out.edge[by_subgraph]
        made = Batch(batch=out.batch[order], ptr=ptr)
        made.root_n_id = ptr[:-1].clone()
        made.edge_index = torch.stack([place[out.row[by_subgraph]], place[out.col[by_subgraph]]])
        self._fill(made, nodes, edges)
        return made

    def _fill(self, made: Any, nodes: Tensor, edges: Tensor) -> None:  # noqa: ANN401  # a PyG Batch
        for name, value in self.data:
            if name in ("edge_index", "num_nodes", "batch", "ptr"):
                continue
            if isinstance(value, Tensor) and self.data.is_node_attr(name):
                made[name] = value[nodes][made.root_n_id] if name == "y" else value[nodes]
            elif isinstance(value, Tensor) and self.data.is_edge_attr(name):
                made[name] = value[edges]
            else:
                made[name] = value
