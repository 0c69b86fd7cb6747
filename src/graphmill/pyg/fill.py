"""The rows of a batch: what PyG's `filter_data` copies into it, gathered natively into memory that is used again."""

import copy
import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]  # torch: not in its __all__
from torch_geometric.data import Data, HeteroData

from graphmill import _native
from graphmill.pyg.shared import room

_LEAST_REUSED: Final = 1 << 16  # bytes: smaller rows are cheaper to allocate
_COPIED: Final = frozenset(
    (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    )
)


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
    batch, copies = copy.copy(data), Copies()
    if isinstance(data, Data):
        _fill_nodes(data._store, batch._store, out.node, copies)
        _fill_edges(data._store, batch._store, out.row, out.col, out.edge, copies)
        copies.make()
        _name(batch, out.node, out.edge, out.orig_row, out.orig_col)
        batch.batch = out.batch
        batch.num_sampled_nodes, batch.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        return batch
    for name in data.node_types:
        _fill_nodes(data[name], batch[name], out.node[name], copies)
    for name in data.edge_types:
        _fill_edges(data[name], batch[name], out.row[name], out.col[name], (out.edge or {}).get(name), copies)
    copies.make()
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


def _fill_nodes(store: Any, into: Any, nodes: Tensor, copies: "Copies") -> None:  # noqa: ANN401  # two PyG storages
    """Rows of the nodes."""
    for name, value in store.items():
        if name == "num_nodes":
            into.num_nodes = nodes.numel()
        elif store.is_node_attr(name):
            into[name] = copies.rows_of(value, nodes, _dimension(store, name, value))


def _fill_edges(store: Any, into: Any, row: Tensor, col: Tensor, edges: Tensor | None, copies: "Copies") -> None:  # noqa: ANN401
    """The edges of the subgraph, and their rows. `edges`: their numbers; None where reversed ones were added."""
    for name, value in store.items():
        if name == "edge_index":
            into.edge_index = ends_of(row, col)
        elif store.is_edge_attr(name):
            into[name] = None if edges is None else copies.rows_of(value, edges, _dimension(store, name, value))


def ends_of(row: Tensor, col: Tensor) -> Tensor:
    """[2, num_edges]; without a copy where sources and targets lie one after the other, as the sampler makes them."""
    whole = row._base
    if whole is None or whole is not col._base or whole.shape != (2, len(row)) or row.data_ptr() > col.data_ptr():
        return torch.stack([row, col])
    return whole


class Copies:
    """The rows of a batch, which one native call copies into memory that is used again."""

    def __init__(self) -> None:
        self._tables: list[Any] = []
        self._ids: list[Any] = []
        self._outs: list[Any] = []

    def rows_of(self, value: Any, ids: Tensor, dimension: int = 0) -> Any:  # noqa: ANN401  # a tensor, an array, a frame
        """`value` at `ids` [n], copied once `make` is called. A gradient reaches what is learnt."""
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.take(value, ids.numpy(), axis=dimension))
        if not isinstance(value, Tensor):
            return value[ids.to(value.device)]  # a TensorFrame
        is_plain = _is_plain(value) and value.dim() > 0 and _is_plain(ids) and ids.dtype == torch.int64
        if dimension != 0 or value.requires_grad or not is_plain:
            return value.index_select(dimension, ids.to(value.device))
        shape = (ids.shape[0], *value.shape[1:])
        num_bytes = value.element_size() * math.prod(shape)
        if num_bytes < _LEAST_REUSED:
            out = torch.empty(shape, dtype=value.dtype)
        else:
            out = room(num_bytes).view(value.dtype).view(shape)
        # The core would ask for the same by `Tensor.__dlpack__`, which takes eight times as long.
        self._tables.append(to_dlpack(value))
        self._ids.append(to_dlpack(ids))
        self._outs.append(to_dlpack(out))
        return out

    def make(self) -> None:
        """Copy the rows that were asked for."""
        if self._tables:
            _native.take_rows(self._tables, self._ids, self._outs, torch.get_num_threads())


def _is_plain(tensor: Tensor) -> bool:
    is_dense = tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_contiguous()
    return is_dense and type(tensor) is Tensor and tensor.dtype in _COPIED


def _dimension(store: Any, name: str, value: Any) -> int:  # noqa: ANN401  # a PyG storage
    """Dimension along which an attribute holds one row each."""
    return int(store._parent().__cat_dim__(name, value, store))
