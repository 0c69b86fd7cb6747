"""What a loader for PyG users reads: a PyG `Data`, or the parts of a partitioned graph (`distributed/opened.py`).

A loader decides which seeds a batch has, and asks a `LoaderGraph` for their neighbourhood and its attributes. So a
loader of links or of subgraphs is a class beside `NeighborLoader`, on the same two graphs.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.sampled import Sampled
from graphmill.graph.topology import topology_with_edge_ids
from graphmill.sample.checked_data import checked_edges
from graphmill.sample.collect import NeighbourSource
from graphmill.sample.neighbor import NeighborSampler
from graphmill.sample.typed_data import keep_names


class LoaderGraph(Protocol):
    """A graph that one loader reads."""

    num_nodes: int  # of the whole graph
    num_threads: int
    rank: int
    world_size: int  # ranks that share out the seeds
    is_shared: bool  # whether they make batches together: then all make equally many, and sample one ahead

    def sampler(self, fanouts: tuple[int, ...], seed: int) -> NeighbourSource:
        """PyG's way: a node draws once, at the hop that first meets it. It gives edge ids."""

    def prepare(self, input_ids: NDArray[np.int64], batch_size: int, fanouts: tuple[int, ...], said: str) -> None:
        """Before the first batch. `said`: all that the ranks' loaders must have in common."""

    def fill(self, batch: Any, sampled: Sampled, following: Sampled | None) -> None:  # noqa: ANN401  # a PyG Data
        """Give a batch its `e_id`, and the attributes of its nodes and edges. `following`: the batch ahead, if any."""


class WholeData:
    """A PyG `Data` object, in this process."""

    rank = 0
    world_size = 1
    is_shared = False

    def __init__(self, data: Any, num_threads: int) -> None:  # noqa: ANN401  # a PyG Data
        edges, self.num_nodes = checked_edges(data)
        self._data, self.num_threads = data, num_threads
        self._topology, columns = topology_with_edge_ids(edges, self.num_nodes, keep_multi_edges=True)
        self._edge_order = torch.from_numpy(columns)  # which column of edge_index each in-edge is

    def sampler(self, fanouts: tuple[int, ...], seed: int) -> NeighbourSource:
        """Of its edges as given."""
        return NeighborSampler(
            self._topology, fanouts, seed, num_threads=self.num_threads, resample=False, with_edge_ids=True
        )

    def prepare(self, input_ids: NDArray[np.int64], batch_size: int, fanouts: tuple[int, ...], said: str) -> None:
        """Nothing: all rows are here."""

    def fill(self, batch: Any, sampled: Sampled, following: Sampled | None) -> None:  # noqa: ANN401  # a PyG Data
        """Rows of every node and edge attribute of the data; what belongs to the whole graph is passed on."""
        keep_names(batch, self._data)
        batch.e_id = self._edge_order[torch.from_numpy(sampled.edge_ids)]
        for name, value in self._data.items():
            if name in batch:
                continue
            if isinstance(value, Tensor) and self._data.is_edge_attr(name):
                batch[name] = value.index_select(0, batch.e_id)
            elif isinstance(value, Tensor) and self._data.is_node_attr(name):
                batch[name] = self._node_rows(value, batch.n_id)
            else:
                batch[name] = value

    def _node_rows(self, value: Tensor, ids: Tensor) -> Tensor:
        if value.dtype != torch.float32 or value.dim() != 2 or not value.is_contiguous() or value.requires_grad:
            return value.index_select(0, ids)
        rows = torch.empty(len(ids), value.shape[1])
        _native.gather_rows(value, ids, rows, self.num_threads)
        return rows
