"""A partitioned graph whose nodes have classes and splits, as prepared data: what planner and commands ask of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_checksum
from graphmill.partition.metadata import PartsMetadata
from graphmill.partition.parts import PartedGraph, Split, files_of, is_parts, read_parts_metadata
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.kinds.node_classification import GraphInfo
from graphmill.tasks.node_classification.store import LabelledGraphStore


def open_graph(path: Path) -> "LabelledGraphStore | PartedLabelledGraph":
    """The prepared graph in the folder `path`, whole or in parts."""
    return PartedLabelledGraph.open(path) if is_parts(path) else LabelledGraphStore.open(path)


class PreparedGraph:
    """What the kind names as its store: `open` gives the graph as it was prepared, whole or in parts."""

    open = staticmethod(open_graph)


@dataclass(frozen=True, slots=True)
class LabelsOfSplits:
    """Classes by node id, of the nodes in a split: searched for in what is mapped, so that no array is kept."""

    splits: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]  # of each split its nodes, ascending, and classes

    def __getitem__(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The class of each of `ids` [n], which are in a split."""
        classes = np.empty(len(ids), dtype=np.int64)
        for nodes, its_classes in self.splits:
            if len(nodes):
                places = np.searchsorted(nodes, ids).clip(max=len(nodes) - 1)
                here = np.flatnonzero(nodes[places] == ids)
                classes[here] = its_classes[places[here]]
        return classes


@dataclass(frozen=True, slots=True)
class PartedLabelledGraph:
    """A partitioned graph, of which the files that are on this host were looked at."""

    path: Path
    metadata: PartsMetadata

    @classmethod
    def open(cls, path: Path) -> "PartedLabelledGraph":
        """After checking the metadata, the book and the splits. Ranks check the parts that they read."""
        PartedGraph.open(path, parts=(), whole_topology=False)
        return cls(path, read_parts_metadata(path))

    def verify(self) -> None:
        """Read every file that is on this host and compare its checksum. `UserError` names the first that differs."""
        for name, record in self.metadata.arrays.items():
            if (self.path / name).parent.is_dir():
                check_checksum(self.path / f"{name}.npy", record)

    def info(self, asked: DatasetSpec) -> GraphInfo:
        """What the planner must know. `UserError` if a split that training needs is empty."""
        del asked  # whatever is done to a graph when it is read, its counts stay
        known = self.metadata
        for split in ("val", "test"):
            if not known.splits.get(split):
                raise UserError(
                    f"{known.name} has no {split} nodes, and the best checkpoint is chosen by val, judged by test",
                    fix="prepare it with such nodes, or with --random-split, and partition it again",
                )
        return GraphInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_nodes=known.num_nodes,
            num_edges=known.num_edges,
            num_features=known.num_features,
            num_classes=int(known.store["num_classes"]),
            num_train=known.splits["train"],
            has_sparse_features=known.has_sparse_features,
            edge_features=known.edge_features,
            num_parts=known.num_parts,
        )

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known = self.metadata
        here = [number for number in range(known.num_parts) if self._has(number)]
        splits = ", ".join(f"{name} {count:,}" for name, count in known.splits.items())
        return [
            ("nodes", known.num_nodes),
            ("edges", known.num_edges),
            ("features", f"{known.num_features:,} ({'sparse' if known.has_sparse_features else known.feature_dtype})"),
            ("classes", int(known.store["num_classes"])),
            ("split", splits),
            ("parts", known.num_parts),
            ("parts here", "all" if len(here) == known.num_parts else ", ".join(map(str, here)) or "none"),
            ("method", known.method),
            ("balanced", known.balance),
            *[(name.replace("_", " "), _shown(value)) for name, value in known.quality.items()],
        ]

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split."""
        return self._graph().nodes_in(split)

    @property
    def labels(self) -> LabelsOfSplits:
        """Classes of the nodes that are in a split."""
        graph = self._graph()
        splits: tuple[Split, ...] = ("train", "val", "test")
        return LabelsOfSplits(tuple((graph.nodes_in(split), graph.labels_in(split)) for split in splits))

    def _graph(self) -> PartedGraph:
        return PartedGraph(self.path, self.metadata, ())

    def _has(self, number: int) -> bool:
        names = files_of(self.metadata, [number], whole_topology=False)
        return all((self.path / f"{name}.npy").exists() for name in names)


def _shown(value: object) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return " · ".join(f"{each:,.4g}" if isinstance(each, float) else f"{each:,}" for each in values)
