"""A partitioned message graph with the links of each split, as prepared data: what planner, commands and ranks ask."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.topology import index_dtype
from graphmill.partition.metadata import PartsMetadata, again, is_parts, read_parts_metadata
from graphmill.partition.parts import PartedGraph
from graphmill.partition.verify import verify_parts
from graphmill.spec.experiment import DatasetSpec
from graphmill.tasks.link_prediction.data.lists import OTHER_EDGES, LinkLists, LinkMetadata, link_info
from graphmill.tasks.link_prediction.data.store import LinkStore
from graphmill.tasks.link_prediction.page import LinkInfo
from graphmill.tasks.link_prediction.page.data import NAME


def open_links(path: Path) -> "LinkStore | PartedLinkStore":
    """The prepared links in the folder `path`, whose message graph is whole or in parts."""
    return PartedLinkStore.open(path) if is_parts(path) else LinkStore.open(path)


class PreparedLinks:
    """What the kind names as its store: `open` gives the links as they were prepared, whole or in parts."""

    open = staticmethod(open_links)


@dataclass(frozen=True, slots=True)
class PartedLinkStore(LinkLists):
    """Links whose message graph is in parts. The lists are whole on every host, and mapped."""

    path: Path
    metadata: LinkMetadata  # as of the whole, but for its arrays, which are the lists, and its checksum, the parts'
    parts: PartsMetadata

    @classmethod
    def open(cls, path: Path) -> "PartedLinkStore":
        """Open links after checking the metadata, the book and the lists. Ranks check their parts."""
        parts = read_parts_metadata(path, NAME)
        PartedGraph.open(path, parts=(), whole_topology=False, reads_index=False)
        known = LinkMetadata(
            kind=parts.kind,
            name=parts.name,
            checksum=parts.checksum,
            synthetic=parts.synthetic,
            arrays=dict(parts.lists),
            **parts.store,
        )
        _check_lists(path, known, parts)
        return cls(path, known, parts)

    def array(self, name: str) -> NDArray[Any]:
        """One of the lists, mapped."""
        return PartedGraph(self.path, self.parts, ()).list_of(name)

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node [num_nodes] of a typed graph."""
        return PartedGraph(self.path, self.parts, ()).node_type

    def known_edges(self) -> NDArray[np.int64]:
        """Message edges that are not training links."""
        return self.array(OTHER_EDGES).astype(np.int64)

    def verify(self) -> None:
        """Read all parts that are here, and what all ranks read. `UserError` names the first breach."""
        verify_parts(PartedGraph.open_what_is_here(self.path))

    def info(self, spec: DatasetSpec) -> LinkInfo:
        """What the planner must know."""
        del spec  # whatever is done to features when they are read, the counts stay
        is_sparse, num_parts = self.parts.has_sparse_features, self.parts.num_parts
        return link_info(self.path, self.metadata, has_sparse_features=is_sparse, num_parts=num_parts)

    def described(self) -> Sequence[tuple[str, Any]]:
        """What every graph says of itself; `inspect` shows a partition with its quality, part by part."""
        known = self.metadata
        return [("nodes", known.num_nodes), ("message edges", known.num_edges), ("parts", self.parts.num_parts)]


def _check_lists(path: Path, known: LinkMetadata, parts: PartsMetadata) -> None:
    """`UserError` unless the folder has the lists that such links have, each of its dtype and shape."""
    found = {name: (record.dtype, record.shape) for name, record in known.arrays.items()}
    others = known.arrays.get(OTHER_EDGES)
    count = others.shape[-1] if others is not None and others.shape else 0
    expected = known.expected_lists() | {OTHER_EDGES: (index_dtype(known.num_nodes).name, (2, count))}
    if found != expected:
        raise UserError(f"{path}: lists are {found}, and should be {expected}", fix=again(parts, path))
