"""Graphs whose nodes and edges have types, in one space of node ids and one list of edges.

As DGL's and PyG's `to_homogeneous` lay out a heterogeneous graph, and as DistDGL partitions it: whatever works on a
graph works on a typed one. The type of a node is an array of the store, that of an edge the last column of its
features. Two edges between the same nodes are two if their types differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.topology import EdgeIds, Topology, topology_from_keys, unsorted_keys
from graphmill.spec.typed_graph import EDGE_TYPE

if TYPE_CHECKING:
    from graphmill.graph.raw import RawGraph

    R = TypeVar("R", bound=RawGraph)

ANY: Final = "*"
"""Stand-in for a node type: edges of a relation have ends of several."""
MAX_TYPES: Final = 2**15
_REVERSE: Final = "rev_"
_SHOWN: Final = 6  # edge types that a line of facts has room for


class Relation(NamedTuple):
    """A type of edges: between which types of nodes, and what it is called."""

    source: str
    name: str
    target: str

    def __str__(self) -> str:
        return ":".join(self)


class NodeType(BaseModel):
    """A type of nodes in metadata.json; its number is its place there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_nodes: NonNegativeInt
    columns: tuple[NonNegativeInt, NonNegativeInt] | None = Field(
        None, description="which columns of the features are its own, from the first to before the last; absent: all"
    )

    @model_serializer(mode="wrap")
    def _without_absent_columns(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise without `columns` if there are none: checksums of earlier stores were computed without it."""
        known: dict[str, Any] = handler(self)
        if self.columns is None:
            known.pop("columns", None)
        return known


class EdgeType(BaseModel):
    """A type of edges in metadata.json; its number is its place there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(description="type of the nodes that its edges come from; *: several")
    name: str
    target: str = Field(description="type of the nodes that its edges go to; *: several")
    num_edges: NonNegativeInt = Field(description="repeated ones merged")

    @property
    def relation(self) -> Relation:
        """Relation of this type, without the number of its edges."""
        return Relation(self.source, self.name, self.target)


class _HasTypes(Protocol):
    @property
    def node_types(self) -> tuple[NodeType, ...]: ...
    @property
    def edge_types(self) -> tuple[EdgeType, ...]: ...


class NamedTypes:
    """Names of types, for metadata that have `node_types` and `edge_types`: of a store, and of its parts."""

    @property
    def node_type_names(self: _HasTypes) -> tuple[str, ...]:
        """Names of the types of nodes, in the order of their numbers; none for a graph without types."""
        return tuple(each.name for each in self.node_types)

    @property
    def type_columns(self: _HasTypes) -> tuple[tuple[int, int], ...]:
        """Which columns of the features are each node type's own; () if types share them."""
        found = [each.columns for each in self.node_types]
        return tuple(each for each in found if each is not None)

    @property
    def relation_names(self: _HasTypes) -> tuple[str, ...]:
        """Types of edges as "source:name:target", in the order of their numbers; none of a graph without types."""
        return tuple(str(each.relation) for each in self.edge_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTypes:
    """The types of a graph in memory, not yet checked."""

    node_type: NDArray[np.integer[Any]]  # [num_nodes]: places in node_names
    node_names: tuple[str, ...]
    edge_type: NDArray[np.integer[Any]]  # [num_edges]: places in relations
    relations: tuple[Relation, ...]
    columns: tuple[tuple[int, int], ...] = ()  # of each node type: its own features; (): all types share all


def type_dtype(num_types: int) -> np.dtype[Any]:
    """The dtype of the types of nodes."""
    return np.dtype(np.int8 if num_types <= 2**7 else np.int16)


def raw_types_problem(types: RawTypes, num_nodes: int, edge_index: NDArray[Any]) -> str | None:
    """Why types do not fit a graph, or None."""
    given = (("node", types.node_type, types.node_names), ("edge", types.edge_type, types.relations))
    for (what, numbers, names), count in zip(given, (num_nodes, edge_index.shape[1]), strict=True):
        if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
            return f"{what}_type is {numbers.dtype} {list(numbers.shape)}, and there are {count} {what}s"
        if not 0 < len(names) <= MAX_TYPES or len(set(names)) != len(names):
            return f"{len(names)} {what} types, of which {len(set(names))} differ (1 to {MAX_TYPES}, each once)"
        outside = np.flatnonzero((numbers < 0) | (numbers >= len(names)))
        if len(outside):
            return f"{what} {outside[0]} is of type {numbers[outside[0]]}, and there are {len(names)} {what} types"
    return ends_problem(types.relations, types.node_names, types.node_type[edge_index], types.edge_type)


def ends_problem(
    relations: Sequence[Relation], node_names: Sequence[str], of_ends: NDArray[Any], edge_type: NDArray[Any]
) -> str | None:
    """Which edge joins nodes that its relation does not, or None. `of_ends`: types of its nodes [2, num_edges]."""
    if problem := unknown_ends(relations, node_names):
        return problem
    numbers = {ANY: -1} | {name: number for number, name in enumerate(node_names)}
    for column, end in enumerate(("source", "target")):
        wanted = np.array([numbers[getattr(relation, end)] for relation in relations])[edge_type]
        wrong = np.flatnonzero((wanted >= 0) & (wanted != of_ends[column]))
        if len(wrong):
            edge = int(wrong[0])
            found, relation = node_names[of_ends[column, edge]], relations[edge_type[edge]]
            return f"edge {edge} is of type {relation}, and its {end} is of type {found}"
    return None


def unknown_ends(relations: Sequence[Relation], node_names: Sequence[str]) -> str | None:
    """Which relation names a type of nodes that is not there, or None."""
    known = {ANY, *node_names}
    strange = next((each for each in relations if not {each.source, each.target} <= known), None)
    return None if strange is None else f"{strange} is between types of nodes, which are {', '.join(node_names)}"


def named_relations(
    names: Sequence[str], edge_type: NDArray[Any], of_ends: NDArray[Any], node_names: Sequence[str]
) -> tuple[Relation, ...]:
    """Relations of which names alone are known: between two types of nodes if all their edges are, else any."""
    found = []
    for number, name in enumerate(names):
        ends = [np.unique(of_end[edge_type == number]) for of_end in of_ends]
        source, target = (node_names[each[0]] if len(each) == 1 else ANY for each in ends)
        found.append(Relation(source, name, target))
    return tuple(found)


def typed_topology(edge_index: NDArray[Any], edge_type: NDArray[Any], num_nodes: int) -> tuple[Topology, EdgeIds]:
    """The topology of typed edges, and which of `edge_index` [2, num_edges] each entry is.

    A row ascends by neighbour, then by type; of repeated edges of one type the first is kept.
    """
    keys = unsorted_keys(edge_index, num_nodes)
    order = np.lexsort((edge_type, keys))
    keys, types = keys[order], edge_type[order]
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = (keys[1:] != keys[:-1]) | (types[1:] != types[:-1])
    return topology_from_keys(keys[is_first], num_nodes), order[is_first]


def neighbours_and_types(indices: NDArray[Any], types: NDArray[Any], num_types: int) -> NDArray[np.int64]:
    """A number for each entry of a typed topology that ascends strictly within its rows [num_entries]."""
    return indices.astype(np.int64) * num_types + types.astype(np.int64)


def column_problem(
    relations: Sequence[Relation], node_names: Sequence[str], of_ends: NDArray[Any], column: NDArray[np.float32]
) -> str | None:
    """Why types do not fit edges, or None. `of_ends`: the types of their nodes [2, num_edges]."""
    is_type = (column >= 0) & (column < len(relations)) & (column == np.floor(column))
    if not is_type.all():
        edge = int(np.argmin(is_type))
        return f"edge {edge} is of type {column[edge]}, and there are {len(relations)} edge types"
    return ends_problem(relations, node_names, of_ends, column.astype(np.int64))


def with_type_column(edge_features: EdgeRows | None, edge_type: NDArray[Any]) -> EdgeRows:
    """Features of edges, and their types as the last column; float32 holds whole numbers exactly up to 2^24."""
    column = edge_type.astype(np.float32).reshape(-1, 1)
    return column if edge_features is None else np.concatenate([edge_features, column], axis=1)


def column_names(edge_features: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the columns of a typed graph. `UserError` if one is called as the column of types is."""
    if EDGE_TYPE in edge_features:
        raise UserError(
            f"a feature of edges is called {EDGE_TYPE}, and edges have types", fix="give the feature another name"
        )
    return (*edge_features, EDGE_TYPE)


def with_reverse(raw: "R") -> "R":
    """The graph with every edge in the other direction as well, as an edge of the relation rev_NAME.

    As PyG's `ToUndirected(merge=False)`. `UserError` if the graph has no types, or a relation of that name.
    """
    types = raw.types
    if types is None:
        raise UserError(
            f"{raw.name} has no edge types, so no relation to reverse",
            fix="leave reverse_relations out; without types dataset.undirected gives both directions",
        )
    other = tuple(Relation(each.target, f"{_REVERSE}{each.name}", each.source) for each in types.relations)
    if there := set(other) & set(types.relations):
        raise UserError(
            f"{raw.name} has the relation {min(there)} already", fix="leave reverse_relations out, or rename it"
        )
    both = np.concatenate([types.edge_type.astype(np.int64), types.edge_type.astype(np.int64) + len(other)])
    return replace(
        raw,
        edge_index=np.concatenate([raw.edge_index, raw.edge_index[::-1]], axis=1),
        edge_features=None if raw.edge_features is None else np.concatenate([raw.edge_features] * 2),
        types=replace(types, edge_type=both, relations=(*types.relations, *other)),
    )


def describe_types(nodes: Sequence[NodeType], edges: Sequence[EdgeType]) -> list[tuple[str, str]]:
    """Rows for a table of facts: the number of nodes and edges of each type; none for a graph without types."""
    if not edges:
        return []
    most = sorted(edges, key=lambda each: -each.num_edges)[:_SHOWN]
    more = ", …" if len(edges) > _SHOWN else ""
    return [
        ("node types", ", ".join(f"{each.name} {each.num_nodes:,}" for each in nodes)),
        ("edge types", f"{len(edges)}: " + ", ".join(f"{each.relation} {each.num_edges:,}" for each in most) + more),
    ]
