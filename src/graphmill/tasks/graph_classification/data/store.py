"""A prepared set of graphs, each with a class and a split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.graph.arrays import refuse_beyond
from graphmill.graph.features import DenseFeatures
from graphmill.graph.graph_set import GraphSet, arrays_of_graphs
from graphmill.graph.header import Expected, Header
from graphmill.graph.keys import drawn
from graphmill.graph.prepared import PreparedStore
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.statistics import scales_differ
from graphmill.sample.budget import Budget, pack
from graphmill.tasks.graph_classification.data.folds import SPLIT_CODES, in_folds
from graphmill.tasks.graph_classification.page import KIND, GraphSetDatasetSpec, GraphSetInfo, refuse_absent_fold


class GraphSetMetadata(Header):
    """What prepared graphs say about themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    came_later: ClassVar[tuple[str, ...]] = ("scales_differ",)

    format_version: Literal["graphs/1"] = "graphs/1"
    source: str = Field(description="where the graphs came from, and what was done to them on the way")
    split: str = Field(description="who drew the split")
    num_graphs: PositiveInt
    num_nodes: NonNegativeInt
    num_edges: NonNegativeInt = Field(description="directed")
    max_nodes: NonNegativeInt = Field(description="of one graph")
    max_edges: NonNegativeInt = Field(description="of one graph")
    num_features: PositiveInt
    num_edge_features: NonNegativeInt
    num_classes: PositiveInt
    scales_differ: bool = Field(False, description="features are no counts, and their columns of unlike scale")
    class_names: tuple[str, ...] = Field(description="one per class, or none at all")

    def expected_arrays(self) -> Expected:
        """What the arrays must be."""
        widths = self.num_features, self.num_edge_features
        own: Expected = {"y": ("int64", (self.num_graphs,)), "split": ("int8", (self.num_graphs,))}
        return arrays_of_graphs(self.num_graphs, self.num_nodes, self.num_edges, *widths) | own

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := super().disagreement():
            return problem
        if self.class_names and len(self.class_names) != self.num_classes:
            return f"{len(self.class_names)} class names for {self.num_classes} classes"
        return None


@dataclass(frozen=True, slots=True)
class RawGraphs:
    """What is to be written."""

    name: str
    source: str
    synthetic: bool
    graphs: GraphSet
    labels: NDArray[np.int64]  # [num_graphs], from 0
    class_names: tuple[str, ...]
    split: NDArray[np.int8]  # [num_graphs]: SPLIT_CODES
    split_note: str


@dataclass(frozen=True, slots=True)
class GraphSetStore(PreparedStore):
    """Prepared graphs."""

    metadata: GraphSetMetadata

    kind = KIND.name
    own_part = GraphSetMetadata

    @property
    def graphs(self) -> GraphSet:
        """All graphs, mapped."""
        return GraphSet.mapped(self.path, self.metadata.arrays)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class of every graph [num_graphs]."""
        found = self.array("y")
        refuse_beyond(self.path / "y.npy", found, self.metadata.num_classes)
        return found

    def split_codes(self, spec: GraphSetDatasetSpec) -> NDArray[np.int8]:
        """Split of every graph [num_graphs], as it was prepared or by folds."""
        if spec.fold is not None:
            refuse_absent_fold(spec)
            return in_folds(np.asarray(self.labels), spec.folds, spec.fold, spec.fold_seed)
        return np.asarray(self.array("split"))

    def num_batches(
        self, spec: GraphSetDatasetSpec, *, rng_seed: int, max_nodes: int, max_edges: int, ranks: int
    ) -> int:
        """`tasks.stores.CutsByBudget`."""
        ids = ids_in(self.split_codes(spec), "train")
        ids = drawn(ids, len(ids) if spec.train_limit is None else spec.train_limit, rng_seed)
        return pack(Budget(max_nodes, max_edges).costs_of(self.graphs, ids), ranks).num_batches

    def info(self, spec: GraphSetDatasetSpec) -> GraphSetInfo:
        """What the planner must know. `UserError` if a split is empty, or there is no such fold."""
        known, codes = self.metadata, self.split_codes(spec)
        counts = {split: int(np.count_nonzero(codes == SPLIT_CODES[split])) for split in SPLITS}
        if empty := [split for split in SPLITS if not counts[split]]:
            raise UserError(
                f"{known.name} has no graph in {', '.join(empty)}",
                fix="prepare it with such graphs, or set dataset.fold and fewer dataset.folds",
            )
        return GraphSetInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=counts["train"],
            num_graphs=known.num_graphs,
            num_nodes=known.num_nodes,
            num_edges=known.num_edges,
            max_nodes=known.max_nodes,
            max_edges=known.max_edges,
            num_features=known.num_features,
            num_edge_features=known.num_edge_features,
            num_classes=known.num_classes,
            scales_differ=known.scales_differ,
        )

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known, codes, labels = self.metadata, self.split_codes(GraphSetDatasetSpec()), np.asarray(self.labels)
        counts = np.bincount(labels, minlength=known.num_classes)
        splits = ", ".join(f"{name} {np.count_nonzero(codes == SPLIT_CODES[name]):,}" for name in SPLITS)
        return [
            ("graphs", known.num_graphs),
            ("nodes", f"{known.num_nodes:,}; {_of_sizes(np.diff(self.graphs.node_offsets))}"),
            ("edges", f"{known.num_edges:,}; {_of_sizes(np.diff(self.graphs.edge_offsets))}"),
            ("features", known.num_features),
            *([("scales of features", "columns differ: standardised by default")] if known.scales_differ else []),
            *([("edge features", known.num_edge_features)] if known.num_edge_features else []),
            ("classes", f"{known.num_classes}, {counts.min():,} to {counts.max():,} graphs each"),
            ("split", f"{splits} ({known.split})"),
        ]


def ids_in(codes: NDArray[np.int8], split: Split) -> NDArray[np.int64]:
    """Ascending numbers of the graphs of a split."""
    return np.flatnonzero(codes == SPLIT_CODES[split]).astype(np.int64, copy=False)


def write_graphs(raw: RawGraphs, path: Path) -> GraphSetStore:
    """Write the folder `path`, whole or not at all; an existing store is replaced."""
    nodes, edges = np.diff(raw.graphs.node_offsets), np.diff(raw.graphs.edge_offsets)
    metadata = GraphSetMetadata(
        kind=KIND.name,
        name=raw.name,
        synthetic=raw.synthetic,
        arrays={},
        source=raw.source,
        split=raw.split_note,
        num_graphs=len(nodes),
        num_nodes=int(nodes.sum()),
        num_edges=int(edges.sum()),
        max_nodes=int(nodes.max()),
        max_edges=int(edges.max()),
        num_features=raw.graphs.x.shape[1],
        num_edge_features=raw.graphs.edge_attr.shape[1],
        num_classes=int(raw.labels.max()) + 1,
        scales_differ=scales_differ(DenseFeatures(np.asarray(raw.graphs.x), "float32")),
        class_names=raw.class_names,
    )
    return GraphSetStore.write(path, {**raw.graphs.arrays, "y": raw.labels, "split": raw.split}, metadata)


def _of_sizes(sizes: NDArray[np.int64]) -> str:
    return f"{sizes.min():,} to {sizes.max():,} of a graph, median {np.median(sizes):,.0f}"
