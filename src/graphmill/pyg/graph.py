"""The graph of a PyG `Data`, `HeteroData` or pair of stores, read once: types, edges in columns, times, weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData, remote_backend_utils
from torch_geometric.sampler.base import DataType

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.sample.checked_data import array_of, check_edges_between, check_rows_of, checked_edges
from graphmill.sample.columns import Columns, Ints, checked_columns

EdgeType = Any  # (source, relation, target), or None where there are no types
NodeType = Any  # a name, or None

_MOST_NODES: Final = 2**31 - 2


@dataclass(kw_only=True)
class TypedGraph:
    """Nodes and edges by type; a graph without types has one of each, whose name is None."""

    kind: DataType
    backward: bool  # columns hold out-edges
    num_nodes: dict[NodeType, int]
    columns: dict[EdgeType, Columns]  # that are sampled
    known: dict[EdgeType, Columns] = field(default_factory=dict)  # all edges of a type, where some are never sampled
    node_time: dict[NodeType, Ints] = field(default_factory=dict)
    edge_time: dict[EdgeType, Ints] = field(default_factory=dict)  # by the caller's numbers
    _made: _native.TypedNeighborSampler | None = field(default=None, init=False, repr=False)

    @property
    def node_types(self) -> list[NodeType]:
        """Types of nodes, in the order of the data."""
        return list(self.num_nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """Types of edges, in the order of the data, which is the order in which a hop draws."""
        return list(self.columns)

    def ends(self, edge_type: EdgeType) -> tuple[NodeType, NodeType]:
        """The types of the nodes at both ends."""
        return (None, None) if edge_type is None else (edge_type[0], edge_type[-1])

    @property
    def native(self) -> _native.TypedNeighborSampler:
        """Native sampler of the graph, made when first asked for, in each process."""
        if self._made is None:
            self._made = self._sampler()
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def _sampler(self) -> _native.TypedNeighborSampler:
        numbers = {name: number for number, name in enumerate(self.num_nodes)}
        relations = []
        for edge_type, columns in self.columns.items():
            ends = [numbers[end] for end in self.ends(edge_type)]
            source, target = reversed(ends) if self.backward else ends
            relations.append(columns.relation(source, target))
        return _native.TypedNeighborSampler(list(self.num_nodes.values()), relations)


def read_graph(
    data: Any,  # noqa: ANN401  # a PyG Data, HeteroData, or (FeatureStore, GraphStore)
    *,
    time_attr: str | None = None,
    weight_attr: str | None = None,
    backward: bool = False,
) -> TypedGraph:
    """Columns of all edges, with times and weights.

    Args:
        data: the graph; ids, times and weights are checked.
        time_attr: of nodes or of edges, whole numbers: rows are sorted by it.
        weight_attr: of edges, not negative.
        backward: columns hold the out-edges, for sampling against their direction.

    Raises:
        InvalidInputError: what does not fit, and what to give.
    """
    if isinstance(data, Data):
        graph = _of_data(data, backward)
        stores: Mapping[Any, Any] = {None: data}
    elif isinstance(data, HeteroData):
        graph = _of_hetero(data, backward)
        stores = {**{name: data[name] for name in data.node_types}, **{name: data[name] for name in data.edge_types}}
    else:
        graph = _of_stores(data, backward)
        if weight_attr is not None:
            raise NotImplementedError("weight_attr is of a Data or HeteroData: give such data, or leave it out")
        stores = _StoredTimes.of(data, graph, time_attr)
    if time_attr is not None:
        _read_times(graph, stores, time_attr)
    if weight_attr is not None:
        _read_weights(graph, stores, weight_attr)
    return graph


def _of_data(data: Data, backward: bool) -> TypedGraph:
    if getattr(data, "edge_index", None) is None and (columns := _of_sparse(data, backward)) is not None:
        count = _count(data.num_nodes, "the Data")
        checked_columns(columns.indptr, columns.indices, count, count, "adj_t")
        return TypedGraph(
            kind=DataType.homogeneous, backward=backward, num_nodes={None: count}, columns={None: columns}
        )
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        data = data.clone()  # nodes alone
        data.edge_index = torch.empty(2, 0, dtype=torch.long)
    edges, count = checked_edges(data)
    columns = _columns(edges, count, count, backward)
    return TypedGraph(kind=DataType.homogeneous, backward=backward, num_nodes={None: count}, columns={None: columns})


def _of_hetero(data: HeteroData, backward: bool) -> TypedGraph:
    node_types, edge_types = data.metadata()
    counts = {name: _count(data[name].num_nodes, f"nodes of type {name!r}") for name in node_types}
    for name, count in counts.items():
        check_rows_of(data[name], count, "nodes", f"{name!r}.")
    columns = {}
    for edge_type in edge_types:
        store = data[edge_type]
        for end in (edge_type[0], edge_type[-1]):
            if end not in counts:
                raise InvalidInputError(
                    f"edges {edge_type} join nodes of type {end!r}, of which the HeteroData has none",
                    fix=f"set data[{end!r}].num_nodes",
                )
        num_sources, num_targets = counts[edge_type[0]], counts[edge_type[-1]]
        if (given := _of_sparse(store, backward)) is not None:
            ends = (num_targets, num_sources) if backward else (num_sources, num_targets)
            checked_columns(given.indptr, given.indices, *ends, str(edge_type))
            columns[edge_type] = given
            continue
        edge_index = store.get("edge_index")
        if edge_index is None:
            raise InvalidInputError(f"{edge_type} has no edge_index", fix="give it one [2, num_edges], or delete it")
        name = f"edge_index of {edge_type}"
        check_edges_between(name, edge_index, num_sources, num_targets)
        edges = array_of(name, edge_index)
        check_rows_of(store, edges.shape[1], "edges", f"{edge_type}.")
        columns[edge_type] = _columns(edges, num_sources, num_targets, backward)
    return TypedGraph(kind=DataType.heterogeneous, backward=backward, num_nodes=counts, columns=columns)


def _of_stores(data: Any, backward: bool) -> TypedGraph:  # noqa: ANN401  # (FeatureStore, GraphStore)
    try:
        DataType.from_data(data)
    except ValueError:
        raise InvalidInputError(
            f"data is a {type(data).__name__}", fix="give a Data, a HeteroData, or (FeatureStore, GraphStore)"
        ) from None
    features, edges = data
    attributes = edges.get_all_edge_attrs()
    types = list(dict.fromkeys(each.edge_type for each in attributes))
    first, second, order = edges.csr() if backward else edges.csc()
    offsets, neighbours = (first, second) if backward else (second, first)
    if types == [None]:
        offsets, neighbours, order = {None: offsets}, {None: neighbours}, {None: order}
        counts: dict[NodeType, int] = {None: max(attributes[0].size)}
    else:
        names = [each.group_name for each in features.get_all_tensor_attrs() if isinstance(each.group_name, str)]
        ends = [end for each in types for end in (each[0], each[-1])]
        counts = {
            name: _count(remote_backend_utils.size(features, edges, name), f"nodes of type {name!r}")
            for name in dict.fromkeys([*names, *ends])
        }
    graph = TypedGraph(kind=DataType.remote, backward=backward, num_nodes=counts, columns={})
    for edge_type in types:
        source, target = (counts[end] for end in graph.ends(edge_type))
        numbers = (order or {}).get(edge_type)
        columns = Columns(
            indptr=_as_ints(offsets[edge_type]),
            indices=array_of("the graph store", neighbours[edge_type]),
            order=None if numbers is None else _as_ints(numbers),
        )
        ends_here = (target, source) if backward else (source, target)
        checked_columns(columns.indptr, columns.indices, *ends_here, str(edge_type or "the graph store"))
        graph.columns[edge_type] = columns
    return graph


def _of_sparse(store: Any, backward: bool) -> Columns | None:  # noqa: ANN401  # a PyG storage
    """Columns of a `SparseTensor` under `adj_t`, which holds its edges by target; None: there is none."""
    matrix = _attribute(store, "adj_t")
    if matrix is None or not hasattr(matrix, "csr"):
        return None
    if backward:
        raise InvalidInputError("adj_t holds the edges by target, and out-edges are asked for", fix="give edge_index")
    offsets, neighbours, _ = matrix.csr()
    return Columns(indptr=_as_ints(offsets), indices=array_of("adj_t", neighbours))


def _columns(edges: NDArray[Any], num_sources: int, num_targets: int, backward: bool) -> Columns:
    if edges.dtype.kind != "i" or edges.dtype.itemsize not in (4, 8):
        edges = edges.astype(np.int64)
    sources, targets = edges[::-1] if backward else edges
    counts = (num_targets, num_sources) if backward else (num_sources, num_targets)
    return Columns.of_edges(sources, targets, *counts, torch.get_num_threads())


def _as_ints(given: Tensor) -> Ints:
    return np.ascontiguousarray(array_of("the graph store", given), dtype=np.int64)


def _count(given: Any, what: str) -> int:  # noqa: ANN401  # what a PyG storage says
    if given is None or not 0 <= int(given) <= _MOST_NODES:
        raise InvalidInputError(f"{what}: {given} nodes", fix=f"set num_nodes, from 0 to {_MOST_NODES:,}")
    return int(given)


@dataclass(slots=True)
class _StoredTimes:
    """The time attribute of a feature store, looked up as in a `Data`."""

    values: dict[Any, Tensor]
    name: str

    @classmethod
    def of(cls, data: Any, graph: TypedGraph, time_attr: str | None) -> Mapping[Any, Any]:  # noqa: ANN401
        """Time attributes by type of nodes or edges."""
        features, found = data[0], {}
        for attr in features.get_all_tensor_attrs():
            if attr.attr_name == time_attr and time_attr is not None:
                attr.index = None
                found[attr.group_name] = features.get_tensor(attr)
        if list(graph.columns) == [None] and found:
            return {None: cls({time_attr: next(iter(found.values()))}, str(time_attr))}
        return {key: cls({time_attr: value}, str(time_attr)) for key, value in found.items()}

    def get(self, name: str) -> Tensor | None:
        """Return the time attribute, if it is the one named."""
        return self.values.get(name)


def _attribute(store: Any, name: str) -> Any:  # noqa: ANN401  # a PyG storage
    return store.get(name) if hasattr(store, "get") else getattr(store, name, None)


def _read_times(graph: TypedGraph, stores: Mapping[Any, Any], name: str) -> None:
    found = {key: value for key, store in stores.items() if (value := _attribute(store, name)) is not None}
    of_nodes: dict[NodeType, Ints] = {}
    of_edges: dict[EdgeType, Ints] = {}
    for key, value in found.items():
        times = _checked_times(f"{name} of {key}" if key is not None else name, value)
        is_of_nodes = not isinstance(key, tuple)
        if key is None:
            is_of_nodes = _is_of_nodes(stores[None], name, len(times), graph)
        count = graph.num_nodes[key] if is_of_nodes else graph.columns[key].num_edges
        if len(times) != count:
            raise InvalidInputError(
                f"{name} has {len(times)} times, and there are {count} {'nodes' if is_of_nodes else 'edges'}",
                fix="give one for each of them",
            )
        (of_nodes if is_of_nodes else of_edges)[key] = times
    if bool(of_nodes) == bool(of_edges):
        problem = "of nodes and of edges" if of_nodes else "neither of nodes nor of edges"
        raise InvalidInputError(f"{name} is {problem}", fix="give times to the nodes, or to the edges: data.time = ...")
    graph.node_time, graph.edge_time = of_nodes, of_edges
    threads = torch.get_num_threads()
    for edge_type, columns in graph.columns.items():
        source = graph.ends(edge_type)[0]
        if source in of_nodes:
            graph.columns[edge_type] = columns.with_times(of_nodes[source][columns.indices], threads)
        elif edge_type in of_edges:
            graph.columns[edge_type] = columns.with_times(columns.in_order(of_edges[edge_type]), threads)


def _is_of_nodes(store: Any, name: str, count: int, graph: TypedGraph) -> bool:  # noqa: ANN401  # a Data
    if isinstance(store, Data):
        return bool(store.is_node_attr(name))
    return name == "time" and count == graph.num_nodes[None]  # PyG's rule for stores


def _checked_times(name: str, value: Any) -> Ints:  # noqa: ANN401  # whatever stands in a Data
    times = array_of(name, value)
    if times.ndim != 1 or times.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} is {times.dtype} {list(times.shape)}, and times are whole numbers, one each",
            fix="give int64 [count]: seconds, or days",
        )
    return np.ascontiguousarray(times, dtype=np.int64)


def _read_weights(graph: TypedGraph, stores: Mapping[Any, Any], name: str) -> None:
    found = False
    for edge_type, columns in graph.columns.items():
        value = _attribute(stores[edge_type], name)
        if value is None:
            continue
        found = True
        what = name if edge_type is None else f"{name} of {edge_type}"
        weights = array_of(what, value)
        if weights.shape not in ((columns.num_edges,), (columns.num_edges, 1)) or weights.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{what} is {weights.dtype} {list(weights.shape)}, and there are {columns.num_edges} edges",
                fix="give one number for each edge",
            )
        weights = weights.reshape(-1).astype(np.float64)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            worst = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
            raise InvalidInputError(
                f"{what} of edge {worst} is {weights[worst]}", fix="give finite weights that are not negative"
            )
        graph.known[edge_type] = columns
        graph.columns[edge_type] = columns.with_weights(columns.in_order(weights))
    if not found:
        raise InvalidInputError(f"no edges have {name}", fix="name an attribute of the edges as weight_attr")
