"""The rows of a batch: what PyG's `filter_data` copies into it, gathered natively into memory that is used again."""

import copy
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphmill import _native
from graphmill.pyg.shared import room

_LEAST_REUSED: Final = 1 << 16  # bytes: smaller rows are cheaper to allocate
_GATHERED: Final = (torch.float32, torch.bfloat16)  # natively


def can_fill(data: Any) -> bool:  # noqa: ANN401  # what a loader was given
    """Whether it is a `Data` or `HeteroData` with edges in `edge_index`; other batches are filled by PyG."""
    if isinstance(data, Data):
        return "adj_t" not in data._store
    return isinstance(data, HeteroData) and not any("adj_t" in store for store in data.edge_stores)


def filled(data: Any, out: Any) -> Any:  # noqa: ANN401  # a Data or HeteroData → a batch of the same class
    """The batch of a subgraph, with the rows of its nodes and edges; what belongs to the whole graph is passed on.

    Args:
        data: the graph, which `can_fill`.
        out: the subgraph, a `SamplerOutput` or `HeteroSamplerOutput`.
    """
    batch = copy.copy(data)
    if isinstance(data, Data):
        fill_nodes(data._store, batch._store, out.node)
        fill_edges(data._store, batch._store, out.row, out.col, out.edge)
        _name(batch, out.node, out.edge, out.orig_row, out.orig_col)
        batch.batch = out.batch
        batch.num_sampled_nodes, batch.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        return batch
    for name in data.node_types:
        fill_nodes(data[name], batch[name], out.node[name])
    for name in data.edge_types:
        fill_edges(data[name], batch[name], out.row[name], out.col[name], (out.edge or {}).get(name))
    for name, node in out.node.items():
        _name(batch[name], node, None, None, None)
    for name in out.row:
        originals = ((each or {}).get(name) for each in (out.edge, out.orig_row, out.orig_col))
        _name(batch[name], None, *originals)
    batch.set_value_dict("batch", out.batch)
    batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    return batch


def _name(store: Any, node: Tensor | None, edge: Tensor | None, row: Tensor | None, col: Tensor | None) -> None:  # noqa: ANN401
    """What PyG's loaders say of the nodes and edges of a batch."""
    if node is not None and "n_id" not in store:
        store.n_id = node
    if edge is not None and "e_id" not in store:
        store.e_id = edge
    if row is not None and col is not None:
        store._orig_edge_index = torch.stack([row, col])


def fill_nodes(store: Any, into: Any, nodes: Tensor) -> None:  # noqa: ANN401  # two PyG storages
    """Rows of the nodes."""
    for name, value in store.items():
        if name == "num_nodes":
            into.num_nodes = nodes.numel()
        elif store.is_node_attr(name):
            into[name] = rows_of(value, nodes, _dimension(store, name, value))


def fill_edges(store: Any, into: Any, row: Tensor, col: Tensor, edges: Tensor | None) -> None:  # noqa: ANN401
    """The edges of the subgraph, and their rows. `edges`: their numbers; None where reversed ones were added."""
    for name, value in store.items():
        if name == "edge_index":
            into.edge_index = ends_of(row, col)
        elif store.is_edge_attr(name):
            into[name] = None if edges is None else rows_of(value, edges, _dimension(store, name, value))


def ends_of(row: Tensor, col: Tensor) -> Tensor:
    """[2, num_edges]; without a copy where sources and targets lie one after the other, as the sampler makes them."""
    whole = row._base
    if whole is None or whole is not col._base or whole.shape != (2, len(row)) or row.data_ptr() > col.data_ptr():
        return torch.stack([row, col])
    return whole


def rows_of(value: Any, ids: Tensor, dimension: int = 0) -> Any:  # noqa: ANN401  # a tensor, an array, a frame
    """`value` at `ids` [n]. A gradient reaches what is learnt."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.take(value, ids.numpy(), axis=dimension))
    if not isinstance(value, Tensor):
        return value[ids.to(value.device)]  # a TensorFrame
    is_plain = value.device.type == "cpu" and value.layout == torch.strided and value.is_contiguous()
    if dimension != 0 or not is_plain or value.requires_grad or value.dim() == 0 or type(value) is not Tensor:
        return value.index_select(dimension, ids.to(value.device))
    row_bytes = value.element_size() * (value.numel() // max(len(value), 1))
    if row_bytes * len(ids) < _LEAST_REUSED:
        return value.index_select(0, ids)
    found = room(row_bytes * len(ids)).view(value.dtype).view(len(ids), *value.shape[1:])
    if value.dim() == 2 and value.dtype in _GATHERED:
        _native.gather_rows(value, ids, found, torch.get_num_threads())
        return found
    return torch.index_select(value, 0, ids, out=found)


def _dimension(store: Any, name: str, value: Any) -> int:  # noqa: ANN401  # a PyG storage
    """Dimension along which an attribute holds one row each."""
    return int(store._parent().__cat_dim__(name, value, store))
