"""A partitioned graph whose nodes have classes and splits, as prepared data: what planner and commands ask of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.splits import Split
from graphmill.partition.metadata import PartsMetadata
from graphmill.partition.parts import LabelsOfSplits, PartedGraph, is_parts, read_parts_metadata
from graphmill.partition.verify import verify_parts
from graphmill.spec.experiment import DatasetSpec
from graphmill.tasks.node_classification.data.store import (
    LabelledGraphStore,
    graph_info,
    refuse_empty_splits,
    refuse_unlabelled,
)
from graphmill.tasks.node_classification.page import KIND, GraphInfo


def open_graph(path: Path) -> "LabelledGraphStore | PartedLabelledGraph":
    """The prepared graph in the folder `path`, whole or in parts."""
    return PartedLabelledGraph.open(path) if is_parts(path) else LabelledGraphStore.open(path)


def open_labels(path: Path) -> "LabelledGraphStore | PartedLabelledGraph":
    """Open a graph, whole or in parts, of which only classes and splits are read: other files need not be here."""
    return PartedLabelledGraph.open(path) if is_parts(path) else LabelledGraphStore.open_labels(path)


class PreparedGraph:
    """What the kind names as its store: `open` gives the graph as it was prepared, whole or in parts."""

    open = staticmethod(open_graph)


@dataclass(frozen=True, slots=True)
class PartedLabelledGraph:
    """A partitioned graph, of which the files that are on this host were looked at."""

    path: Path
    metadata: PartsMetadata

    @classmethod
    def open(cls, path: Path) -> "PartedLabelledGraph":
        """Open a graph after checking the metadata, the book and the splits. Ranks read those and check their parts."""
        known = read_parts_metadata(path, KIND.name)
        PartedGraph.open(path, parts=(), whole_topology=False, reads_index=False)
        return cls(path, known)

    def verify(self) -> None:
        """Read all parts that are here, and what all ranks read. `UserError` names the first breach."""
        verify_parts(PartedGraph.open_what_is_here(self.path))

    def info(self, spec: DatasetSpec) -> GraphInfo:
        """What the planner must know. `UserError` if a split that training needs is empty."""
        del spec  # whatever is done to a graph when it is read, its counts stay
        num_classes, num_parts = int(self.metadata.store["num_classes"]), self.metadata.num_parts
        refuse_unlabelled(self.metadata.name, num_classes)
        refuse_empty_splits(self.metadata.name, self.metadata.splits)
        return graph_info(self.path, self.metadata, num_classes=num_classes, num_parts=num_parts)

    def described(self) -> Sequence[tuple[str, Any]]:
        """What every graph says of itself; `inspect` shows a partition with its quality, part by part."""
        known = self.metadata
        return [("nodes", known.num_nodes), ("edges", known.num_edges), ("parts", known.num_parts)]

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""
        return self._graph().nodes_in(split)

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node [num_nodes] of a typed graph."""
        return self._graph().node_type

    @property
    def labels(self) -> LabelsOfSplits:
        """Classes of the nodes that are in a split."""
        return self._graph().labels

    def _graph(self) -> PartedGraph:
        return PartedGraph(self.path, self.metadata, ())
