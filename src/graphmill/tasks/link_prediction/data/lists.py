"""The links of each split, what they are ranked among, names of nodes: of a graph that is stored whole, or in parts."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from graphmill.graph.header import Expected
from graphmill.graph.metadata import GraphMetadata
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.topology import index_dtype
from graphmill.tasks.link_prediction.data.links import (
    JUDGED,
    Candidates,
    GivenCandidates,
    Links,
    SharedCandidates,
    concatenated,
    is_among,
)
from graphmill.tasks.link_prediction.page import LinkInfo

OTHER_EDGES: Final = "other_edges"
"""Of a graph in parts: message edges [2, n] that are no training links."""
_DRAWS: Final = 100  # of a pair that is no link, before it is given up


def packed_names(names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a store: name_indptr [num_nodes + 1] and the bytes, name_bytes."""
    encoded = [name.encode(errors="surrogateescape") for name in names]
    indptr = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in encoded], out=indptr[1:])
    return {"name_indptr": indptr, "name_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8)}


def unpacked_names(indptr: NDArray[np.int64], text: NDArray[np.uint8], nodes: Iterable[int]) -> list[str]:
    """The names of these nodes."""
    return [text[indptr[node] : indptr[node + 1]].tobytes().decode(errors="replace") for node in nodes]


class LinkMetadata(GraphMetadata):
    """What prepared links say about themselves; counts of edges and of types of edges are of the message graph."""

    format_version: Literal[1] = 1
    split: str = Field(description="who drew the split")
    links: dict[Split, PositiveInt]
    links_have_direction: bool = Field(description="false: (u, v) and (v, u) are one link, and are there once")
    num_relations: NonNegativeInt = Field(
        description="the first so many edge types are the links' relations; 0: links have none"
    )
    candidates: Literal["all", "given", "shared"] = Field(
        description="what links of val and test are ranked among: all nodes, those given for each, or one pool of pairs"
    )

    def expected_arrays(self) -> Expected:
        """What the arrays of such data must be."""
        return GraphMetadata.expected_arrays(self) | self.expected_lists()

    def expected_lists(self) -> Expected:
        """Expected arrays that belong neither to a node nor to an edge of the message graph."""
        ids, rows = index_dtype(self.num_nodes).name, 3 if self.num_relations else 2
        expected: Expected = {f"{split}_links": (ids, (rows, count)) for split, count in self.links.items()}
        for split in JUDGED if self.candidates != "all" else ():
            expected |= self._expected_candidates(split, ids)
        if self.has_names:
            expected["name_indptr"] = ("int64", (self.num_nodes + 1,))
            expected["name_bytes"] = ("uint8", (self._extent("name_bytes", 0),))
        return expected

    def _expected_candidates(self, split: Split, ids: str) -> Expected:
        if self.candidates == "shared":
            return {f"{split}_pool": (ids, (2, self._extent(f"{split}_pool", 1)))}
        ends = ["target", "source"] if f"{split}_source_candidates" in self.arrays else ["target"]
        names = [f"{split}_{end}_candidates" for end in ends]
        return {name: (ids, (self.links[split], self._extent(name, 1))) for name in names}

    def _extent(self, name: str, axis: int) -> int:
        """How far an array reaches whose own record alone says so."""
        record = self.arrays.get(name)
        return record.shape[axis] if record is not None and len(record.shape) > axis else 0

    @property
    def has_names(self) -> bool:
        """Whether nodes have names."""
        return "name_indptr" in self.arrays

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if set(self.links) != set(SPLITS):
            return f"links are of {sorted(self.links)}, and should be of {', '.join(SPLITS)}"
        if self.num_relations > len(self.edge_types):
            return f"{self.num_relations} relations, and {len(self.edge_types)} edge types"
        return GraphMetadata.disagreement(self)


class LinkLists:
    """What prepared links have besides their message graph, read alike wherever that lies."""

    __slots__ = ()
    path: Path
    metadata: LinkMetadata

    def array(self, name: str) -> NDArray[Any]:
        """One of the metadata's arrays, mapped."""
        raise NotImplementedError

    def known_edges(self) -> NDArray[np.int64]:
        """Edges of the message graph [2, n] as given, whatever their type; those that are training links may lack."""
        raise NotImplementedError

    def links(self, split: Split) -> Links:
        """The links of a split, copied into memory."""
        return Links.of(self.array(f"{split}_links"))

    def candidates(self, split: Split) -> Candidates | None:
        """What the links of a split are ranked among, mapped; None: all nodes. Training links have none."""
        if self.metadata.candidates == "all" or split not in JUDGED:
            return None
        if self.metadata.candidates == "shared":
            return SharedCandidates(self.array(f"{split}_pool"))
        has_sources = f"{split}_source_candidates" in self.metadata.arrays
        sources = self.array(f"{split}_source_candidates") if has_sources else None
        return GivenCandidates(self.array(f"{split}_target_candidates"), sources)

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """All nodes [num_nodes], whatever the split: a vector is computed of each."""
        del split
        return np.arange(self.metadata.num_nodes, dtype=np.int64)

    def non_links(self, split: Split) -> Links:
        """A pair for each link of a split, with the same source, that is not a link of any split; equal at each call.

        Where none was found, as for a node that is joined to all, the last that was drawn.
        """
        links, num_nodes = self.links(split), self.metadata.num_nodes
        every = concatenated([self.links(each) for each in SPLITS])
        rng = np.random.default_rng(SPLITS.index(split))
        targets, left = np.zeros(len(links), dtype=np.int64), np.arange(len(links))
        for _ in range(_DRAWS):
            targets[left] = rng.integers(0, num_nodes, len(left))
            drawn = Links(links.sources, targets, links.relations).taken(left)
            is_link = is_among(drawn, every, num_nodes, have_direction=self.metadata.links_have_direction)
            left = left[is_link | (drawn.sources == drawn.targets)]
            if not len(left):
                break
        return Links(links.sources, targets, links.relations)

    @property
    def relation_names(self) -> tuple[str, ...]:
        """Names of the links' relations, by number; none of links without."""
        return tuple(each.name for each in self.metadata.edge_types[: self.metadata.num_relations])

    def names_of(self, nodes: Iterable[int]) -> list[str]:
        """Names of these nodes; their ids as text if the data have no names."""
        if not self.metadata.has_names:
            return [str(node) for node in nodes]
        return unpacked_names(self.array("name_indptr"), self.array("name_bytes"), nodes)


def link_info(path: Path, known: LinkMetadata, *, has_sparse_features: bool, num_parts: int | None) -> LinkInfo:
    """What the planner must know of prepared links. `num_parts`: None if their message graph is stored whole."""
    return LinkInfo(
        name=known.name,
        path=str(path.resolve()),
        checksum=known.checksum,
        synthetic=known.synthetic,
        num_train=known.links["train"],
        num_nodes=known.num_nodes,
        num_edges=known.num_edges,
        num_features=known.num_features,
        num_relations=known.num_relations,
        links=dict(known.links),
        links_have_direction=known.links_have_direction,
        candidates=known.candidates,
        has_sparse_features=has_sparse_features,
        scales_differ=known.scales_differ,
        edge_features=known.edge_features,
        edge_types=known.relation_names,
        node_types=known.node_type_names,
        type_columns=known.type_columns,
        num_parts=num_parts,
    )
