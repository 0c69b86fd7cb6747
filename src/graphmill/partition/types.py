"""How the types of a typed graph are spread over its parts: nodes of each type, and cut edges of each relation."""

from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from graphmill.graph.store import GraphStore
from graphmill.partition.methods.files import row_blocks
from graphmill.partition.problem import Parts
from graphmill.partition.streams import ArrayReader

_ENTRIES_AT_A_TIME: Final = 2**22


class TypesInParts(BaseModel):
    """Measured when the parts were made; in the order of the types."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[tuple[NonNegativeInt, ...], ...] = Field(description="of each type, in each part")
    cut_edges: tuple[NonNegativeInt, ...] = Field(description="of each relation, between nodes of two parts")

    def disagreement(self, num_nodes: tuple[int, ...], num_edges: tuple[int, ...], num_parts: int) -> str | None:
        """How counts by type contradict the numbers of nodes and edges of each type, or None."""
        whole = tuple(sum(of_type) for of_type in self.nodes)
        if whole != num_nodes or any(len(of_type) != num_parts for of_type in self.nodes):
            return f"the parts hold {whole} nodes of the types, and the graph {num_nodes}"
        if len(self.cut_edges) != len(num_edges) or any(
            cut > count for cut, count in zip(self.cut_edges, num_edges, strict=True)
        ):
            return f"{self.cut_edges} edges of the relations are cut, and there are {num_edges}"
        return None


def types_in_parts(store: GraphStore, parts: Parts, num_parts: int) -> TypesInParts | None:
    """Nodes and cut edges of each type, where node n of a store is in `parts[n]`; None if the graph has no types."""
    nodes, edges = store.metadata.node_types, store.metadata.edge_types
    if not edges:
        return None
    pairs = np.bincount(store.node_type.astype(np.int64) * num_parts + parts, minlength=len(nodes) * num_parts)
    topology, cut = store.topology(undirected=False), np.zeros(len(edges), dtype=np.int64)
    with ArrayReader(store.path / "edge_attr.npy", store.metadata.arrays["edge_attr"]) as features:
        for start, stop in row_blocks(topology.indptr, _ENTRIES_AT_A_TIME):
            first, last = int(topology.indptr[start]), int(topology.indptr[stop])
            owners = np.repeat(parts[start:stop], np.diff(topology.indptr[start : stop + 1]))
            is_cut = parts[topology.indices[first:last]] != owners
            column = features.read(last - first)[:, -1]
            cut += np.bincount(column[is_cut].astype(np.int64), minlength=len(edges))
    by_type = tuple(map(tuple, pairs.reshape(len(nodes), num_parts).tolist()))
    return TypesInParts(nodes=by_type, cut_edges=tuple(cut.tolist()))
