"""A loader with PyG's interface: what `torch_geometric.loader.NeighborLoader` yields, from the native sampler.

It needs PyG for its `Data` class, and neither pyg-lib nor torch-sparse.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.keys import Purpose
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.calendar import EqualBatches


class NeighborLoader:
    """Mini-batches of a PyG `Data` object by neighbour sampling, for models that PyG users have already.

    A batch is a `Data` with `x, y, edge_index, n_id, e_id, input_id, batch_size, num_sampled_nodes, num_sampled_edges`:
    seeds first, nodes in order of discovery, as in PyG. Every iteration over the loader is the next epoch. Which
    batches come is a function of (seed, epoch, step), so `state_dict()` is two numbers and a resumed loader continues
    mid-epoch. In place of worker processes it has threads (`num_threads`, `prefetch`).

    Example:
        >>> nodes = data.train_mask
        >>> loader = NeighborLoader(data, num_neighbors=[25, 10], batch_size=1024, input_nodes=nodes, shuffle=True)
        ... for batch in loader:
        ...     out = model(batch.x, batch.edge_index)[: batch.batch_size]
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401  # a PyG Data, which is an optional dependency
        num_neighbors: Sequence[int],
        input_nodes: Tensor | NDArray[Any] | Sequence[int] | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        num_threads: int | None = None,
    ) -> None:
        """`input_nodes`: a boolean mask [num_nodes], node ids, or None for all nodes. -1 in `num_neighbors`: all."""
        if getattr(data, "edge_index", None) is None:  # also a HeteroData, whose edges are stored per type
            raise UserError(f"the {type(data).__name__} has no edge_index", fix="give a Data with one [2, num_edges]")
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}", fix="give at least 1")
        self._data = data
        self._fanouts = _checked_fanouts(num_neighbors)
        topology, self._edge_order = _topology_of(data)
        self._sampler = _native.NeighborSampler(topology.indptr, topology.indices)
        given = None if input_nodes is None else torch.as_tensor(input_nodes)
        self._input_ids = _ids_of(given, data.num_nodes)
        by_mask = given is None or given.dtype == torch.bool
        self._input_order = None if by_mask else np.argsort(self._input_ids)
        self._batches = EqualBatches(len(self._input_ids), batch_size, ranks=1)
        self._schedule = SeedSchedule.equal(self._input_ids, self._batches, seed)
        self._seed, self._shuffle, self._prefetch = seed, shuffle, prefetch
        self._num_threads = num_threads or torch.get_num_threads()
        self._epoch = self._step = 0
        self._is_under_way = False  # an iteration began and did not finish

    def __len__(self) -> int:
        return self._batches.num_steps

    def __iter__(self) -> Iterator[Any]:
        if self._is_under_way:
            self._epoch, self._step = self._epoch + 1, 0
        epoch, first = self._epoch, self._step
        with closing(prefetch(lambda: self._make(epoch, first), self._prefetch)) as batches:
            for step, batch in enumerate(batches, start=first):
                self._is_under_way = step + 1 < len(self)
                self._epoch, self._step = (epoch, step + 1) if self._is_under_way else (epoch + 1, 0)
                yield batch

    def state_dict(self) -> dict[str, int]:
        """The loader's position: the next batch it would yield."""
        return {"epoch": self._epoch, "step": self._step, "seed": self._seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the position of another loader with the same arguments."""
        if state["seed"] != self._seed:
            raise UserError(
                f"the state is of seed {state['seed']}, the loader of {self._seed}",
                fix="make the loader with that seed",
            )
        if not 0 <= state["step"] < len(self):
            raise UserError(
                f"the state is of step {state['step']}, and this loader's epochs have {len(self)}",
                fix="make the loader with the same input_nodes and batch_size",
            )
        self._epoch, self._step, self._is_under_way = state["epoch"], state["step"], False

    def _make(self, epoch: int, first_step: int) -> Iterator[Any]:
        for step in range(first_step, len(self)):
            yield self._batch(self._seeds(epoch, step))

    def _seeds(self, epoch: int, step: int) -> Seeds:
        if self._shuffle:
            return self._schedule.seeds(epoch, step, rank=0)
        return Seeds(epoch, step, SeedIds(self._input_ids[self._batches.bounds(step)]))

    def _batch(self, seeds: Seeds) -> Any:  # noqa: ANN401  # a PyG Data
        from torch_geometric.data import Data  # type: ignore[attr-defined]  # re-exported the old way

        key = seeds.key(self._seed, Purpose.NEIGHBOURS)
        hood = self._sampler.sample(seeds.ids, self._fanouts, key, with_edge_ids=True, num_threads=self._num_threads)
        node_ids = torch.from_numpy(hood.node_ids)
        targets = np.repeat(np.arange(len(hood.indptr) - 1), np.diff(hood.indptr))
        batch = Data(
            edge_index=torch.stack([torch.from_numpy(hood.indices).long(), torch.from_numpy(targets)]),
            n_id=node_ids,
            e_id=self._edge_order[torch.from_numpy(hood.edge_ids)],
            input_id=torch.from_numpy(self._input_id_of(seeds.ids)),
            batch_size=len(seeds.ids),
            num_sampled_nodes=list(hood.num_nodes_per_hop),
            num_sampled_edges=list(hood.num_edges_per_hop),
        )
        batch.num_nodes = len(node_ids)
        self._fill(batch)
        return batch

    def _input_id_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """What PyG calls input_id: positions in `input_nodes` if those are ids, else the nodes themselves."""
        if self._input_order is None:
            return ids.copy()
        return self._input_order[np.searchsorted(self._input_ids, ids, sorter=self._input_order)]

    def _fill(self, batch: Any) -> None:  # noqa: ANN401  # a PyG Data
        """Rows of every node and edge attribute of the data; what belongs to the whole graph is passed on."""
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
        if value.dtype != torch.float32 or value.dim() != 2 or not value.is_contiguous():
            return value.index_select(0, ids)
        rows = torch.empty(len(ids), value.shape[1])
        _native.gather_rows(value.detach(), ids, rows, self._num_threads)
        return rows


def _topology_of(data: Any) -> tuple[Topology, Tensor]:  # noqa: ANN401  # a PyG Data
    """In-neighbours in compressed sparse form, and which column of edge_index each in-edge is."""
    edges = data.edge_index
    outside = edges[(edges < 0) | (edges >= data.num_nodes)]
    if len(outside):
        raise UserError(
            f"edge_index names node {int(outside[0])}, but the graph's {data.num_nodes} nodes count from 0",
            fix="correct edge_index or num_nodes",
        )
    order = torch.argsort(edges[1] * data.num_nodes + edges[0], stable=True)
    indptr = torch.zeros(data.num_nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(edges[1], minlength=data.num_nodes), 0, out=indptr[1:])
    return Topology(indptr.numpy(), edges[0][order].to(torch.int32).numpy()), order


def _checked_fanouts(num_neighbors: Sequence[int]) -> list[int]:
    """The fan-outs, if each is a whole number ≥ -1: 2.5 and -2 would be taken for 2 and all."""
    fanouts = list(num_neighbors) if isinstance(num_neighbors, Sequence) else []
    if not fanouts or any(fanout != int(fanout) or fanout < -1 for fanout in fanouts):
        raise UserError(
            f"num_neighbors is {num_neighbors}, and it holds how many neighbours to draw, hop by hop",
            fix="give whole numbers, -1 for all neighbours: num_neighbors=[25, 10]",
        )
    return [int(fanout) for fanout in fanouts]


def _ids_of(input_nodes: Tensor | None, num_nodes: int) -> NDArray[np.int64]:
    if input_nodes is None:
        return np.arange(num_nodes, dtype=np.int64)
    if input_nodes.dtype == torch.bool and input_nodes.shape != (num_nodes,):
        raise UserError(
            f"input_nodes is a mask of shape {list(input_nodes.shape)}, and the graph has {num_nodes} nodes",
            fix="give a mask [num_nodes], or node ids",
        )
    if input_nodes.is_floating_point() or input_nodes.is_complex():
        raise UserError(f"input_nodes holds {input_nodes.dtype}", fix="give a boolean mask [num_nodes], or node ids")
    ids = torch.nonzero(input_nodes).reshape(-1) if input_nodes.dtype == torch.bool else input_nodes.reshape(-1)
    if ids.numel() == 0 or int(ids.min()) < 0 or int(ids.max()) >= num_nodes:
        raise UserError(
            f"input_nodes must name nodes 0 to {num_nodes - 1}, and at least one", fix="give a mask or node ids"
        )
    if len(torch.unique(ids)) != len(ids):
        raise UserError("input_nodes names a node twice", fix="give each node once")
    result: NDArray[np.int64] = ids.to(torch.int64).numpy()
    return result
