"""A graph at rest: one folder of memory-mapped .npy arrays and the metadata that vouches for them.

Every rank of a host maps the same pages, so a graph is in memory once however many ranks read it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.arrays import check_arrays, map_array
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.metadata import SPLIT_CODES, StoreMetadata, read_metadata
from graphmill.graph.raw import RawGraph
from graphmill.graph.topology import Topology
from graphmill.graph.verify import verify_contents
from graphmill.graph.write import write_checked
from graphmill.spec.plan import GraphFacts

__all__ = [
    "DenseFeatures",
    "Features",
    "GraphStore",
    "RawGraph",
    "SparseFeatures",
    "StoreMetadata",
    "Topology",
    "write_store",
]


@dataclass(frozen=True, slots=True)
class GraphStore:
    """A prepared graph. Each access maps the files anew, which is cheap; keep what you read often."""

    path: Path
    metadata: StoreMetadata

    @classmethod
    def open(cls, path: Path) -> "GraphStore":
        """Open the folder `path` after checking metadata and the sizes, dtypes and shapes of all files.

        Contents are read only of files that changed since they were prepared: `verify` reads all.
        """
        metadata = read_metadata(path)
        check_arrays(path, metadata.arrays)
        return cls(path, metadata)

    def verify(self) -> None:
        """Read everything: checksums of all files, then what the arrays promise. `UserError` names the first breach."""
        verify_contents(self.path, self.metadata)

    def topology(self, *, undirected: bool) -> Topology:
        """In-neighbours as given, or the union of both directions of every edge."""
        prefix = "undirected_" if undirected and not self.metadata.is_symmetric else ""
        return Topology(indptr=self._array(f"{prefix}indptr"), indices=self._array(f"{prefix}indices"))

    @property
    def features(self) -> Features:
        """Features of all nodes, in ascending order of node id."""
        if self.metadata.has_sparse_features:
            return SparseFeatures(
                indptr=self._array("x_indptr"),
                indices=self._array("x_indices"),
                values=self._array("x_values"),
                num_features=self.metadata.num_features,
            )
        return DenseFeatures(self._array("x"), self.metadata.feature_dtype)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class of every node [num_nodes]; -1: unlabelled."""
        return self._array("y")

    def nodes_in(self, split: Literal["train", "val", "test"]) -> NDArray[np.int64]:
        """Ascending global ids of the nodes of a split."""
        return np.flatnonzero(self._array("split") == SPLIT_CODES[split]).astype(np.int64, copy=False)

    def facts(self) -> GraphFacts:
        """What the planner must know."""
        return GraphFacts(
            name=self.metadata.name,
            path=str(self.path.resolve()),
            checksum=self.metadata.checksum,
            synthetic=self.metadata.synthetic,
            num_nodes=self.metadata.num_nodes,
            num_edges=self.metadata.num_edges,
            num_features=self.metadata.num_features,
            num_classes=self.metadata.num_classes,
            num_train=self.metadata.splits["train"],
            has_sparse_features=self.metadata.has_sparse_features,
        )

    def _array(self, name: str) -> NDArray[Any]:
        return map_array(self.path / f"{name}.npy", self.metadata.arrays[name])


def write_store(raw: RawGraph, path: Path) -> GraphStore:
    """Check `raw`, build its topologies and write the folder `path`, whole or not at all.

    A store that is there is replaced. Leftovers of writers that were killed are removed.
    """
    return GraphStore(path, write_checked(raw, path))
