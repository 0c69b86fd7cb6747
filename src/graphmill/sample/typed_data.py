"""Types in batches for PyG users: a `HeteroData` in one space of node ids, and what `to_heterogeneous` asks for."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmill.base.errors import UserError
from graphmill.graph.typed import ANY, EdgeType, NodeType
from graphmill.sample.checked_data import check_edges_between


def is_hetero(data: Any) -> bool:  # noqa: ANN401  # PyG is an optional install
    """Whether it is a PyG `HeteroData`."""
    return all(hasattr(data, name) for name in ("to_homogeneous", "node_types", "edge_types"))


def homogeneous(data: Any) -> Any:  # noqa: ANN401  # a PyG HeteroData → a Data
    """`data.to_homogeneous()`, with `node_type` and `edge_type`; labels and masks that a type lacks are -1 and False.

    `UserError` where PyG would drop an attribute (its width differs between types) or fill numbers in with NaN.
    """
    for relation in data.edge_types:
        sources, targets = (data[end].num_nodes for end in (relation[0], relation[2]))
        if (edges := data[relation].get("edge_index")) is not None:
            check_edges_between(f"edge_index of {relation}", edges, int(sources or 0), int(targets or 0))
    for stores, what in ((data.node_stores, "nodes"), (data.edge_stores, "edges")):
        for name in sorted({key for store in stores for key, value in store.items() if isinstance(value, Tensor)}):
            if not name.startswith(("edge_index", "adj")):
                _refuse_uneven(name, {str(store._key): store.get(name) for store in stores}, what)
    return data.to_homogeneous()


def ids_in_homogeneous(data: Any, input_nodes: Any) -> Any:  # noqa: ANN401  # as PyG's loaders take them
    """`("paper", mask or ids or None)` of a `HeteroData` as ids in one space; other forms are refused."""
    if not (isinstance(input_nodes, tuple) and len(input_nodes) == 2 and input_nodes[0] in data.node_types):
        raise UserError(
            "input_nodes of a HeteroData are of one of its node types",
            fix=f'give ("{data.node_types[0]}", mask or ids), or ("{data.node_types[0]}", None) for all of them',
        )
    name, given = input_nodes
    count = int(data[name].num_nodes)
    first = sum(int(data[each].num_nodes) for each in data.node_types[: data.node_types.index(name)])
    ids = torch.arange(count) if given is None else torch.as_tensor(given)
    if ids.dtype == torch.bool and ids.shape == (count,):
        ids = torch.nonzero(ids).reshape(-1)
    if ids.is_floating_point() or ids.dtype == torch.bool or (len(ids) and not 0 <= ids.min() <= ids.max() < count):
        raise UserError(
            f"input_nodes are {ids.dtype} {list(ids.shape)}, and there are {count} nodes of type {name}",
            fix=f"give a mask [{count}], or ids from 0 to {count - 1}",
        )
    return ids + first


def name_types(batch: Any, nodes: Sequence[NodeType], edges: Sequence[EdgeType]) -> None:  # noqa: ANN401  # a Data
    """What `batch.to_heterogeneous()` reads; not where a relation is of several types of nodes: it cannot take that."""
    if any(ANY in (each.source, each.target) for each in edges):
        return
    batch._node_type_names = [each.name for each in nodes]
    batch._edge_type_names = [tuple(each.relation) for each in edges]


def keep_names(batch: Any, data: Any) -> None:  # noqa: ANN401  # two PyG Data
    """The names of types that `to_homogeneous` has left in the whole graph's `Data`, on a batch of it."""
    for name in ("_node_type_names", "_edge_type_names"):
        if (known := data._store.__dict__.get(name)) is not None:
            setattr(batch, name, known)


def _refuse_uneven(name: str, by_type: Mapping[str, Tensor | None], what: str) -> None:
    given = [value for value in by_type.values() if value is not None]
    shapes = {key: "none" if value is None else list(value.shape[1:]) for key, value in by_type.items()}
    is_even = len({value.shape[1:] for value in given}) == 1
    is_whole = len(given) == len(by_type) or not any(value.is_floating_point() for value in given)
    if not (is_even and is_whole):
        raise UserError(
            f"{name} of the {what} differs between types, and a batch has one: {shapes}",
            fix=f"give every type a {name} of one width, for example through a linear layer of its own or filled up"
            f" with zeros, or delete it: del data[type].{name}",
        )
